"""The spec of a study of quantisers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import Field, model_validator

from replication.studies.draws import DistributionField
from syncline.costmodel.traffic.packing import sum_levels
from syncline.fields import Positive, Seed, Spec, Steps, Workers, refusal
from syncline.methods import MethodSpec
from syncline.specs import Experiment, ProblemField, ScheduleSpec, Training, check_distinct


class VectorsSpec(Spec):
    """Vectors to quantise, with ``entries`` numbers per worker.

    The integers are such that their sum over the workers fits in ``bits`` bits.
    """

    distributions: tuple[DistributionField, ...] = Field(min_length=1)
    entries: int = Field(default=20_000, ge=1)
    bits: int = Field(default=8, ge=2, le=24)

    @model_validator(mode="after")
    def _distinct(self) -> VectorsSpec:
        check_distinct("distributions", [distribution.name for distribution in self.distributions])
        return self


class NoiseSpec(Spec):
    """Alpha-stable noise with its own scale, because scales of different ``alpha`` are not comparable."""

    alpha: Annotated[float, Field(gt=0, le=2)]
    noise_scale: Annotated[float, Field(ge=0)]


class TuningSpec(Spec):
    """Trainings under each of ``noises``, with every method at the best of ``rates`` on ``tuning_seeds``.

    The study replaces the noise of ``problem`` and the learning rates of ``methods``. ``reference`` is the method with
    which the others are compared, seed by seed.
    """

    problem: ProblemField
    noises: tuple[NoiseSpec, ...] = Field(min_length=1)
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    reference: str
    steps: Steps
    schedule: ScheduleSpec = ScheduleSpec()
    rates: tuple[Positive, ...] = Field(min_length=1)
    tuning_seeds: tuple[Seed, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> TuningSpec:
        if not hasattr(self.problem, "noise_scale"):
            raise refusal("problem", self.problem.name, "a problem with stable noise: teacher-student")
        check_distinct("noises", [f"alpha {noise.alpha:g}" for noise in self.noises])
        check_distinct("methods", [method.name for method in self.methods])
        self.schedule.check(self.steps)
        names = [method.name for method in self.methods]
        if self.reference not in names:
            raise refusal("reference", self.reference, "one of the methods: " + ", ".join(map(repr, names)))
        return self

    def training(self, noise: NoiseSpec, workers: int, seeds: tuple[int, ...]) -> Training:
        """Return the training spec for these seeds and this noise; it is the same for all methods."""
        problem = dataclasses.replace(self.problem, alpha=noise.alpha, noise_scale=noise.noise_scale)
        return Training(
            name="tuned", problem=problem, workers=workers, steps=self.steps, seeds=seeds, schedule=self.schedule
        )


class QuantisersSpec(Experiment):
    """What becomes of a sum's sign when workers send small integers: on vectors, and in trainings."""

    kind: Literal["quantisers"]
    workers: Workers
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    vectors: VectorsSpec | None = None
    training: TuningSpec | None = None

    @model_validator(mode="after")
    def _fits(self) -> QuantisersSpec:
        check_distinct("seeds", [f"seed {seed}" for seed in self.seeds])
        if self.vectors is None and self.training is None:
            raise refusal("vectors", None, "vectors, training or both")
        if self.vectors:
            sum_levels(self.vectors.bits, self.workers, "vectors.bits")
        shared = set(self.training.tuning_seeds) & set(self.seeds) if self.training else set()
        if shared:
            expected = f"seeds that are not among the spec's own, as {min(shared)} is"
            raise refusal("training.tuning_seeds", self.training and self.training.tuning_seeds, expected)
        return self
