"""The spec of a staleness study: the same training with late gradients, for several depths of a pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.fields import Positive, Seed, Spec, Steps, Threads, from_name, refusal
from syncline.methods import MethodSpec
from syncline.specs.cluster.spec_fields import NetworkField, check_joinable
from syncline.specs.experiment import Experiment, ScheduleSpec, check_distinct
from syncline.specs.memory import HardwareField
from syncline.specs.models import TransformerField
from syncline.specs.problem import ProblemField

StageCount = Annotated[int, Field(ge=1, le=4096)]


class RemedySpec(Spec):
    """What is done about a late gradient, beside the method's own.

    ``discount``: a smaller rate, ``tau^-(1 - t / anneal_steps)``, until ``anneal_steps``. ``compensation``: the
    gradient moved by ``strength * g * g * (x - x_stale)``. ``look-ahead``: forward passes at predicted weights.
    """

    kind: Literal["discount", "compensation", "look-ahead"]
    anneal_steps: int | None = Field(default=None, ge=1)
    strength: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _own_knobs(self) -> RemedySpec:
        for knob, kind in (("anneal_steps", "discount"), ("strength", "compensation")):
            value = getattr(self, knob)
            if self.kind == kind and value is None:
                raise refusal(knob, None, f"a value, as {kind} needs one")
            if self.kind != kind and value is not None:
                raise refusal(knob, value, f"none for {self.kind}, but for {kind}")
        return self


class LateMethod(Spec):
    """A method, what it does about late gradients, and which weights its backward passes use.

    ``rates`` are tried in place of the study's rates or factors, for a method whose rates are of another size.
    """

    method: MethodSpec
    remedy: Annotated[RemedySpec | None, BeforeValidator(from_name)] = None
    weights: Literal["stashed", "current", "corrected"] = "stashed"
    rates: tuple[Positive, ...] = ()
    label: str = ""

    @model_validator(mode="after")
    def _fits(self) -> LateMethod:
        if self.remedy and self.remedy.kind != "discount" and self.weights != "stashed":
            raise refusal("remedy", self.remedy.kind, f"none, or a discount, where weights are {self.weights}")
        return self

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        parts = [self.method.name, self.remedy.kind if self.remedy else "", self.weights]
        return self.label or " ".join(part for part in parts if part and part != "stashed")


def _late(value: Any) -> Any:
    """A method alone stands for one without a remedy."""
    if isinstance(value, LateMethod) or (isinstance(value, dict) and "method" in value):
        return value
    return {"method": value}


class PipelineClockSpec(Spec):
    """Whose updates are timed, and where: asynchronous 1F1B, one batch per micro-batch, beside synchronous 1F1B.

    The synchronous one cuts a batch into ``microbatches``. Without ``model`` the pipeline is the problem's own; with
    it, one of that shape with ``tokens`` in a batch, whose losses are nevertheless the problem's.
    """

    networks: tuple[NetworkField, ...] = Field(min_length=1)
    microbatches: int = Field(default=8, ge=1, le=10_000)
    hardware: HardwareField = Field(default="cpu-core", validate_default=True)
    model: TransformerField | None = None
    tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> PipelineClockSpec:
        check_distinct("networks", [network.name for network in self.networks])
        if self.model is None and self.tokens is not None:
            raise refusal("tokens", self.tokens, "a model beside it, whose batch they are")
        if self.model is not None and self.tokens is None:
            raise refusal("tokens", None, "how many are in a batch, as the model's work follows from it")
        return self


class StalenessSpec(Experiment):
    """A pipeline's late gradients: the loss after equal steps, and against the time of both kinds of pipeline.

    Each of ``stages`` is a training whose stage k gets gradients ``K - 1 - k`` updates late (``uniform``: K - 1 for
    all); 1 is plain training, whose path synchronous 1F1B takes at every depth. Each method trains at each of
    ``rates``, or at ``rate_factors`` times its own, and at each depth that of the lowest final loss counts;
    without either, at its own. With ``tuning_seeds`` these compare the rates, and ``seeds`` train at the best alone.
    """

    kind: Literal["staleness"]
    problem: ProblemField
    stages: tuple[StageCount, ...] = Field(min_length=1)
    methods: tuple[Annotated[LateMethod, BeforeValidator(_late)], ...] = Field(min_length=1)
    steps: Steps
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    eval_every: int = Field(default=0, ge=0)
    schedule: ScheduleSpec = ScheduleSpec()
    delay: Literal["per-stage", "uniform"] = "per-stage"
    rates: tuple[Positive, ...] = ()
    rate_factors: tuple[Positive, ...] = ()
    tuning_seeds: tuple[Seed, ...] = ()
    target_loss: float | None = None
    clock: PipelineClockSpec | None = None
    threads: Threads = 1
    device: Literal["cpu", "cuda"] = "cpu"

    def rates_of(self, late: LateMethod) -> tuple[float, ...]:
        """The learning rates that a method is trained at."""
        factors = tuple(factor * late.method.lr for factor in self.rate_factors)
        return late.rates or self.rates or factors or (late.method.lr,)

    def tunes(self, late: LateMethod) -> bool:
        """Whether a method's rate is chosen on seeds of their own."""
        return bool(self.tuning_seeds) and len(self.rates_of(late)) > 1

    @model_validator(mode="after")
    def _distinct(self) -> StalenessSpec:
        self.schedule.check(self.steps)
        check_distinct("methods", [method.name for method in self.methods])
        distinct = [("stages", self.stages), ("seeds", self.seeds), ("rates", self.rates)]
        distinct += [("rate_factors", self.rate_factors), ("tuning_seeds", self.tuning_seeds)]
        distinct += [(f"methods.{i}.rates", late.rates) for i, late in enumerate(self.methods)]
        for field, values in distinct:
            if len(set(values)) < len(values):
                raise refusal(field, values, "values that differ from each other")
        if self.rates and self.rate_factors:
            raise refusal("rate_factors", self.rate_factors, "none beside rates: the one or the other")
        if shared := sorted(set(self.tuning_seeds) & set(self.seeds)):
            raise refusal("tuning_seeds", self.tuning_seeds, f"seeds that are not among seeds, as {shared[0]} is")
        if self.tuning_seeds and not any(self.tunes(late) for late in self.methods):
            raise refusal("tuning_seeds", self.tuning_seeds, "none without rates to choose from")
        return self

    @model_validator(mode="after")
    def _can_be_cut(self) -> StalenessSpec:
        deepest, landscape = max(self.stages), hasattr(self.problem, "start_point")
        blocks = getattr(self.problem, "layers", None)
        if blocks is not None and deepest > 1:
            if self.delay == "per-stage" and deepest > blocks:
                raise refusal("stages", deepest, f"at most {blocks}, as many as the problem has blocks (layers)")
            if self.delay == "per-stage" and getattr(self.problem, "tied", False):
                raise refusal("problem.tied", True, "false in a pipeline, both ends of which have a table")
        elif not landscape and deepest > 1 and self.delay == "per-stage":
            raise refusal("delay", "per-stage", f"uniform, as {self.problem.name} has no blocks to cut into stages")
        for i, late in enumerate(self.methods):
            if late.weights != "stashed" and (blocks is None or self.delay == "uniform"):
                expected = "stashed, unless text-gpt is cut into stages (delay: per-stage)"
                raise refusal(f"methods.{i}.weights", late.weights, expected)
            if late.remedy and late.remedy.kind == "discount" and landscape and self.delay == "per-stage":
                expected = "another, or delay: uniform: a landscape's coordinates have one rate"
                raise refusal(f"methods.{i}.remedy", "discount", expected)
        return self

    @model_validator(mode="after")
    def _can_be_timed(self) -> StalenessSpec:
        if self.clock is None:
            return self
        blocks = self.clock.model.layers if self.clock.model else getattr(self.problem, "layers", None)
        if blocks is None:
            expected = f"a model whose pipeline is timed, as {self.problem.name} has no blocks"
            raise refusal("clock.model", None, expected)
        if max(self.stages) > blocks:
            expected = f"at most {blocks}, as many as {self.clock.model.name if self.clock.model else 'it'} has blocks"
            raise refusal("stages", max(self.stages), expected)
        check_joinable(self.clock.networks, max(self.stages))
        return self

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        lines = []
        if 1 not in self.stages and self.target_loss is None:
            lines.append("stages without 1: there is no slowdown to tell, and no path of a synchronous pipeline")
        if not self.eval_every:
            lines.append("eval_every 0: steps to a target are told from the losses before and after the training alone")
        if self.delay == "uniform" and self.clock is not None:
            lines.append("delay uniform is that of no schedule: the clock is of stages whose delays differ")
        return lines
