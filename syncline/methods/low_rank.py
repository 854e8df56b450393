"""Methods that send low-rank factors, or seldom anything, as specs: the Dion family and PowerSGD."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from syncline.costmodel import Exchange, TensorShape, dion_rank
from syncline.fields import Period, Rate, refusal
from syncline.methods.base import MethodBase, Tensors, elements, every, tensors_of
from syncline.methods.compressors import CompressibleBase
from syncline.methods.rules import OTHER_RULES, OtherRule, RuleSpec, SGDMRule

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method

FLAG_BYTES = 4
"""CurvaDion's trigger: one fp32 maximum."""


FACTORS_FORMULA = "{} (Σ (m + n) r + rest)"
"""Bytes per number, of the factors of matrices m by n at rank r and of the parameters that travel as they are."""


class DionBase(CompressibleBase):
    """What the Dion family shares."""

    family: ClassVar[str] = "low rank"

    rank_fraction: Annotated[float, Field(gt=0, le=1)] = 0.25
    mu: Rate = 0.95
    exchange: Literal["gradient", "compressed"] = "gradient"
    local_step: Literal["step", "hold"] = "step"
    other: OtherRule = "adam"

    @model_validator(mode="after")
    def _whole_factors(self) -> Self:
        if self.clip_norm is not None and self.exchange == "compressed":
            expected = "none where factors travel: workers do not know the mean gradient's norm, and would drift apart"
            raise refusal("clip_norm", self.clip_norm, expected)
        kind = self.compressor.kind if self.compressor and self.exchange == "compressed" else "lp"
        if kind == "top-k":
            expected = "'lp' for factors: P is orthonormalised, and a sparse one loses columns"
            raise refusal("compressor.kind", kind, expected)
        if kind == "qsgd":
            expected = "'lp' for factors: P is orthonormalised, which makes a bias of noise that had none"
            raise refusal("compressor.kind", kind, expected)
        return self

    def rank(self, tensor: TensorShape) -> int:
        """``ceil(fraction min(m, n))``."""
        return dion_rank(*tensor.sides, self.rank_fraction)

    def _synced(self, model: Tensors, workers: int, period: int) -> list[Exchange]:
        """What one exchange sends: gradients, then P and R of the matrices that are worth factors."""
        plain, low = self._shared_out(model)
        p = [TensorShape("P", (max(t.sides), self.rank(t))) for t in low]
        r = [TensorShape("R", (min(t.sides), self.rank(t))) for t in low]
        if self.compressor:
            return [
                exchange
                for label, sent in (("gradient", plain), ("P", p), ("R", r))
                for exchange in self.compressor.exchanges(sent, workers, period, label, joins=False)
            ]
        return [
            self._plain(elements(sent), period, label, joins=False)
            for label, sent in (("gradient", plain), ("P", p), ("R", r))
            if sent
        ]

    def _shared_out(self, model: Tensors) -> tuple[list[TensorShape], list[TensorShape]]:
        """What travels as gradients, and matrices that are worth factors."""
        plain: list[TensorShape] = []
        low: list[TensorShape] = []
        for t in tensors_of(model):
            is_low = self.exchange == "compressed" and t.is_matrix and t.is_worth_factors(self.rank(t))
            (low if is_low else plain).append(t)
        return plain, low

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``."""
        if self.exchange == "gradient" and not self.compressor:
            return super().traffic_formula(workers)
        exchanges = self.exchanges(1, workers)
        flag = [f"{FLAG_BYTES}"] if exchanges[0].label == "trigger" else []
        if self.compressor:
            over = " of gradients" if self.exchange == "gradient" else " of P, R and the rest"
            return " + ".join([*flag, super().traffic_formula(workers) + over])
        return " + ".join([*flag, every(FACTORS_FORMULA.format(self._bytes(1)), exchanges[-1].period)])

    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return self._shared_out(tensors)[0]

    def _sent_periods(self) -> Iterable[int]:
        return [self.exchanges(1, workers=1)[-1].period]

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Of a matrix its momentum and right factor, of everything else its rule's states; a compressor's errors."""
        tensors = tensors_of(model)
        others = [tensor for tensor in tensors if not tensor.is_matrix]
        kept = sum(t.elements + min(t.sides) * self.rank(t) for t in tensors if t.is_matrix)
        errors = self._kept_errors(self._shared_out(model)[0], reference=False)
        held = elements(tensors) if self.local_step == "hold" else 0
        return kept + held + errors + OTHER_RULES[self.other].state_elements(others)

    def _options(self, comm: Communicator, worker_axis: bool) -> dict[str, Any]:
        own = {
            "rank_fraction": self.rank_fraction,
            "mu": self.mu,
            "exchange": self.exchange,
            "local_step": self.local_step,
            "other": OTHER_RULES[self.other].build(),
        }
        return own | self._averaging() | self._common(comm, worker_axis)


class DionSpec(DionBase):
    """Dion: low-rank orthonormal updates; with ``period`` above 1, Scheduled-Sync Dion."""

    source: ClassVar[str] = "Dion (Ahn et al., 2025), Algorithm 1"

    kind: Literal["dion"] = "dion"
    period: Period = 1

    @model_validator(mode="after")
    def _local_steps(self) -> Self:
        if self.local_step != "step" and self.period == 1:
            raise refusal("local_step", self.local_step, "'step' with period 1, where every step exchanges")
        return self

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        scheduled = "dion" if self.period == 1 else f"dion-every-{self.period}"
        return self.label or scheduled + ("-compressed" if self.exchange == "compressed" else "") + self._suffix

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Gradients, or gradients, P and R."""
        return self._synced(model, workers, self.period)

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import Dion, Every

        return Dion(params, self.lr, trigger=Every(self.period), **self._options(comm, worker_axis))


class CurvaDionSpec(DionBase):
    """CurvaDion: Dion that exchanges when a layer's momentum norm changes (RMMC above ``threshold``).

    ``expected_sync_rate`` is for projections only: no formula knows how often a training triggers.
    """

    source: ClassVar[str] = "CurvaDion, Algorithm 2"

    kind: Literal["curvadion"] = "curvadion"
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.1
    form: Literal["paper", "code"] = "paper"
    expected_sync_rate: Annotated[float, Field(ge=1e-9, le=1)] = 0.01

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or f"curvadion{self._suffix}"

    @property
    def one_seed_at_a_time(self) -> bool:
        """Each seed triggers by itself."""
        return True

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """The flag in every step, and an exchange at the expected rate, taken as a period."""
        flag = Exchange(FLAG_BYTES, label="trigger", joins=False)
        return [flag, *self._synced(model, workers, round(1 / self.expected_sync_rate))]

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Dion's, and one norm per matrix."""
        return super().kept_elements(model, workers) + sum(tensor.is_matrix for tensor in tensors_of(model))

    def readbacks(self, model: Tensors) -> int:
        """The norm of each matrix."""
        return sum(tensor.is_matrix for tensor in tensors_of(model))

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import CurvaDion

        options = self._options(comm, worker_axis)
        return CurvaDion(params, self.lr, threshold=self.threshold, form=self.form, **options)


class PowerSGDSpec(MethodBase):
    """PowerSGD: gradients of matrices as low-rank factors, with error feedback."""

    family: ClassVar[str] = "low rank"
    source: ClassVar[str] = "PowerSGD (Vogels et al., 2019)"

    kind: Literal["powersgd"] = "powersgd"
    rule: RuleSpec = SGDMRule()
    rank: int = Field(default=2, ge=1)
    warm_start: bool = True
    error_feedback: bool = True
    warmup_steps: int = Field(default=0, ge=0)
    always: bool = False

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or "powersgd"

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """All gradients in the warm-up; then those of what is not compressed, P and R of what is."""
        tensors, warm = tensors_of(model), self.warmup_steps
        low = [t for t in tensors if self._rank_of(t)]
        sent = [
            ("gradient", elements(tensors) - elements(low)),
            ("P", sum(t.sides[0] * self._rank_of(t) for t in low)),
            ("R", sum(t.sides[1] * self._rank_of(t) for t in low)),
        ]
        full = [self._plain(elements(tensors), label="gradient", joins=False, stop=warm)] if warm else []
        return [*full, *(self._plain(n, label=label, joins=False, start=warm) for label, n in sent if n)]

    def _rank_of(self, tensor: TensorShape) -> int:
        if len(tensor.shape) < 2:
            return 0
        rank = min(self.rank, *tensor.sides)
        return rank if self.always or tensor.is_worth_factors(rank) else 0

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``."""
        return FACTORS_FORMULA.format(self._bytes(1))

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The rule's states; of what is compressed the error and the right factor."""
        tensors = tensors_of(model)
        low = [t for t in tensors if self._rank_of(t)]
        return self.rule.state_elements(tensors) + elements(low) + sum(t.sides[1] * self._rank_of(t) for t in low)

    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """The error of what is compressed, which is kept whether it is fed back or not."""
        return elements([t for t in tensors_of(model) if self._rank_of(t)])

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import DDP, PowerSGD

        reducer = PowerSGD(self.rank, self.warm_start, self.error_feedback, self.warmup_steps, self.always)
        return DDP(params, self.lr, self.rule.build(), reducer=reducer, **self._common(comm, worker_axis))
