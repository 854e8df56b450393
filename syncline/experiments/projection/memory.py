"""What a method needs of one worker's memory."""

from __future__ import annotations

import dataclasses
from typing import Any

from syncline.costmodel import (
    Hardware,
    Memory,
    Model,
    ModelShape,
    activation_bytes,
    calls_by_step,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.methods import MethodBase, Tensors, tensors_of
from syncline.methods.base import elements
from syncline.specs.memory import MemorySpec


def memory_of(
    method: MethodBase, model: Tensors, workers: int, steps: int = 10_000, spec: MemorySpec | None = None
) -> Memory:
    """One worker's memory, without activations, which depend on more than the parameters.

    Args:
        method: what keeps and sends.
        model: the parameters' shapes, or their number.
        workers: P.
        steps: T; what is sent for the first time in a later step needs no buffer.
        spec: how it is counted; None: in fp32.
    """
    tensors = tensors_of(model)
    errors = method.error_feedback_elements(tensors, workers)
    patterns = calls_by_step(method.exchanges(tensors, workers), steps) if workers > 1 else []
    return model_memory(
        elements(tensors),
        method.kept_elements(tensors, workers) - errors,
        errors,
        spec.counted_in("fp32") if spec else "fp32",
        largest_call_bytes(patterns, workers, together=sends_together(method)),
    )


def sends_together(method: MethodBase) -> bool:
    """Whether all calls of a step are under way at once, as in a stream."""
    return hasattr(method, "stream")


def with_activations(
    memory: Memory, shape: Model, tokens_per_worker: float, spec: MemorySpec, number_format: str = "fp32"
) -> Memory:
    """The same with an estimate of the activations of one micro-batch, if the spec asks for it."""
    every = activations_of(shape, tokens_per_worker, spec, number_format)
    return dataclasses.replace(memory, activations_bytes=every / (spec.micro_batches or 1)) if every else memory


def activations_of(shape: Model, tokens_per_worker: float, spec: MemorySpec, number_format: str) -> float:
    """Bytes of the activations of a step that is computed at once; 0 unless the spec asks for them."""
    if spec.activations is None or not isinstance(shape, ModelShape):
        return 0.0
    width = 2 if spec.counted_in(number_format) == "mixed" else 4
    return activation_bytes(shape, tokens_per_worker / shape.sequence, spec.activations, width)


def memory_record(memory: Memory, hardware: Hardware | None) -> dict[str, Any]:
    """The fields of a row: every part, the sum as ``memory_bytes``, and whether it ``fits``.

    ``update_s``, the least time that an update takes by the memory's bandwidth, is part of no step time.
    """
    timed = hardware is not None and hardware.memory_bytes_per_s is not None
    return memory.parts | {
        "memory_bytes": memory.total_bytes,
        "fits": memory.fits(hardware),
        "update_s": update_s(memory, hardware) if hardware is not None and timed else None,
    }
