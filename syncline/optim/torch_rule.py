"""Any ``torch.optim`` optimizer as an update rule, which steps the parameters of each worker unchanged."""

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

from syncline.errors import SpecError, error_text, require_one_of
from syncline.optim.base import Hyperparameters, SteppingRule, UpdateRule
from syncline.optim.instances import METHOD_KEYS, GroupOptions, Probe, TorchOptimizers, is_state
from syncline.optim.method import Method
from syncline.randomness import preserved

ELEMENTWISE = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax,
    torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.ASGD, torch.optim.Rprop,
)  # fmt: skip
"""Optimizers of torch that treat every coordinate separately, so that one instance can step all workers together."""

REFUSED = {
    torch.optim.LBFGS: "an optimizer that takes one gradient per step: this one evaluates the loss again by a closure",
    torch.optim.SparseAdam: "an optimizer of dense gradients: what is exchanged here is dense",
}

PRIMES = (7, 11, 13, 17, 19, 23)
"""Sides of a small parameter: the prime factors of a state's side tell the sides that it is computed from."""


@dataclass(frozen=True)
class TorchRule(SteppingRule):
    """An update rule that steps each worker's parameters by a ``torch.optim.Optimizer``, also one written by a user.

    Each worker has an optimizer of its own, because some compute norms over a layer. One of torch's elementwise
    optimizers steps all workers, with the same result in less time.

    Args:
        make: a class derived from ``torch.optim.Optimizer``, a ``functools.partial`` of such a class, or a function
            from a list of parameters to an optimizer. A class gets the method's parameter groups. A function may group
            its parameters; its first group then has the method's learning rate, and others keep their proportion.
        average_states: names of the optimizer's states that a sync policy may average.

    Raises:
        SpecError: the optimizer cannot be made, needs a closure to step, has no learning rate in its groups, or has no
            states of these names.
    """

    make: Callable[..., torch.optim.Optimizer]
    average_states: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.average_states:
            if not self.probe.states:
                raise SpecError("rule.average_states", name, f"none, as {self.probe.name} keeps no tensors")
            require_one_of("rule.average_states", name, self.probe.states)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the states of the torch optimizer that workers may average, such as ``exp_avg``."""
        return self.average_states

    @property
    def is_class(self) -> bool:
        """Return whether the optimizer takes parameter groups with their options, as torch's classes do."""
        return isinstance(self.target, type)

    @property
    def target(self) -> Any:
        """Return the class or function that makes the optimizer, without the options that a ``partial`` binds."""
        target: Any = self.make
        while isinstance(target, partial):
            target = target.func
        return target

    @cached_property
    def probe(self) -> Probe:
        """Return the properties of the optimizer, found by one step with a small vector and a small matrix.

        Raises:
            SpecError: the optimizer can step neither vectors nor matrices.
        """
        vector, matrix = (2,), (3, 2)
        errors = []
        for shapes in ((vector, matrix), (matrix,), (vector,)):  # some optimizers step only matrices, some only vectors
            try:
                optimizer, params, groups = self._make_and_step([torch.ones(shape) for shape in shapes])
            except SpecError as error:
                errors.append(error)
                continue
            state_names: list[str] = []
            for p in params:
                for name, value in optimizer.state[p].items():
                    if is_state(name, value, p, state_names=()) and name not in state_names:
                        state_names.append(name)
            # A user's function may depend on the shapes of its parameters, so only known classes are elementwise.
            elementwise = self.is_class and type(optimizer) in ELEMENTWISE
            return Probe(type(optimizer).__name__, groups, tuple(state_names), elementwise, shapes)
        raise errors[0]

    def hyperparameters(self) -> dict[str, Any]:
        """Return the options that all groups of the torch optimizer share, by name, except those that the method sets.

        They become the defaults of the method's groups, in which a user or a schedule can change them.
        """
        first_group, *other_groups = self.probe.groups
        shared_options = {}
        for name, value in first_group.items():
            is_shared = all(name in group and group[name] == value for group in other_groups)
            if is_shared and name not in METHOD_KEYS and name != "lr":
                shared_options[name] = value
        return shared_options

    def split_group(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return one pair, this rule and the whole group, because a torch optimizer updates all of a group.

        Raises:
            SpecError: the group has a weight decay, which the torch optimizer does not take.
        """
        if group.get("weight_decay") and not any("weight_decay" in options for options in self.probe.groups):
            raise SpecError("weight_decay", group["weight_decay"], f"none, as {self.probe.name} has none")
        return [(self, group)]

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return an empty dictionary, because a torch optimizer creates its states in its first step."""
        return {}

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return None, so that a method moves no parameter by this rule; the torch optimizers do it as steppers."""
        return None

    @override
    def steppers(self, method: Method, worker_axis: bool) -> TorchOptimizers:
        """Return the torch optimizers, one for each worker, that step the parameters of a method."""
        if method.defaults["weight_decay"]:
            raise SpecError("weight_decay", method.defaults["weight_decay"], "none: the optimizer's own is an option")
        return TorchOptimizers(self, method, worker_axis)

    def make_optimizer(self, params: list[Any], lr: float) -> torch.optim.Optimizer:
        """Return a new torch optimizer for parameters, or for parameter groups if it is made from a class.

        ``lr`` is passed if the class or function has an argument of this name.

        Raises:
            SpecError: the optimizer cannot be made; the error repeats its message.
        """
        target_name = getattr(self.target, "__name__", type(self.target).__name__)
        try:
            takes_lr = "lr" in inspect.signature(self.make).parameters
        except Exception:  # some callables have no signature, and a user's object may raise any error
            takes_lr = False
        try:
            optimizer = self.make(params, lr=lr) if takes_lr else self.make(params)
        except Exception as error:  # any error of a user's class or function is a wrong rule
            expected = f"an optimizer that can be created; it says: {error_text(error)}"
            raise SpecError("rule.target", target_name, expected) from None
        if not isinstance(optimizer, torch.optim.Optimizer):
            expected = f"a class or function that makes a torch.optim.Optimizer, not {type(optimizer).__name__}"
            raise SpecError("rule.target", target_name, expected)
        if any("lr" not in group for group in optimizer.param_groups):
            expected = "an optimizer with a learning rate, lr, in each of its groups: the method sets it there"
            raise SpecError("rule.target", type(optimizer).__name__, expected)
        return optimizer

    def state_shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the states, by name, that the optimizer keeps for a parameter of this shape.

        They are found by a step on the meta device, which needs no memory. If the optimizer reads values, a small
        tensor with as many dimensions is stepped instead, and the sides of its states are scaled up.
        """
        cache: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = self._state_shapes_cache
        large_shape = tuple(shape)
        if large_shape not in cache:
            try:
                cache[large_shape] = self._measure_state_shapes(torch.empty(large_shape, device="meta"))
            except SpecError:  # the optimizer reads values
                # The prime factors of a state's side tell the sides of the parameter from which it is computed.
                small_shape = [1 if n == 1 else prime for n, prime in zip(large_shape, PRIMES, strict=False)]
                large_sides = dict(zip(small_shape, large_shape, strict=False))
                cache[large_shape] = {}
                for name, state_shape in self._measure_state_shapes(torch.ones(small_shape)).items():
                    cache[large_shape][name] = tuple(_scaled_up(side, large_sides) for side in state_shape)
        return cache[large_shape]

    @cached_property
    def _state_shapes_cache(self) -> dict[tuple[int, ...], dict[str, tuple[int, ...]]]:
        """Return the empty cache of `state_shapes`: for a parameter's shape, the shapes of its states by name."""
        return {}

    def _measure_state_shapes(self, x: Tensor) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the states, by name, that the optimizer keeps for a parameter ``x`` after a step."""
        # The optimizer also steps the tensors of the probe, because a user's function may refuse a single parameter.
        other_tensors = [torch.ones(shape, device=x.device) for shape in self.probe.shapes]
        optimizer, params, _ = self._make_and_step([x, *other_tensors])
        p = params[0]
        shapes = {}
        for name, value in optimizer.state[p].items():
            if is_state(name, value, p, self.probe.states):
                shapes[name] = tuple(value.shape)
        return shapes

    def _make_and_step(
        self, tensors: list[Tensor]
    ) -> tuple[torch.optim.Optimizer, list[torch.nn.Parameter], GroupOptions]:
        """Make a torch optimizer for parameters with these values, and take a step, after which it has its states.

        The gradients are 0.5, because with 0 a state may be missing. Global random generators are left as they were.

        Returns:
            (optimizer, parameters, options of each parameter group).
        """
        params = [torch.nn.Parameter(x) for x in tensors]
        with preserved(torch.device("cpu")):
            optimizer = self.make_optimizer(list(params), lr=1e-3)
            for kind, expected in REFUSED.items():
                if isinstance(optimizer, kind):
                    raise SpecError("rule.target", type(optimizer).__name__, expected)
            groups = []
            for group in optimizer.param_groups:
                groups.append({name: value for name, value in group.items() if name != "params"})
            for p in params:
                p.grad = torch.full_like(p, 0.5)
            try:
                optimizer.step()
            except Exception as error:  # any error of a user's optimizer is a wrong rule
                requirement = "an optimizer that takes a step without a closure, of vectors and matrices"
                expected = f"{requirement}; it says: {error_text(error)}"
                raise SpecError("rule.target", type(optimizer).__name__, expected) from None
        return optimizer, params, tuple(groups)


def _scaled_up(side: int, large_sides: dict[int, int]) -> int:
    """Return the side of a large parameter's state that corresponds to a side of a small parameter's state.

    The sides of the small parameter are different primes, or 1; ``large_sides`` maps them to the large parameter's
    sides. In a product of these primes, the large sides replace the primes. Any other side does not depend on the
    parameter's shape.
    """
    primes = [small_side for small_side in large_sides if small_side > 1 and side % small_side == 0]
    if not primes or math.prod(primes) != side:
        return side
    return math.prod(large_sides[prime] for prime in primes)
