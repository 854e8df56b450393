"""The spec of a study of swings: updates along the steepest direction, with and without delayed gradients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from syncline.fields import Seed, Steps, refusal
from syncline.methods import MethodSpec
from syncline.specs import Experiment, ProblemField, ScheduleSpec, check_distinct


class SwingsSpec(Experiment):
    """How steps swing along the dominant eigenvector of a network's Hessian, and the Hessian's (1,1)-norm.

    Each method trains for ``at_step`` steps as a pipeline of each number of ``stages``. Then power iteration with
    ``iterations`` Hessian products finds the dominant eigenvector, and ``draws`` Cauchy vectors estimate the
    (1,1)-norm, both for the mean loss on the first ``batches`` training batches. The next ``window`` updates are
    projected on the eigenvector and on a random direction orthogonal to it.
    """

    kind: Literal["swings"]
    problem: ProblemField
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    stages: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(min_length=1)
    at_step: Steps
    window: int = Field(default=100, ge=2)
    batches: int = Field(default=4, ge=1)
    iterations: int = Field(default=40, ge=1)
    draws: int = Field(default=100, ge=2)
    schedule: ScheduleSpec = ScheduleSpec()
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> SwingsSpec:
        if self.problem.name != "text-gpt":
            raise refusal("problem", self.problem.name, "text-gpt: a model that can be cut into stages")
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("stages", [str(stages) for stages in self.stages])
        check_distinct("seeds", [str(seed) for seed in self.seeds])
        self.schedule.check(self.at_step + self.window)
        return self
