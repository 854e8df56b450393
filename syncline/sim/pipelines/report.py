"""What the history of a pipeline says: bubble, utilisation, memory, and by how many updates each gradient was late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from syncline.sim.pipelines.schedules import Schedule
from syncline.sim.timeline import Timeline


@dataclass(frozen=True, eq=False)
class StageReport:
    """What the history of one stage says.

    Args:
        utilisation: the part of the makespan in which it computes.
        delays: per micro-batch, updates between its forward and the update by its gradient (0: none came between).
        delay_steady: the delay of the last micro-batch.
        peak_activations: the most micro-batches (of one chunk each) between forward and last use.
        weight_versions: the most versions of the weights that are needed at once, with stashing.
    """

    utilisation: float
    delays: tuple[int, ...]
    delay_steady: int
    peak_activations: int
    weight_versions: int


@dataclass(frozen=True, eq=False)
class PipelineReport:
    """What the history of a pipeline says.

    Args:
        makespan_s: from the first forward to the end of the last task, in seconds.
        bubble: the part of all stages' time in which nothing computes.
        microbatches_per_s: throughput over the makespan.
        stages: one report per stage.
    """

    makespan_s: float
    bubble: float
    microbatches_per_s: float
    stages: tuple[StageReport, ...]


def report(timeline: Timeline, schedule: Schedule, stages: int) -> PipelineReport:
    """Read bubble, utilisation, memory and delays off a timeline of `run_pipeline`; of the stages, the first replica's.

    The bubble is over all replicas.
    """
    utilisation = timeline.utilisation()
    makespan_s = timeline.makespan_s
    rows = np.flatnonzero(timeline.computes)
    bounds = np.searchsorted(timeline.worker[rows], np.arange(stages + 1)).tolist()
    tasks_of, microbatches = timeline.what[rows].tolist(), timeline.step[rows].tolist()
    kinds = {what: what.partition(".")[0] for what in set(tasks_of)}
    of_stage = []
    for k, part in enumerate(utilisation[:stages].tolist()):
        mine = slice(bounds[k], bounds[k + 1])
        tasks = [(kinds[what], i) for what, i in zip(tasks_of[mine], microbatches[mine], strict=True)]
        of_stage.append(_stage_report(tasks, schedule, part))
    return PipelineReport(
        makespan_s=makespan_s,
        bubble=float(1 - utilisation.mean()),
        microbatches_per_s=schedule.microbatches / makespan_s if makespan_s else float("inf"),
        stages=tuple(of_stage),
    )


def _stage_report(tasks: list[tuple[str, int]], schedule: Schedule, utilisation: float) -> StageReport:
    released_by, every = schedule.released_by, schedule.updates == "every"
    delays = [0] * schedule.microbatches
    version = [0] * schedule.microbatches  # that the forward used
    users: dict[int, int] = {}  # micro-batches in flight that need each version
    updates = in_flight = peak = 0
    versions = 1
    for kind, i in tasks:
        if kind == "forward":
            in_flight += 1
            peak = max(peak, in_flight)
            if every:
                version[i] = updates
                users[updates] = users.get(updates, 0) + 1
                versions = max(versions, len(users))
        if kind == released_by:
            in_flight -= 1
            if every:
                used = version[i]
                delays[i] = updates - used
                updates += 1
                users[used] -= 1
                if not users[used]:
                    del users[used]
                versions = max(versions, len(users) + 1)  # of those in flight, and the new one
    return StageReport(utilisation, tuple(delays), delays[-1], peak, versions)


class TaskSpan(NamedTuple):
    """A task as it happened: whose, what, when, and whether an update followed."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start_s: float
    end_s: float
    updates: bool


def task_spans(timeline: Timeline, schedule: Schedule) -> list[TaskSpan]:
    """The tasks of a timeline of `run_pipeline`, by worker and time; ``stage`` is the worker."""
    of = timeline[timeline.computes]
    tasks, workers = of.what.tolist(), of.worker.tolist()
    named = {what: what.partition(".") for what in set(tasks)}
    kinds, chunks = {}, {}
    for what, (kind, _, chunk) in named.items():
        kinds[what], chunks[what] = kind, int(chunk or 0)
    if schedule.updates == "every":
        updates = (of.what == schedule.released_by).tolist()
    else:
        updates = [worker != following for worker, following in zip(workers, [*workers[1:], -1], strict=True)]
    rows = zip(workers, tasks, of.step.tolist(), of.start_s.tolist(), of.end_s.tolist(), updates, strict=True)
    return [
        TaskSpan(worker, kinds[what], i, chunks[what], start_s, end_s, updated)
        for worker, what, i, start_s, end_s, updated in rows
    ]
