"""Memory of one worker: the model, the state of the method, wire buffers, activations.

A model has N parameters; a method keeps S further numbers and E numbers of error feedback:

| bytes           | fp32 | mixed   |
|-----------------|------|---------|
| weights         | 4 N  | 2 N     |
| gradients       | 4 N  | 2 N     |
| optimizer state | 4 S  | 4 N + 4 S |
| error feedback  | 4 E  | 4 E     |

Mixed precision computes with 16-bit copies of parameters that the optimizer keeps in fp32: with Adam (S = 2 N) both
columns add up to 16 bytes per parameter. The model counts every number as if it lay in memory all the time. It does not
count the rounding and fragmentation of allocators, the framework, or its libraries. A worker whose total fits here by a
few percent may run out of memory.

Source: S. Rajbhandari et al., "ZeRO" (2020), section 3.1, of mixed precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.errors import SpecError, one_of

Precision = Literal["fp32", "mixed"]

Activations = Literal["stored", "selective", "recomputed"]

RECOMPUTED = 4 / 3
"""Factor on the work of a step that recomputes every layer for its backward pass: one more forward pass."""

FP32_BYTES = 4

MODEL_BYTES: dict[str, int] = {"fp32": 4, "mixed": 2}
"""Bytes of a parameter, and of a gradient, in the format in which the model computes."""


@dataclass(frozen=True)
class Memory:
    """Memory of one worker in bytes, by its use.

    Args:
        weights_bytes: the parameters in the format in which the model computes.
        gradients_bytes: one gradient of each parameter.
        optimizer_state_bytes: momenta, anchors, references, and fp32 copies of 16-bit weights.
        error_feedback_bytes: residuals of compressors.
        wire_bytes: send and receive buffers of the largest call.
        activations_bytes: an estimate of the activations for the backward pass; 0 if they are not counted.

    A number may be an array, for several numbers of workers at once.

    >>> adam = model_memory(1_000, state_elements=2_000)
    >>> adam.total_bytes
    16000.0
    """

    weights_bytes: FloatOrArray | IntOrArray
    gradients_bytes: FloatOrArray | IntOrArray
    optimizer_state_bytes: FloatOrArray | IntOrArray
    error_feedback_bytes: FloatOrArray | IntOrArray = 0.0
    wire_bytes: FloatOrArray = 0.0
    activations_bytes: FloatOrArray = 0.0

    @property
    def parts(self) -> dict[str, FloatOrArray | IntOrArray]:
        """Return the fields by name, in bytes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def total_bytes(self) -> FloatOrArray:
        """Return the sum of all fields, in bytes."""
        return 1.0 * sum(self.parts.values())

    def fits(self, hardware: Hardware | None) -> bool | NDArray[np.bool_] | None:
        """Return whether the total is at most the hardware's memory, or None if that memory is unknown."""
        if hardware is None or hardware.memory_bytes is None:
            return None
        return self.total_bytes <= hardware.memory_bytes


def model_memory(
    parameters: int,
    state_elements: IntOrArray = 0,
    error_elements: IntOrArray = 0,
    precision: Precision = "fp32",
    wire_bytes: FloatOrArray = 0.0,
    activations_bytes: FloatOrArray = 0.0,
) -> Memory:
    """Return the memory of one worker for a model and a method.

    Args:
        parameters: N, number of parameters.
        state_elements: S, numbers that the method keeps beyond the parameters, without error feedback.
        error_elements: E, numbers of error feedback.
        precision: ``fp32``, or ``mixed`` for 16-bit weights and gradients with fp32 copies and states.
        wire_bytes: see `largest_call_bytes`.
        activations_bytes: see `activation_bytes`.

    Raises:
        SpecError: an unknown precision.

    >>> model_memory(1_000, state_elements=2_000, precision="mixed").total_bytes
    16000.0
    """
    if precision not in MODEL_BYTES:
        raise SpecError("memory.precision", precision, one_of(MODEL_BYTES, precision))
    model_bytes = MODEL_BYTES[precision] * parameters
    copies = parameters if precision == "mixed" else 0
    return Memory(
        model_bytes,
        model_bytes,
        FP32_BYTES * (copies + state_elements),
        FP32_BYTES * error_elements,
        wire_bytes,
        activations_bytes,
    )


def sharded_memory(memory: Memory, sharding: str, workers: IntOrArray, unit_bytes: float) -> Memory:
    """Return the memory of a worker under sharding over P workers.

    A worker keeps 1/P of the optimizer state, with ``gradients`` also of the gradients, with ``full`` also of the
    weights. ``gradients`` adds one unsharded unit of gradients as a buffer. ``full`` adds that unit and two unsharded
    units of parameters (the one in use and the next).

    Args:
        memory: memory of a worker without sharding.
        sharding: ``none``, ``optimizer``, ``gradients`` or ``full``, see `syncline.costmodel.traffic.sharded`.
        workers: P.
        unit_bytes: bytes of the largest unit that is gathered at once.

    >>> sharded_memory(model_memory(1_000, state_elements=2_000), "optimizer", 4, 0.0).total_bytes
    10000.0
    """
    if sharding == "none":
        return memory
    state_bytes = memory.optimizer_state_bytes / workers
    if sharding == "optimizer":
        return replace(memory, optimizer_state_bytes=state_bytes)
    gradients_bytes = memory.gradients_bytes / workers
    if sharding == "gradients":
        return replace(
            memory, gradients_bytes=gradients_bytes, optimizer_state_bytes=state_bytes, wire_bytes=1.0 * unit_bytes
        )
    return replace(
        memory,
        weights_bytes=memory.weights_bytes / workers,
        gradients_bytes=gradients_bytes,
        optimizer_state_bytes=state_bytes,
        wire_bytes=3.0 * unit_bytes,
    )


def call_bytes(call: Call, workers: IntOrArray) -> FloatOrArray:
    """Return the bytes of send and receive buffers of one call, on the worker that needs most.

    With n bytes of payload and P workers, an all-reduce sums in place and needs n, as a broadcast does. An all-to-all
    needs 2 n, an all-gather and, on the server, a gather ``n + P n``, and a reduce-scatter ``n + n / P``.

    >>> call_bytes(Call(0, "all_gather", 10.0), workers=4)
    50.0
    """
    received = {"all_to_all": 1.0, "all_gather": workers, "gather": workers, "reduce_scatter": 1 / workers}
    if call.collective not in COLLECTIVES:
        raise SpecError("collective", call.collective, one_of(COLLECTIVES, call.collective))
    return call.payload_bytes * (1.0 + received.get(call.collective, 0.0))


def largest_call_bytes(patterns: Iterable[CallPattern], workers: IntOrArray, concurrent: bool = False) -> FloatOrArray:
    """Return the bytes of wire buffers: those of the largest call, because each call frees its buffers at its end.

    Args:
        patterns: call patterns of the steps, by `calls_by_step`.
        workers: P; a single worker needs no buffers.
        concurrent: whether all calls of a step are in flight at once, as in a stream, so that their buffers add up.
    """
    sizes_by_step = ([call_bytes(call, workers) for call in pattern.calls] for pattern in patterns)
    largest: FloatOrArray = 0.0
    for sizes in sizes_by_step:
        for size in [sum(sizes)] if concurrent else sizes:
            largest = np.maximum(largest, size)
    return np.where(np.greater(workers, 1), largest, 0.0)[()]


def activation_bytes(
    shape: ModelShape, sequences: float, policy: Activations = "stored", bytes_per_number: int = 2
) -> float:
    """Return an estimate of the bytes of activations that a transformer keeps for its backward pass.

    The model has width h, a heads, L layers, expansion e (doubled by a gate; with experts, multiplied by the k experts
    of a token) and vocabulary V. A batch has b sequences of s tokens, and a number takes w bytes. A layer keeps
    ``light = s b h ((8 + 2 e) w + 2)`` and, for attention scores, ``scores = (2 w + 1) a s^2 b``. If queries, keys or
    values are not h wide, their own widths replace h in their terms of the 8:

        stored      L (light + scores)
        selective   L light                        scores are recomputed, or never stored (fused kernels)
        recomputed  L w s b h + light + scores     the inputs of all layers, and one layer at a time

    plus ``s b h (1 + 2 w) + 4 s b V`` for the embedding's dropout mask, the last norm's and the head's inputs and the
    fp32 logits. With w = 2 and e = 4 a stored layer is ``s b h (34 + 5 a s / h)``. The estimate counts two norms per
    layer and three dropout masks of a byte each; fused kernels keep less.

    Args:
        shape: shape of the model.
        sequences: b, sequences whose activations are kept at once: those of one micro-batch.
        policy: ``stored``, ``selective`` or ``recomputed``, see above.
        bytes_per_number: w, 2 for bf16 and fp16, 4 for fp32.

    Raises:
        SpecError: an unknown ``policy``.

    Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4,
    equation 1 and Table 2; generalised to any w and e by separating its 16-bit numbers from its masks.
    """
    choices = ("stored", "selective", "recomputed")
    if policy not in choices:
        raise SpecError("memory.activations", policy, one_of(choices, policy))
    w, tokens, gate = bytes_per_number, shape.sequence * sequences, 2 if shape.gated else 1
    inputs = tokens * shape.width * w
    attention = 2 * (shape.query_width + shape.key_width)  # queries and weighted sums, keys and values
    active_width = shape.expert_width * (shape.experts_per_token + shape.shared_experts)
    mlp = 2 * gate * (active_width if shape.experts > 1 else shape.hidden_width)
    light = 4 * inputs + tokens * w * (attention + mlp) + 2 * tokens * shape.width
    # The first layers have a dense MLP instead of experts; this is the difference in bytes.
    dense_extra = shape.dense_layers * tokens * w * (2 * gate * shape.hidden_width - mlp)
    scores = (2 * w + 1) * shape.heads * shape.sequence * tokens
    layers = {
        "stored": shape.layers * (light + scores),
        "selective": shape.layers * light,
        "recomputed": shape.layers * inputs + light + scores,
    }[policy]
    if policy != "recomputed":
        layers += dense_extra
    return layers + tokens * (shape.width + 4 * shape.vocabulary) + 2 * inputs


def update_s(memory: Memory, hardware: Hardware) -> FloatOrArray:
    """Return the seconds of a memory-bound update, which reads everything once and writes weights and states once.

        (gradients + 2 (weights + optimizer state + error feedback)) / bandwidth

    This is a lower bound, which only fused optimizers approach. Step times do not add it, because measured seconds
    include the update, and an mfu counts all time of a step.

    Raises:
        SpecError: the bandwidth of the hardware's memory is unknown.

    >>> from syncline.costmodel.compute.hardware import HARDWARE
    >>> round(1e3 * update_s(model_memory(10**9, state_elements=2 * 10**9), HARDWARE["a100"]), 1)  # 28 GB
    13.7
    """
    if hardware.memory_bytes_per_s is None:
        raise SpecError("hardware.memory_bytes_per_s", None, "the memory's bandwidth, to time an update by")
    updated_bytes = memory.weights_bytes + memory.optimizer_state_bytes + memory.error_feedback_bytes
    return (memory.gradients_bytes + 2 * updated_bytes) / hardware.memory_bytes_per_s
