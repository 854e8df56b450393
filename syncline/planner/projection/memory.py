"""Memory of one worker by method."""

from __future__ import annotations

from typing import Any

from syncline.costmodel import (
    Hardware,
    Memory,
    calls_by_step,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.layouts.memory import FP32_BYTES
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
