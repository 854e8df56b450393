"""The interleaved 1F1B schedule, with several chunks per stage."""

from __future__ import annotations

import numpy as np

from syncline.errors import SpecError
from syncline.sim.pipelines.schedules.base import TASK_KINDS, Schedule, ScheduleKind, alternating
from syncline.sim.pipelines.schedules.orders import Numbering, Orders


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
    tasks = Numbering(microbatches, chunks)
    # Groups of K micro-batches pass all chunks before the next group comes.
    by_chunk = [[tasks.all(kind, chunk).reshape(-1, stages) for chunk in range(chunks)] for kind in TASK_KINDS[:2]]
    forwards, backwards = (np.stack(groups, axis=1).ravel() for groups in (by_chunk[0], by_chunk[1][::-1]))
    orders = []
    for stage in range(stages):
        ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        orders.append(alternating(forwards, backwards, len(forwards) if microbatches == stages else ahead))
    return Schedule("interleaved", Orders(np.stack(orders), tasks), microbatches, chunks)


INTERLEAVED = ScheduleKind(interleaved, takes_chunks=True)
