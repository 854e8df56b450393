"""Rules of several momenta, or of a momentum and the gradient itself, as specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.fields import MANY, Positive, Rate, Spec, refusal
from syncline.methods.parts.method_spec import elements
from syncline.methods.parts.rule_spec import RuleBase

Weight = Annotated[float, Field(ge=0, le=1)]

MomentaBase = Literal["adam", "adopt", "sgdm", "muon"]
"""What momenta are mixed over: Adam's or ADOPT's second moment, none, or Muon's polar factor."""


def check_momenta(betas: Sequence[float], omegas: Sequence[float]) -> None:
    """Refuse another number of weights than of momenta, and weights whose sum is above 1.

    Raises:
        PydanticCustomError: names the field ``omegas``.
    """
    if len(omegas) != len(betas):
        raise refusal("omegas", omegas, f"one weight per beta ({len(betas)})")
    if sum(omegas) > 1 + 1e-12:
        raise refusal("omegas", omegas, "weights whose sum is at most 1")


class QHMRule(RuleBase):
    """Quasi-hyperbolic momentum, in the ema form, with its recommended rates.

    Args:
        momentum: decay rate of the momentum, an exponential moving average of gradients.
        nu: weight of the momentum in the direction; the gradient has weight ``1 - nu``.
    """

    builder: ClassVar[str] = "qhm"
    num_states: ClassVar[int] = 1

    kind: Literal["qhm"] = "qhm"
    momentum: Rate = 0.999
    nu: Weight = 0.7


class QHAdamRule(RuleBase):
    """QHAdam, with its recommended rates; MT-DAO's baseline has ``beta1`` 0.999 and ``nu1`` 0.95 to 0.98.

    Args:
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        nu1: weight of the first moment in the numerator; the gradient has weight ``1 - nu1``.
        nu2: weight of the second moment under the root; the squared gradient has weight ``1 - nu2``.
        eps: number added to the root.
    """

    builder: ClassVar[str] = "qhadam"

    kind: Literal["qhadam"] = "qhadam"
    beta1: Rate = 0.995
    beta2: Rate = 0.999
    nu1: Weight = 0.7
    nu2: Weight = 1.0
    eps: Positive = 1e-8


class QHAdoptRule(RuleBase):
    """QHADOPT, with the rates of MT-DAO's baseline.

    Args:
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        nu: weight of the momentum in the direction; the normalised gradient has weight ``1 - nu``.
        eps: lower bound of the root, as in ADOPT.
    """

    builder: ClassVar[str] = "qhadopt"

    kind: Literal["qhadopt"] = "qhadopt"
    beta1: Rate = 0.999
    beta2: Rate = 0.9999
    nu: Weight = 0.98
    eps: Positive = 1e-6


class AggMoRule(RuleBase):
    """Aggregated momentum: the mean of several heavy-ball momenta.

    Args:
        betas: decay rate of each momentum; a momentum of decay 0 is the gradient and needs no state.
    """

    builder: ClassVar[str] = "aggmo"

    kind: Literal["aggmo"] = "aggmo"
    betas: Annotated[tuple[Rate, ...], Field(min_length=1)] = (0.0, 0.9, 0.99)

    @property
    def momenta(self) -> int:
        """Return the number of momenta kept: a momentum of decay 0 is the gradient."""
        return sum(beta > 0 for beta in self.betas)

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        return self.momenta * elements(tensors)


class AdEMAMixRule(RuleBase):
    """AdEMAMix, with its public code's rates; its authors warm alpha and beta3 up over a whole training.

    Args:
        beta1: decay rate of the fast momentum.
        beta2: decay rate of the second moment.
        beta3: decay rate of the slow momentum.
        alpha: weight of the slow momentum, which is added to the fast one; with 0 the rule is Adam.
        eps: number added to the root.
        alpha_warmup_steps: number of steps in which alpha grows linearly from 0; with 0 it is constant.
        beta3_warmup_steps: number of steps in which the slow momentum's decay rate grows from ``beta1`` to ``beta3``;
            with 0 it is constant.
    """

    builder: ClassVar[str] = "AdEMAMix"
    num_states: ClassVar[int] = 3

    kind: Literal["ademamix"] = "ademamix"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    beta3: Rate = 0.9999
    alpha: Annotated[float, Field(ge=0)] = 2.0
    eps: Positive = 1e-8
    alpha_warmup_steps: Annotated[int, Field(ge=0, le=MANY)] = 0
    beta3_warmup_steps: Annotated[int, Field(ge=0, le=MANY)] = 0

    @property
    def momenta(self) -> int:
        """Return 2, the number of momenta: a fast one and a slow one."""
        return 2


class MultiMomentumRule(Spec, defer_build=False):
    """MT-DAO's mixture of momenta as a rule: under ``ddp`` what MT-DAO is compared with, for any number of momenta."""

    kind: Literal["multi-momentum"] = "multi-momentum"
    base: MomentaBase = "adam"
    betas: Annotated[tuple[Rate, ...], Field(min_length=1)] = (0.999,)
    omegas: tuple[Weight, ...] = (0.95,)
    beta2: Rate | None = None
    eps: Positive | None = None
    bias_correction: bool = True

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        check_momenta(self.betas, self.omegas)
        return self

    @property
    def momenta(self) -> int:
        """Return N, the number of momenta."""
        return len(self.betas)

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of these parameters; Muon's matrices have no second moment."""
        scaled = [t for t in tensors if self.base != "sgdm" and not (self.base == "muon" and t.is_matrix)]
        return self.momenta * elements(tensors) + elements(scaled)

    def build(self) -> optim.UpdateRule:
        """Build the update rule."""

        knobs: dict[str, Any] = {"beta2": self.beta2, "eps": self.eps, "bias_correction": self.bias_correction}
        return optim.multi_momentum_rule(self.base, self.betas, self.omegas, **knobs)
