"""Interleaved 1F1B."""

from __future__ import annotations

from syncline.errors import SpecError
from syncline.sim.pipelines.schedules.base import PipelineTask, Schedule, ScheduleKind, alternating


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """1F1B over K v virtual stages, v of them on each stage; groups of K micro-batches pass a chunk together.

    Stage k is 2 (K - 1 - k) + (v - 1) K forwards ahead of its backwards.

    Raises:
        SpecError: a number of micro-batches that K does not divide.

    Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
    (2021), section 2.2.2.
    """
    if microbatches % stages:
        raise SpecError("microbatches", microbatches, f"a multiple of the {stages} stages, as interleaving needs")
    passes = [
        (group * stages + i, chunk)
        for group in range(microbatches // stages)
        for chunk in range(chunks)
        for i in range(stages)
    ]
    forwards = [PipelineTask("forward", i, chunk) for i, chunk in passes]
    backwards = [PipelineTask("backward", i, chunks - 1 - chunk) for i, chunk in passes]
    orders = []
    for stage in range(stages):
        ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        orders.append(alternating(forwards, backwards, len(forwards) if microbatches == stages else ahead))
    return Schedule("interleaved", orders, microbatches, chunks)


INTERLEAVED = ScheduleKind(interleaved, takes_chunks=True)
