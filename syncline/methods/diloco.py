"""DiLoCo: long periods of local steps, joined by an outer Nesterov step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline.costmodel import Exchange
from syncline.fields import Period, Positive, Rate
from syncline.methods.base import Presets, Tensors, elements, tensors_of
from syncline.methods.compressible import CompressibleBase
from syncline.methods.constructor import constructor
from syncline.methods.parts.rules import AdamRule, RuleSpec, averaged_of, rule_name
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


@register
class DiLoCoSpec(CompressibleBase):
    """DiLoCo: periods of local steps, joined by an outer Nesterov step.

    The pseudo-gradient of a period is start minus end, averaged over the workers. What travels: one all-reduce of
    ``4 N`` bytes every K steps. With ``outer_lr = 1, outer_momentum = 0`` it is parameter averaging.

    Args:
        period: H, inner steps from one outer step to the next.
        outer_lr: outer learning rate.
        outer_momentum: outer Nesterov momentum.

    Source: Douillard et al. (2023).
    """

    family: ClassVar[str] = "local"
    source: ClassVar[str] = "DiLoCo (Douillard et al., 2023)"
    means_alone: ClassVar[bool] = True
    averages_states: ClassVar[bool] = True

    presets: ClassVar[Presets] = {
        "diloco": {"lr": 0.003},
        "diloco-l1": {"compressor": "lp", "lr": 0.003},
        "diloco-top-k": {"compressor": "top-k", "lr": 0.003},
    }

    kind: Literal["diloco"] = "diloco"
    rule: RuleSpec = AdamRule()
    period: Period = 32
    outer_lr: Positive = 0.7
    outer_momentum: Rate = 0.9

    @property
    @override
    def name(self) -> str:
        return self.label or ("diloco" if self.rule.kind == "adam" else f"diloco-{rule_name(self.rule)}") + self._suffix

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One pseudo-gradient per period, and the states that are averaged with it."""
        tensors = tensors_of(model)
        names, states = averaged_of(self.rule, tensors)
        return self._exchange([*tensors, *states], workers, self.period, "+".join(("params", *names)))

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [self.period]

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The rule's states, where the period started, the outer momentum, and a compressor's errors."""
        tensors = tensors_of(model)
        kept = self.rule.state_elements(tensors) + 2 * elements(tensors)
        return kept + self._kept_errors(tensors, reference=False)

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> Method:
        from syncline.optim import Method, Nesterov, Periodic

        outer = Nesterov(self.outer_lr, self.outer_momentum)
        options = self._averaging() | self.common_options(comm, worker_axis)
        names, _ = averaged_of(self.rule, [])
        sync = Periodic(dict.fromkeys(("params", *names), self.period))
        return Method(params, self.lr, self.rule.build(), sync, outer=outer, **options)


DiLoCo = constructor(DiLoCoSpec)
