"""The memory plan of a step: its number of micro-batches, and the states that data parallelism shards.

The plan is one that a practitioner would run: it shards as little as lets one sequence at a time fit. Then the step has
as few micro-batches as fit, each of equally many sequences if possible. If the memory is unknown, or if nothing makes
the step fit, nothing is sharded and a step is computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Memory
from syncline.costmodel.layouts.memory import sharded_memory
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.specs.memory import MemorySpec


class MemoryPlan(NamedTuple):
    """The memory plan of a method in all settings.

    Attributes:
        sharding: ``(S,)``, indices into ``SHARDINGS``.
        micro_batches: ``(S,)``, B, the number of micro-batches.
        memory: memory of a worker with the activations of one micro-batch.
    """

    sharding: Indices
    micro_batches: Indices
    memory: Memory


class MemoryBudget(NamedTuple):
    """The memory budget and the batch of each setting, ``(S,)`` each.

    Attributes:
        limit_bytes: memory of a worker; infinite if it is unknown.
        sequences: number of sequences in a worker's batch.
        activations_bytes: activations of a step that is computed at once.
    """

    limit_bytes: Floats
    sequences: Floats
    activations_bytes: Floats


def plan_memory(
    options: MemorySpec,
    room: MemoryBudget,
    unsharded: Memory,
    workers: Indices,
    shares: bool,
    unit_bytes: float,
    auto: Sequence[str] = SHARDINGS,
) -> MemoryPlan:
    """Return the memory plan of a method.

    Args:
        options: the memory options of the settings' specs.
        room: memory budget of each setting.
        unsharded: memory of a worker that shards nothing and computes a step at once; numbers or ``(S,)``.
        workers: ``(S,)``: P, the number of workers.
        shares: whether the method's optimizer can be sharded.
        unit_bytes: bytes of the largest unit of parameters that is gathered at once.
        auto: kinds of sharding among which ``auto`` chooses.
    """
    limit, sequences = room.limit_bytes, room.sequences
    activations = room.activations_bytes
    choices: Sequence[str] = auto if shares else SHARDINGS[:1]
    if shares and options.sharding != "auto":
        choices = (options.sharding,)
    memories = [sharded_memory(unsharded, choice, workers, unit_bytes) for choice in choices]
    state_bytes = [np.broadcast_to(memory.total_bytes - memory.activations_bytes, limit.shape) for memory in memories]
    max_micro = (
        np.full(limit.shape, options.micro_batches) if options.micro_batches else np.maximum(np.floor(sequences), 1)
    )
    fits = [nbytes + activations / max_micro <= limit for nbytes in state_bytes]
    choice_index = np.select(fits, range(len(choices)), default=0)
    free_bytes = limit - np.choose(choice_index, state_bytes)
    if options.micro_batches:
        micro = np.full(limit.shape, options.micro_batches, dtype=np.int64)
    else:
        needed = np.divide(
            activations, free_bytes, out=np.ones(limit.shape), where=np.isfinite(free_bytes) & (free_bytes > 0)
        )
        wanted_micro = np.clip(np.ceil(needed), 1, max_micro).astype(np.int64)
        micro = np.where(np.choose(choice_index, fits), _even(wanted_micro, sequences), 1)
    sharding = np.array([SHARDINGS.index(choice) for choice in choices])[choice_index]
    parts = {
        name: np.choose(choice_index, [np.broadcast_to(memory.parts[name], limit.shape) for memory in memories])
        for name in unsharded.parts
    }
    return MemoryPlan(sharding, micro, Memory(**parts | {"activations_bytes": activations / micro}))


def _even(micro_batches: Indices, sequences: Floats) -> NDArray[np.int64]:
    """Return the next number that divides the sequences evenly, or the number itself if sequences are not whole."""
    out = micro_batches.copy()
    for minimum, count in set(zip(micro_batches.tolist(), sequences.tolist(), strict=True)):
        if minimum > 1 and count == int(count):
            even = next(n for n in range(minimum, int(count) + 1) if count % n == 0)
            out[(micro_batches == minimum) & (sequences == count)] = even
    return out
