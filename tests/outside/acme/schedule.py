"""One micro-batch after another: a pipeline that is none."""

from __future__ import annotations

from syncline.sim.pipelines.schedules import PipelineTask, Schedule


def one_by_one(stages: int, microbatches: int) -> Schedule:
    """Each micro-batch passes all stages both ways before the next begins."""
    turns = [PipelineTask(kind, i) for i in range(microbatches) for kind in ("forward", "backward")]
    return Schedule("acme-one-by-one", [turns] * stages, microbatches)
