"""The simulated replay of a measured pipeline, with the measured times of its tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel import Link
from syncline.sim import Timeline, run_pipeline
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.schedules import TASK_KINDS, Schedule

UPDATE = "optimizer"
"""The name of an update on a measured timeline."""

BESIDE = Link(0.0, 1e15)
"""A link without cost, so that the replay differs from the measurement by sends and by waits for a core."""


def replayed_s(measured: Sequence[Timeline], schedule: Schedule, stages: int) -> float:
    """Return the makespan of a schedule in which each task of a stage takes the median of its measured times.

    An update counts as a part of the task that it follows, each gradient's last or the last of the stage, because a
    stage sends a task's result after the update.

    Args:
        measured: timelines with ``forward``, ``backward``, ``weight`` and ``optimizer`` on the compute streams.
        schedule: a schedule with an order for each stage.
        stages: number of stages K.

    Returns:
        The makespan in seconds.
    """
    times = {kind: np.zeros((stages, schedule.microbatches)) for kind in TASK_KINDS}
    for stage, order in enumerate(schedule.orders):
        for kind in {task.kind for task in order}:
            chunks = [
                _median_s(measured, stage, _activity_name(schedule, kind, chunk)) for chunk in range(schedule.chunks)
            ]
            times[kind][stage] = np.mean(chunks)
        last = order[-1]
        updated = slice(None) if schedule.updates == "every" else last.microbatch
        # All chunks of a micro-batch have the same time.
        times[last.kind][stage, updated] += _median_s(measured, stage, UPDATE) / schedule.chunks
    durations = Durations(times["forward"], times["backward"], times["weight"])
    return float(run_pipeline(Pipeline(schedule, stages, durations), BESIDE).makespan_s)


def _median_s(measured: Sequence[Timeline], stage: int, activity: str) -> float:
    durations = [timeline.duration_s[(timeline.worker == stage) & (timeline.what == activity)] for timeline in measured]
    seconds = np.concatenate(durations)
    return float(np.median(seconds)) if len(seconds) else 0.0


def _activity_name(schedule: Schedule, kind: str, chunk: int) -> str:
    return kind if schedule.chunks == 1 else f"{kind}.{chunk}"
