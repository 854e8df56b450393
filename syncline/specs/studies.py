"""Specs of studies: experiments that no network times, run by ``syncline run``."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.costmodel.traffic.packing import sum_levels
from syncline.fields import MANY, Positive, Seed, Spec, Steps, Workers, from_name, refusal
from syncline.methods import MethodSpec
from syncline.specs.alignment import AlignmentSpec
from syncline.specs.experiment import Experiment, ProblemField, ScheduleSpec, Training, check_distinct
from syncline.specs.staleness import StalenessSpec
from syncline.specs.swings import SwingsSpec

Share = Annotated[float, Field(ge=0, le=1)]


class DistributionSpec(Spec):
    """What the entries of a vector are drawn from; a bare name stands for its defaults.

    Log-normal has a fair sign and a magnitude whose logarithm has the standard deviation ``sigma``.
    """

    kind: Literal["gaussian", "laplace", "log-normal", "stable"]
    sigma: Positive | None = None
    alpha: Annotated[float, Field(gt=0, le=2)] | None = None

    @model_validator(mode="after")
    def _own_knobs(self) -> DistributionSpec:
        for knob, kind in (("sigma", "log-normal"), ("alpha", "stable")):
            if getattr(self, knob) is not None and self.kind != kind:
                raise refusal(knob, getattr(self, knob), f"none for {self.kind}, but for {kind}")
        if self.kind == "stable" and self.alpha is None:
            raise refusal("alpha", None, "a number above 0 (heaviest tails) and at most 2 (gaussian)")
        return self

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        knob = self.sigma if self.kind == "log-normal" else self.alpha
        return self.kind if knob is None else f"{self.kind} {knob:g}"


DistributionField = Annotated[DistributionSpec, BeforeValidator(from_name)]


class PaperVotes(Spec):
    """What a paper measured of one number of workers: shares of all parameters."""

    workers: int = Field(ge=2, le=MANY)
    tie_rate: Share
    match: Share
    flip: Share


class VoteTiesSpec(Experiment):
    """Majority votes of independent workers: how often they tie, and how often they are the sign of the sum."""

    kind: Literal["vote-ties"]
    groups: tuple[PaperVotes, ...] = Field(min_length=1)
    distributions: tuple[DistributionField, ...] = Field(min_length=1)
    votes: int = Field(default=2**20, ge=1)
    seed: Seed = 0

    def warnings(self) -> list[str]:
        """None."""
        return []

    @model_validator(mode="after")
    def _distinct(self) -> VoteTiesSpec:
        check_distinct("groups", [f"{group.workers} workers" for group in self.groups])
        check_distinct("distributions", [one.name for one in self.distributions])
        return self


class VectorsSpec(Spec):
    """Vectors to quantise: ``entries`` numbers per worker, integers whose sum over the workers fits ``bits`` bits."""

    distributions: tuple[DistributionField, ...] = Field(min_length=1)
    entries: int = Field(default=20_000, ge=1)
    bits: int = Field(default=8, ge=2, le=24)

    @model_validator(mode="after")
    def _distinct(self) -> VectorsSpec:
        check_distinct("distributions", [one.name for one in self.distributions])
        return self


class NoiseSpec(Spec):
    """Alpha-stable noise; scales of different ``alpha`` do not compare, so each has its own."""

    alpha: Annotated[float, Field(gt=0, le=2)]
    noise_scale: Annotated[float, Field(ge=0)]


class TuningSpec(Spec):
    """Trainings under each of ``noises``, every method at its best of ``rates`` on ``tuning_seeds``.

    ``problem`` has a noise, and ``methods`` learning rates, that are replaced. ``reference`` is the method that the
    others are held against, seed by seed.
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
        """The training of these seeds, for any of the methods."""
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

    def warnings(self) -> list[str]:
        """None."""
        return []

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


StudySpec = VoteTiesSpec | QuantisersSpec | StalenessSpec | AlignmentSpec | SwingsSpec
