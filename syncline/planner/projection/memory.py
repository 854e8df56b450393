"""Memory of one worker by method."""

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
from syncline.methods.parts.method_spec import elements
from syncline.specs.memory import MemorySpec


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
    )


def sends_together(method: MethodBase) -> bool:
    """Return whether all calls of a step are in flight at once, as in a stream."""
    return hasattr(method, "stream")


def with_activations(
    memory: Memory, shape: Model, tokens_per_worker: float, spec: MemorySpec, number_format: str = "fp32"
) -> Memory:
    """Return the memory with an estimate of the activations of one micro-batch, if the spec counts activations."""
    step_bytes = activations_of(shape, tokens_per_worker, spec, number_format)
    return (
        dataclasses.replace(memory, activations_bytes=step_bytes / (spec.micro_batches or 1)) if step_bytes else memory
    )


def activations_of(shape: Model, tokens_per_worker: float, spec: MemorySpec, number_format: str) -> float:
    """Return the bytes of activations of a step that is computed at once, or 0 if the spec does not count them."""
    if spec.activations is None or not isinstance(shape, ModelShape):
        return 0.0
    width = 2 if spec.memory_precision(number_format) == "mixed" else 4
    return activation_bytes(shape, tokens_per_worker / shape.sequence, spec.activations, width)


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
