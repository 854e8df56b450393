"""The Dion family, with low-rank orthonormal updates that workers exchange on a schedule or on a trigger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape, dion_rank
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork, low_rank_work, repeated, shapes_of
from syncline.errors import SpecError
from syncline.fields import Period, Rate, Seed, Steps, refusal
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.method_spec import Presets, Tensors, elements, per_step_formula, tensors_of
from syncline.methods.parts.rules import OTHER_RULES, OtherRule
from syncline.methods.registry import register
from syncline.seeds import generator

FACTORS_FORMULA = "{} (Σ (m + n) r + rest)"
"""Formula of the bytes of the factors, at rank r, of m by n matrices, and of all other parameters; {} is the bytes of a
number."""


UNSUITED_TO_FACTORS = {
    "top-k": ": P is orthonormalised, and a sparse one loses columns",
    "block-top-k": ": P is orthonormalised, and a sparse one loses columns",
    "qsgd": ": P is orthonormalised, which makes a bias of noise that had none",
    "one-bit": ", whose errors are not kept: one magnitude for all entries is no basis",
}
"""Kinds of compressors that cannot send factors, with the reason for the error line."""

TRIGGER_EXCHANGE = Exchange(payload_bytes=4, label="trigger", shares_call=False)
"""The exchange, in every step, of the fp32 maximum that decides whether the trigger fires."""

MOMENTUM_WORK = ElementwiseWork(kernel_bytes=32, kernels=3)
"""Dion's sums of its momentum with the gradient and the factors, and the scale of the direction."""


class DionBase(CompressibleBase):
    """The base of the Dion family.

    Args:
        rank_fraction: rank of the factors as a share of the matrix's smaller side, in (0, 1].
        mu: decay rate of the momentum along the factors.
        exchange: ``gradient``, workers average gradients; ``compressed``, they average factors.
        local_step: the update in a step without an exchange. ``step``: every worker takes Dion's step on its own
            gradient, as in the public code, and workers drift apart. ``hold``: workers add up their gradients until the
            next exchange and do not move, so that they stay equal.
        other_rule: rule of the parameters that are not matrices.
        compressor: compressor of all exchanged tensors; by default none. Gradients have error feedback. Factors need
            none, because the momentum keeps what their rounding leaves out.
    """

    family = "low rank"

    has_trigger: ClassVar[bool] = False

    trigger_work: ClassVar[ElementwiseWork] = ElementwiseWork()
    """Elementwise operations of a trigger."""

    rank_fraction: Annotated[float, Field(gt=0, le=1)] = 0.25
    mu: Rate = 0.95
    exchange: Literal["gradient", "compressed"] = "gradient"
    local_step: Literal["step", "hold"] = "step"
    other_rule: OtherRule = "adam"

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        """Raise an error if factors are sent with clipped gradients, or with a compressor unsuited to factors."""
        if self.clip_norm is not None and self.exchange == "compressed":
            reason = "workers do not know the mean gradient's norm, and would drift apart"
            raise refusal("clip_norm", self.clip_norm, f"none where factors are sent: {reason}")
        if self.compressor and self.exchange == "compressed" and self.compressor.kind in UNSUITED_TO_FACTORS:
            kind = self.compressor.kind
            reason = UNSUITED_TO_FACTORS[kind]
            raise refusal("compressor.kind", kind, f"'lp' for factors{reason}")
        return self

    @property
    @override
    def sends_gradients(self) -> bool:
        """Return whether workers send only gradients, neither factors nor a compressor's messages."""
        return self.exchange == "gradient" and not self.compressor

    def rank(self, tensor: TensorShape) -> int:
        """Return the rank of the factors of an m by n matrix, ``ceil(rank_fraction min(m, n))``."""
        return dion_rank(*tensor.sides, self.rank_fraction)

    def _exchanges_after(
        self, model: Tensors, workers: int, steps: int, averaged_steps: Sequence[int]
    ) -> list[Exchange]:
        """Return the exchanges that follow each of ``averaged_steps``, from 0; they repeat every ``steps`` steps."""
        exchanges = self._exchanges_every(steps, model, workers)
        return [replace(exchange, offset=t + 1) for t in averaged_steps for exchange in exchanges]

    def _exchanges_every(self, period: int, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges of gradients, then of P and R of factored matrices, every ``period`` steps."""
        plain_gradients, factored = self._split_by_exchange(model)
        # P belongs to the longer side, because matrices with more columns than rows are transposed.
        left_factors = [TensorShape("P", (max(t.sides), self.rank(t))) for t in factored]
        right_factors = [TensorShape("R", (min(t.sides), self.rank(t))) for t in factored]
        exchanges: list[Exchange] = []
        for label, sent_tensors in (("gradient", plain_gradients), ("P", left_factors), ("R", right_factors)):
            if self.compressor:
                exchanges += self.compressor.exchanges(sent_tensors, workers, period, label, shares_call=False)
            elif sent_tensors:
                count, in_backward = elements(sent_tensors), self.sends_in_backward
                exchanges.append(self._plain_exchange(count, period, label, shares_call=False, in_backward=in_backward))
        return exchanges

    @property
    @override
    def sends_in_backward(self) -> bool:
        """Return whether gradients are sent in the backward pass: not with a trigger, which decides after it."""
        return self.sends_gradients and not self.has_trigger

    def _split_by_exchange(self, model: Tensors) -> tuple[list[TensorShape], list[TensorShape]]:
        """Return the parameters whose gradients are sent, and the matrices whose factors are sent."""
        plain_gradients: list[TensorShape] = []
        factored: list[TensorShape] = []
        for t in tensors_of(model):
            if self.exchange == "compressed" and t.is_matrix and t.is_worth_factors(self.rank(t)):
                factored.append(t)
            else:
                plain_gradients.append(t)
        return plain_gradients, factored

    @property
    def _period(self) -> int:
        """Return the number of steps between exchanges, on average."""
        exchanges = self.exchanges(model=1, workers=1)  # all models have the same period
        return exchanges[-1].period  # the first exchange may be the trigger's

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step: of the trigger, if there is one, then of gradients or factors."""
        if self.exchange == "gradient" and not self.compressor:
            return super().traffic_formula(workers)
        trigger = f"{TRIGGER_EXCHANGE.payload_bytes} + " if self.has_trigger else ""
        if self.compressor:
            compressed = " of gradients" if self.exchange == "gradient" else " of P, R and the rest"
            return trigger + super().traffic_formula(workers) + compressed
        factors = FACTORS_FORMULA.format(self._wire_bytes(1))
        return trigger + per_step_formula(factors, self._period)

    @override
    def _compressed_tensors(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the parameters whose gradients are sent; errors are kept only for these."""
        return self._split_by_exchange(tensors)[0]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [self._period]

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of momenta, right factors, other rules' states and a compressor's errors."""
        tensors = tensors_of(model)
        vectors = [tensor for tensor in tensors if not tensor.is_matrix]
        matrix_elements = sum(t.elements + min(t.sides) * self.rank(t) for t in tensors if t.is_matrix)
        errors = self._compressor_elements(self._compressed_tensors(tensors), reference=False)
        summed_gradients = elements(tensors) if self.local_step == "hold" else 0
        return matrix_elements + summed_gradients + errors + OTHER_RULES[self.other_rule]().state_elements(vectors)

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations per step that update matrices, and those of the rule of other parameters.

        An update computes the factors of a momentum, subtracts their product, and multiplies them to get the direction.
        With ``local_step: hold``, only steps with an exchange update the matrices.
        """
        matrices = [t for t in tensors if t.is_matrix]
        others = OTHER_RULES[self.other_rule]().update_work([t for t in tensors if not t.is_matrix])
        work = UpdateWork(MOMENTUM_WORK.on(matrices) + self.trigger_work.on(matrices))
        for short, long, count in shapes_of(matrices):  # ``count`` matrices have these sides
            rank = dion_rank(long, short, self.rank_fraction)
            work += repeated(low_rank_work(long, short, rank, products=4), count)
        work += others + self._step_work(tensors)
        return work.every(self._period) if self.local_step == "hold" else work

    def _triggered_optimizer(self, params: Iterable[Any], trigger: optim.Trigger, **options: Any) -> optim.Method:
        """Build the optimizer whose workers exchange only in the steps in which a trigger fires."""
        other_rule = OTHER_RULES[self.other_rule]().build()
        rule = optim.MatrixSplit(optim.DionRule(self.rank_fraction, self.mu), other_rule)
        options["reducer"] = optim.MeanGradient(in_backward=self.sends_in_backward, encoded=self.converts_to_wire)
        options |= self._compressor_options()
        sends_factors, holds = self.exchange == "compressed", self.local_step == "hold"
        return optim.DionMethod(
            params, self.lr, rule, trigger=trigger, sends_factors=sends_factors, holds=holds, **options
        )


@register
class DionSpec(DionBase):
    """Dion: low-rank orthonormal updates; with ``period`` above 1, Scheduled-Sync Dion.

    In a step with an exchange, workers average either the full gradient or Dion's factors of each matrix:
    ``P = orth(mean(M Q))`` and ``R = mean(M^T P)``, where M is a worker's momentum. The factors have ``4 (m + n) r``
    bytes. Parameters that are not matrices, and matrices whose factors are no smaller than ``4 m n`` bytes, are
    averaged as gradients. In other steps each worker updates alone.

    Args:
        period: number of steps between exchanges.

    Source: Dion (Ahn et al., 2025); CurvaDion, Algorithms 1 and 2.
    """

    source = "Dion (Ahn et al., 2025), Algorithm 1"

    presets: ClassVar[Presets] = {
        "dion": {"lr": 0.02, "other_lr": 0.003},
        "dion-compressed": {"exchange": "compressed", "lr": 0.02, "other_lr": 0.003},
        "dion-scheduled": {"label": "dion-scheduled", "period": 32, "lr": 0.02, "other_lr": 0.003},
        "dion-8bit": {
            "label": "dion-8bit",
            "exchange": "compressed",
            "compressor": {"kind": "lp", "p": "inf"},
            "lr": 0.02,
            "other_lr": 0.003,
        },
    }

    kind: Literal["dion"] = "dion"
    period: Period = 1

    @model_validator(mode="after")
    def _check_local_step(self) -> Self:
        """Raise an error for ``local_step: hold`` if there are no steps without an exchange."""
        if self.local_step != "step" and self.period == 1:
            raise refusal("local_step", self.local_step, "'step' with period 1, where every step exchanges")
        return self

    @property
    @override
    def name(self) -> str:
        if self.label:
            return self.label
        period = "" if self.period == 1 else f"-every-{self.period}"
        exchange = "-compressed" if self.exchange == "compressed" else ""
        return f"dion{period}{exchange}{self._suffix}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return a worker's exchanges: gradients, or gradients of vectors and the factors P and R of matrices."""
        return self._exchanges_every(self.period, model, workers)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return self._triggered_optimizer(params, optim.Every(self.period), **options)


class TriggeredDionBase(DionBase):
    """The base of Dion with a trigger: workers exchange a maximum in every step, and more when it fires.

    Args:
        threshold: relative change of a norm above which workers exchange: the momentum's norm for CurvaDion, the
            gradients' squared norm for SelSync. With 0 they exchange in every step, as Dion does; with infinity, never.
        expected_sync_rate: assumed share of steps with an exchange, for projections, which do not know how often a
            training triggers.
    """

    has_trigger = True

    threshold: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.1
    expected_sync_rate: Annotated[float, Field(ge=1e-9, le=1)] = 0.01

    @property
    @override
    def one_seed_at_a_time(self) -> bool:
        """Return whether seeds train one at a time: they do, because each seed triggers by itself."""
        return True

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the trigger's exchange in every step, and Dion's exchanges at the expected rate."""
        return [TRIGGER_EXCHANGE, *self._exchanges_every(round(1 / self.expected_sync_rate), model, workers)]

    @override
    def exchanges_of_training(
        self, model: Tensors, workers: int, steps: int, averaged_steps: Sequence[int]
    ) -> list[Exchange]:
        """Return the trigger's exchange in every step, and Dion's exchanges after ``averaged_steps``."""
        return [TRIGGER_EXCHANGE, *self._exchanges_after(model, workers, steps, averaged_steps)]

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements that a worker stores: Dion's, and a number per matrix for the trigger."""
        return super().kept_elements(model, workers) + sum(tensor.is_matrix for tensor in tensors_of(model))

    @override
    def check_model(self, model: Sequence[TensorShape]) -> None:
        """Raise a SpecError for a model without matrices, because the trigger compares momenta of matrices."""
        if not any(tensor.is_matrix for tensor in model):
            raise SpecError("method", self.name, "a model with matrices, whose momenta the trigger looks at")


@register
class CurvaDionSpec(TriggeredDionBase):
    """CurvaDion: Dion whose workers exchange when the momentum norm of a layer changes much (RMMC above ``threshold``).

    Every step sends a 4-byte maximum; a step that exchanges also sends what Dion sends, by default the full gradient as
    in the public code. For the steps between exchanges see ``local_step``. Parameters are never averaged.

    Args:
        variant: formula of the change, ``paper`` or ``code``, see ``RMMC``.

    Source: CurvaDion, Algorithm 2.
    """

    trigger_work = ElementwiseWork(kernel_bytes=20, kernels=12)

    source = "CurvaDion, Algorithm 2"

    presets: ClassVar[Presets] = {"curvadion": {"lr": 0.02, "other_lr": 0.003}}

    kind: Literal["curvadion"] = "curvadion"
    variant: Literal["paper", "code"] = "paper"

    @property
    @override
    def name(self) -> str:
        return self.label or f"curvadion{self._suffix}"

    @override
    def readbacks(self, model: Tensors) -> int:
        """Return the number of matrices, because the trigger reads back the norm of each matrix's momentum."""
        return sum(tensor.is_matrix for tensor in tensors_of(model))

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return self._triggered_optimizer(params, optim.RMMC(self.threshold, self.variant), **options)


Placement = Literal["even", "random", "early"]

MOST_STEPS = 10**7
"""Largest number of steps among which averages are placed, because a random placement lists all steps."""


def placed_steps(num_averages: int, steps: int, placement: Placement, seed: int = 0) -> tuple[int, ...]:
    """Return the n = ``num_averages`` steps t, among T = ``steps`` steps from 0, after which workers average.

    ``even`` selects each t with ``floor((t + 1) n / T) > floor(t n / T)``; ``random`` is a random choice, equal on all
    workers; ``early`` selects ``t < n``.

    >>> placed_steps(3, 12, "even"), placed_steps(3, 12, "early")
    ((3, 7, 11), (0, 1, 2))
    """
    if placement == "even":  # the i-th average follows ceil(i T / n) steps
        return tuple((i * steps + num_averages - 1) // num_averages - 1 for i in range(1, num_averages + 1))
    if placement == "early":
        return tuple(range(num_averages))
    chosen_steps = generator(seed, "placement of averages").choice(steps, num_averages, replace=False)
    return tuple(sorted(int(t) for t in chosen_steps))


@register
class PlacedDionSpec(DionBase):
    """Dion whose workers exchange in steps that are fixed beforehand, ``num_averages`` times in ``steps`` steps.

    It is a baseline for triggers, which average as often, but at steps that depend on the training. If the training is
    longer than T steps, the placement repeats.

    Args:
        num_averages: n, number of steps that average.
        steps: T, number of steps among which the averages are placed, usually the steps of the training.
        placement: ``even``, ``random`` or ``early``, see ``placed_steps``.
        placement_seed: seed of the random placement.

    Source: CurvaDion, section 4.3 and appendix C (Scheduled Sync Dion: ``even``).
    """

    source = "CurvaDion, section 4.3"

    presets: ClassVar[Presets] = {"dion-placed": {"label": "dion-placed", "lr": 0.02, "other_lr": 0.003}}

    kind: Literal["placed-dion"] = "placed-dion"
    num_averages: int = Field(default=16, ge=1, le=1_000_000)
    steps: Annotated[Steps, Field(le=MOST_STEPS)] = 400
    placement: Placement = "even"
    placement_seed: Seed = 0

    @model_validator(mode="after")
    def _check_average_count(self) -> Self:
        """Raise an error for more averages than steps."""
        if self.num_averages > self.steps:
            raise refusal("num_averages", self.num_averages, f"at most steps ({self.steps})")
        return self

    @property
    def placed(self) -> tuple[int, ...]:
        """Return the steps, from 0, after which the method averages."""
        return placed_steps(self.num_averages, self.steps, self.placement, self.placement_seed)

    @property
    @override
    def name(self) -> str:
        return self.label or f"dion-{self.num_averages}-{self.placement}{self._suffix}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return Dion's exchanges after each step of the placement, repeated every ``steps`` steps."""
        return self._exchanges_after(model, workers, self.steps, averaged_steps=self.placed)

    @override
    def exchanges_of_training(
        self, model: Tensors, workers: int, steps: int, averaged_steps: Sequence[int]
    ) -> list[Exchange]:
        """Return Dion's exchanges in a training that averaged after ``averaged_steps``."""
        return self._exchanges_after(model, workers, steps, averaged_steps)

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step, with the number of averages in ``steps`` steps."""
        is_linear = self.exchange == "gradient" and not self.compressor  # the base class handles this
        if self.steps == 1 or is_linear:
            return super().traffic_formula(workers)
        # Put the formula for an average in every step into the formula of the pattern.
        every_step = self.model_copy(update={"num_averages": 1, "steps": 1})
        return f"{self.num_averages} ({every_step.traffic_formula(workers)}) / {self.steps}"

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return self._triggered_optimizer(params, optim.AtSteps(frozenset(self.placed), self.steps), **options)
