"""Instances of a ``torch.optim`` optimizer, one per worker, which use views of a method's tensors.

A method stores, averages and saves tensors with a worker axis; an instance uses views of one worker's row. If an
optimizer replaces such a view by another tensor, this is copied to the row, and the instance gets a view again. Step
counters and other numbers stay in the instance; the method's ``state_dict`` has them under ``instances``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.base import Row
from syncline.optim.method import Method
from syncline.randomness import preserved, seed_all

METHODS_OWN = ("params", "param_names", "step")
"""Keys of a method's parameter groups that are not options of an optimizer."""

INSTANCES = "instances"
"""Key of the instances' state in the first parameter group of a saved method."""

Groups = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Probe:
    """Properties of an optimizer, from a step of a small vector and a small matrix.

    Attributes:
        name: name of the optimizer's class.
        groups: options of the optimizer's parameter groups, without the parameters.
        states: names of the tensors that the optimizer keeps per parameter.
        elementwise: whether one instance can step the stacked parameters of all workers.
        shapes: shapes of the tensors that the optimizer could step; some optimizers do not support vectors.
    """

    name: str
    groups: Groups
    states: tuple[str, ...]
    elementwise: bool
    shapes: tuple[tuple[int, ...], ...]


@runtime_checkable
class InstanceFactory(Protocol):
    """An update rule that makes instances of an optimizer."""

    @property
    def probe(self) -> Probe:
        """Return what a trial step has shown of the torch optimizer: its states and options."""
        ...

    @property
    def is_class(self) -> bool:
        """Return whether the optimizer is made from a class, which takes the method's parameter groups."""
        ...

    def built(self, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return a new instance of the optimizer for these parameters, with this learning rate."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return the options of the optimizer's first group."""
        ...


def is_state(name: str, value: Any, p: Tensor, state_names: tuple[str, ...]) -> bool:
    """Return whether a value that an optimizer keeps for parameter ``p`` is a state per element, not a step counter.

    For a parameter that is a single number, states are told from counters by ``state_names``.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return value.dim() > 0 or (p.dim() == 0 and name in state_names)


class Instance(NamedTuple):
    """One instance of an optimizer.

    Attributes:
        optimizer: the instance.
        params: its parameters, by the number of the method's parameter.
        of_groups: for each of its parameter groups, the number of the method's group, and the ratio of its learning
            rate to that group's.
    """

    optimizer: torch.optim.Optimizer
    params: list[torch.nn.Parameter]
    of_groups: list[tuple[int, float]]


class Instances:
    """The torch optimizers of a method: one for each row of the worker axis, or a single one if it is elementwise.

    Args:
        rule: update rule that makes the optimizers.
        method: method whose parameters the optimizers step.
        worker_axis: whether the parameters' first dimension is the worker axis.
    """

    def __init__(self, rule: InstanceFactory, method: Method, worker_axis: bool) -> None:
        """Build the torch optimizers, which are saved and loaded together with the method's state."""
        self._rule, self._method, self._worker_axis = rule, method, worker_axis
        self._forget()
        self._make()
        method.register_state_dict_post_hook(self._save)
        method.register_load_state_dict_post_hook(self._load)

    def _forget(self) -> None:
        """Drop all torch optimizers, so that the next step builds new ones."""
        self._instances: list[Instance] = []  # by row
        self._states: list[dict[str, Tensor]] = []  # by parameter number, the method's tensors whose views are states
        self._group_options: list[dict[str, Any]] = []  # by group number, the options that the instances have

    def step(self, rows: list[Row]) -> None:
        """Move the parameters of these rows by their gradients, and no others."""
        if len(self._group_options) < len(self._method.param_groups):
            self._make()
        self._copy_options()
        for instance in self._instances:
            for p in instance.params:
                p.grad = None
        for row in rows:
            self._set_views(row.number, row.x, row.state)
            g = row.g.contiguous() if len(row.g) > 1 else row.g  # workers may share the memory of an average
            for index, instance in enumerate(self._instances):
                instance.params[row.number].grad = self._part(g, index)
        self._step_all(rows[0].x.device if rows else torch.device("cpu"))
        for row in rows:
            self._copy_results(row.number, row.x, row.state)

    def _built(self, place: int, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return a new torch optimizer for a row of the worker axis, with random numbers that depend on the worker."""
        device = self._method.param_groups[0]["params"][0].device
        with preserved(device):
            seed_all(device, 0, "optimizer", self._method.comm.local_workers[place])
            return self._rule.built(params, lr)

    def adopt(self, place: int, source: int) -> None:
        """Copy counters and generators from the torch optimizer of row ``source`` to that of row ``place``."""
        if self._rule.probe.elementwise:
            return
        copied = copy.deepcopy(self._private_state_dict(self._instances[source]))
        for number, state in self._by_number(self._instances[source], copied.get("state", {})):
            state |= {name: self._part(tensor, place) for name, tensor in self._states[number].items()}
        self._instances[place].optimizer.load_state_dict(copied)
        for number, states in enumerate(self._states):
            for name, tensor in states.items():
                self._set_state_views(number, name, tensor)

    def _step_all(self, device: torch.device) -> None:
        """Step all instances, each with random numbers of its seed, worker and step if the training has seeds.

        In a user's own training loop, without seeds, the instances use the global random generators.
        """
        seeds, workers = self._method.seeds, self._method.comm.local_workers
        if self._rule.probe.elementwise or not seeds:
            for instance in self._instances:
                instance.optimizer.step()
            return
        with preserved(device):
            for index, (instance, worker) in enumerate(zip(self._instances, workers, strict=True)):
                seed = seeds[index * len(seeds) // len(workers)]
                seed_all(device, seed, "optimizer", worker, self._method.steps_done)
                instance.optimizer.step()

    def _part(self, x: Tensor, place: int) -> Tensor:
        """Return what the torch optimizer of a row works on in a tensor ``(R, *s)``: its row, or all rows."""
        return x.detach() if self._rule.probe.elementwise else x.detach()[place]

    def _address(self, x: Tensor, place: int) -> int:
        """Return the memory address of ``_part(x, place)``."""
        return x.data_ptr() + (0 if self._rule.probe.elementwise else place * x.stride(0) * x.element_size())

    def _over_workers(self, p: Tensor) -> Tensor:
        """Return a parameter of the method with a worker axis."""
        return p if self._worker_axis else p.unsqueeze(0)

    def _make(self) -> None:
        """Build a torch optimizer for each row, or add the method's new parameter groups to the existing ones."""
        groups = self._method.param_groups[len(self._group_options) :]
        num_rows = len(self._over_workers(self._method.param_groups[0]["params"][0]))

        def row_params(group: dict[str, Any], row: int) -> list[torch.nn.Parameter]:
            """Return the parameters of a row in a group, which share their memory with the method's."""
            return [
                torch.nn.Parameter(self._part(self._over_workers(p), row), p.requires_grad) for p in group["params"]
            ]

        for row in range(1 if self._rule.probe.elementwise else num_rows):
            self._add_groups(row, groups, [row_params(group, row) for group in groups])
        self._states += [{} for group in groups for _ in group["params"]]
        defaults = self._rule.hyperparameters()
        self._group_options += [_options(group) if self._rule.is_class else dict(defaults) for group in groups]

    def _add_groups(self, row: int, groups: list[dict[str, Any]], params: list[list[torch.nn.Parameter]]) -> None:
        """Add parameter groups of the method to the torch optimizer of a row of the worker axis; build it if needed.

        ``params`` has a list for each group: the row's parameters in that group.
        """
        first_number = len(self._group_options)
        all_params = [p for group_params in params for p in group_params]
        torch_groups: list[Any] = [{"params": all_params}]
        if self._rule.is_class:
            torch_groups = [
                _options(group) | {"params": group_params} for group, group_params in zip(groups, params, strict=True)
            ]
        if row < len(self._instances):
            for torch_group in torch_groups:
                self._instances[row].optimizer.add_param_group(torch_group)
        else:
            arguments = torch_groups if self._rule.is_class else all_params
            self._instances.append(Instance(self._built(row, arguments, groups[0]["lr"]), [], []))

        instance = self._instances[row]
        instance.params.extend(all_params)
        group_number = {id(p): first_number + i for i, group_params in enumerate(params) for p in group_params}
        _split_groups(instance.optimizer, len(instance.of_groups), group_number)
        for torch_group in instance.optimizer.param_groups[len(instance.of_groups) :]:
            ratio = 1.0 if self._rule.is_class else _lr_ratio(torch_group, instance.optimizer.param_groups[0])
            number = group_number[id(torch_group["params"][0])] if torch_group["params"] else first_number
            instance.of_groups.append((number, ratio))

    def _copy_options(self) -> None:
        """Copy options that changed in the method's groups, as schedulers change them, to the instances' groups."""
        for index, (group, last_options) in enumerate(zip(self._method.param_groups, self._group_options, strict=True)):
            changed_options = {
                name: value
                for name, value in _options(group).items()
                if name not in last_options or (last_options[name] is not value and last_options[name] != value)
            }
            if not changed_options:
                continue
            last_options.update(changed_options)
            for instance in self._instances:
                groups = zip(instance.optimizer.param_groups, instance.of_groups, strict=True)
                for instance_group, (group_number, lr_ratio) in groups:
                    if group_number == index:
                        instance_group.update(changed_options)
                        if "lr" in changed_options:
                            instance_group["lr"] = changed_options["lr"] * lr_ratio

    def _set_views(self, number: int, x: Tensor, state: dict[str, Tensor]) -> None:
        """Make the instances' parameter and states views of the method's tensors, if these are not the same as before.

        Args:
            number: number of the parameter.
            x: the method's parameter ``(R, *s)``.
            state: its states by name.
        """
        for index, instance in enumerate(self._instances):
            p = instance.params[number]
            if p.data_ptr() != self._address(x, index):
                p.data = self._part(x, index)
        for name, tensor in self._states[number].items():
            if state.get(name) is not tensor:
                self._set_state_views(number, name, state[name])

    def _set_state_views(self, number: int, name: str, tensor: Tensor) -> None:
        """Give each torch optimizer its row of a tensor ``(R, *s)`` as the named state of one parameter."""
        self._states[number][name] = tensor
        for index, instance in enumerate(self._instances):
            part = tensor if self._rule.probe.elementwise else tensor[index]
            instance.optimizer.state[instance.params[number]][name] = part

    def _copy_results(self, number: int, x: Tensor, state: dict[str, Tensor]) -> None:
        """Copy the instances' parameter and states to the method, if an optimizer replaced the views by new tensors."""
        for index, instance in enumerate(self._instances):
            p = instance.params[number]
            if p.data_ptr() != self._address(x, index):
                self._part(x, index).copy_(p.detach())
                p.data = self._part(x, index)
        worker_states = [instance.optimizer.state.get(instance.params[number], {}) for instance in self._instances]
        for name, value in worker_states[0].items():
            if is_state(name, value, p=self._instances[0].params[number], state_names=self._rule.probe.states):
                self._copy_state(number, name, [worker_state.get(name) for worker_state in worker_states], state)

    def _copy_state(self, number: int, name: str, values: list[Any], state: dict[str, Tensor]) -> None:
        """Copy one state of the instances, with a value for each, to the method's states of the parameter.

        Raises:
            SpecError: the method has a state of this name, or the values differ in shape.
        """
        tensor = self._states[number].get(name)
        if tensor is None and name in state:
            raise SpecError("rule", self._rule.probe.name, f"another name of its state {name}: the method has one so")
        if any(not isinstance(value, Tensor) or value.shape != values[0].shape for value in values):
            raise SpecError("rule", self._rule.probe.name, f"states of one shape on all workers; {name} is not")
        if tensor is not None and all(
            value.data_ptr() == self._address(tensor, index) and value.shape == self._part(tensor, index).shape
            for index, value in enumerate(values)
        ):
            return
        stacked = values[0] if self._rule.probe.elementwise else torch.stack(values)
        if tensor is not None and (tensor.shape, tensor.dtype) == (stacked.shape, stacked.dtype):
            stacked = tensor.copy_(stacked)  # in place, so that other references to the state stay valid
        state[name] = stacked
        self._set_state_views(number, name, stacked)

    def _save(self, method: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
        """Add the private state of each instance to a method's ``state_dict``."""
        if self._instances:
            saved["param_groups"][0][INSTANCES] = {
                "states": [list(states) for states in self._states],
                "group_options": self._group_options,
                "own": [self._private_state_dict(instance) for instance in self._instances],
            }

    def _private_state_dict(self, instance: Instance) -> dict[str, Any]:
        """Return the ``state_dict`` of an instance without the states that are views of the method's tensors."""
        state_dict = instance.optimizer.state_dict()
        if "state" not in state_dict:
            return state_dict
        state = {key: dict(values) for key, values in state_dict["state"].items()}
        for number, values in self._by_number(instance, state):
            for name in self._states[number]:
                values.pop(name, None)
        return state_dict | {"state": state}

    def _by_number(self, instance: Instance, state: dict[Any, Any]) -> list[tuple[int, Any]]:
        """Return pairs of the method's parameter number and the state, for the state of an instance's ``state_dict``.

        Torch numbers the parameters of an instance in the order of its groups.
        """
        numbers = {id(p): index for index, p in enumerate(instance.params)}
        in_group_order = [numbers[id(p)] for group in instance.optimizer.param_groups for p in group["params"]]
        return [(in_group_order[key], values) for key, values in state.items()]

    def _load(self, method: torch.optim.Optimizer) -> None:
        """Make new instances and load their private states after a method has loaded its ``state_dict``."""
        saved_instances = method.param_groups[0].pop(INSTANCES, None)
        self._forget()
        if saved_instances is None:
            return
        self._make()
        self._group_options = saved_instances["group_options"]
        params = [p for group in method.param_groups for p in group["params"]]
        for index, (instance, state_dict) in enumerate(zip(self._instances, saved_instances["own"], strict=True)):
            for number, values in self._by_number(instance, state_dict.get("state", {})):
                state = method.state[params[number]]
                values |= {name: self._part(state[name], index) for name in saved_instances["states"][number]}
            instance.optimizer.load_state_dict(state_dict)
        for number, (p, names) in enumerate(zip(params, saved_instances["states"], strict=True)):
            for name in names:
                self._set_state_views(number, name, method.state[p][name])


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """Return the optimizer's options of a method's parameter group."""
    return {name: value for name, value in group.items() if name not in METHODS_OWN}


def _lr_ratio(group: dict[str, Any], first_group: dict[str, Any]) -> float:
    """Return the ratio of a group's learning rate to that of the optimizer's first group."""
    if group is first_group or group["lr"] == first_group["lr"]:
        return 1.0
    if not first_group["lr"]:
        expected = "a rate > 0 of its first group, to which others keep their proportion"
        raise SpecError("rule.lr", first_group["lr"], expected)
    return float(group["lr"] / first_group["lr"])


def _split_groups(optimizer: torch.optim.Optimizer, first_new: int, group_number: dict[int, int]) -> None:
    """Split an optimizer's groups from number ``first_new`` so that each has parameters of one of the method's groups.

    ``group_number`` has the number of the method's group by the id of a parameter.
    """
    split_groups = []
    for group in optimizer.param_groups[first_new:]:
        numbers = dict.fromkeys(group_number[id(p)] for p in group["params"])
        parts = [[p for p in group["params"] if group_number[id(p)] == number] for number in numbers] or [[]]
        split_groups += [group | {"params": part} for part in parts]
    optimizer.param_groups[first_new:] = split_groups
