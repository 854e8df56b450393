"""Methods that average gradients, or parameters and states, as specs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from syncline.costmodel import Exchange, Hardware, TensorShape, half_life_period
from syncline.costmodel.compute.orthogonal import newton_schulz_flops
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.base import MethodBase, Tensors, elements, tensors_of
from syncline.methods.compressors import CompressibleBase
from syncline.methods.data_parallel import DataParallelBase
from syncline.methods.outer import OuterSpec
from syncline.methods.rules import AdamRule, MuonRule, RuleSpec, ScionRule

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


RULE_STATES = ("momentum_1", "second_moment")
"""What a rule's states are called: one state is a momentum."""


class DDPSpec(DataParallelBase):
    """Data parallelism: the gradient is averaged in every step."""

    source: ClassVar[str] = "PyTorch Distributed (Li et al., 2020)"

    kind: Literal["ddp"] = "ddp"
    rule: RuleSpec = AdamRule()

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or f"ddp-{self.rule.kind}{self._suffix}"

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The rule's states, and a compressor's errors."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + self._kept_errors(tensors, reference=False)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        return self._with_rule(params, self.rule.build(), comm, worker_axis)

    def added_update_s(self, model: Tensors, hardware: Hardware, delay: int = 0, stages: int = 1) -> float:
        """See ``MethodBase.added_update_s``: orthogonalising matrices, where the rule does."""
        if not isinstance(self.rule, MuonRule | ScionRule):
            return 0.0
        flops = sum(newton_schulz_flops(*t.sides) for t in tensors_of(model) if t.is_matrix)
        return flops / (hardware.peak_flops * hardware.mfu)


class LocalSpec(CompressibleBase):
    """Local SGDM, Adam, ADOPT: parameters and all states are averaged every ``period`` steps."""

    family: ClassVar[str] = "local"
    source: ClassVar[str] = "Stich (2019); Cheng & Glasgow (2025)"

    kind: Literal["local"] = "local"
    rule: RuleSpec = AdamRule()
    period: Period = 32

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or f"local-{self.rule.kind}{self._suffix}"

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Parameters and states together."""
        states = RULE_STATES[: self.rule.state_elements([TensorShape("", (1,))])]
        return self._exchange(self._sent(tensors_of(model)), workers, self.period, "+".join(("params", *states)))

    def _sent(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Each parameter, and each of its states."""
        return [t for t in tensors for _ in range(1 + self.rule.state_elements([t]) // t.elements)]

    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return self._sent(tensors)

    def _sent_periods(self) -> Iterable[int]:
        return [self.period] * len(self._sent(tensors_of(1)))

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The rule's states, and what a compressor keeps of all that is averaged."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + self._kept_errors(self._sent(tensors), reference=True)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import Local

        options = self._averaging() | self._common(comm, worker_axis)
        return Local(params, self.lr, self.rule.build(), self.period, **options)


class DiLoCoSpec(CompressibleBase):
    """DiLoCo: local rounds joined by an outer Nesterov step."""

    family: ClassVar[str] = "local"
    source: ClassVar[str] = "DiLoCo (Douillard et al., 2023)"

    kind: Literal["diloco"] = "diloco"
    rule: RuleSpec = AdamRule()
    period: Period = 32
    outer_lr: Positive = 0.7
    outer_momentum: Rate = 0.9

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or ("diloco" if self.rule.kind == "adam" else f"diloco-{self.rule.kind}") + self._suffix

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One pseudo-gradient per round."""
        return self._exchange(tensors_of(model), workers, self.period, "params")

    def _sent_periods(self) -> Iterable[int]:
        return [self.period]

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The rule's states, where the round started, the outer momentum, and a compressor's errors."""
        tensors = tensors_of(model)
        kept = self.rule.state_elements(tensors) + 2 * elements(tensors)
        return kept + self._kept_errors(tensors, reference=False)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import DiLoCo

        common = self._averaging() | self._common(comm, worker_axis)
        outer = {"outer_lr": self.outer_lr, "outer_momentum": self.outer_momentum}
        return DiLoCo(params, self.lr, self.rule.build(), self.period, **outer, **common)


class MTDAOSpec(CompressibleBase):
    """MT-DAO: several momenta, each with its weight and its period."""

    family: ClassVar[str] = "time scales"
    source: ClassVar[str] = "MT-DAO, Algorithms 1 to 3"

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
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or ("mt-dao" if self.base == "adam" else f"mt-dao-{self.base}") + self._suffix

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

    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return [tensor for state in self.periods() for tensor in self._of_state(state, tensors)]

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

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Every averaged state but the parameters, what the outer optimizer keeps, and a compressor."""
        tensors = tensors_of(model)
        states = [self._of_state(state, tensors) for state in self.periods() if state != "params"]
        kept = sum(elements(of) + self._kept_errors(of, reference=True) for of in states)
        kept += self._kept_errors(tensors, reference=self.outer is None)
        return kept + (self.outer.state_elements(tensors) if self.outer else 0)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
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


class DESLOCSpec(MethodBase):
    """DES-LOC: local Adam or ADOPT with periods from half-lives."""

    family: ClassVar[str] = "time scales"
    source: ClassVar[str] = "DES-LOC (Iacob et al., 2025)"

    kind: Literal["des-loc"] = "des-loc"
    base: Literal["adam", "adopt"] = "adam"
    beta1: Rate = 0.95
    beta2: Rate | None = None
    eps: Positive | None = None
    period: Period = 32
    momentum_period: Period | None = None
    second_moment_period: Period | None = None

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or ("des-loc" if self.base == "adam" else f"des-loc-{self.base}")

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One exchange per state; those that are due together travel together."""
        return [self._plain(elements(tensors_of(model)), k, state) for state, k in self.periods().items()]

    def periods(self) -> dict[str, int]:
        """K_x, K_u, K_v."""
        beta2 = {"adam": 0.99, "adopt": 0.9999}[self.base] if self.beta2 is None else self.beta2
        return {
            "params": self.period,
            "momentum_1": self.momentum_period or half_life_period(self.beta1, self.period),
            "second_moment": self.second_moment_period or half_life_period(beta2, self.period),
        }

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Both moments."""
        return 2 * elements(tensors_of(model))

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import DESLOC

        return DESLOC(
            params,
            self.lr,
            base=self.base,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            period=self.period,
            momentum_period=self.momentum_period,
            second_moment_period=self.second_moment_period,
            **self._common(comm, worker_axis),
        )
