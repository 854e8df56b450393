"""Specs of update rules, such as SGD with momentum, Adam, Lion, Muon, and rules with several momenta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.costmodel.compute.update_work import ADAM, ElementwiseWork, UpdateWork, orthogonal_work
from syncline.fields import MANY, ByKind, Positive, Rate, Spec, refusal
from syncline.methods.parts.method_spec import elements, or_object
from syncline.methods.parts.torch_rule import TorchRuleSpec, from_optimizer


class RuleBase(Spec):
    """The base of specs of update rules, whose fields are the arguments of a function or class of `syncline.optim`."""

    builder: ClassVar[str]
    """Name of the function or class."""

    num_states: ClassVar[int] = 2
    """Number of states of each parameter; a state has the shape of the parameter."""

    elementwise: ClassVar[ElementwiseWork] = ADAM
    """Elementwise operations on the GPU that compute the direction of a step, by their bytes per number."""

    kind: str

    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the update of parameters of these shapes."""
        return UpdateWork(self.elementwise.on(tensors))

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of parameters of these shapes."""
        return self.num_states * elements(tensors)

    def build(self) -> optim.UpdateRule:
        """Build the update rule from the fields of the spec."""
        arguments = {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}
        rule: optim.UpdateRule = getattr(optim, self.builder)(**arguments)
        return rule


Weight = Annotated[float, Field(ge=0, le=1)]

SCALINGS = {
    "adam": ElementwiseWork(foreach_bytes=60),
    "adopt": ElementwiseWork(kernel_bytes=72, kernels=7),
    "sgdm": ElementwiseWork(),
    "muon": ElementwiseWork(foreach_bytes=60),
}
"""Elementwise operations of the scaling of a mixture of momenta; that of Muon is for other parameters than matrices."""


def multi_momentum_work(base: str, omegas: Sequence[float], tensors: Sequence[TensorShape]) -> UpdateWork:
    """Return the operations of an update that mixes momenta and gradient, and scales the mixture as ``base`` does.

    There is a momentum for each weight in ``omegas``; the gradient has the rest of the weight.
    """
    # A momentum reads and writes 24 bytes per number, and the gradient 8. Without the gradient, the first momentum
    # saves 4 bytes, because nothing is added to it.
    foreach_bytes = 24 * len(omegas) + (8 if sum(omegas) < 1 else -4)
    mixing = ElementwiseWork(foreach_bytes=foreach_bytes).on(tensors)
    if base != "muon":
        return UpdateWork(mixing + SCALINGS[base].on(tensors))
    scaling = SCALINGS[base].on(t for t in tensors if not t.is_matrix)
    return UpdateWork(mixing + scaling) + orthogonal_work(tensors)


MomentaBase = Literal["adam", "adopt", "sgdm", "muon"]
"""The scaling of a mixture of momenta: Adam's, ADOPT's, none, or Muon's polar factor."""


class MomentaFields(Spec):
    """The fields of an update rule with several momenta, see `optim.multi_momentum_rule`.

    Args:
        betas: decay rates of the N momenta.
        omegas: weights of the momenta, with a sum of at most 1; the gradient has the remaining weight.
        base: ``adam``, ``adopt`` or ``sgdm`` (Algorithms 1, 2, 3), or ``muon`` (Appendix H.7).
        beta2: decay rate of the second moment; by default the base's.
        eps: number added to the root of the second moment (Adam), or its lower bound (ADOPT); by default the base's.
        bias_correction: whether momenta and second moment are corrected for their start at zero (Adam only).
    """

    kind: str
    base: MomentaBase = "adam"
    betas: tuple[Rate, ...] = (0.999,)
    omegas: tuple[Weight, ...] = (0.95,)
    beta2: Rate | None = None
    eps: Positive | None = None
    bias_correction: bool = True

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        """Raise an error unless there is one weight per momentum, with a sum of at most 1."""
        if len(self.omegas) != len(self.betas):
            raise refusal("omegas", self.omegas, f"one weight per beta ({len(self.betas)})")
        if sum(self.omegas) > 1 + 1e-12:
            raise refusal("omegas", self.omegas, "weights whose sum is at most 1")
        return self

    def momenta_rule(self, **switch: Any) -> optim.UpdateRule:
        """Build the update rule; for a warmup, ``switch`` contains ``switch_step`` and ``warmup_beta``."""
        names = ("base", "betas", "omegas", "beta2", "eps", "bias_correction")
        return optim.multi_momentum_rule(**{name: getattr(self, name) for name in names}, **switch)


class QHMRule(RuleBase):
    """The spec of `optim.qhm`, quasi-hyperbolic momentum, with its recommended rates."""

    builder = "qhm"
    num_states = 1
    elementwise = ElementwiseWork(foreach_bytes=32)

    kind: Literal["qhm"] = "qhm"
    momentum: Rate = 0.999
    nu: Weight = 0.7


class QHAdamRule(RuleBase):
    """The spec of `optim.qhadam`, with its recommended rates; MT-DAO's has beta1 0.999 and nu1 0.95 to 0.98."""

    builder = "qhadam"
    elementwise = ElementwiseWork(foreach_bytes=92)

    kind: Literal["qhadam"] = "qhadam"
    beta1: Rate = 0.995
    beta2: Rate = 0.999
    nu1: Weight = 0.7
    nu2: Weight = 1.0
    eps: Positive = 1e-8


class QHAdoptRule(RuleBase):
    """The spec of `optim.qhadopt`, with the rates of MT-DAO's baseline."""

    builder = "qhadopt"
    elementwise = ElementwiseWork(foreach_bytes=32, kernel_bytes=72, kernels=7)

    kind: Literal["qhadopt"] = "qhadopt"
    beta1: Rate = 0.999
    beta2: Rate = 0.9999
    nu: Weight = 0.98
    eps: Positive = 1e-6


class AggMoRule(RuleBase):
    """The spec of `optim.aggmo`, aggregated momentum."""

    builder = "aggmo"

    kind: Literal["aggmo"] = "aggmo"
    betas: Annotated[tuple[Rate, ...], Field(min_length=1)] = (0.0, 0.9, 0.99)

    @property
    def num_momenta(self) -> int:
        """Return the number of momenta kept: a momentum of decay 0 is the gradient."""
        return sum(beta > 0 for beta in self.betas)

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of parameters of these shapes."""
        return self.num_momenta * elements(tensors)

    @override
    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the momenta and of their sum."""
        foreach_bytes = 8 + 32 * self.num_momenta  # per number, of the gradient and of each momentum
        return UpdateWork(ElementwiseWork(foreach_bytes=foreach_bytes).on(tensors))


class AdEMAMixRule(RuleBase):
    """The spec of `optim.AdEMAMix`; its authors let alpha and beta3 grow over a whole training."""

    builder = "AdEMAMix"
    num_states = 3
    elementwise = ElementwiseWork(kernel_bytes=104, kernels=10)

    kind: Literal["ademamix"] = "ademamix"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    beta3: Rate = 0.9999
    alpha: Annotated[float, Field(ge=0)] = 2.0
    eps: Positive = 1e-8
    alpha_warmup_steps: Annotated[int, Field(ge=0, le=MANY)] = 0
    beta3_warmup_steps: Annotated[int, Field(ge=0, le=MANY)] = 0

    num_momenta: ClassVar[int] = 2
    """Number of momenta: a fast one and a slow one."""


class MultiMomentumRule(MomentaFields, defer_build=False):
    """The spec of `optim.multi_momentum_rule`, MT-DAO's mixture of momenta; with ``ddp`` it is MT-DAO's baseline."""

    kind: Literal["multi-momentum"] = "multi-momentum"
    betas: Annotated[tuple[Rate, ...], Field(min_length=1)] = (0.999,)

    @property
    def num_momenta(self) -> int:
        """Return N, the number of momenta that the rule mixes."""
        return len(self.betas)

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of these parameters; Muon's matrices have no second moment."""
        count = self.num_momenta * elements(tensors)
        if self.base == "muon":
            count += elements([t for t in tensors if not t.is_matrix])
        elif self.base != "sgdm":
            count += elements(tensors)
        return count

    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the momenta, of their mixture, and of the base's scaling."""
        return multi_momentum_work(self.base, self.omegas, tensors)

    def build(self) -> optim.UpdateRule:
        """Build the rule of several momenta, without a warmup."""
        return self.momenta_rule()


class SGDMRule(RuleBase):
    """The spec of `optim.sgdm`, SGD with momentum; heavy-ball is the form of torch's ``SGD``, ema that of MT-DAO."""

    builder = "sgdm"
    elementwise = ElementwiseWork(foreach_bytes=28)

    kind: Literal["sgdm"] = "sgdm"
    momentum: Rate = 0.9
    form: Literal["heavy-ball", "ema"] = "heavy-ball"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of parameters of these shapes."""
        return elements(tensors) if self.momentum else 0


class AdamRule(RuleBase):
    """The spec of `optim.adam`; with the method's ``weight_decay`` it is AdamW."""

    builder = "adam"

    kind: Literal["adam"] = "adam"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Positive = 1e-8
    bias_correction: bool = True


class AdaSGDRule(RuleBase):
    """The spec of `optim.ada_sgd`: Adam with one second moment per tensor."""

    builder = "ada_sgd"
    elementwise = ElementwiseWork(foreach_bytes=56, kernel_bytes=28, kernels=4)

    kind: Literal["ada-sgd"] = "ada-sgd"
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Positive = 1e-8


class NesterovAdamRule(RuleBase):
    """The spec of `optim.NesterovAdam` (NAdam), with rates for asynchronous pipelines."""

    builder = "NesterovAdam"
    elementwise = ElementwiseWork(kernel_bytes=100, kernels=10)

    kind: Literal["nadam"] = "nadam"
    beta1: Rate = 0.99
    beta2: Rate = 0.999
    eps: Positive = 1e-8
    momentum_decay: float = Field(default=0.004, ge=0)


class AdoptRule(RuleBase):
    """The spec of `optim.adopt`, with its published defaults."""

    builder = "adopt"
    elementwise = ElementwiseWork(foreach_bytes=20, kernel_bytes=72, kernels=7)

    kind: Literal["adopt"] = "adopt"
    beta1: Rate = 0.9
    beta2: Rate = 0.9999
    eps: Positive = 1e-6


class LionRuleSpec(RuleBase):
    """The spec of `optim.lion`, with its published rates."""

    builder = "lion"
    num_states = 1
    elementwise = ElementwiseWork(kernel_bytes=44, kernels=4)

    kind: Literal["lion"] = "lion"
    beta1: Rate = 0.9
    beta2: Rate = 0.99


OtherRule = Literal["adam", "lion"]
"""The rule of parameters that are not matrices, if matrices have another rule."""

OTHER_RULES: dict[str, type[AdamRule | LionRuleSpec]] = {"adam": AdamRule, "lion": LionRuleSpec}


class MuonRule(Spec):
    """The spec of `optim.muon`; parameters that are not matrices follow ``other_rule`` with its defaults."""

    kind: Literal["muon"] = "muon"
    momentum: Rate = 0.95
    nesterov: bool = True
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original"
    other_rule: OtherRule = "adam"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of parameters of these shapes."""
        matrices = [tensor for tensor in tensors if tensor.is_matrix]
        other_tensors = [tensor for tensor in tensors if not tensor.is_matrix]
        return elements(matrices) + OTHER_RULES[self.other_rule]().state_elements(other_tensors)

    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of orthogonalising matrices, of their momenta, and of the rule of other parameters."""
        # Nesterov mixes the gradient once more into the momentum.
        momenta = ElementwiseWork(foreach_bytes=32 if self.nesterov else 20).on(t for t in tensors if t.is_matrix)
        other_work = OTHER_RULES[self.other_rule]().update_work([t for t in tensors if not t.is_matrix])
        return UpdateWork(momenta) + orthogonal_work(tensors) + other_work

    def build(self) -> optim.UpdateRule:
        """Build the update rule from the fields of the spec."""
        other_rule = OTHER_RULES[self.other_rule]().build()
        return optim.muon(self.momentum, nesterov=self.nesterov, adjust_lr=self.adjust_lr, other_rule=other_rule)


class ScionRule(RuleBase):
    """The spec of `optim.scion` in its unconstrained form; the method's ``weight_decay: 1`` adds the constraint."""

    builder = "scion"
    elementwise = ElementwiseWork(foreach_bytes=20)

    kind: Literal["scion"] = "scion"
    momentum: Rate = 0.9
    radius: Positive = 50.0
    table_radius: Positive | None = None
    tables: Literal["sign", "rows"] = "sign"

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states of parameters of these shapes."""
        return elements(tensors) if self.momentum else 0

    @override
    def update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the momenta, of orthogonalised matrices, and of other parameters' norm balls."""
        norm_balls = ElementwiseWork(kernel_bytes=28, kernels=3).on(t for t in tensors if not t.is_matrix)
        return super().update_work(tensors) + orthogonal_work(tensors) + UpdateWork(norm_balls)


RuleSpec = Annotated[
    SGDMRule
    | AdamRule
    | NesterovAdamRule
    | AdaSGDRule
    | AdoptRule
    | QHMRule
    | QHAdamRule
    | QHAdoptRule
    | AggMoRule
    | AdEMAMixRule
    | MultiMomentumRule
    | LionRuleSpec
    | MuonRule
    | ScionRule
    | TorchRuleSpec,
    ByKind(),
    or_object("syncline.optim:UpdateRule"),
    BeforeValidator(from_optimizer),
]


def rule_name(rule: Any) -> str:
    """Return the name of a rule within a method's name: its kind, or the class of a Python object."""
    return str(getattr(rule, "name", rule.kind))


def state_names(rule: Any) -> tuple[str, ...]:
    """Return the names of an update rule's states: each momentum, then the second moment if the rule has one."""
    one_element = TensorShape("", (1,))
    num_states = rule.state_elements([one_element])  # SGD without momentum has none
    num_momenta = getattr(rule, "num_momenta", 1)
    names = tuple(f"momentum_{j}" for j in range(1, min(num_states, num_momenta) + 1))
    return (*names, "second_moment") if num_states > num_momenta else names


def averaged_torch_states(rule: Any) -> tuple[str, ...]:
    """Return the names of the states that a torch optimizer averages with the parameters; other rules have none."""
    return rule.average_states if isinstance(rule, TorchRuleSpec) else ()
