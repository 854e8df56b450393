"""The spec of a staleness study: the same training with late gradients, for several depths of a pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.specs.base import Positive, Spec, refusal
from syncline.specs.experiment import NetworkField, Training, check_distinct
from syncline.specs.methods import MethodSpec
from syncline.specs.methods.base import from_name


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
    """A method, what it does about late gradients, and which weights its backward passes use."""

    method: MethodSpec
    remedy: Annotated[RemedySpec | None, BeforeValidator(from_name)] = None
    weights: Literal["stashed", "current", "corrected"] = "stashed"
    label: str = ""

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


class StalenessSpec(Training):
    """A pipeline's late gradients: the loss after equal steps, and against the time of both kinds of pipeline.

    Each of ``stages`` is a training whose stage k gets gradients ``K - 1 - k`` updates late (``uniform``: K - 1 for
    all); 1 is plain training. The clock is that of asynchronous 1F1B with one batch per micro-batch, beside synchronous
    1F1B, which cuts a batch into ``microbatches`` and takes the path of plain training.
    """

    kind: Literal["staleness"]
    workers: int = Field(default=1, ge=1)
    stages: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(min_length=1)
    methods: tuple[Annotated[LateMethod, BeforeValidator(_late)], ...] = Field(min_length=1)
    delay: Literal["per-stage", "uniform"] = "per-stage"
    microbatches: int = Field(default=8, ge=1)
    networks: tuple[NetworkField, ...] = ()
    target_loss: float | None = None
    rates: tuple[Positive, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> StalenessSpec:
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [network.name for network in self.networks])
        if len(set(self.stages)) < len(self.stages):
            raise refusal("stages", self.stages, "different numbers of stages")
        if self.workers != 1:
            raise refusal("workers", self.workers, "1: a study of delay alone")
        return self

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        lines = []
        if 1 not in self.stages:
            lines.append("stages without 1: there is no slowdown to tell, and no synchronous path")
        if self.delay == "uniform" and any(method.weights != "stashed" for method in self.methods):
            lines.append("delay uniform has no effect on methods whose weights are not stashed: they run by the events")
        return lines
