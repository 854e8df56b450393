"""How a step is held in a worker's memory: in how many micro-batches, and what of data parallelism is shared out.

What somebody would otherwise run fits: as little is shared out as lets one sequence at a time fit, and then the step is
computed in as few micro-batches as fit, each of as many sequences as the others if that can be. Where the memory is not
known, or nothing helps, nothing is shared out and a step is computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Memory, ModelShape
from syncline.costmodel.arrays import Indices
from syncline.costmodel.compute.memory import shared_out
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.experiments.projection.memory import activations_of
from syncline.experiments.projection.once import once_each
from syncline.specs import ProjectSpec
from syncline.specs.memory import MemorySpec


class Held(NamedTuple):
    """Of a method in all settings.

    Attributes:
        sharding: ``(S,)``, places in ``SHARDINGS``.
        micro_batches: ``(S,)``, B.
        memory: with the activations of one micro-batch.
    """

    sharding: Indices
    micro_batches: Indices
    memory: Memory


class Room(NamedTuple):
    """What settings offer, ``(S,)`` each.

    Attributes:
        limit_bytes: of a worker's memory; infinite where it is not known.
        sequences: of a worker's batch.
        activations_bytes: of a step that is computed at once.
    """

    limit_bytes: Floats
    sequences: Floats
    activations_bytes: Floats


def room_of(specs: Sequence[ProjectSpec]) -> Room:
    """The room in each setting."""

    def asked(spec: ProjectSpec) -> tuple[float, float, float]:
        machine, tokens = spec.memory_machine, spec.tokens_per_worker
        limit = machine.memory_bytes if machine else None
        activations = activations_of(spec.model, tokens, spec.memory, spec.number_format)
        sequences = tokens / spec.model.sequence if isinstance(spec.model, ModelShape) else 1.0
        return np.inf if limit is None else limit, sequences, activations

    return Room(*np.array(once_each(specs, asked), dtype=np.float64).T)


def held(
    asked: MemorySpec,
    room: Room,
    whole: Memory,
    workers: Indices,
    shares: bool,
    unit_bytes: float,
    auto: Sequence[str] = SHARDINGS,
) -> Held:
    """How a method's steps are held.

    Args:
        asked: what the settings' specs say of it.
        room: in each setting.
        whole: of a worker that keeps everything and computes a step at once; numbers or ``(S,)``.
        workers: ``(S,)``: P.
        shares: whether the method's optimizer can be shared out.
        unit_bytes: of the largest unit of parameters that is gathered at once.
        auto: between which ways of sharing out ``auto`` chooses.
    """
    limit, sequences = room.limit_bytes, room.sequences
    activations = room.activations_bytes
    choices: Sequence[str] = auto if shares else SHARDINGS[:1]
    if shares and asked.sharding != "auto":
        choices = (asked.sharding,)
    memories = [shared_out(whole, one, workers, unit_bytes) for one in choices]
    beside = [np.broadcast_to(one.total_bytes - one.activations_bytes, limit.shape) for one in memories]
    most = np.full(limit.shape, asked.micro_batches) if asked.micro_batches else np.maximum(np.floor(sequences), 1)
    fits = [one + activations / most <= limit for one in beside]
    which = np.select(fits, range(len(choices)), default=0)
    rest = limit - np.choose(which, beside)
    if asked.micro_batches:
        micro = np.full(limit.shape, asked.micro_batches, dtype=np.int64)
    else:
        least = np.divide(activations, rest, out=np.ones(limit.shape), where=np.isfinite(rest) & (rest > 0))
        wanted = np.clip(np.ceil(least), 1, most).astype(np.int64)
        micro = np.where(np.choose(which, fits), _even(wanted, sequences), 1)
    sharding = np.array([SHARDINGS.index(one) for one in choices])[which]
    parts = {
        name: np.choose(which, [np.broadcast_to(one.parts[name], limit.shape) for one in memories])
        for name in whole.parts
    }
    return Held(sharding, micro, Memory(**parts | {"activations_bytes": activations / micro}))


def _even(wanted: Indices, sequences: Floats) -> NDArray[np.int64]:
    """The next number that parts whole sequences evenly; itself where they are not whole."""
    out = wanted.copy()
    for least, count in set(zip(wanted.tolist(), sequences.tolist(), strict=True)):
        if least > 1 and count == int(count):
            even = next(n for n in range(least, int(count) + 1) if count % n == 0)
            out[(wanted == least) & (sequences == count)] = even
    return out
