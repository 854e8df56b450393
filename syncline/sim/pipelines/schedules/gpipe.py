"""GPipe."""

from __future__ import annotations

from syncline.sim.pipelines.schedules.base import PipelineTask, Schedule, ScheduleKind


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards, in the same order of micro-batches.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.
    """
    forwards = [PipelineTask("forward", i) for i in range(microbatches)]
    backwards = [PipelineTask("backward", i) for i in range(microbatches)]
    return Schedule("gpipe", [forwards + backwards] * stages, microbatches)


GPIPE = ScheduleKind(gpipe)
