"""Local methods: workers step alone, and average everything every so many steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.fields import Period
from syncline.methods.compressible import CompressibleBase
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import Presets, Tensors, tensors_of
from syncline.methods.parts.rules import AdamRule, RuleSpec, TorchRuleSpec, rule_name, state_names
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator


@register
class LocalSpec(CompressibleBase):
    """Local SGDM, Adam, ADOPT: parameters and all states are averaged every ``period`` steps.

    If the rule is a torch optimizer, only the states that its ``average_states`` names are averaged.

    What travels: one all-reduce of ``(1 + states) 4 N`` bytes every K steps; for Adam 3 tensors, so K/3 times less than
    data parallelism. Local SGD(M) with ``period = 1`` is data-parallel SGD(M): averaging is linear, and so is the rule.

    Args:
        rule: the update rule of each worker.
        period: K, number of steps between averages.

    Source: Stich (2019) for SGD; Cheng & Glasgow (2025) for Adam, all states averaged.
    """

    family: ClassVar[str] = "local"
    source: ClassVar[str] = "Stich (2019); Cheng & Glasgow (2025)"
    means_alone: ClassVar[bool] = True
    averages_states: ClassVar[bool] = True

    presets: ClassVar[Presets] = {
        "local-sgdm": {"rule": "sgdm", "lr": 0.05},
        "local-adam": {"rule": "adam", "lr": 0.003},
        "local-adopt": {"rule": "adopt", "lr": 0.003},
    }

    kind: Literal["local"] = "local"
    rule: RuleSpec = AdamRule()
    period: Period = 32

    @property
    @override
    def name(self) -> str:
        return self.label or f"local-{rule_name(self.rule)}{self._suffix}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return parameters and states together."""
        states = state_names(self.rule)
        if isinstance(self.rule, TorchRuleSpec):
            states = self.rule.average_states
        return self._exchange(self._sent(tensors_of(model)), workers, self.period, "+".join(("params", *states)))

    def _sent(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Return each parameter and each of its states; of a torch optimizer, only the named states."""
        if isinstance(self.rule, TorchRuleSpec):
            return [*tensors, *self.rule.averaged(tensors)]
        return [t for t in tensors for _ in range(1 + self.rule.state_elements([t]) // t.elements)]

    @override
    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return self._sent(tensors)

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [self.period] * len(self._sent(tensors_of(1)))

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the rule's states, and of a compressor's errors and references."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + self._kept_errors(self._sent(tensors), reference=True)

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        rule = self.rule.build()
        sync = optim.Periodic(dict.fromkeys(("params", *rule.states), self.period))
        return optim.Method(params, self.lr, rule, sync, **self._averaging(), **self.common_options(comm, worker_axis))


Local = constructor(LocalSpec)
