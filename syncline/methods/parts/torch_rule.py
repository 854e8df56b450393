"""The spec of a ``torch.optim`` optimizer as update rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from inspect import Parameter
from typing import Any, Literal, Self

from pydantic import ConfigDict, field_serializer, field_validator, model_validator

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, refusal, refusals
from syncline.methods.parts.method_spec import MethodBase, elements
from syncline.registry import import_reference, is_reference, reference_to

EXPECTED_TARGET = "a class derived from torch.optim.Optimizer, or a function that makes one"

NAMES = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
)  # fmt: skip
"""Torch's own optimizers that can be an update rule."""

BUILT_IN = {f"torch.optim:{name}" for name in NAMES} | {f"torch.optim.{name.lower()}:{name}" for name in NAMES}
"""References to these optimizers; specs may use them even if they may not name code."""


class TorchRuleSpec(Spec):
    """Any ``torch.optim`` optimizer as rule: ``{kind: torch, target: "torch.optim:AdamW", betas: [0.9, 0.95]}``.

    Args:
        target: ``module:name`` of an optimizer class, or of a function that returns an optimizer for a list of
            parameters. In Python also the class or function, or a ``functools.partial`` of either.
        average_states: names of the optimizer's states that are averaged whenever the parameters are averaged.
        **options: further arguments of ``target``; the parameters and the method's learning rate are passed anyway.
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["torch"] = "torch"
    target: Any
    average_states: tuple[str, ...] = ()

    @field_validator("target")
    @classmethod
    def _check_target(cls, target: Any) -> Any:
        """Raise an error unless the target is a callable, or a reference to one."""
        if isinstance(target, str):
            try:
                _import_target(target)
            except SpecError as error:
                raise refusal("", target, error.expected) from None
        elif not callable(target):
            hint = "; this one is an instance" if hasattr(target, "param_groups") else ""
            raise refusal("", type(target).__name__, EXPECTED_TARGET + hint)
        return target

    @field_serializer("target")
    def _reference_of(self, target: Any) -> str:
        """Return the text ``module:name`` with which a spec file names the target, an optimizer class or function."""
        return target if isinstance(target, str) else reference_to(target)

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        """Raise an error unless the optimizer can be made with its options and can step two small tensors."""
        names = options_of(self._make)
        for name, value in self._options.items():
            if name == "lr":
                raise refusal("lr", value, "none: the learning rate is the method's")
            if names is not None and name not in names:
                raise refusal(name, value, "no such option, but " + one_of([*names, "average_states"], name))
        with refusals("rule."):
            self.built.hyperparameters()  # makes the optimizer and steps it
        return self

    @property
    def _make(self) -> Callable[..., Any]:
        """Return the class or function that makes the optimizer, which is imported if ``target`` is a reference."""
        make: Callable[..., Any] = _import_target(self.target) if isinstance(self.target, str) else self.target
        return make

    @property
    def _options(self) -> dict[str, Any]:
        """Return the options of the optimizer by name, with tuples instead of the lists of spec files."""
        options = {}
        for name, value in (self.model_extra or {}).items():
            options[name] = tuple(value) if isinstance(value, list) else value
        return options

    @cached_property
    def built(self) -> optim.TorchRule:
        """Return the update rule, which knows the names and shapes of the optimizer's states."""
        make = partial(self._make, **self._options) if self._options else self._make
        return optim.TorchRule(make, self.average_states)

    @property
    def name(self) -> str:
        """Return the name of the optimizer's class."""
        return self.built.probe.name

    def check(self, method: MethodBase) -> None:
        """Raise an error for a field of the method that the optimizer sets itself, or for averaged states.

        Averaged states need a method that averages states of its rule, without a compressor.
        """
        if self.average_states and not method.averages_states:
            raise refusal("rule.average_states", self.average_states, "none: this method averages no states of a rule")
        if self.average_states and getattr(method, "compressor", None):
            # A compressor sends changes of an initial state, but the first step creates these states.
            expected = "none through a compressor, whose references begin before the optimizer's states do"
            raise refusal("rule.average_states", self.average_states, expected)
        if method.weight_decay:
            expected = "0 with an optimizer that has its own weight decay: set rule.weight_decay"
            raise refusal("weight_decay", method.weight_decay, expected)
        if method.other_lr is not None:
            raise refusal("other_lr", method.other_lr, "none: this rule takes all parameters")

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the optimizer's states for these parameters, without step counters."""
        return sum(elements(self._states(tensor)) for tensor in tensors)

    def averaged(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Return the shapes of the states of these parameters that are averaged."""
        averaged = []
        for tensor in tensors:
            averaged += [state for state in self._states(tensor) if state.name in self.average_states]
        return averaged

    def _states(self, tensor: TensorShape) -> list[TensorShape]:
        """Return the names and shapes of the optimizer's states for a parameter."""
        return [TensorShape(name, shape) for name, shape in self.built.state_shapes(tensor.shape).items()]

    def build(self) -> optim.TorchRule:
        """Return the update rule, which was built when the spec was checked."""
        return self.built


def from_optimizer(value: Any) -> Any:
    """Return the fields of `TorchRuleSpec` for an optimizer's reference, class, function or `optim.TorchRule`.

    All other values are returned unchanged.
    """
    if hasattr(value, "make") and hasattr(value, "average_states"):  # an `optim.TorchRule`, without importing torch
        return _spec_fields(value.make) | {"average_states": value.average_states}
    if is_reference(value) or isinstance(value, type) or callable(value) or hasattr(value, "param_groups"):
        return _spec_fields(value)
    if isinstance(value, dict) and value.get("kind") == "torch" and callable(value.get("target")):
        target_fields = _spec_fields(value["target"])  # splits a ``partial`` into function and options
        return target_fields | value | {"target": target_fields["target"]}
    return value


def _spec_fields(make: Any) -> dict[str, Any]:
    """Return the fields of `TorchRuleSpec` for a class or function, or for a ``functools.partial`` with its options."""
    options: dict[str, Any] = {}
    while isinstance(make, partial) and not make.args:  # positional arguments have no name in a spec
        make, options = make.func, {**make.keywords, **options}
    return {"kind": "torch", "target": make, **options}


def _import_target(target: str) -> Any:
    """Return the object that a reference names.

    Raises:
        SpecError: it cannot be imported, or is not callable.
    """
    if not is_reference(target) or target.startswith("__main__:"):  # another process could not import from __main__
        hint = "pass an object that is defined in a notebook, a script or a function itself"
        raise SpecError("rule.target", target, f"module:name or file.py:name; {hint}")
    target_object = import_reference(target, "rule.target", installed=target in BUILT_IN)
    if not callable(target_object):
        raise SpecError("rule.target", target, EXPECTED_TARGET)
    return target_object


def options_of(target: Any) -> list[str] | None:
    """Return the names of the options of an optimizer's class or function, without parameters and ``lr``.

    The result is None if the options are unknown, or if the class or function accepts any option.

    Raises:
        SpecError: ``target`` is a reference that cannot be imported.
    """
    make = _import_target(target) if isinstance(target, str) else target
    try:
        (_, *options) = inspect.signature(make).parameters.values()  # the first argument is the parameters
    except Exception:  # some callables have no signature, and a user's object may raise any error
        return None
    if any(option.kind == option.VAR_KEYWORD for option in options):
        return None
    named_kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [option.name for option in options if option.kind in named_kinds and option.name != "lr"]
