"""The spec of a staleness study: the same training with delayed gradients, for several depths of a pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from replication.timed_models import PipelineClockSpec
from syncline.fields import Positive, Seed, Spec, Steps, Threads, refusal
from syncline.methods import MethodSpec
from syncline.methods.parts.asynchronous import BackwardWeights, RemedyField, remedy_of
from syncline.specs import Experiment, ProblemField, ScheduleSpec, check_distinct
from syncline.specs.cluster.clusters import check_network_sizes
from syncline.specs.stages import StageCount, check_stages_of


class LateMethod(Spec):
    """A method with its remedy for delayed gradients and the weights that its backward passes use.

    ``rates`` replace the study's rates or factors, for a method whose learning rates have another size.
    """

    method: MethodSpec
    remedy: RemedyField = None
    backward_weights: BackwardWeights = "stashed"
    rates: tuple[Positive, ...] = ()
    label: str = ""

    @model_validator(mode="after")
    def _fits(self) -> LateMethod:
        if self.remedy:
            self.remedy.check_weights(self.backward_weights, "remedy")
        if remedy := remedy_of(self.method):
            raise refusal("method.remedy", remedy.kind, "none in the method of a study, which has it beside the method")
        return self

    @property
    def name(self) -> str:
        """Return the name of the method in tables and figures: its label, or its name, remedy and weights."""
        parts = [self.method.name, self.remedy.kind if self.remedy else "", self.backward_weights]
        return self.label or " ".join(part for part in parts if part and part != "stashed")


def _with_method_field(value: Any) -> Any:
    """Return the fields of a `LateMethod`; a method alone becomes one without a remedy."""
    if isinstance(value, LateMethod) or (isinstance(value, dict) and "method" in value):
        return value
    return {"method": value}


class StalenessSpec(Experiment):
    """A pipeline's late gradients: the loss after equal steps, and against the time of both kinds of pipeline.

    Each entry K of ``stages`` is a training in which stage k gets gradients that are ``K - 1 - k`` updates late
    (``uniform``: K - 1 updates in all stages). K = 1 is training without delay; synchronous 1F1B follows the same path
    at every depth. Each method trains at each of ``rates``, or at ``rate_factors`` times its own rate, or at its own
    rate if both are empty; at each depth the rate with the lowest final loss counts. With ``tuning_seeds`` the rates
    are compared on these seeds, and ``seeds`` train at the best rate only.
    """

    kind: Literal["staleness"]
    problem: ProblemField
    stages: tuple[StageCount, ...] = Field(min_length=1)
    methods: tuple[Annotated[LateMethod, BeforeValidator(_with_method_field)], ...] = Field(min_length=1)
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

    def rates_of(self, delayed_method: LateMethod) -> tuple[float, ...]:
        """Return the learning rates at which a method is trained."""
        factors = tuple(factor * delayed_method.method.lr for factor in self.rate_factors)
        return delayed_method.rates or self.rates or factors or (delayed_method.method.lr,)

    def tunes_rate(self, delayed_method: LateMethod) -> bool:
        """Return whether the learning rate of a method is chosen on ``tuning_seeds``."""
        return bool(self.tuning_seeds) and len(self.rates_of(delayed_method)) > 1

    @model_validator(mode="after")
    def _distinct(self) -> StalenessSpec:
        self.schedule.check(self.steps)
        check_distinct("methods", [method.name for method in self.methods])
        distinct = [("stages", self.stages), ("seeds", self.seeds), ("rates", self.rates)]
        distinct += [("rate_factors", self.rate_factors), ("tuning_seeds", self.tuning_seeds)]
        distinct += [(f"methods.{i}.rates", delayed_method.rates) for i, delayed_method in enumerate(self.methods)]
        for field, values in distinct:
            if len(set(values)) < len(values):
                raise refusal(field, values, "values that differ from each other")
        if self.rates and self.rate_factors:
            raise refusal("rate_factors", self.rate_factors, "none with rates, as only one of the two is needed")
        if shared := sorted(set(self.tuning_seeds) & set(self.seeds)):
            raise refusal("tuning_seeds", self.tuning_seeds, f"seeds that are not among seeds, as {shared[0]} is")
        if self.tuning_seeds and not any(self.tunes_rate(delayed_method) for delayed_method in self.methods):
            raise refusal("tuning_seeds", self.tuning_seeds, "none without rates to choose from")
        return self

    @model_validator(mode="after")
    def _can_be_cut(self) -> StalenessSpec:
        deepest, landscape = max(self.stages), hasattr(self.problem, "start_point")
        blocks = getattr(self.problem, "layers", None)
        if blocks is not None and deepest > 1:
            if self.delay == "per-stage":
                check_stages_of(self.problem, deepest, "stages")
        elif not landscape and deepest > 1 and self.delay == "per-stage":
            raise refusal("delay", "per-stage", f"uniform, as {self.problem.name} has no blocks to cut into stages")
        for i, delayed_method in enumerate(self.methods):
            if delayed_method.backward_weights != "stashed" and (blocks is None or self.delay == "uniform"):
                expected = "stashed, unless text-gpt is cut into stages (delay: per-stage)"
                raise refusal(f"methods.{i}.backward_weights", delayed_method.backward_weights, expected)
            if (
                delayed_method.remedy
                and delayed_method.remedy.kind == "discount"
                and landscape
                and self.delay == "per-stage"
            ):
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
        check_network_sizes(self.clock.networks, max(self.stages))
        return self

    def warnings(self) -> list[str]:
        """Return one line per setting that is valid but probably a mistake."""
        lines = []
        if 1 not in self.stages and self.target_loss is None:
            lines.append("stages without 1: there is no slowdown to tell, and no path of a synchronous pipeline")
        if not self.eval_every:
            lines.append("eval_every 0: steps to a target are told from the losses before and after the training alone")
        if self.delay == "uniform" and self.clock is not None:
            lines.append("delay uniform is that of no schedule: the clock is of stages whose delays differ")
        return lines
