"""SelSync, which averages when some worker's gradient changes much, with any rule or as the trigger of Dion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork
from syncline.methods.dion import TRIGGER_EXCHANGE, TriggeredDionBase
from syncline.methods.parts.method_spec import MethodBase, Presets, Tensors, elements, tensors_of
from syncline.methods.parts.rules import AdamRule, RuleSpec, rule_name
from syncline.methods.registry import register

Smoothing = Annotated[float, Field(gt=0, le=1)]

NORM_WORK = ElementwiseWork(kernel_bytes=16, kernels=8)
"""Squared norms of the gradients."""


@register
class SelSyncSpec(MethodBase):
    """SelSync: workers take local steps, and average in steps in which the gradient g of some worker changes much.

        s_t = (1 - smoothing) s_(t-1) + smoothing ||g_t||^2,    max_worker abs(s_t - s_(t-1)) / s_(t-1) >= threshold

    Workers send 4 bytes in every step, and ``4 N`` bytes in a step with an average. States of the rule stay local.

    Args:
        rule: the update rule of each worker.
        threshold: delta, the relative change at which workers average. With 0 they average in every step; with
            infinity, never.
        smoothing: weight of the newest squared norm in the moving average s, in (0, 1].
        aggregation: state that is averaged: ``parameters`` or ``gradients``; the source prefers parameters.
        expected_sync_rate: assumed share of steps with an average, for projections, which do not know how often a
            training triggers.

    Source: S. Tyagi, M. Swany, "Accelerating Distributed ML Training via Selective Synchronization" (2023),
    Algorithm 1.
    """

    family = "local"
    source = "SelSync (Tyagi & Swany, 2023), Algorithm 1"

    presets: ClassVar[Presets] = {"selsync": {"lr": 0.003}, "selsync-sgdm": {"rule": "sgdm", "lr": 0.05}}

    kind: Literal["selsync"] = "selsync"
    rule: RuleSpec = AdamRule()
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.1
    smoothing: Smoothing = 0.16
    aggregation: Literal["parameters", "gradients"] = "parameters"
    expected_sync_rate: Annotated[float, Field(ge=1e-9, le=1)] = 0.1

    @property
    @override
    def name(self) -> str:
        return self.label or ("selsync" if self.rule.kind == "adam" else f"selsync-{rule_name(self.rule)}")

    @property
    @override
    def one_seed_at_a_time(self) -> bool:
        return True

    @property
    @override
    def same_for_any_group(self) -> bool:
        return True

    @property
    @override
    def sends_gradients(self) -> bool:
        """Return whether workers send only gradients: they do unless they average parameters."""
        return self.aggregation == "gradients"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the trigger's exchange in every step, and the exchange of an average at the expected rate."""
        return [TRIGGER_EXCHANGE, self._average_exchange(model, round(1 / self.expected_sync_rate))]

    @override
    def exchanges_of_training(
        self, model: Tensors, workers: int, steps: int, averaged_steps: Sequence[int]
    ) -> list[Exchange]:
        """Return the trigger's exchange in every step, and the averages after ``averaged_steps``."""
        average = self._average_exchange(model, period=steps)  # its period is the whole training
        return [TRIGGER_EXCHANGE, *(replace(average, offset=t + 1) for t in averaged_steps)]

    def _average_exchange(self, model: Tensors, period: int) -> Exchange:
        """Return the exchange of parameters or gradients every ``period`` steps."""
        label = "params" if self.aggregation == "parameters" else "gradient"
        return self._plain_exchange(elements(tensors_of(model)), period, label, shares_call=False)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: those of the rule's states, and one squared norm per tensor."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + len(tensors)

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the rule, and of the squared norms of the gradients."""
        return super()._update_work(tensors) + UpdateWork(NORM_WORK.on(tensors))

    @override
    def readbacks(self, model: Tensors) -> int:
        """Return 1, because the host reads the change of the squared norm in each step."""
        return 1

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        trigger = optim.GradientChange(self.threshold, self.smoothing)
        rule = self.rule.build()
        return optim.SelSyncMethod(params, self.lr, rule, trigger=trigger, aggregation=self.aggregation, **options)


@register
class SelSyncDionSpec(TriggeredDionBase):
    """Dion whose workers exchange when SelSync's trigger fires: a baseline of CurvaDion.

    It equals CurvaDion, except that the trigger uses the squared norm of the matrices' gradients instead of the norms
    of the momenta.

    Args:
        smoothing: weight of the newest squared norm in the moving average, in (0, 1].

    Source: CurvaDion, section 4.3; the trigger is SelSync's (Tyagi & Swany, 2023).
    """

    source = "CurvaDion, section 4.3; SelSync (Tyagi & Swany, 2023)"

    trigger_work = NORM_WORK

    presets: ClassVar[Presets] = {"selsync-dion": {"lr": 0.02, "other_lr": 0.003}}

    kind: Literal["selsync-dion"] = "selsync-dion"
    smoothing: Smoothing = 0.16

    @property
    @override
    def name(self) -> str:
        return self.label or f"selsync-dion{self._suffix}"

    @override
    def readbacks(self, model: Tensors) -> int:
        """Return 1, because the host reads the change of the squared norm in each step."""
        return 1

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return self._triggered_optimizer(params, optim.GradientChange(self.threshold, self.smoothing), **options)
