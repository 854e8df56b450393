"""Torch optimizers, one per worker, that step the parameters of a method.

A method stores, averages and saves tensors with a worker axis; the optimizer of a worker uses views of the worker's
row. If an optimizer replaces such a view by another tensor, this is copied to the row, and the optimizer gets a view
again. Step counters and other numbers stay in the optimizers; the method's ``state_dict`` has them under ``instances``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.base import ParamRow
from syncline.optim.method import Method
from syncline.randomness import preserved, seed_all

METHOD_KEYS = ("params", "param_names", "step")
"""Keys of a method's parameter groups that are not options of a torch optimizer."""

SAVED_KEY = "instances"
"""Key of the optimizers' private state in the first parameter group of a saved method."""

GroupOptions = tuple[dict[str, Any], ...]
"""The options of each parameter group of a torch optimizer, without the parameters."""


@dataclass(frozen=True)
class Probe:
    """Properties of a torch optimizer, found by one step with a small vector and a small matrix.

    Attributes:
        groups: options of the optimizer's parameter groups, without the parameters.
        states: names of the tensors that the optimizer keeps per parameter.
        elementwise: whether one optimizer can step the stacked parameters of all workers.
        shapes: shapes of the tensors that the optimizer could step; some optimizers do not support vectors.
    """

    name: str
    groups: GroupOptions
    states: tuple[str, ...]
    elementwise: bool
    shapes: tuple[tuple[int, ...], ...]


def is_state(name: str, value: Any, p: Tensor, state_names: tuple[str, ...]) -> bool:
    """Return whether a value that an optimizer keeps for parameter ``p`` is a state per element, not a step counter.

    ``state_names`` are the known states. Only they tell a state from a counter if the parameter is a single number.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return value.dim() > 0 or (p.dim() == 0 and name in state_names)


class OptimizerGroup(NamedTuple):
    """The method's parameter group to which a parameter group of a torch optimizer belongs.

    Attributes:
        method_group: index of the method's parameter group.
        lr_ratio: learning rate of the optimizer's group over that of the method's group.
    """

    method_group: int
    lr_ratio: float


class WorkerOptimizer(NamedTuple):
    """The torch optimizer of one worker.

    Attributes:
        params: its parameters, in the order of the method's parameters.
        groups: for each of its parameter groups, the group of the method.
    """

    optimizer: torch.optim.Optimizer
    params: list[torch.nn.Parameter]
    groups: list[OptimizerGroup]


class TorchOptimizers:
    """The torch optimizers of a method: one for each row of the worker axis, or one for all if it is elementwise.

    Args:
        worker_axis: whether the parameters' first dimension is the worker axis.
    """

    def __init__(self, rule: Any, method: Method, worker_axis: bool) -> None:
        """Make the torch optimizers, which are saved and loaded together with the method's state."""
        self._rule, self._method, self._worker_axis = rule, method, worker_axis
        self._is_elementwise = rule.probe.elementwise
        self._discard_optimizers()
        self._add_new_groups()
        method.register_state_dict_post_hook(self._save)
        method.register_load_state_dict_post_hook(self._load)

    def _discard_optimizers(self) -> None:
        """Discard all torch optimizers and what is known about their states and options."""
        self._optimizers: list[WorkerOptimizer] = []  # one per row of the worker axis
        # For each parameter, by name: the method's states, of which the optimizers have views.
        self._viewed_states: list[dict[str, Tensor]] = []
        self._known_options: list[dict[str, Any]] = []  # the optimizers' options, by group of the method

    def step(self, rows: list[ParamRow]) -> None:
        """Move the parameters of these rows by their gradients, and no others."""
        if len(self._known_options) < len(self._method.param_groups):
            self._add_new_groups()
        self._copy_changed_options()
        for worker_optimizer in self._optimizers:
            for p in worker_optimizer.params:
                p.grad = None
        for row in rows:
            self._set_views(row)
            # An optimizer may change its gradient: copy an average whose memory the workers share.
            g = row.g.contiguous() if len(row.g) > 1 else row.g
            for worker_row, worker_optimizer in enumerate(self._optimizers):
                worker_optimizer.params[row.param_index].grad = self._worker_part(g, worker_row)
        self._step_optimizers(rows[0].x.device if rows else torch.device("cpu"))
        for row in rows:
            self._copy_results(row)

    def _make_optimizer(self, worker_row: int, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return a new torch optimizer for a row of the worker axis, with random numbers that depend on the worker."""
        device = self._method.param_groups[0]["params"][0].device
        with preserved(device):
            # Seed 0 in all trainings, because the method gets its seeds later.
            seed_all(device, 0, "optimizer", self._method.comm.local_workers[worker_row])
            return self._rule.make_optimizer(params, lr)

    def zero_state(self, row: ParamRow, name: str) -> Tensor | None:
        """Return zeros ``(R, *state)`` for a state that the optimizers have not created yet, or None if they never do.

        They create the states of a parameter at its first gradient.
        """
        shape = self._rule.state_shapes(row.x.shape[1:]).get(name)
        return None if shape is None else row.x.new_zeros(len(row.x), *shape)

    def copy_private_state(self, source_row: int, target_row: int) -> None:
        """Copy step counters and other private state from one worker's torch optimizer to that of another worker."""
        if self._is_elementwise:  # a single optimizer has nothing that is private to a worker
            return
        source, target = self._optimizers[source_row], self._optimizers[target_row]
        state_dict = copy.deepcopy(self._private_state_dict(source))
        for param_index, values in self._by_param_index(source, state_dict.get("state", {})):
            for name, tensor in self._viewed_states[param_index].items():
                values[name] = self._worker_part(tensor, target_row)
        target.optimizer.load_state_dict(state_dict)
        for param_index, states in enumerate(self._viewed_states):
            for name, tensor in states.items():
                self._set_state_views(param_index, name, tensor)  # loading has replaced views by copies

    def _step_optimizers(self, device: torch.device) -> None:
        """Step all optimizers; if the training has seeds, random numbers depend on the seed, the worker and the step.

        In a user's own training loop, without seeds, the optimizers use the global random generators.
        """
        seeds, worker_of_row = self._method.seeds, self._method.comm.local_workers
        if self._is_elementwise or not seeds:  # torch's elementwise optimizers draw no random numbers
            for worker_optimizer in self._optimizers:
                worker_optimizer.optimizer.step()
            return
        rows_per_replica = len(worker_of_row) // len(seeds)
        with preserved(device):
            for worker_row, worker_optimizer in enumerate(self._optimizers):
                seed = seeds[worker_row // rows_per_replica]  # rows are in order of replicas, then of workers
                seed_all(device, seed, "optimizer", worker_of_row[worker_row], self._method.steps_done)
                worker_optimizer.optimizer.step()

    def _worker_part(self, x: Tensor, worker_row: int) -> Tensor:
        """Return the part of a tensor ``(R, *s)`` that an optimizer works on: a row, or all rows if elementwise."""
        return x.detach() if self._is_elementwise else x.detach()[worker_row]

    def _address(self, x: Tensor, worker_row: int) -> int:
        """Return the memory address of ``_worker_part(x, worker_row)``, without the time to make this view."""
        if self._is_elementwise:
            return x.data_ptr()
        return x.data_ptr() + worker_row * x.stride(0) * x.element_size()

    def _add_new_groups(self) -> None:
        """Add the method's new parameter groups to each torch optimizer; make the optimizers if there are none."""
        all_groups = self._method.param_groups
        new_groups = all_groups[len(self._known_options) :]
        num_optimizers = 1
        if self._worker_axis and not self._is_elementwise:
            num_optimizers = len(all_groups[0]["params"][0])  # rows of the worker axis
        for worker_row in range(num_optimizers):
            self._add_groups_to_optimizer(worker_row, new_groups)
        for group in new_groups:
            self._viewed_states += [{} for _ in group["params"]]
            # An optimizer of a user's function has its own options until they change in the method's group.
            self._known_options.append(_options(group) if self._rule.is_class else self._rule.hyperparameters())

    def _worker_params(self, group: dict[str, Any], worker_row: int) -> list[torch.nn.Parameter]:
        """Return one worker's parameters of a group of the method, which share their memory with the method's."""
        params = []
        for p in group["params"]:
            with_worker_axis = p if self._worker_axis else p.unsqueeze(0)
            params.append(torch.nn.Parameter(self._worker_part(with_worker_axis, worker_row), p.requires_grad))
        return params

    def _add_groups_to_optimizer(self, worker_row: int, groups: list[dict[str, Any]]) -> None:
        """Add parameter groups of the method to the torch optimizer of one worker; make the optimizer if needed."""
        new_params: list[torch.nn.Parameter] = []
        groups_with_options: list[dict[str, Any]] = []
        first_group = len(self._known_options)
        method_group_of = {}  # index of the method's group, by the id of a parameter
        for method_group, group in enumerate(groups, start=first_group):
            group_params = self._worker_params(group, worker_row)
            new_params += group_params
            groups_with_options.append(_options(group) | {"params": group_params})
            for p in group_params:
                method_group_of[id(p)] = method_group

        # Only a class takes groups with options; a user's function gets a list of parameters.
        if worker_row == len(self._optimizers):
            arguments: list[Any] = groups_with_options if self._rule.is_class else new_params
            new_optimizer = self._make_optimizer(worker_row, arguments, lr=groups[0]["lr"])
            self._optimizers.append(WorkerOptimizer(new_optimizer, params=[], groups=[]))
        else:
            for torch_group in groups_with_options if self._rule.is_class else [{"params": new_params}]:
                self._optimizers[worker_row].optimizer.add_param_group(torch_group)

        # Note to which group of the method each new group of the optimizer belongs.
        optimizer, known_params, known_groups = self._optimizers[worker_row]
        known_params.extend(new_params)
        num_known = len(known_groups)
        _split_groups(optimizer, num_known, method_group_of)
        for torch_group in optimizer.param_groups[num_known:]:
            lr_ratio = 1.0 if self._rule.is_class else _lr_ratio(torch_group, optimizer.param_groups[0])
            params = torch_group["params"]
            method_group = method_group_of[id(params[0])] if params else first_group
            known_groups.append(OptimizerGroup(method_group, lr_ratio))

    def _copy_changed_options(self) -> None:
        """Copy options that a user or a scheduler changed in the method's groups to the optimizers' groups."""
        for method_group, group in enumerate(self._method.param_groups):
            known_options = self._known_options[method_group]
            changed_options = {}
            for name, value in _options(group).items():
                is_same_object = name in known_options and known_options[name] is value  # NaN does not equal itself
                if not is_same_object and (name not in known_options or known_options[name] != value):
                    changed_options[name] = value
            if not changed_options:
                continue
            known_options.update(changed_options)
            for optimizer, _, optimizer_groups in self._optimizers:
                for torch_group, optimizer_group in zip(optimizer.param_groups, optimizer_groups, strict=True):
                    if optimizer_group.method_group != method_group:
                        continue
                    torch_group.update(changed_options)
                    if "lr" in changed_options:
                        torch_group["lr"] = changed_options["lr"] * optimizer_group.lr_ratio

    def _set_views(self, row: ParamRow) -> None:
        """Let the optimizers view a parameter and its states again where the method has replaced the tensors."""
        for worker_row, worker_optimizer in enumerate(self._optimizers):
            p = worker_optimizer.params[row.param_index]
            if p.data_ptr() != self._address(row.x, worker_row):
                p.data = self._worker_part(row.x, worker_row)
        for name, tensor in self._viewed_states[row.param_index].items():
            if row.state.get(name) is not tensor:
                self._set_state_views(row.param_index, name, row.state[name])

    def _set_state_views(self, param_index: int, name: str, tensor: Tensor) -> None:
        """Give each torch optimizer its worker's row of a tensor ``(R, *s)`` as the named state of one parameter."""
        self._viewed_states[param_index][name] = tensor
        for worker_row, (optimizer, params, _) in enumerate(self._optimizers):
            optimizer.state[params[param_index]][name] = tensor if self._is_elementwise else tensor[worker_row]

    def _copy_results(self, row: ParamRow) -> None:
        """Copy a parameter and its states from the optimizers to the method, if an optimizer replaced the views."""
        for worker_row, worker_optimizer in enumerate(self._optimizers):
            p = worker_optimizer.params[row.param_index]
            if p.data_ptr() != self._address(row.x, worker_row):
                self._worker_part(row.x, worker_row).copy_(p.detach())
                p.data = self._worker_part(row.x, worker_row)
        worker_states = []
        for optimizer, params, _ in self._optimizers:
            worker_states.append(optimizer.state.get(params[row.param_index], {}))
        first_param = self._optimizers[0].params[row.param_index]
        for name, value in worker_states[0].items():
            if is_state(name, value, first_param, self._rule.probe.states):
                self._copy_state(row, name, [worker_state.get(name) for worker_state in worker_states])

    def _copy_state(self, row: ParamRow, name: str, values: list[Any]) -> None:
        """Copy one state of a parameter, ``values`` of all optimizers, to the method.

        Raises:
            SpecError: the method has a state of this name, or the values differ in shape.
        """
        viewed = self._viewed_states[row.param_index].get(name)  # None: the optimizers have created the state
        if viewed is None and name in row.state:
            expected = f"a different name for its state {name}, which the method's own state has"
            raise SpecError("rule", self._rule.probe.name, expected)
        if any(not isinstance(value, Tensor) or value.shape != values[0].shape for value in values):
            raise SpecError("rule", self._rule.probe.name, f"states of one shape on all workers; {name} is not")
        if viewed is not None:
            parts = [self._worker_part(viewed, worker_row) for worker_row in range(len(values))]
            pairs = zip(values, parts, strict=True)
            if all((value.data_ptr(), value.shape) == (part.data_ptr(), part.shape) for value, part in pairs):
                return  # the optimizers have changed the views in place
        stacked = values[0] if self._is_elementwise else torch.stack(values)
        if viewed is not None and (viewed.shape, viewed.dtype) == (stacked.shape, stacked.dtype):
            stacked = viewed.copy_(stacked)  # in place, so that other references to the state stay valid
        row.state[name] = stacked
        self._set_state_views(row.param_index, name, stacked)

    def _save(self, method: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        """Add the private state of each torch optimizer to the ``state_dict`` of a method."""
        if self._optimizers:  # torch saves additional keys of a group unchanged
            state_dict["param_groups"][0][SAVED_KEY] = {
                "states": [list(states) for states in self._viewed_states],
                "group_options": self._known_options,
                "own": [self._private_state_dict(worker_optimizer) for worker_optimizer in self._optimizers],
            }

    def _private_state_dict(self, worker_optimizer: WorkerOptimizer) -> dict[str, Any]:
        """Return the ``state_dict`` of an optimizer without the states that are views of the method's tensors."""
        state_dict = worker_optimizer.optimizer.state_dict()
        if "state" not in state_dict:  # an optimizer of a user's class may have its own format
            return state_dict
        state = {key: dict(values) for key, values in state_dict["state"].items()}
        for param_index, values in self._by_param_index(worker_optimizer, state):
            for name in self._viewed_states[param_index]:
                values.pop(name, None)
        return state_dict | {"state": state}

    def _by_param_index(self, worker_optimizer: WorkerOptimizer, state: dict[Any, Any]) -> list[tuple[int, Any]]:
        """Return pairs (parameter index in the method, values) for the ``state`` of an optimizer's ``state_dict``.

        Torch numbers the parameters of an optimizer in the order of its groups.
        """
        method_index = {id(p): index for index, p in enumerate(worker_optimizer.params)}
        index_by_number = []
        for group in worker_optimizer.optimizer.param_groups:
            index_by_number += [method_index[id(p)] for p in group["params"]]
        return [(index_by_number[number], values) for number, values in state.items()]

    def _load(self, method: torch.optim.Optimizer) -> None:
        """Make new torch optimizers and load their private states after a method has loaded its ``state_dict``."""
        saved = method.param_groups[0].pop(SAVED_KEY, None)
        self._discard_optimizers()
        if saved is None:
            return
        self._add_new_groups()
        self._known_options = saved["group_options"]
        state_names = saved["states"]
        params = [p for group in method.param_groups for p in group["params"]]
        for worker_row, state_dict in enumerate(saved["own"]):
            worker_optimizer = self._optimizers[worker_row]
            for param_index, values in self._by_param_index(worker_optimizer, state_dict.get("state", {})):
                state = method.state[params[param_index]]
                for name in state_names[param_index]:
                    values[name] = self._worker_part(state[name], worker_row)
            worker_optimizer.optimizer.load_state_dict(state_dict)
        for param_index, p in enumerate(params):
            for name in state_names[param_index]:
                self._set_state_views(param_index, name, method.state[p][name])


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """Return the torch optimizer's options of a method's parameter group."""
    return {name: value for name, value in group.items() if name not in METHOD_KEYS}


def _lr_ratio(group: dict[str, Any], first_group: dict[str, Any]) -> float:
    """Return the ratio of a group's learning rate to that of the optimizer's first group."""
    if group is first_group or group["lr"] == first_group["lr"]:
        return 1.0
    if not first_group["lr"]:
        expected = "a rate > 0 of its first group, to which others keep their proportion"
        raise SpecError("rule.lr", first_group["lr"], expected)
    return float(group["lr"] / first_group["lr"])


def _split_groups(optimizer: torch.optim.Optimizer, first_new: int, method_group_of: dict[int, int]) -> None:
    """Split an optimizer's new groups, so that all parameters of a group belong to one group of the method.

    Args:
        first_new: index of the first new group.
        method_group_of: index of the method's group, by the id of a parameter.
    """
    split_groups = []
    for group in optimizer.param_groups[first_new:]:
        params_by_group: dict[int, list[Tensor]] = {}
        for p in group["params"]:
            params_by_group.setdefault(method_group_of[id(p)], []).append(p)
        # A group without parameters stays as it is.
        for params in params_by_group.values() or [[]]:
            split_groups.append(group | {"params": params})
    optimizer.param_groups[first_new:] = split_groups
