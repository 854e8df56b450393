"""Local methods, whose workers take local steps between averages, and DiLoCo, which adds an outer optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.parts.asynchronous import AsynchronousSpec
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.method_spec import Presets, Tensors, elements, tensors_of
from syncline.methods.parts.rules import (
    AdamRule,
    RuleSpec,
    TorchRuleSpec,
    averaged_torch_states,
    rule_name,
    state_names,
)
from syncline.methods.registry import register


@register
class LocalSpec(CompressibleBase):
    """Local SGDM, Adam, ADOPT: workers take local steps, and average parameters and all states every K steps.

    If the rule is a torch optimizer, only the states that its ``average_states`` names are averaged.

    Workers send ``(1 + states) 4 N`` bytes every K steps by one all-reduce; for Adam, which has two states, this is K/3
    times less than data parallelism. Local SGDM with ``period = 1`` equals data-parallel SGDM.

    Args:
        rule: the update rule of each worker.
        period: K, number of steps between averages.

    Source: Stich (2019) for SGD; Cheng & Glasgow (2025) for Adam, all states averaged.
    """

    family = "local"
    source = "Stich (2019); Cheng & Glasgow (2025)"
    sends_only_means = True
    averages_states = True

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
        """Return a worker's exchanges: parameters and averaged states, once per period."""
        is_torch_rule = isinstance(self.rule, TorchRuleSpec)
        names = averaged_torch_states(self.rule) if is_torch_rule else state_names(self.rule)
        label = "+".join(("params", *names))
        return self._average_exchanges(self._sent_tensors(tensors_of(model)), workers, self.period, label)

    def _sent_tensors(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Return the shapes that are sent: each parameter and its averaged states."""
        if isinstance(self.rule, TorchRuleSpec):
            return [*tensors, *self.rule.averaged(tensors)]
        sent = []
        for tensor in tensors:
            num_states = self.rule.state_elements([tensor]) // tensor.elements  # a state is as large as its parameter
            sent += [tensor] * (1 + num_states)
        return sent

    @override
    def _compressed_tensors(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the shapes of the parameters and of their averaged states."""
        return self._sent_tensors(tensors)

    @override
    def _sent_periods(self) -> Iterable[int]:
        tensors_per_parameter = len(self._sent_tensors(tensors_of(1)))  # all parameters have the same number of states
        return [self.period] * tensors_per_parameter

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the rule's states, and of a compressor's errors and references."""
        tensors = tensors_of(model)
        compressor_elements = self._compressor_elements(self._sent_tensors(tensors), reference=True)
        return self.rule.state_elements(tensors) + compressor_elements

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        rule = self.rule.build()
        period_of_state = dict.fromkeys(("params", *rule.states), self.period)
        options |= self._compressor_options()
        return optim.Method(params, self.lr, rule, sync=optim.Periodic(period_of_state), **options)


@register
class DiLoCoSpec(CompressibleBase):
    """DiLoCo: workers take H local steps, then one outer Nesterov step with the average of their pseudo-gradients.

    A worker's pseudo-gradient is its parameters at the start of a period minus those at its end. Workers send ``4 N``
    bytes every H steps by one all-reduce. With ``outer_lr = 1, outer_momentum = 0`` this is parameter averaging.

    Args:
        rule: the update rule of the inner steps.
        period: H, number of inner steps from one outer step to the next.
        outer_lr: outer learning rate.
        outer_momentum: coefficient of the outer Nesterov momentum.
        in_backward: whether each layer's pseudo-gradient is sent as soon as the layer's last inner step is done, during
            the backward pass of the layers below, as DiLoCo's authors simulate it (arthurdouillard.com/diloco). By
            default, it is sent after the step.
        asynchronous: settings of a server that replaces the all-reduce; by default, all workers average together.

    Source: Douillard et al. (2023).
    """

    family = "local"
    source = "DiLoCo (Douillard et al., 2023)"
    sends_only_means = True
    averages_states = True

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
    in_backward: bool = False
    asynchronous: AsynchronousSpec | None = None

    @model_validator(mode="after")
    def _check_send_in_backward(self) -> DiLoCoSpec:
        """Refuse fields that need the whole pseudo-gradient if layers are sent during the backward pass."""
        if self.in_backward and self.clip_norm is not None:
            expected = "none with in_backward: every layer steps before the gradients below it are there"
            raise refusal("clip_norm", self.clip_norm, expected)
        if self.in_backward and self.compressor is not None:
            raise refusal("compressor", self.compressor.kind, "none with in_backward, which sends tensors as they are")
        return self

    @model_validator(mode="after")
    def _check_asynchronous(self) -> Self:
        """Raise an error for averaged states of the rule in asynchronous training."""
        names = averaged_torch_states(self.rule)
        if self.asynchronous is not None and names:
            expected = "none with asynchronous, whose workers send only pseudo-gradients"
            raise refusal("rule.average_states", names, expected)
        return self

    @property
    @override
    def name(self) -> str:
        prefix = "" if self.asynchronous is None else "async-"
        base = "diloco" if self.rule.kind == "adam" else f"diloco-{rule_name(self.rule)}"
        return self.label or f"{prefix}{base}{self._suffix}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges of each period: of the pseudo-gradient, and of the states averaged with it."""
        tensors = tensors_of(model)
        states = self.rule.averaged(tensors) if isinstance(self.rule, TorchRuleSpec) else []
        label = "+".join(("params", *averaged_torch_states(self.rule)))
        exchanges = self._average_exchanges([*tensors, *states], workers, self.period, label)
        return [replace(exchange, in_backward=self.in_backward) for exchange in exchanges]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [self.period]

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the states of rule and outer optimizer, and of a compressor's errors."""
        tensors = tensors_of(model)
        outer_elements = 2 * elements(tensors)  # the parameters at the period's start, and the outer momentum
        return self.rule.state_elements(tensors) + outer_elements + self._compressor_elements(tensors, reference=False)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        from syncline.comm import Details

        outer = optim.Nesterov(self.outer_lr, self.outer_momentum)
        options |= self._compressor_options()
        if self.in_backward:
            options["averages"] = Details(in_backward=True)
        period_of_state = dict.fromkeys(("params", *averaged_torch_states(self.rule)), self.period)
        rule, sync = self.rule.build(), optim.Periodic(period_of_state)
        return optim.Method(params, self.lr, rule, sync, outer_optimizer=outer, **options)
