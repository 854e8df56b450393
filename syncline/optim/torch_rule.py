"""Any optimizer of torch's kind as an update rule: whatever it does to parameters and gradients, it does unchanged."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError, error_text, one_of
from syncline.optim.base import Hyperparameters, SteppingRule, UpdateRule
from syncline.optim.instances import METHODS_OWN, Groups, Instances, Probe, is_state
from syncline.optim.method import Method
from syncline.randomness import preserved

ELEMENTWISE = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax,
    torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.ASGD, torch.optim.Rprop,
)  # fmt: skip
"""Torch's optimizers that treat every coordinate by itself: one of them can step all workers' parameters at once."""

REFUSED = {
    torch.optim.LBFGS: "an optimizer that takes one gradient per step: this one evaluates the loss again by a closure",
    torch.optim.SparseAdam: "an optimizer of dense gradients: what is exchanged here is dense",
}

PROBE_LR = 1e-3


PRIMES = (7, 11, 13, 17, 19, 23)
"""Sides of a small tensor, by which those of its states are told."""


@dataclass(frozen=True)
class TorchRule(SteppingRule[Method]):
    """An optimizer of torch's kind, by anybody, that steps each worker's parameters.

    Each worker has an instance of its own, so that a norm over a layer, or over all parameters, is that worker's. Those
    of torch that are elementwise are one instance for all workers, which is the same and faster.

    Args:
        make: a class derived from ``torch.optim.Optimizer``, ``functools.partial`` of one, or a function of a list of
            parameters that returns an optimizer. A class is given the method's parameter groups. A function may group
            its parameters; the learning rate of its first group is then the method's, and others keep their proportion.
        average_states: names of the optimizer's states that a sync policy may average.

    Raises:
        SpecError: the optimizer cannot be made, needs a closure to step, has no learning rate in its groups, or has no
            states of these names.
    """

    make: Callable[..., torch.optim.Optimizer]
    average_states: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.average_states:
            if name not in self.probe.states:
                none = f"none, as {self.probe.name} keeps no tensors"
                expected = one_of(self.probe.states, name) if self.probe.states else none
                raise SpecError("rule.average_states", name, expected)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the states to average."""
        return self.average_states

    @property
    def is_class(self) -> bool:
        """Return whether the optimizer takes parameter groups with their options, as torch's classes do."""
        return isinstance(self.make.func if isinstance(self.make, partial) else self.make, type)

    @cached_property
    def probe(self) -> Probe:
        """Step two small tensors and return the optimizer's properties."""
        vector, matrix = (2,), (3, 2)
        failure: SpecError | None = None
        # Some optimizers take matrices alone, some only vectors.
        for shapes in ((vector, matrix), (matrix,), (vector,)):
            try:
                optimizer, tensors, groups = self._stepped([torch.ones(shape) for shape in shapes])
            except SpecError as error:
                failure = failure or error
                continue
            states = dict.fromkeys(
                name for p in tensors for name, value in optimizer.state[p].items() if is_state(name, value, p, ())
            )
            # A user's function may depend on the shapes of its parameters, so only known classes are elementwise.
            elementwise = self.is_class and type(optimizer) in ELEMENTWISE
            return Probe(type(optimizer).__name__, groups, tuple(states), elementwise, shapes)
        assert failure is not None
        raise failure

    def hyperparameters(self) -> dict[str, Any]:
        """Return the options that all groups of the optimizer share, without the learning rate, set by the method."""
        first, *others = self.probe.groups
        shared = {k: v for k, v in first.items() if all(k in g and g[k] == v for g in others)}
        return {k: v for k, v in shared.items() if k not in METHODS_OWN and k != "lr"}

    def parts(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return the rule itself as its only part."""
        if group.get("weight_decay") and not any("weight_decay" in options for options in self.probe.groups):
            raise SpecError("weight_decay", group["weight_decay"], f"none, as {self.probe.name} has none")
        return [(self, group)]

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return no states; the optimizer makes its states in its first step."""
        return {}

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return None, because the optimizer itself moves the parameters."""
        return None

    @override
    def steppers(self, method: Method, worker_axis: bool) -> Instances:
        if method.defaults["weight_decay"]:
            raise SpecError("weight_decay", method.defaults["weight_decay"], "none: the optimizer's own is an option")
        return Instances(self, method, worker_axis)

    def built(self, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return an instance for parameters, or of a class for groups of them.

        Raises:
            SpecError: the optimizer cannot be made; the error repeats its message.
        """
        try:
            takes_lr = "lr" in inspect.signature(self.make).parameters
        except Exception:  # of some callables Python does not know it, and a user's object may raise
            takes_lr = False
        try:
            optimizer = self.make(params, **({"lr": lr} if takes_lr else {}))
        except Exception as error:  # what a user's class or function raises is told as what is wrong with the rule
            raise SpecError(
                "rule.target", _called(self.make), f"an optimizer that can be made; it says: {error_text(error)}"
            ) from None
        if not isinstance(optimizer, torch.optim.Optimizer):
            expected = f"a class or function that makes a torch.optim.Optimizer, not {type(optimizer).__name__}"
            raise SpecError("rule.target", _called(self.make), expected)
        if any("lr" not in group for group in optimizer.param_groups):
            expected = "an optimizer with a learning rate, lr, in each of its groups: the method sets it there"
            raise SpecError("rule.target", type(optimizer).__name__, expected)
        return optimizer

    def kept_shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the states that the optimizer keeps per parameter, from its first step.

        Found by stepping the shape on the meta device; where that fails, as of code that looks at values, by stepping a
        small tensor with as many sides, of which the states' sides are told.
        """
        cache: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = self._shapes
        key = tuple(shape)
        if key not in cache:
            try:
                cache[key] = self._shapes_of(torch.empty(key, device="meta"))
            except SpecError:
                cache[key] = self._shapes_by_small(key)
        return cache[key]

    @cached_property
    def _shapes(self) -> dict[tuple[int, ...], dict[str, tuple[int, ...]]]:
        return {}

    def _shapes_of(self, x: Tensor) -> dict[str, tuple[int, ...]]:
        others = [torch.ones(shape, device=x.device) for shape in self.probe.shapes]
        optimizer, (p, *_), _ = self._stepped([x, *others])
        items = optimizer.state[p].items()
        return {name: tuple(value.shape) for name, value in items if is_state(name, value, p, self.probe.states)}

    def _shapes_by_small(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        sides = [1 if n == 1 else prime for n, prime in zip(shape, PRIMES, strict=False)]
        true = dict(zip(sides, shape, strict=False))
        state_shapes = self._shapes_of(torch.ones(sides))
        return {name: tuple(_grown(n, true) for n in small) for name, small in state_shapes.items()}

    def _stepped(self, tensors: list[Tensor]) -> tuple[torch.optim.Optimizer, list[torch.nn.Parameter], Groups]:
        """Return an instance after a step, its parameters, and the options of its groups as it was made."""
        params = [torch.nn.Parameter(x) for x in tensors]
        with preserved(torch.device("cpu")):  # one that draws random numbers leaves the generators as they were
            optimizer = self.built(list(params), PROBE_LR)
            for kind, expected in REFUSED.items():
                if isinstance(optimizer, kind):
                    raise SpecError("rule.target", type(optimizer).__name__, expected)
            groups = tuple({k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups)
            for p in params:
                p.grad = torch.full_like(p, 0.5)
            try:
                optimizer.step()
            except Exception as error:  # as above
                message = error_text(error)
                expected = (
                    f"an optimizer that takes a step without a closure, of vectors and matrices; it says: {message}"
                )
                raise SpecError("rule.target", type(optimizer).__name__, expected) from None
        return optimizer, params, groups


def _grown(side: int, true: dict[int, int]) -> int:
    """Return the true size of a side of a probed state: the product of the true sides of its prime factors."""
    primes = [p for p in true if p > 1 and side % p == 0]
    return math.prod(true[p] for p in primes) if primes and math.prod(primes) == side else side


def _called(make: Any) -> str:
    while isinstance(make, partial):
        make = make.func
    return getattr(make, "__name__", type(make).__name__)
