"""Streaming methods as specs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from syncline.costmodel import Exchange, TensorShape, balanced_parts
from syncline.fields import Period, Positive, Rate, Spec, refusal
from syncline.methods.averaging import MTDAOSpec
from syncline.methods.base import MethodBase, Tensors, elements, tensors_of
from syncline.methods.rules import AdamRule, RuleSpec

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


class StreamSpec(Spec):
    """How a model streams: in how many fragments, merged how many steps after they were sent, and how much."""

    fragments: int = Field(default=4, ge=1)
    tau: int = Field(default=1, ge=0)
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5

    def check(self, periods: Iterable[int]) -> None:
        """Refuse a delay that is as long as a period."""
        if self.tau >= min(periods):
            raise refusal("stream.tau", self.tau, f"less than every period, at most {min(periods) - 1}")

    def exchanges(
        self,
        tensors: Sequence[TensorShape],
        periods: dict[str, int],
        count: Callable[[str, Sequence[TensorShape]], int],
        plain: Callable[..., Exchange],
    ) -> list[Exchange]:
        """One exchange per state and fragment, each on its own schedule, in its own call, and needed ``tau`` later."""
        parts = balanced_parts([tensor.elements for tensor in tensors], self.fragments)
        return [
            plain(
                sent,
                period,
                f"{state} {f + 1}/{self.fragments}",
                offset=f * period // self.fragments,
                joins=False,
                wait_steps=self.tau,
            )
            for state, period in periods.items()
            for f, part in enumerate(parts)
            if (sent := count(state, [tensors[i] for i in part]))
        ]


class StreamingMTDAOSpec(MTDAOSpec):
    """Streaming MT-DAO: fragments of each state are averaged in turn, in the background."""

    family: ClassVar[str] = "streaming"
    source: ClassVar[str] = "MT-DAO, Algorithm 5"

    kind: Literal["streaming-mt-dao"] = "streaming-mt-dao"  # type: ignore[assignment]
    period: Period = 128
    stream: StreamSpec = StreamSpec()
    phase: Literal["aligned"] = "aligned"
    switch_step: Literal[0] = 0

    @model_validator(mode="after")
    def _streams(self) -> StreamingMTDAOSpec:
        if self.compressor:
            expected = "none: what is merged late would be a difference from a reference that has moved on"
            raise refusal("compressor", self.compressor.kind, expected)
        self.stream.check(self.periods().values())
        return self

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or ("streaming-mt-dao" if self.base == "adam" else f"streaming-mt-dao-{self.base}")

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """See ``StreamSpec.exchanges``."""
        tensors = tensors_of(model)
        return self.stream.exchanges(tensors, self.periods(), self.state_elements, self._plain)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import StreamingMTDAO

        return StreamingMTDAO(
            params, self.lr, **self._time_scales(), **self.stream.model_dump(), **self._common(comm, worker_axis)
        )


class StreamingDiLoCoSpec(MethodBase):
    """Streaming DiLoCo: fragments of the parameters are averaged in turn, in the background; states stay local."""

    family: ClassVar[str] = "streaming"
    source: ClassVar[str] = "Streaming DiLoCo (Douillard et al., 2025)"

    kind: Literal["streaming-diloco"] = "streaming-diloco"
    rule: RuleSpec = AdamRule()
    period: Period = 100
    outer_lr: Positive = 0.4
    outer_momentum: Rate = 0.9
    stream: StreamSpec = StreamSpec()

    @model_validator(mode="after")
    def _streams(self) -> StreamingDiLoCoSpec:
        self.stream.check([self.period])
        return self

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or "streaming-diloco"

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """See ``StreamSpec.exchanges``."""
        periods = {"params": self.period}
        return self.stream.exchanges(tensors_of(model), periods, lambda state, part: elements(part), self._plain)

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """As for DiLoCo."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + 2 * elements(tensors)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import StreamingDiLoCo

        return StreamingDiLoCo(
            params,
            self.lr,
            self.rule.build(),
            self.period,
            outer_lr=self.outer_lr,
            outer_momentum=self.outer_momentum,
            **self.stream.model_dump(),
            **self._common(comm, worker_axis),
        )
