"""The memory plan of a step: its number of micro-batches, and the states that data parallelism shards.

The plan is one that a practitioner would run: it shards as little as lets one sequence at a time fit, and recomputes
layers only where no sharding suffices. Then the step has as few micro-batches as fit, each of equally many sequences if
possible. If the memory is unknown, nothing is sharded and a step is computed at once. If nothing makes the step fit,
the plan is the one that needs least memory; such a step has no time.

Memory of one worker by method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import (
    Hardware,
    Memory,
    calls_by_step,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.layouts.memory import FP32_BYTES, POLICIES, Activations, Precision, sharded_memory
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.methods import MethodBase, Tensors, tensors_of
from syncline.methods.parts.method_spec import elements
from syncline.planner.projection.pricing import once_each
from syncline.specs import ProjectSpec
from syncline.specs.layout import MemorySpec


def memory_of(
    method: MethodBase, model: Tensors, workers: int, steps: int = 10_000, spec: MemorySpec | None = None
) -> Memory:
    """Return one worker's memory, without activations, which depend on more than the parameters.

    Args:
        method: method whose states and buffers count.
        model: the parameters' shapes, or their number.
        workers: P, the number of workers.
        steps: T; calls that are first due in a later step need no buffer.
        spec: options of the count; None: in fp32.
    """
    tensors = tensors_of(model)
    errors = method.error_feedback_elements(tensors, workers)
    patterns = calls_by_step(method.exchanges(tensors, workers), steps) if workers > 1 else []
    return model_memory(
        elements(tensors),
        method.kept_elements(tensors, workers) - errors,
        errors,
        spec.memory_precision("fp32") if spec else "fp32",
        largest_call_bytes(patterns, workers, concurrent=sends_together(method)),
        gradient_bytes=2 if spec is not None and spec.gradients == "bf16" else FP32_BYTES,
    )


def sends_together(method: MethodBase) -> bool:
    """Return whether all calls of a step are in flight at once, as in a stream."""
    return hasattr(method, "stream")


def memory_record(memory: Memory, hardware: Hardware | None) -> dict[str, Any]:
    """Return the fields of a row: every part, the sum as ``memory_bytes``, and whether it ``fits``.

    ``update_s``, the least time of an update by the memory's bandwidth, is part of no step time.
    """
    timed = hardware is not None and hardware.memory_bytes_per_s is not None
    return memory.parts | {
        "memory_bytes": memory.total_bytes,
        "fits": memory.fits(hardware),
        "update_s": update_s(memory, hardware) if hardware is not None and timed else None,
    }


ACTIVATIONS: tuple[Activations | None, ...] = (None, *POLICIES)
"""Policies for activations, and None where they are not counted."""


class MemoryPlan(NamedTuple):
    """The memory plan of a method in all settings.

    Attributes:
        sharding: ``(S,)``, indices into ``SHARDINGS``.
        micro_batches: ``(S,)``, B, the number of micro-batches.
        activations: ``(S,)``, indices into `ACTIVATIONS`.
        memory: memory of a worker with the activations of one micro-batch.
        fits: ``(S,)``, whether the memory is at most the limit; True if that is unknown.
    """

    sharding: Indices
    micro_batches: Indices
    activations: Indices
    memory: Memory
    fits: NDArray[np.bool_]

    @property
    def recomputed(self) -> NDArray[np.bool_]:
        """Return whether the backward pass recomputes layers, ``(S,)``."""
        return self.activations == ACTIVATIONS.index("recomputed")


class MemoryBudget(NamedTuple):
    """The memory budget and the batch of each setting, ``(S,)`` each.

    Attributes:
        limit_bytes: usable memory of a worker; infinite if it is unknown.
        sequences: number of sequences in a worker's batch.
        activations_bytes: activations of a step that is computed at once, ``(A, S)``, by policy.
    """

    limit_bytes: Floats
    sequences: Floats
    activations_bytes: Floats


def budget_of_columns(
    specs: Sequence[ProjectSpec], budget_fields: Callable[[ProjectSpec], tuple[float, ...]]
) -> MemoryBudget:
    """Return the memory budgets of S settings.

    Args:
        specs: ``(S,)``, the spec of each setting.
        budget_fields: function of a spec, which returns the usable bytes of a worker, the number of sequences in its
            batch, and then the bytes of activations under each policy.
    """
    limit, sequences, *activations = np.array(once_each(specs, budget_fields), dtype=np.float64).T
    return MemoryBudget(limit, sequences, np.array(activations))


def plan_memory(
    options: MemorySpec,
    budget: MemoryBudget,
    unsharded: Memory,
    workers: Indices,
    shares: bool,
    unit_bytes: float,
    precision: Precision,
    auto: Sequence[str] = SHARDINGS,
) -> MemoryPlan:
    """Return the memory plan of a method.

    Args:
        options: the memory options of the settings' specs.
        budget: memory budget of each setting.
        unsharded: memory of a worker that shards nothing and computes a step at once; numbers or ``(S,)``.
        workers: ``(S,)``: P, the number of workers.
        shares: whether the method's optimizer can be sharded.
        unit_bytes: bytes of the largest unit of parameters that is gathered at once.
        precision: precision of weights, gradients and states.
        auto: kinds of sharding among which ``auto`` chooses.
    """
    limit, sequences = budget.limit_bytes, budget.sequences
    choices: Sequence[str] = auto if shares else SHARDINGS[:1]
    if shares and options.sharding != "auto":
        choices = (options.sharding,)
    memories = [sharded_memory(unsharded, choice, workers, unit_bytes, precision) for choice in choices]
    state_bytes = np.array([np.broadcast_to(memory.total_bytes, limit.shape) for memory in memories])
    max_micro = (
        np.full(limit.shape, options.micro_batches) if options.micro_batches else np.maximum(np.floor(sequences), 1)
    )
    # Candidates are all kinds of sharding under the first policy for activations, then under the next.
    least_bytes = (state_bytes[None] + (budget.activations_bytes / max_micro)[:, None]).reshape(-1, *limit.shape)
    fits = least_bytes <= limit
    candidate = np.where(fits.any(axis=0), fits.argmax(axis=0), least_bytes.argmin(axis=0))
    policy_index, choice_index = np.divmod(candidate, len(choices))
    settings = np.arange(len(limit))
    activations = budget.activations_bytes[policy_index, settings]
    if options.micro_batches:
        micro = np.full(limit.shape, options.micro_batches, dtype=np.int64)
    else:
        free_bytes = limit - state_bytes[choice_index, settings]
        needed = np.divide(activations, free_bytes, out=np.full(limit.shape, np.inf), where=free_bytes > 0)
        micro = _even(np.clip(np.ceil(needed), 1, max_micro).astype(np.int64), sequences)
    parts = {
        name: np.choose(choice_index, [np.broadcast_to(memory.parts[name], limit.shape) for memory in memories])
        for name in unsharded.parts
    }
    policies = np.array([ACTIVATIONS.index(policy) for policy in options.policies])[policy_index]
    return MemoryPlan(
        np.array([SHARDINGS.index(choice) for choice in choices])[choice_index],
        micro,
        np.where(activations > 0, policies, 0),
        Memory(**parts | {"activations_bytes": activations / micro}),
        np.asarray(fits.any(axis=0)),
    )


def _even(micro_batches: Indices, sequences: Floats) -> NDArray[np.int64]:
    """Return the next number that divides the sequences evenly, or the number itself if sequences are not whole."""
    out = micro_batches.copy()
    for minimum, count in set(zip(micro_batches.tolist(), sequences.tolist(), strict=True)):
        if minimum > 1 and count == int(count):
            even = next(n for n in range(minimum, int(count) + 1) if count % n == 0)
            out[(micro_batches == minimum) & (sequences == count)] = even
    return out
