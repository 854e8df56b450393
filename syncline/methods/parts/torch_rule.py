"""An optimizer of torch's kind as the update rule of a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal, Self

from pydantic import ConfigDict, field_serializer, field_validator, model_validator

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, refusal
from syncline.methods.parts.method_spec import MethodBase
from syncline.registry import import_reference, is_reference, reference_to

CLASS = "a class derived from torch.optim.Optimizer, or a function that makes one"

NAMES = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
)  # fmt: skip
"""Torch's own optimizers that can be a rule."""

BUILT_IN = frozenset(f"torch.optim{module}:{name}" for name in NAMES for module in ("", f".{name.lower()}"))
"""What specs call them, by `torch.optim` or by the module of the class. A spec may name these where no code may run."""


class TorchRuleSpec(Spec):
    """An optimizer of torch's kind, by anybody: ``{kind: torch, target: "torch.optim:AdamW", betas: [0.9, 0.95]}``.

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
    def _names_one(cls, target: Any) -> Any:
        if isinstance(target, str):
            try:
                _import_target(target)
            except SpecError as error:
                raise refusal("", target, error.expected) from None
        elif not callable(target):
            hint = "; this one is made already" if hasattr(target, "param_groups") else ""
            raise refusal("", type(target).__name__, CLASS + hint)
        return target

    @field_serializer("target")
    def _written(self, target: Any) -> str:
        return target if isinstance(target, str) else reference_to(target)

    @model_validator(mode="after")
    def _works(self) -> Self:
        """Check that the optimizer can be made and can take a step, on two small tensors."""
        _check_options(self._make, self._options)
        try:
            self.built.hyperparameters()
        except SpecError as error:
            raise refusal(error.path.removeprefix("rule."), error.value, error.expected) from None
        return self

    @property
    def _make(self) -> Callable[..., Any]:
        make: Callable[..., Any] = _import_target(self.target) if isinstance(self.target, str) else self.target
        return make

    @property
    def _options(self) -> dict[str, Any]:
        """Convert lists of a file to tuples."""
        return {k: tuple(v) if isinstance(v, list) else v for k, v in (self.model_extra or {}).items()}

    @cached_property
    def built(self) -> optim.TorchRule:
        """Return the update rule, which has the names and shapes of the optimizer's states."""

        return optim.TorchRule(
            partial(self._make, **self._options) if self._options else self._make, self.average_states
        )

    @property
    def name(self) -> str:
        """Return the name of the optimizer's class."""
        return self.built.probe.name

    def check(self, method: MethodBase) -> None:
        """Refuse method fields that the optimizer itself sets, and averaged states if the method averages no states.

        Raises:
            PydanticCustomError: names the wrong field of the method.
        """
        if self.average_states and not method.averages_states:
            raise refusal("rule.average_states", self.average_states, "none: this method averages no states of a rule")
        if self.average_states and getattr(method, "compressor", None):
            expected = "none through a compressor, whose references begin before the optimizer's states do"
            raise refusal("rule.average_states", self.average_states, expected)
        if method.weight_decay:
            expected = "0 beside an optimizer with a decay of its own kind: give it as rule.weight_decay"
            raise refusal("weight_decay", method.weight_decay, expected)
        if method.other_lr is not None:
            raise refusal("other_lr", method.other_lr, "none: this rule takes all parameters")

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states that the optimizer makes, without step counters."""
        return sum(state.elements for tensor in tensors for state in self._states(tensor))

    def averaged(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Return the averaged states of these parameters."""
        return [state for tensor in tensors for state in self._states(tensor) if state.name in self.average_states]

    def _states(self, tensor: TensorShape) -> list[TensorShape]:
        return [TensorShape(name, shape) for name, shape in self.built.kept_shapes(tensor.shape).items()]

    def build(self) -> optim.TorchRule:
        """Return the update rule, already built."""
        return self.built


def from_optimizer(value: Any) -> Any:
    """Return the fields of `TorchRuleSpec` for ``module:name``, a class, a function, or a rule made of these."""
    if hasattr(value, "make") and hasattr(value, "average_states"):
        return _fields(value.make) | {"average_states": value.average_states}
    if is_reference(value) or isinstance(value, type) or callable(value) or hasattr(value, "param_groups"):
        return _fields(value)
    if isinstance(value, dict) and value.get("kind") == "torch" and callable(value.get("target")):
        fields = _fields(value["target"])
        return fields | value | {"target": fields["target"]}
    return value


def _fields(make: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    while isinstance(make, partial) and not make.args:
        make, options = make.func, {**make.keywords, **options}
    return {"kind": "torch", "target": make, **options}


def _import_target(target: str) -> Any:
    if not is_reference(target) or target.startswith("__main__:"):
        expected = "module:name or file.py:name; what a notebook, a script or a function defines is given as an object"
        raise SpecError("rule.target", target, expected)
    target_object = import_reference(target, "rule.target", installed=target in BUILT_IN)
    if not callable(target_object):
        raise SpecError("rule.target", target, CLASS)
    return target_object


def options_of(target: Any) -> list[str] | None:
    """Return the names of a target's other arguments than parameters and ``lr``; None if unknown or unlimited.

    Raises:
        SpecError: of a ``module:name`` that is none.
    """
    make = _import_target(target) if isinstance(target, str) else target
    try:
        (_, *parameters) = inspect.signature(make).parameters.values()  # the first are the parameters
    except Exception:  # of some callables Python does not know them, some have none, and a user's object may raise
        return None
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name != "lr"
    ]


def _check_options(make: Any, options: dict[str, Any]) -> None:
    names = options_of(make)
    for name, value in options.items():
        if name == "lr":
            raise refusal("lr", value, "none: the learning rate is the method's")
        if names is not None and name not in names:
            raise refusal(name, value, "no such option of it, but " + one_of([*names, "average_states"], name))
