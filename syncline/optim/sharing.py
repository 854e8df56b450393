"""One copy of parameters and states for all workers, as long as these are equal; see `syncline.comm.copies`.

If gradients are averaged in every step, workers that start equal stay equal. The method then stores one copy of the
parameters and of the rule's states, and computes each update once. Tensors that a reducer keeps for each worker, such
as errors, have one row per worker. When workers begin to differ, all tensors get one row per worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from syncline.comm import expand_rows, rows_share_memory, separate_rows, share_equal_rows, shared_row
from syncline.optim.base import ParamRow, UpdateRule
from syncline.optim.quantisers import at_least_fp32


class SharedRows:
    """Parameters that are equal on all workers, stored once and updated by one computation for all workers.

    Attributes:
        state_names: names of the states that the update rule keeps for each parameter, by parameter index.
    """

    def __init__(self) -> None:
        self.state_names: dict[int, tuple[str, ...]] = {}
        self._views: dict[int, _SharedRowViews] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: no views, because these are of this object's parameters."""
        return {"state_names": self.state_names, "_views": {}}

    def share_param(self, param_index: int, p: Tensor, state: dict[str, Tensor], rule: UpdateRule) -> None:
        """Store a parameter and its states a single time for all workers if the parameter is equal on all of them."""
        p.data = share_equal_rows(p.data)
        if state and param_index not in self.state_names:  # the state was loaded, not created by the method
            one_row = torch.empty_like(p[:1], device="meta")
            self.state_names[param_index] = tuple(rule.init(one_row, param_index))
        for name in self.state_names.get(param_index, ()):
            if name in state:
                state[name] = share_equal_rows(state[name])

    def row_for_rule(self, row: ParamRow) -> ParamRow:
        """Return a parameter with the tensors that its update rule reads and writes.

        If all workers share the memory of gradient, parameter and states, the tensors are ``(1, *s)``, so that the rule
        computes once. Otherwise they are ``(R, *s)``, with separate states for each worker.
        """
        if row.g.size(0) == 1:  # a single worker
            return row
        if rows_share_memory(row.g):
            views = self._views.get(row.param_index)
            if views is None or not views.are_of(row):
                views = _SharedRowViews(row, self.state_names.get(row.param_index, ()))
                self._views[row.param_index] = views
            if views.all_share_memory:
                return row._replace(x=views.x, g=shared_row(row.g), state=views.state.copy())
        # The workers differ in some tensor: each worker needs separate states.
        for name in self.state_names.get(row.param_index, ()):
            row.state[name] = separate_rows(row.state[name])
        return row


class _SharedRowViews:
    """Views ``(1, *s)`` of the first worker's part of a parameter and its states.

    An update that is the same for all workers is computed with these views. They are valid as long as the parameter has
    the same tensors.

    Attributes:
        x: view of the parameter.
        state: view of each state, by name.
        all_share_memory: whether the parameter and its states are each stored once for all workers.
    """

    def __init__(self, row: ParamRow, state_names: Iterable[str]) -> None:
        """Take views of the first worker's part of a parameter and of the named states."""
        self._viewed_states = {name: row.state[name] for name in state_names if name in row.state}
        # Keep the address of x, because ``p.data = ...`` gives the same parameter other memory.
        self._x_address, self._is_x_shared = row.x.data_ptr(), rows_share_memory(row.x)
        are_states_shared = all(rows_share_memory(tensor) for tensor in self._viewed_states.values())
        self.all_share_memory = self._is_x_shared and are_states_shared
        self.x = shared_row(row.x)
        self.state = {name: shared_row(tensor) for name, tensor in self._viewed_states.items()}

    def are_of(self, row: ParamRow) -> bool:
        """Return whether the parameter still has the tensors of these views."""
        if row.x.data_ptr() != self._x_address or rows_share_memory(row.x) != self._is_x_shared:
            return False
        return all(row.state.get(name) is tensor for name, tensor in self._viewed_states.items())


def store_states(row: ParamRow, rule_row: ParamRow) -> None:
    """Store the new tensors ``(1, *s)`` that a rule made instead of changing its states, for all workers.

    Args:
        row: the parameter with tensors ``(R, *s)``, whose states change.
        rule_row: the parameter as the rule has updated it, see ``SharedRows.row_for_rule``.
    """
    for name, tensor in rule_row.state.items():
        if name not in row.state or tensor.data_ptr() != row.state[name].data_ptr():
            row.state[name] = expand_rows(tensor, num_rows=len(row.x))


def group_by_hyperparameters(rows: Sequence[ParamRow], names: Sequence[str]) -> list[list[int]]:
    """Return the indices of ``rows`` in lists of rows with equal values of the named hyperparameters."""
    distinct_values: list[list[Any]] = []  # lists and tensors cannot be keys of a dictionary
    indices_by_values: list[list[int]] = []
    for index, row in enumerate(rows):
        values = [row.group[name] for name in names]
        if values not in distinct_values:
            distinct_values.append(values)
            indices_by_values.append([])
        indices_by_values[distinct_values.index(values)].append(index)
    return indices_by_values


def apply_directions(rows: Sequence[ParamRow], directions: Sequence[Tensor | None]) -> None:
    """Move parameters in place: ``x <- (1 - lr weight_decay) x - lr d``, with d the direction of a row.

    Parameters with equal learning rate and weight decay move in one call. A parameter whose direction is None does not
    move.
    """
    moves = [(row, d) for row, d in zip(rows, directions, strict=True) if d is not None]
    for indices in group_by_hyperparameters([row for row, _ in moves], ("lr", "weight_decay")):
        tensors_and_directions = [_tensor_and_direction(*moves[index]) for index in indices]
        xs = [x for x, _ in tensors_and_directions]
        first_row, _ = moves[indices[0]]
        apply_weight_decay(xs, first_row.group)
        torch._foreach_add_(xs, [d for _, d in tensors_and_directions], alpha=-first_row.group["lr"])


def apply_weight_decay(xs: list[Tensor], group: Mapping[str, Any]) -> None:
    """Apply decoupled weight decay: ``x <- (1 - lr weight_decay) x``."""
    if group["weight_decay"]:
        torch._foreach_mul_(xs, 1 - group["lr"] * group["weight_decay"])


def _tensor_and_direction(row: ParamRow, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tensor to move and its direction, ``(1, *s)`` if both are equal on all workers, else ``(R, *s)``.

    A parameter that is stored once for all workers gets separate memory for each if their directions differ.
    """
    x = row.x
    is_stored_once = x.size(0) > 1 and x.stride(0) == 0
    if is_stored_once:
        if rows_share_memory(d):
            return shared_row(x), shared_row(d)
        x.data = separate_rows(x.data)
    return x, d


def clip_gradients(rows: list[ParamRow], radius: float) -> list[ParamRow]:
    """Return the rows with each worker's gradient g clipped: ``g min(1, radius / (||g|| + 1e-6))``, as torch does.

    The norm is over all parameters together.
    """
    if not rows:
        return rows
    all_share_memory = all(rows_share_memory(row.g) for row in rows)
    gradients = [shared_row(row.g) if all_share_memory else row.g for row in rows]
    # (R,) for each parameter; in half precision a square would overflow or underflow.
    squares = [at_least_fp32(g).reshape(len(g), -1).square().sum(1) for g in gradients]
    # A sum over the last dimension has the same order of additions for any number of workers.
    norm = torch.stack(squares, 1).sum(1).sqrt()
    scale = (radius / (norm + 1e-6)).clamp(max=1.0)
    clipped_rows = []
    for row, g in zip(rows, gradients, strict=True):
        scale_of_workers = scale.view(-1, *[1] * (g.dim() - 1))  # (R, 1, ..., 1)
        clipped = (g * scale_of_workers).to(g.dtype)  # the scale has the type of the longest numbers
        clipped_rows.append(row._replace(g=expand_rows(clipped, num_rows=len(row.g))))
    return clipped_rows
