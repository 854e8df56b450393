"""A measured pipeline played once more by the events, with the times that its tasks took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel import Link
from syncline.sim import Timeline, run_pipeline
from syncline.sim.pipelines.run import Durations, Pipeline
from syncline.sim.pipelines.schedules import TASK_KINDS, Schedule

UPDATE = "optimizer"
"""What an update is called on a measured timeline."""

BESIDE = Link(0.0, 1e15)
"""Sends take nothing: what they and waiting for a core take is the difference from what was measured."""


def replayed_s(measured: Sequence[Timeline], schedule: Schedule, stages: int) -> float:
    """The makespan of a schedule when each task of a stage takes the median of those measured.

    An update counts as a part of the task that it follows, each gradient's last or the last of the stage, as a stage
    sends a task's result on after it.

    Args:
        measured: timelines with ``forward``, ``backward``, ``weight`` and ``optimizer`` on the compute streams.
        schedule: with an order for each stage.
        stages: K.

    Returns:
        Seconds.
    """
    times = {kind: np.zeros((stages, schedule.microbatches)) for kind in TASK_KINDS}
    for stage, order in enumerate(schedule.orders):
        for kind in {task.kind for task in order}:
            chunks = [_median_s(measured, stage, _what(schedule, kind, chunk)) for chunk in range(schedule.chunks)]
            times[kind][stage] = np.mean(chunks)
        last = order[-1]
        late = slice(None) if schedule.updates == "every" else last.microbatch
        # One time stands for all chunks of a micro-batch.
        times[last.kind][stage, late] += _median_s(measured, stage, UPDATE) / schedule.chunks
    durations = Durations(times["forward"], times["backward"], times["weight"])
    return float(run_pipeline(Pipeline(schedule, stages, durations), BESIDE).makespan_s)


def _median_s(measured: Sequence[Timeline], stage: int, what: str) -> float:
    taken = [of.duration_s[(of.worker == stage) & (of.what == what)] for of in measured]
    seconds = np.concatenate(taken)
    return float(np.median(seconds)) if len(seconds) else 0.0


def _what(schedule: Schedule, kind: str, chunk: int) -> str:
    return kind if schedule.chunks == 1 else f"{kind}.{chunk}"
