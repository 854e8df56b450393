"""Streaming methods, which average fragments of the model one after another, during further steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.traffic.packing import SCALE_BYTES, e3m0_bytes
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.mt_dao import MTDAOSpec
from syncline.methods.parts.diloco import StreamSpec
from syncline.methods.parts.method_spec import FP32_BYTES, MethodBase, Presets, Tensors, elements, tensors_of, wire_name
from syncline.methods.parts.rules import AdamRule, RuleSpec
from syncline.methods.registry import register


@register
class StreamingMTDAOSpec(MTDAOSpec):
    """Streaming MT-DAO: fragments of parameters, momenta and second moment are averaged one after another.

    With all weight on one fast momentum it is Streaming Local Adam.

    Args:
        period: number of steps between averages of a fragment of the parameters. The other periods of ``mt_dao`` also
            count the steps between averages of a fragment.
        stream: fragments, delay and weight of a merge.

    Source: MT-DAO, Algorithm 5.
    """

    family = "streaming"
    source = "MT-DAO, Algorithm 5"
    sends_only_means = False

    presets: ClassVar[Presets] = {
        "streaming-mt-dao": {"lr": 0.003},
        "streaming-local-adam": {"label": "streaming-local-adam", "betas": [0.9], "omegas": [1.0], "lr": 0.003},
    }

    kind: Literal["streaming-mt-dao"] = "streaming-mt-dao"  # type: ignore[assignment]
    period: Period = 128
    stream: StreamSpec = StreamSpec()
    phase: Literal["aligned"] = "aligned"
    switch_step: Literal[0] = 0

    @model_validator(mode="after")
    def _check_streaming(self) -> StreamingMTDAOSpec:
        """Refuse a compressor, and streaming options that contradict other fields."""
        if self.compressor:
            expected = "none: a late merge would use a difference from an outdated reference"
            raise refusal("compressor", self.compressor.kind, expected)
        self.stream.check(self.periods().values(), self.clip_norm)
        return self

    @property
    @override
    def name(self) -> str:
        return self.label or ("streaming-mt-dao" if self.base == "adam" else f"streaming-mt-dao-{self.base}")

    @property
    def in_backward(self) -> bool:
        """Return whether fragments are sent during the backward pass."""
        return self.stream.in_backward

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        def exchange_of_state(state: str, tensors: Sequence[TensorShape]) -> Exchange | None:
            """Return the exchange that sends a state of these parameters, or None if no parameter has the state."""
            count = self.state_elements(state, tensors)
            return self._plain_exchange(count) if count else None

        return self.stream.exchanges(tensors_of(model), self.periods(), exchange_of_state)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        options |= self.stream.model_dump()  # the fields of the stream are arguments of `optim.Streaming`
        rule, outer = self.momenta_rule(), self._outer()
        return optim.Streaming(params, self.lr, rule, self.periods(), outer_optimizer=outer, **options)


@register
class StreamingDiLoCoSpec(MethodBase):
    """Streaming DiLoCo: fragments of the parameters are averaged one after another; states of the rule stay local.

    With ``wire: e3m0`` workers gather the outer gradients of all workers in four bits per number, and average them in
    fp32.

    Args:
        rule: the inner update rule of each worker.
        period: H, number of inner steps between two averages of a fragment.
        outer_lr: outer learning rate; the default is the paper's recommendation.
        outer_momentum: coefficient of the outer Nesterov momentum.
        stream: fragments, delay and weight of a merge.
        wire: number format in which outer gradients are sent: fp32 by default, ``bf16``, ``fp16``, or ``e3m0``, numbers
            of one sign bit and three exponent bits with one scale per parameter.

    Source: Streaming DiLoCo (Douillard et al., 2025).
    """

    family = "streaming"
    source = "Streaming DiLoCo (Douillard et al., 2025)"

    presets: ClassVar[Presets] = {"streaming-diloco": {"lr": 0.003}}

    kind: Literal["streaming-diloco"] = "streaming-diloco"
    rule: RuleSpec = AdamRule()
    period: Period = 100
    outer_lr: Positive = 0.4
    outer_momentum: Rate = 0.9
    stream: StreamSpec = StreamSpec()
    wire: Annotated[Literal["dense", "bf16", "fp16", "e3m0"] | None, BeforeValidator(wire_name)] = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _check_streaming(self) -> StreamingDiLoCoSpec:
        """Raise an error for settings of the stream that contradict other fields."""
        self.stream.check([self.period], self.clip_norm)
        return self

    @property
    def in_backward(self) -> bool:
        """Return whether fragments are sent during the backward pass."""
        return self.stream.in_backward

    @property
    @override
    def same_for_any_group(self) -> bool:
        return True

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        def exchange_of_state(state: str, tensors: Sequence[TensorShape]) -> Exchange | None:
            """Return the exchange that sends a state's tensors, or None if there are no elements."""
            count = elements(tensors)
            if not count:
                return None
            if self.wire != "e3m0":
                return self._plain_exchange(count)
            nbytes = sum(e3m0_bytes(tensor.elements) for tensor in tensors)
            return Exchange(nbytes, collective="all_gather", encoded_bytes=FP32_BYTES * count)

        return self.stream.exchanges(tensors_of(model), {"params": self.period}, exchange_of_state)

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step; with ``e3m0`` it sums over tensors of n numbers."""
        if self.wire != "e3m0":
            return super().traffic_formula(workers)
        formula = f"Σ ({SCALE_BYTES} + ⌈n / 2⌉)"
        return formula if self.period == 1 else f"{formula} / {self.period}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the rule's states and of the outer optimizer's."""
        tensors = tensors_of(model)
        outer_elements = 2 * elements(tensors)  # the parameters at the period's start, and the outer momentum
        return self.rule.state_elements(tensors) + outer_elements

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        outer = optim.Nesterov(self.outer_lr, self.outer_momentum)
        options |= self.stream.model_dump()  # the fields of the stream are arguments of `optim.Streaming`
        options["four_bits"] = self.wire == "e3m0"
        rule, periods = self.rule.build(), {"params": self.period}
        return optim.Streaming(params, self.lr, rule, periods, outer_optimizer=outer, **options)
