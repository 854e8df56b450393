"""Expected effort of a replication, from a brief training measured before it starts, or from its completed stages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replication.replications.spec import ReplicationSpec
from replication.replications.stage_tables import stage_in, stage_table
from replication.replications.stages import ReplicationStage, search_stage
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.specs import ScheduleSpec
from syncline.specs.experiment import WatchSpec
from syncline.units import format_seconds

STEPS_MEASURED, STEPS_BEFORE = 20, 2
"""Default number of steps of the measured training, and of the brief trainings before it."""


@dataclass(frozen=True)
class Expected:
    """The remaining work of a replication.

    Args:
        trainings: number of trainings.
        steps: steps of all trainings together.
        cpu_s: seconds of one core for all trainings; wall-clock seconds if they train on a GPU.
        measured: the measurement that the seconds rest on.
        effort: the effort of the search for every method.
    """

    trainings: int
    steps: int
    cpu_s: float
    measured: str
    effort: str

    def __str__(self) -> str:
        remaining = f"{self.trainings:,} training{'s' * (self.trainings != 1)}, {self.steps:,} steps in all"
        return f"{self.effort}; {remaining}: about {format_seconds(self.cpu_s)} of one core, by {self.measured}"


def planned_steps(spec: ReplicationSpec) -> dict[str, int]:
    """Return the steps of all trainings of each stage."""
    changes = {f"extra {stage.name}": stage.set for stage in spec.extras} | {
        f"measured {stage.name}": stage.set for stage in spec.measured
    }
    changes |= {"search": spec.search.set, "rerun": spec.search.set, "finals": spec.finals.set}
    steps: int = spec.training.get("steps", 0)
    return {
        name: number * int(changes[name].get("steps", steps)) for name, number in spec.num_trainings_by_stage().items()
    }


def expected(spec: ReplicationSpec, folder: Path) -> Expected | None:
    """Return the effort of the stages that are not complete; None if all are.

    The seconds per step come from the completed stages, if there are any; otherwise the first method trains from one
    evaluation to the next. All steps are assumed to be alike, although methods and sizes differ, and although processes
    side by side slow each other down.

    Raises:
        SynclineError: the spec cannot be trained, or a table was changed after it was written.
    """
    steps = planned_steps(spec)
    completed = dict(_completed_stages(folder, steps))
    remaining = [name for name in steps if name not in completed]
    if not remaining:
        return None
    if completed:
        trained = sum(steps[name] for name in completed)
        step_s = sum(float(about["seconds"]) for about in completed.values()) / trained
        basis = f"the {trained:,} steps that are done"
    else:
        measured, step_s = trained_step_cpu_s(search_stage(spec))
        basis = f"{measured} steps of {spec.labels[0]}"
    number, total = (
        sum(spec.num_trainings_by_stage()[name] for name in remaining),
        sum(steps[name] for name in remaining),
    )
    methods, knobs = len(spec.methods), len(spec.methods[0].tune)
    trials = f"{spec.search.trials} trial{'s' * (spec.search.trials > 1)}"
    effort = f"equal effort: {trials} of each of {methods} methods, {knobs} knobs each"
    return Expected(number, total, step_s * total, basis, effort)


def _completed_stages(folder: Path, steps: Mapping[str, int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in steps:
        path = stage_table(folder, name)
        if path.is_file():
            yield name, stage_in(path)[1].about


def trained_step_cpu_s(stage: ReplicationStage) -> tuple[int, float]:
    """Return the steps of a stage's first training from one evaluation to the next, and the CPU seconds of each.

    The seconds include the evaluation. A brief training has the start-up and the evaluations at both ends; its seconds
    are subtracted. The seconds are wall-clock seconds if the device is not the CPU.
    """
    from syncline.runs.training.train_and_time import train_method

    base = SweptSpec.from_spec(stage.fields() | {"methods": stage.methods[:1]}, stage.overrides(), [])
    run = configurations(base, list(base.grids), stage.seeds[:1])[0].spec
    measured = min(run.eval_every or STEPS_MEASURED, run.steps)
    clock = time.process_time if run.device == "cpu" else time.perf_counter
    took_s = []
    for steps in (STEPS_BEFORE, STEPS_BEFORE, STEPS_BEFORE + measured):  # the first one loads the code
        begin_s = clock()
        brief = {"steps": steps, "schedule": ScheduleSpec(), "watch": WatchSpec()}
        train_method(run.model_copy(update=brief), run.method)
        took_s.append(clock() - begin_s)
    return measured, max(0.0, took_s[-1] - took_s[-2]) / measured
