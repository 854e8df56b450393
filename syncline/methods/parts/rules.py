"""Specs of update rules, such as SGD with momentum, Adam, Lion, Muon, and rules with several momenta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.costmodel.compute.update_work import UpdateWork, orthogonal_work
from syncline.fields import MANY, Positive, Rate, Spec, from_name, refusal, tag
from syncline.methods.parts.method_spec import elements, or_object
from syncline.methods.parts.torch_rule import TorchRuleSpec, from_optimizer


class RuleBase(Spec, defer_build=False):
    """The spec of an update rule, whose fields are the arguments of a function of `syncline.optim`."""

    builder: ClassVar[str]
    """Name of the function."""

    num_states: ClassVar[int] = 2
    """Number of states of each parameter; a state has the shape of the parameter."""

    kind: str

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        return self.num_states * elements(tensors)

    def build(self) -> optim.UpdateRule:
        """Build the update rule."""
        arguments = {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}
        rule: optim.UpdateRule = getattr(optim, self.builder)(**arguments)
        return rule


Weight = Annotated[float, Field(ge=0, le=1)]

MomentaBase = Literal["adam", "adopt", "sgdm", "muon"]
"""The scaling of a mixture of momenta: Adam's, ADOPT's, none, or Muon's polar factor."""


def check_momenta(betas: Sequence[float], omegas: Sequence[float]) -> None:
    """Raise an error of the field ``omegas`` if there is not one weight per momentum, or their sum is above 1."""
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
    """AdEMAMix, with the rates of its public code; its authors let alpha and beta3 grow over a whole training.

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
    """MT-DAO's mixture of momenta as an update rule. Used with ``ddp``, it is the baseline of MT-DAO.

    Args:
        base: scaling of the mixture: ``adam``, ``adopt``, ``sgdm`` (none) or ``muon``.
        betas: decay rates of the momenta.
        omegas: weights of the momenta, with a sum of at most 1; the gradient has the remaining weight.
        beta2: decay rate of the second moment; by default the base's.
        eps: number added to the root of the second moment (Adam), or its lower bound (ADOPT); by default the base's.
        bias_correction: whether momenta and second moment are corrected for their start at zero (Adam only).
    """

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


class SGDMRule(RuleBase):
    """SGD with momentum; heavy-ball is torch's ``SGD``, ema is MT-DAO's form.

    Args:
        momentum: decay rate of the momentum; with 0 the rule is plain SGD.
        form: ``heavy-ball``, ``u <- momentum u + g``; ``ema``, ``u <- momentum u + (1 - momentum) g``.
    """

    builder: ClassVar[str] = "sgdm"

    kind: Literal["sgdm"] = "sgdm"
    momentum: Rate = 0.9
    form: Literal["heavy-ball", "ema"] = "heavy-ball"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        return elements(tensors) if self.momentum else 0


class AdamRule(RuleBase):
    """Adam; AdamW with the method's ``weight_decay``.

    Args:
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether both moments are corrected for their start at zero.
    """

    builder: ClassVar[str] = "adam"

    kind: Literal["adam"] = "adam"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Positive = 1e-8
    bias_correction: bool = True


class AdaSGDRule(RuleBase):
    """AdaSGD: Adam with one second moment per tensor instead of one per element.

    Args:
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
    """

    builder: ClassVar[str] = "ada_sgd"

    kind: Literal["ada-sgd"] = "ada-sgd"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Positive = 1e-8


class NesterovAdamRule(RuleBase):
    """NAdam, with the rates of asynchronous Nesterov pipelines.

    Args:
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        momentum_decay: psi, which sets how fast the momentum's weight grows to ``beta1``; see ``NesterovAdam``.
    """

    builder: ClassVar[str] = "NesterovAdam"

    kind: Literal["nadam"] = "nadam"
    beta1: Rate = 0.99
    beta2: Rate = 0.999
    eps: Positive = 1e-8
    momentum_decay: float = Field(default=0.004, ge=0)


class AdoptRule(RuleBase):
    """ADOPT, with its published defaults.

    Args:
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: lower bound of the root of the second moment.
    """

    builder: ClassVar[str] = "adopt"

    kind: Literal["adopt"] = "adopt"
    beta1: Rate = 0.9
    beta2: Rate = 0.9999
    eps: Positive = 1e-6


class LionRuleSpec(RuleBase):
    """Lion, with its published rates.

    Args:
        beta1: weight of the momentum in the update vector; the gradient has weight ``1 - beta1``.
        beta2: decay rate of the momentum.
    """

    builder: ClassVar[str] = "lion"
    num_states: ClassVar[int] = 1

    kind: Literal["lion"] = "lion"
    beta1: Rate = 0.9
    beta2: Rate = 0.99


OtherRule = Literal["adam", "lion"]
"""The rule of parameters that are not matrices, if matrices have another rule."""

OTHER_RULES: dict[str, AdamRule | LionRuleSpec] = {"adam": AdamRule(), "lion": LionRuleSpec()}


class MuonRule(Spec, defer_build=False):
    """Muon for matrices; for everything else Adam, or another rule, with its defaults.

    Args:
        momentum: decay rate of the momentum.
        nesterov: whether the gradient is mixed into the momentum before the orthogonalisation.
        adjust_lr: factor of the update that depends on a matrix's shape, see ``shape_scale`` in ``syncline.optim``.
        other_rule: rule of the parameters that are not matrices.
    """

    kind: Literal["muon"] = "muon"
    momentum: Rate = 0.95
    nesterov: bool = True
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original"
    other_rule: OtherRule = "adam"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        matrices = [tensor for tensor in tensors if tensor.is_matrix]
        others = [tensor for tensor in tensors if not tensor.is_matrix]
        return elements(matrices) + OTHER_RULES[self.other_rule].state_elements(others)

    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the work of orthogonalising matrices."""
        return orthogonal_work(tensors)

    def build(self) -> optim.UpdateRule:
        """Build the update rule."""

        return optim.muon(
            self.momentum,
            nesterov=self.nesterov,
            adjust_lr=self.adjust_lr,
            other_rule=OTHER_RULES[self.other_rule].build(),
        )


class ScionRule(RuleBase):
    """Scion without its constraint; the method's ``weight_decay: 1`` adds the constraint.

    Args:
        momentum: decay rate of the momentum.
        radius: radius of the norm ball of matrices and of vectors.
        table_radius: radius of the norm ball of tables, such as embeddings and the output head; by default
            ``60 radius`` with ``tables: sign``, and ``radius`` with ``tables: rows``.
        tables: norm of tables: ``sign`` limits each entry, ``rows`` limits the root mean square of each row.
    """

    builder: ClassVar[str] = "scion"

    kind: Literal["scion"] = "scion"
    momentum: Rate = 0.9
    radius: Positive = 50.0
    table_radius: Positive | None = None
    tables: Literal["sign", "rows"] = "sign"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        return elements(tensors) if self.momentum else 0

    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the work of orthogonalising matrices."""
        return orthogonal_work(tensors)


RuleSpec = Annotated[
    Annotated[SGDMRule, Tag("kind:sgdm")]
    | Annotated[AdamRule, Tag("kind:adam")]
    | Annotated[NesterovAdamRule, Tag("kind:nadam")]
    | Annotated[AdaSGDRule, Tag("kind:ada-sgd")]
    | Annotated[AdoptRule, Tag("kind:adopt")]
    | Annotated[QHMRule, Tag("kind:qhm")]
    | Annotated[QHAdamRule, Tag("kind:qhadam")]
    | Annotated[QHAdoptRule, Tag("kind:qhadopt")]
    | Annotated[AggMoRule, Tag("kind:aggmo")]
    | Annotated[AdEMAMixRule, Tag("kind:ademamix")]
    | Annotated[MultiMomentumRule, Tag("kind:multi-momentum")]
    | Annotated[LionRuleSpec, Tag("kind:lion")]
    | Annotated[MuonRule, Tag("kind:muon")]
    | Annotated[ScionRule, Tag("kind:scion")]
    | Annotated[TorchRuleSpec, Tag("kind:torch")],
    Discriminator(tag),
    BeforeValidator(from_name),
    or_object("syncline.optim:UpdateRule"),
    BeforeValidator(from_optimizer),
]


def rule_name(rule: Any) -> str:
    """Return the name of a rule within a method's name: its kind, or the class of a Python object."""
    return str(getattr(rule, "name", rule.kind))


def state_names(rule: Any) -> tuple[str, ...]:
    """Return the names of the states of a rule: its momenta and, if it has one more state, the second moment."""
    num_states, num_momenta = rule.state_elements([TensorShape("", (1,))]), getattr(rule, "momenta", 1)
    names = tuple(f"momentum_{j}" for j in range(1, min(num_states, num_momenta) + 1))
    return (*names, "second_moment") if num_states > num_momenta else names


def averaged_of(rule: Any, tensors: Sequence[TensorShape]) -> tuple[tuple[str, ...], list[TensorShape]]:
    """Return the names, and the shapes for these parameters, of the states that ``average_states`` of a rule names.

    Only torch optimizers have this field.
    """
    return (rule.average_states, rule.averaged(tensors)) if isinstance(rule, TorchRuleSpec) else ((), [])
