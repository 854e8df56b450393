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

from syncline.comm import as_one_copy, as_own_copies, for_rows, is_one_copy, the_copy
from syncline.optim.base import Row, UpdateRule


class Shared:
    """The rows with which rules compute: a parameter that is equal on all workers is stored and computed only once.

    Attributes:
        state_names: names of the states that a rule keeps per parameter, by number of the parameter.
    """

    def __init__(self) -> None:
        self.state_names: dict[int, tuple[str, ...]] = {}
        self._views: dict[int, _Views] = {}

    def join(self, number: int, p: Tensor, state: dict[str, Tensor], rule: UpdateRule) -> None:
        """Store a parameter and its states a single time for all workers if the parameter is equal on all of them."""
        p.data = as_one_copy(p.data)
        if state and number not in self.state_names:
            self.state_names[number] = tuple(rule.init(torch.empty_like(p[:1], device="meta"), number))
        for name in self.state_names.get(number, ()):
            if name in state:
                state[name] = as_one_copy(state[name])

    def for_rule(self, row: Row) -> Row:
        """Return the row with which the update rule computes.

        If gradient, parameter and states are one copy for all workers, the row has this copy, ``(1, *s)``, so that the
        rule computes once. Otherwise the row has separate states for each worker.
        """
        if row.g.size(0) == 1:
            return row
        if is_one_copy(row.g):
            views = self._views.get(row.number)
            if views is None or not views.are_of(row):
                views = self._views[row.number] = _Views(row, self.state_names.get(row.number, ()))
            if views.are_one_copy:
                return row._replace(x=views.x, g=the_copy(row.g), state=views.state.copy())
        for name in self.state_names.get(row.number, ()):
            row.state[name] = as_own_copies(row.state[name])
        return row


class _Views:
    """One worker's part of a parameter and its states, with which an update that is the same for all is computed once.

    They are views of the row's tensors, and valid as long as the row has these tensors.
    """

    def __init__(self, row: Row, names: Iterable[str]) -> None:
        """Take views of the first worker's part of a parameter and of its states."""
        self._states = {name: row.state[name] for name in names if name in row.state}
        self._address, self._is_one_copy = row.x.data_ptr(), is_one_copy(row.x)
        self.are_one_copy = self._is_one_copy and all(map(is_one_copy, self._states.values()))
        self.x = the_copy(row.x)
        self.state = {name: the_copy(value) for name, value in self._states.items()}

    def are_of(self, row: Row) -> bool:
        """Return whether the row still has the tensors of these views."""
        if row.x.data_ptr() != self._address or is_one_copy(row.x) != self._is_one_copy:
            return False
        return all(row.state.get(name) is value for name, value in self._states.items())


def store_states(row: Row, rule_row: Row) -> None:
    """Store in ``row``, for all workers, the states that a rule replaced in the row ``rule_row`` of one copy."""
    for name, value in rule_row.state.items():
        if name not in row.state or value.data_ptr() != row.state[name].data_ptr():
            row.state[name] = for_rows(value, row.x.size(0))


def with_equal(rows: Sequence[Row], knobs: Sequence[str]) -> list[list[int]]:
    """Partition rows by the values of hyperparameters: return lists of the indices of rows with equal values.

    ``knobs`` are the names of the hyperparameters to compare.
    """
    distinct_values: list[list[Any]] = []  # a list, because values can be lists or tensors, which have no hash
    indices: list[list[int]] = []
    for index, row in enumerate(rows):
        values = [row.group[name] for name in knobs]
        if values not in distinct_values:
            distinct_values.append(values)
            indices.append([])
        indices[distinct_values.index(values)].append(index)
    return indices


def move(rows: Sequence[Row], directions: Sequence[Tensor | None]) -> None:
    """Move parameters in place: ``x <- (1 - lr weight_decay) x - lr d``, with d the direction of a row.

    Parameters with equal learning rate and weight decay move in one call. A parameter whose direction is None does not
    move.
    """
    moving = [(row, d) for row, d in zip(rows, directions, strict=True) if d is not None]
    for indices in with_equal([row for row, _ in moving], ("lr", "weight_decay")):
        pairs = [_tensor_and_direction(*moving[index]) for index in indices]
        group = moving[indices[0]][0].group
        decay([x for x, _ in pairs], group)
        torch._foreach_add_([x for x, _ in pairs], [d for _, d in pairs], alpha=-group["lr"])


def decay(xs: list[Tensor], group: Mapping[str, Any]) -> None:
    """Apply decoupled weight decay: ``x <- (1 - lr weight_decay) x``."""
    if group["weight_decay"]:
        torch._foreach_mul_(xs, 1 - group["lr"] * group["weight_decay"])


def _tensor_and_direction(row: Row, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tensor to move and its direction, ``(1, *s)`` if both are one copy for all workers, else ``(R, *s)``.

    A parameter that is one copy gets separate rows if the workers' directions differ.
    """
    x = row.x
    if x.size(0) > 1 and x.stride(0) == 0:
        if is_one_copy(d):
            return the_copy(x), the_copy(d)
        x.data = as_own_copies(x.data)
    return x, d


def clip_rows(rows: list[Row], radius: float) -> list[Row]:
    """Clip each worker's gradient g over all parameters: ``g min(1, radius / (||g|| + 1e-6))``, as torch does."""
    if not rows:
        return rows
    are_one_copy = all(is_one_copy(row.g) for row in rows)
    gradients = [the_copy(row.g) if are_one_copy else row.g for row in rows]
    squares = [g.reshape(len(g), -1).square().sum(1) for g in gradients]
    # Stacked in the last dimension, so that the order in which torch adds does not depend on the number of workers.
    scale = (radius / (torch.stack(squares, 1).sum(1).sqrt() + 1e-6)).clamp(max=1.0)
    clipped = (g * scale.view(-1, *[1] * (g.dim() - 1)) for g in gradients)
    return [row._replace(g=for_rows(g, len(row.g))) for row, g in zip(rows, clipped, strict=True)]
