"""Update rules as specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.costmodel.compute.update_work import UpdateWork, orthogonal_work
from syncline.fields import Positive, Rate, Spec, from_name, tag
from syncline.methods.parts.method_spec import elements
from syncline.methods.parts.momenta import (
    AdEMAMixRule,
    AggMoRule,
    MultiMomentumRule,
    QHAdamRule,
    QHAdoptRule,
    QHMRule,
)
from syncline.methods.parts.python_objects import or_object
from syncline.methods.parts.rule_spec import RuleBase
from syncline.methods.parts.torch_rule import TorchRuleSpec, from_optimizer


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
"""What a rule for matrices leaves everything else to."""


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
    """Return the rule's part of a method's name: its kind, or the class of a Python object."""
    return str(getattr(rule, "name", rule.kind))


def state_names(rule: Any) -> tuple[str, ...]:
    """Return the names of a rule's states: momenta and, if one more state remains, a second moment."""
    count, momenta = rule.state_elements([TensorShape("", (1,))]), getattr(rule, "momenta", 1)
    names = tuple(f"momentum_{j}" for j in range(1, min(count, momenta) + 1))
    return names + ("second_moment",) * (count > momenta)


def averaged_of(rule: Any, tensors: Sequence[TensorShape]) -> tuple[tuple[str, ...], list[TensorShape]]:
    """Return the states that a rule asks to be averaged, by name and shape; only torch optimizers ask for any."""
    return (rule.average_states, rule.averaged(tensors)) if isinstance(rule, TorchRuleSpec) else ((), [])
