"""What a replication will take, from one training that is measured before it starts, or from those that it has."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.experiments.replicating.kept import stage_in, stage_table
from syncline.experiments.replicating.stages import ReplicationStage, search_stage
from syncline.experiments.sweep.grid import SweptSpec, configurations
from syncline.specs.experiment import ScheduleSpec
from syncline.specs.replications import ReplicationSpec
from syncline.specs.watch import WatchSpec
from syncline.units import format_seconds

STEPS_MEASURED, STEPS_BEFORE = 20, 2
"""Of the training that is measured where nobody says how often it is evaluated, and of brief ones before it."""


@dataclass(frozen=True)
class Expected:
    """What is left of a replication.

    Args:
        trainings: how many.
        steps: of all of them.
        cpu_s: of all of them, s of one core; of the clock on the wall, where they train on a GPU.
        measured: on what this rests.
        effort: of the search, of every method.
    """

    trainings: int
    steps: int
    cpu_s: float
    measured: str
    effort: str

    def __str__(self) -> str:
        left = f"{self.trainings:,} training{'s' * (self.trainings != 1)}, {self.steps:,} steps in all"
        return f"{self.effort}; {left}: about {format_seconds(self.cpu_s)} of one core, by {self.measured}"


def planned_steps(spec: ReplicationSpec) -> dict[str, int]:
    """Steps of all trainings of each stage."""
    own = {f"extra {one.name}": one.set for one in spec.extras} | {f"along {one.name}": one.set for one in spec.along}
    own |= {"search": spec.search.set, "again": spec.search.set, "finals": spec.finals.set}
    steps: int = spec.training.get("steps", 0)
    return {name: number * int(own[name].get("steps", steps)) for name, number in spec.planned().items()}


def expected(spec: ReplicationSpec, folder: Path) -> Expected | None:
    """What the stages that are not whole will take; None if all are.

    From the seconds that whole stages took, if there are any; else the first method trains from one evaluation to the
    next. All steps are taken to be alike: methods and sizes differ, and processes side by side take each other's time.

    Raises:
        SynclineError: a spec that cannot be trained, or a table that is not as it was written.
    """
    steps = planned_steps(spec)
    kept = dict(_kept(folder, steps))
    left = [name for name in steps if name not in kept]
    if not left:
        return None
    if kept:
        trained = sum(steps[name] for name in kept)
        each_s = sum(float(about["seconds"]) for about in kept.values()) / trained
        whose = f"the {trained:,} steps that are done"
    else:
        measured, each_s = trained_step_cpu_s(search_stage(spec))
        whose = f"{measured} steps of {spec.labels[0]}"
    number, total = sum(spec.planned()[name] for name in left), sum(steps[name] for name in left)
    methods, knobs = len(spec.methods), len(spec.methods[0].tune)
    trials = f"{spec.search.trials} trial{'s' * (spec.search.trials > 1)}"
    effort = f"equal effort: {trials} of each of {methods} methods, {knobs} knobs each"
    return Expected(number, total, each_s * total, whose, effort)


def _kept(folder: Path, steps: Mapping[str, int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in steps:
        path = stage_table(folder, name)
        if path.is_file():
            yield name, stage_in(path)[1].about


def trained_step_cpu_s(stage: ReplicationStage) -> tuple[int, float]:
    """Steps of a stage's first training from one evaluation to the next, and CPU seconds of each, evaluation and all.

    What a training takes beside its steps, and evaluations at both ends, are in a brief one, which is subtracted.
    Seconds are those on the wall where it is computed elsewhere.
    """
    from syncline.experiments.trained import train_method

    base = SweptSpec.of(stage.fields() | {"methods": stage.methods[:1]}, stage.overrides(), [])
    run = configurations(base, list(base.grids), stage.seeds[:1])[0].spec
    measured = min(run.eval_every or STEPS_MEASURED, run.steps)
    clock = time.process_time if run.device == "cpu" else time.perf_counter
    took_s = []
    for steps in (STEPS_BEFORE, STEPS_BEFORE, STEPS_BEFORE + measured):  # code is loaded in the first one
        begin_s = clock()
        brief = {"steps": steps, "schedule": ScheduleSpec(), "watch": WatchSpec()}
        train_method(run.model_copy(update=brief), run.method)
        took_s.append(clock() - begin_s)
    return measured, max(0.0, took_s[-1] - took_s[-2]) / measured
