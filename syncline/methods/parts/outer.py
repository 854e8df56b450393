"""Outer optimizers as specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.fields import Positive, Rate, Spec, from_name, tag
from syncline.methods.parts.method_spec import elements
from syncline.methods.parts.python_objects import or_object


class NesterovOuter(Spec):
    """Nesterov momentum on the averaged pseudo-gradient.

    Args:
        lr: outer learning rate.
        momentum: momentum coefficient.
    """

    kind: Literal["nesterov"] = "nesterov"
    lr: Positive = 0.7
    momentum: Rate = 0.9

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the parameters at the start of the period and of the momentum."""
        return 2 * elements(tensors)

    def build(self) -> optim.OuterOptimizer:
        """Build the outer optimizer."""

        return optim.Nesterov(self.lr, self.momentum)


class FedAdamOuter(Spec):
    """Adam on the averaged pseudo-gradient.

    Args:
        lr: outer learning rate.
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
    """

    kind: Literal["fedadam"] = "fedadam"
    lr: Positive = 0.01
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    eps: Positive = 1e-3

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the parameters at the start of the period and of both moments."""
        return 3 * elements(tensors)

    def build(self) -> optim.OuterOptimizer:
        """Build the outer optimizer."""

        return optim.FedAdam(self.lr, self.beta1, self.beta2, self.eps)


def _with_kind(value: Any) -> Any:
    value = from_name(value)
    return {"kind": "nesterov", **value} if isinstance(value, dict) else value


OuterSpec = Annotated[
    Annotated[NesterovOuter, Tag("kind:nesterov")] | Annotated[FedAdamOuter, Tag("kind:fedadam")],
    Discriminator(tag),
    BeforeValidator(_with_kind),
    or_object("syncline.optim:OuterOptimizer"),
]
