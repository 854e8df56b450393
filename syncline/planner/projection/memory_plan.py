"""Memory of a worker, and the memory plan of a step: its micro-batches, sharded states and recomputed layers.

The plan is one that a practitioner would run: it shards as little as lets one sequence at a time fit, and recomputes
layers, all of them or as few as fit, only where no sharding suffices. Then the step has as few micro-batches as fit,
each of equally many sequences if possible. If the memory is unknown, nothing is sharded and a step is computed at once.
If nothing makes the step fit, the plan is the one that needs least memory; such a step has no time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Hardware, Memory, calls_by_step, largest_call_bytes, model_memory, update_s
from syncline.costmodel.layouts.memory import SELECTIVE, ActivationPolicy, Precision, sharded_memory
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.methods import MethodBase, Tensors, tensors_of
from syncline.methods.parts.method_spec import elements
from syncline.specs.layout import MemorySpec

STEPS = 10_000
"""Steps of the training in `memory_of`; a call that is first due in a later step needs no buffer."""


def memory_of(method: MethodBase, model: Tensors, workers: int) -> Memory:
    """Return the memory that a worker needs for training a model in fp32 by a method, without activations.

    Args:
        method: method whose states and message buffers are counted.
        model: shapes of the parameters, or their number.
        workers: P, the number of workers.
    """
    tensors = tensors_of(model)
    errors = method.error_feedback_elements(tensors, workers)
    patterns = calls_by_step(method.exchanges(tensors, workers), STEPS) if workers > 1 else []
    buffer_bytes = largest_call_bytes(patterns, workers, concurrent=sends_together(method))
    states = method.kept_elements(tensors, workers) - errors
    return model_memory(elements(tensors), states, errors, wire_bytes=buffer_bytes)


def sends_together(method: MethodBase) -> bool:
    """Return whether all calls of a method's step are in flight at once, as in Streaming DiLoCo."""
    return hasattr(method, "stream")


def memory_record(memory: Memory, hardware: Hardware | None) -> dict[str, Any]:
    """Return the bytes of each part of a worker's memory, and whether they fit, as fields of a row.

    ``memory_bytes`` is the sum of the parts, ``fits`` whether the hardware has as much (None if unknown), and
    ``update_s`` the least seconds of an update at the memory's bandwidth, which no step time includes.
    """
    least_update_s = None
    if hardware is not None and hardware.memory_bytes_per_s is not None:
        least_update_s = update_s(memory, hardware)
    return memory.parts | {
        "memory_bytes": memory.total_bytes, "fits": memory.fits(hardware), "update_s": least_update_s
    }  # fmt: skip


class MemoryPlan(NamedTuple):
    """The sharding, the micro-batches and the recomputation by which a method's step fits into memory, in S settings.

    Attributes:
        sharding: ``(S,)``, indices into ``syncline.costmodel.traffic.sharded.SHARDINGS``.
        micro_batches: ``(S,)``, the number of micro-batches of a step.
        activations: ``(S,)``, indices into the policies.
        memory: memory of a worker with the activations of one micro-batch.
        fits: ``(S,)``, whether the memory is at most the limit; True if the limit is unknown.
        policies: policies for activations; None: activations are not counted.
    """

    sharding: Indices
    micro_batches: Indices
    activations: Indices
    memory: Memory
    fits: NDArray[np.bool_]
    policies: tuple[ActivationPolicy | None, ...]

    def policy(self, setting: int) -> ActivationPolicy:
        """Return the policy for activations of a setting; one that recomputes nothing if they are not counted."""
        return self.policies[self.activations[setting]] or SELECTIVE


class MemoryBudget(NamedTuple):
    """The memory limit and the batch of a worker in S settings.

    Attributes:
        policies: the A policies for activations, in the order in which they are tried.
        limit_bytes: ``(S,)``, usable memory of a worker; infinite if it is unknown.
        sequences: ``(S,)``, number of sequences in a worker's batch.
        activations_bytes: ``(A, S)``, activations of a step that is computed at once, under each policy.
    """

    policies: Sequence[ActivationPolicy | None]
    limit_bytes: Floats
    sequences: Floats
    activations_bytes: Floats


def plan_memory(
    options: MemorySpec,
    budget: MemoryBudget,
    unsharded: Memory,
    workers: Indices,
    can_shard: bool,
    unit_bytes: float,
    precision: Precision,
    auto: Sequence[str],
) -> MemoryPlan:
    """Return the memory plan of a method in S settings, by the rules of this module's docstring.

    Args:
        budget: memory limit and batch of each setting.
        unsharded: memory of a worker that shards nothing and computes a step at once; numbers or ``(S,)``.
        workers: ``(S,)``, the number of workers over which states can be sharded.
        can_shard: whether the method's optimizer can be sharded.
        unit_bytes: bytes of the largest unit of parameters that is gathered at once.
        precision: precision of weights, gradients and states.
        auto: kinds of sharding among which the option ``auto`` chooses, from the one that shards least on.
    """
    limit, sequences = budget.limit_bytes, budget.sequences
    kinds: Sequence[str] = auto if can_shard else SHARDINGS[:1]  # the first kind shards nothing
    if can_shard and options.sharding != "auto":
        kinds = (options.sharding,)
    memories = [sharded_memory(unsharded, kind, workers, unit_bytes, precision) for kind in kinds]
    state_bytes = np.array([np.broadcast_to(memory.total_bytes, limit.shape) for memory in memories])
    if options.micro_batches:
        max_micro_batches = np.full(limit.shape, options.micro_batches)
    else:
        max_micro_batches = np.maximum(np.floor(sequences), 1)

    # Choose the first kind of sharding that fits under the first policy for activations, else under the next policies;
    # if no pair of a policy and a kind fits, the pair that needs the least memory.
    micro_bytes = budget.activations_bytes / max_micro_batches
    # The pairs are along the first axis, sorted by policies and then by kinds.
    least_bytes = (state_bytes[None] + micro_bytes[:, None]).reshape(-1, *limit.shape)
    fits = least_bytes <= limit
    pair_index = np.where(fits.any(axis=0), fits.argmax(axis=0), least_bytes.argmin(axis=0))
    policy_index, kind_index = np.divmod(pair_index, len(kinds))

    # Divide the batch into as few micro-batches as fit beside the states.
    settings = np.arange(len(limit))
    activations_bytes = budget.activations_bytes[policy_index, settings]
    if options.micro_batches:
        micro_batches = np.full(limit.shape, options.micro_batches, dtype=np.int64)
    else:
        free_bytes = limit - state_bytes[kind_index, settings]
        min_micro_batches = np.divide(
            activations_bytes, free_bytes, out=np.full(limit.shape, np.inf), where=free_bytes > 0
        )
        min_micro_batches = np.clip(np.ceil(min_micro_batches), 1, max_micro_batches).astype(np.int64)
        divisors = [_next_divisor(*pair) for pair in zip(min_micro_batches.tolist(), sequences.tolist(), strict=True)]
        micro_batches = np.array(divisors, dtype=np.int64)
    parts_of_kinds = [memory.parts for memory in memories]
    parts: dict[str, Any] = {}  # with the chosen kind of sharding in each setting
    for name in unsharded.parts:
        part_by_kind = [np.broadcast_to(kind_parts[name], limit.shape) for kind_parts in parts_of_kinds]
        parts[name] = np.choose(kind_index, part_by_kind)
    parts["activations_bytes"] = activations_bytes / micro_batches
    return MemoryPlan(
        np.array([SHARDINGS.index(kind) for kind in kinds])[kind_index],
        micro_batches,
        activations=np.where(activations_bytes > 0, policy_index + 1, 0),  # 0 is None, the first of ``policies``
        memory=Memory(**parts),
        fits=np.asarray(fits.any(axis=0)),
        policies=(None, *budget.policies),
    )


@lru_cache
def _next_divisor(minimum: int, count: float) -> int:
    """Return the least divisor of ``count`` that is at least ``minimum``; ``minimum`` if the count is not whole."""
    if count != int(count):
        return minimum
    dividend = int(count)
    root = math.isqrt(dividend)
    # A divisor above the root is ``dividend`` over one below it; the largest of those gives the least divisor.
    quotients = (quotient for quotient in range(min(root, dividend // minimum), 0, -1) if dividend % quotient == 0)
    divisor = next((number for number in range(minimum, root + 1) if dividend % number == 0), None)
    return divisor or dividend // next(quotients, 1)
