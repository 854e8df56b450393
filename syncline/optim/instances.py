"""Instances of an optimizer of torch's kind over the worker axis: their parameters and states are views of a method's.

What a method keeps, averages and saves are its stacked tensors; an instance sees a worker's row of them. Whatever an
optimizer puts in the place of such a view is copied into the row, and a view again from then on. Step counters, other
numbers and what an instance writes into its groups stay its own; ``state_dict`` has them under ``instances``.
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
"""Of a method's groups what is no option of an optimizer."""

INSTANCES = "instances"

Groups = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Probe:
    """Properties of an optimizer that a step of two small tensors, a vector and a matrix, shows.

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
        """Return the properties of the optimizer."""
        ...

    @property
    def is_class(self) -> bool:
        """Return whether the optimizer is made from a class, which takes the method's parameter groups."""
        ...

    def built(self, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return an optimizer of these parameters."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return the options of the optimizer's first group."""
        ...


def is_state(name: str, value: Any, p: Tensor, state_names: tuple[str, ...]) -> bool:
    """Return whether an optimizer's value is a tensor with a worker axis, not a number, such as a step counter.

    Of a parameter that is a single number both are; then those are that have a state's name.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return value.dim() > 0 or (p.dim() == 0 and name in state_names)


class Instance(NamedTuple):
    """An optimizer, its parameters by number, and of each of its groups the method's and the share of its rate."""

    optimizer: torch.optim.Optimizer
    params: list[torch.nn.Parameter]
    of_groups: list[tuple[int, float]]


class Instances:
    """The optimizers of a rule in one method: one for each row of the worker axis, or one for all where it is stacked.

    Args:
        rule: update rule that makes the optimizers.
        method: method whose parameters the optimizers step.
        worker_axis: whether the parameters' first dimension is the worker axis.
    """

    def __init__(self, rule: InstanceFactory, method: Method, worker_axis: bool) -> None:
        self._rule, self._method, self._worker_axis = rule, method, worker_axis
        self._forget()
        self._make()
        method.register_state_dict_post_hook(self._save)
        method.register_load_state_dict_post_hook(self._load)

    def _forget(self) -> None:
        self._made: list[Instance] = []
        self._lent: list[dict[str, Tensor]] = []  # by the parameter's number, the tensors that states are views of
        self._group_options: list[dict[str, Any]] = []  # by the group's number, the options that the instances know

    def step(self, rows: list[Row]) -> None:
        """Move the parameters of these rows, and only these."""
        if len(self._group_options) < len(self._method.param_groups):
            self._make()
        self._copy_options()
        for instance in self._made:
            for p in instance.params:
                p.grad = None
        for row in rows:
            self._lend(row.number, row.x, row.state)
            g = row.g.contiguous() if len(row.g) > 1 else row.g  # an average is one tensor that all workers share
            for place, instance in enumerate(self._made):
                instance.params[row.number].grad = self._part(g, place)
        self._step_all(rows[0].x.device if rows else torch.device("cpu"))
        for row in rows:
            self._take(row.number, row.x, row.state)

    def _built(self, place: int, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return an instance; what it draws when it is made is its worker's, and the same for all seeds."""
        device = self._method.param_groups[0]["params"][0].device
        with preserved(device):
            seed_all(device, 0, "optimizer", self._method.comm.local_workers[place])
            return self._rule.built(params, lr)

    def adopt(self, place: int, source: int) -> None:
        """Copy the private state (counters, generators) of the instance of row ``source`` to that of row ``place``."""
        if self._rule.probe.elementwise:
            return
        copied = copy.deepcopy(self._own_state_dict(self._made[source]))
        for number, (_, state) in self._numbered(self._made[source], copied.get("state", {})):
            state |= {name: self._part(lent, place) for name, lent in self._lent[number].items()}
        self._made[place].optimizer.load_state_dict(copied)
        for number, lent in enumerate(self._lent):
            for name, tensor in lent.items():
                self._lend_state(number, name, tensor)

    def _step_all(self, device: torch.device) -> None:
        """Step the instances, each on the stream of its seed, worker and step, where a training says its seeds.

        In a loop of a user's own they draw from the global generators as they are.
        """
        seeds, workers = self._method.seeds, self._method.comm.local_workers
        if self._rule.probe.elementwise or not seeds:
            for instance in self._made:
                instance.optimizer.step()
            return
        with preserved(device):
            for place, (instance, worker) in enumerate(zip(self._made, workers, strict=True)):
                seed = seeds[place * len(seeds) // len(workers)]
                seed_all(device, seed, "optimizer", worker, self._method.steps_done)
                instance.optimizer.step()

    def _part(self, x: Tensor, place: int) -> Tensor:
        return x.detach() if self._rule.probe.elementwise else x.detach()[place]

    def _over_workers(self, p: Tensor) -> Tensor:
        return p if self._worker_axis else p.unsqueeze(0)

    def _make(self) -> None:
        """Make an instance for each row; if the method has new groups, add these to the instances."""
        groups = self._method.param_groups[len(self._group_options) :]
        x = self._over_workers(self._method.param_groups[0]["params"][0])
        for place in range(1 if self._rule.probe.elementwise else len(x)):
            proxies = [
                [torch.nn.Parameter(self._part(self._over_workers(p), place), p.requires_grad) for p in group["params"]]
                for group in groups
            ]
            self._join(place, groups, proxies)
        self._lent += [{} for group in groups for _ in group["params"]]
        baseline = self._rule.hyperparameters()
        self._group_options += [_options(group) if self._rule.is_class else dict(baseline) for group in groups]

    def _join(self, place: int, groups: list[dict[str, Any]], proxies: list[list[torch.nn.Parameter]]) -> None:
        first = len(self._group_options)
        arguments: list[Any] = [p for part in proxies for p in part]
        if self._rule.is_class:
            arguments = [_options(g) | {"params": part} for g, part in zip(groups, proxies, strict=True)]
        if not self._made[place:]:
            self._made.append(Instance(self._built(place, arguments, groups[0]["lr"]), [], []))
        else:
            for group in arguments if self._rule.is_class else [{"params": arguments}]:
                self._made[place].optimizer.add_param_group(group)
        instance = self._made[place]
        instance.params.extend(p for part in proxies for p in part)
        number_of = {id(p): first + i for i, part in enumerate(proxies) for p in part}
        _cut(instance.optimizer, len(instance.of_groups), number_of)
        for param_group in instance.optimizer.param_groups[len(instance.of_groups) :]:
            share = 1.0 if self._rule.is_class else _share(param_group, instance.optimizer.param_groups[0])
            instance.of_groups.append(
                (number_of[id(param_group["params"][0])] if param_group["params"] else first, share)
            )

    def _copy_options(self) -> None:
        """Copy options that changed in the method's groups, as schedulers change them, to the instances' groups."""
        for number, (group, recorded) in enumerate(zip(self._method.param_groups, self._group_options, strict=True)):
            options = _options(group)
            news = {
                k: v for k, v in options.items() if k not in recorded or (recorded[k] is not v and recorded[k] != v)
            }
            if not news:
                continue
            recorded.update(news)
            for instance in self._made:
                for param_group, (group_number, share) in zip(
                    instance.optimizer.param_groups, instance.of_groups, strict=True
                ):
                    if group_number == number:
                        param_group.update(news | ({"lr": news["lr"] * share} if "lr" in news else {}))

    def _lend(self, number: int, x: Tensor, state: dict[str, Tensor]) -> None:
        """Give instances views of a parameter and its states wherever they do not hold such views."""
        for place, instance in enumerate(self._made):
            p = instance.params[number]
            if p.data_ptr() != self._address(x, place):
                p.data = self._part(x, place)
        for name, lent in self._lent[number].items():
            if state.get(name) is not lent:
                self._lend_state(number, name, state[name])

    def _lend_state(self, number: int, name: str, tensor: Tensor) -> None:
        self._lent[number][name] = tensor
        for place, instance in enumerate(self._made):
            part = tensor if self._rule.probe.elementwise else tensor[place]
            instance.optimizer.state[instance.params[number]][name] = part

    def _take(self, number: int, x: Tensor, state: dict[str, Tensor]) -> None:
        """Copy the instances' results for a parameter and its states to the method."""
        for place, instance in enumerate(self._made):
            p = instance.params[number]
            if p.data_ptr() != self._address(x, place):  # some put another tensor in its place
                self._part(x, place).copy_(p.detach())
                p.data = self._part(x, place)
        states = [instance.optimizer.state.get(instance.params[number], {}) for instance in self._made]
        for name, value in states[0].items():
            if is_state(name, value, self._made[0].params[number], self._rule.probe.states):
                self._take_state(number, name, [state_of_worker.get(name) for state_of_worker in states], state)

    def _take_state(self, number: int, name: str, values: list[Any], state: dict[str, Tensor]) -> None:
        lent = self._lent[number].get(name)
        if lent is None and name in state:
            raise SpecError("rule", self._rule.probe.name, f"another name of its state {name}: the method has one so")
        if any(not isinstance(value, Tensor) or value.shape != values[0].shape for value in values):
            raise SpecError("rule", self._rule.probe.name, f"states of one shape on all workers; {name} is not")
        if lent is not None and all(
            value.data_ptr() == self._address(lent, place) and value.shape == self._part(lent, place).shape
            for place, value in enumerate(values)
        ):
            return
        now = values[0] if self._rule.probe.elementwise else torch.stack(values)
        if lent is not None and (lent.shape, lent.dtype) == (now.shape, now.dtype):
            now = lent.copy_(now)  # in place, for whoever holds it
        state[name] = now
        self._lend_state(number, name, now)

    def _address(self, x: Tensor, place: int) -> int:
        return x.data_ptr() + (0 if self._rule.probe.elementwise else place * x.stride(0) * x.element_size())

    def _save(self, method: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
        """Return each instance's ``state_dict``, without the tensors that the method holds."""
        if self._made:
            names = [list(lent) for lent in self._lent]
            state_dicts = [self._own_state_dict(instance) for instance in self._made]
            saved["param_groups"][0][INSTANCES] = {
                "states": names,
                "group_options": self._group_options,
                "own": state_dicts,
            }

    def _own_state_dict(self, instance: Instance) -> dict[str, Any]:
        state_dict = instance.optimizer.state_dict()
        state = {
            key: {name: value for name, value in values.items() if name not in self._lent[number]}
            for number, (key, values) in self._numbered(instance, state_dict.get("state", {}))
        }
        return state_dict | ({"state": state} if "state" in state_dict else {})

    def _numbered(self, instance: Instance, state: dict[Any, Any]) -> list[tuple[int, tuple[Any, Any]]]:
        """Return the entries of an instance's state by parameter number; torch numbers them in the order of groups."""
        numbers = {id(p): number for number, p in enumerate(instance.params)}
        in_order = [numbers[id(p)] for group in instance.optimizer.param_groups for p in group["params"]]
        return [(in_order[key], (key, values)) for key, values in state.items()]

    def _load(self, method: torch.optim.Optimizer) -> None:
        saved = method.param_groups[0].pop(INSTANCES, None)
        self._forget()
        if saved is None:
            return
        self._make()
        self._group_options = saved["group_options"]
        params = [p for group in method.param_groups for p in group["params"]]
        for place, (instance, state_dict) in enumerate(zip(self._made, saved["own"], strict=True)):
            for number, (_, values) in self._numbered(instance, state_dict.get("state", {})):
                state = method.state[params[number]]
                values |= {name: self._part(state[name], place) for name in saved["states"][number]}
            instance.optimizer.load_state_dict(state_dict)
        for number, (p, names) in enumerate(zip(params, saved["states"], strict=True)):
            for name in names:
                self._lend_state(number, name, method.state[p][name])


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in METHODS_OWN}


def _share(group: dict[str, Any], first_group: dict[str, Any]) -> float:
    if group is first_group or group["lr"] == first_group["lr"]:
        return 1.0
    if not first_group["lr"]:
        raise SpecError(
            "rule.lr", first_group["lr"], "a rate > 0 of its first group, to which others keep their proportion"
        )
    return float(group["lr"] / first_group["lr"])


def _cut(optimizer: torch.optim.Optimizer, first_new: int, number_of: dict[int, int]) -> None:
    """Cut an optimizer's new groups, as a function made them, so that each is of one of the method's."""
    cut = []
    for group in optimizer.param_groups[first_new:]:
        numbers = dict.fromkeys(number_of[id(p)] for p in group["params"])
        parts = [[p for p in group["params"] if number_of[id(p)] == n] for n in numbers] or [[]]
        cut += [group | {"params": part} for part in parts]
    optimizer.param_groups[first_new:] = cut
