"""MT-DAO: several momenta of different time scales, each averaged at its own period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from syncline.costmodel import (
    Exchange,
    TensorShape,
)
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.base import (
    Presets,
    Tensors,
    elements,
    tensors_of,
)
from syncline.methods.compressible import CompressibleBase
from syncline.methods.parts.outer import OuterSpec
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


@register
class MTDAOSpec(CompressibleBase):
    """MT-DAO: several momenta, each with its weight and its period."""

    family: ClassVar[str] = "time scales"
    source: ClassVar[str] = "MT-DAO, Algorithms 1 to 3"
    means_alone: ClassVar[bool] = True

    presets: ClassVar[Presets] = {
        "mt-dao": {"lr": 0.003},
        "mt-dao-adopt": {"base": "adopt", "lr": 0.003},
        "mt-dao-sgdm": {"base": "sgdm", "lr": 0.5},
        "mt-dao-muon": {"base": "muon", "lr": 0.02, "other_lr": 0.003},
        "mt-dao-l1": {"compressor": "lp", "lr": 0.003},
        "mt-dao-top-k": {"compressor": "top-k", "lr": 0.003},
    }

    kind: Literal["mt-dao"] = "mt-dao"
    base: Literal["adam", "adopt", "sgdm", "muon"] = "adam"
    betas: tuple[Rate, ...] = (0.999,)
    omegas: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.95,)
    beta2: Rate | None = None
    eps: Positive | None = None
    bias_correction: bool = True
    period: Period = 32
    momentum_periods: tuple[Period, ...] | None = None
    second_moment_period: Period | None = None
    phase: Literal["aligned", "paper"] = "aligned"
    outer: OuterSpec | None = None
    switch_step: int = Field(default=0, ge=0)
    warmup_beta: Rate = 0.9

    @model_validator(mode="after")
    def _lengths(self) -> MTDAOSpec:
        if len(self.omegas) != len(self.betas):
            raise refusal("omegas", self.omegas, f"one weight per beta ({len(self.betas)})")
        if self.momentum_periods is not None and len(self.momentum_periods) != len(self.betas):
            raise refusal("momentum_periods", self.momentum_periods, f"one period per beta ({len(self.betas)})")
        if sum(self.omegas) > 1 + 1e-12:
            raise refusal("omegas", self.omegas, "weights whose sum is at most 1")
        return self

    @property
    @override
    def name(self) -> str:
        return self.label or ("mt-dao" if self.base == "adam" else f"mt-dao-{self.base}") + self._suffix

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One exchange per state; those that are due together travel together."""
        offset = 1 if self.phase == "paper" else 0
        tensors = tensors_of(model)
        return [
            exchange
            for state, period in self.periods().items()
            if (sent := self._of_state(state, tensors))
            for exchange in self._exchange(sent, workers, period, state, 0 if state == "params" else offset)
        ]

    @override
    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return [tensor for state in self.periods() for tensor in self._of_state(state, tensors)]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return self.periods().values()

    def state_elements(self, state: str, tensors: Sequence[TensorShape]) -> int:
        """Numbers in one averaged state."""
        return elements(self._of_state(state, tensors))

    def _of_state(self, state: str, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """The parameters that have a state: Muon's matrices have no second moment."""
        if state == "second_moment" and self.base == "muon":
            return [tensor for tensor in tensors if not tensor.is_matrix]
        return tensors

    def periods(self) -> dict[str, int]:
        """K_x, K_j, K_v."""
        k_j = self.momentum_periods or (self.period,) * len(self.betas)
        periods = {"params": self.period} | {f"momentum_{j}": k for j, k in enumerate(k_j, start=1)}
        if self.base != "sgdm":
            periods["second_moment"] = self.second_moment_period or self.period
        return periods

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Every averaged state but the parameters, what the outer optimizer keeps, and a compressor."""
        tensors = tensors_of(model)
        states = [self._of_state(state, tensors) for state in self.periods() if state != "params"]
        kept = sum(elements(of) + self._kept_errors(of, reference=True) for of in states)
        kept += self._kept_errors(tensors, reference=self.outer is None)
        return kept + (self.outer.state_elements(tensors) if self.outer else 0)

    @override
    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        from syncline.optim import MTDAO

        return MTDAO(
            params,
            self.lr,
            **self._time_scales(),
            phase=self.phase,
            switch_step=self.switch_step,
            warmup_beta=self.warmup_beta,
            **self._averaging(),
            **self._common(comm, worker_axis),
        )

    def _time_scales(self) -> dict[str, Any]:
        """Momenta, their weights and periods, and what is done with an average: streamed or not."""
        names = ("betas", "omegas", "base", "beta2", "eps", "bias_correction")
        periods = ("period", "momentum_periods", "second_moment_period")
        outer = self.outer.build() if self.outer else None
        return {name: getattr(self, name) for name in (*names, *periods)} | {"outer": outer}
