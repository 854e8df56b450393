"""What one worker keeps in memory: the model, what its method keeps, what is on the wire, activations.

Of a model with N parameters and a method that keeps S numbers beyond them and E numbers of error feedback:

| bytes           | fp32 | mixed   |
|-----------------|------|---------|
| weights         | 4 N  | 2 N     |
| gradients       | 4 N  | 2 N     |
| optimizer state | 4 S  | 4 N + 4 S |
| error feedback  | 4 E  | 4 E     |

Mixed precision computes with 16-bit copies of parameters that the optimizer keeps in fp32: both come to 16 bytes per
parameter with Adam (S = 2 N). Every number is counted as if it lay in memory all the time, and allocators' rounding
and fragmentation, the framework and its libraries are not counted: what fits here by a few percent may not fit.

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
"""Of the work of a step where every layer is computed again for its backward pass: a forward pass more."""

FP32_BYTES = 4

MODEL_BYTES: dict[str, int] = {"fp32": 4, "mixed": 2}
"""Bytes of a parameter, and of a gradient, as the model computes with them."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one worker.

    Args:
        weights_bytes: the parameters that the model computes with.
        gradients_bytes: one gradient of each.
        optimizer_state_bytes: momenta, anchors, references, and fp32 copies of 16-bit weights.
        error_feedback_bytes: what compressors still owe.
        wire_bytes: buffers of the largest call, both ways.
        activations_bytes: an estimate of what the backward pass needs; 0 if it is not counted.

    Numbers may be arrays, for many workers at once.

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
        """The fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def total_bytes(self) -> FloatOrArray:
        """The sum."""
        return 1.0 * sum(self.parts.values())

    def fits(self, hardware: Hardware | None) -> bool | NDArray[np.bool_] | None:
        """Whether it is no more than the hardware's memory; None if that is not known."""
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
    """The memory of a model and a method.

    Args:
        parameters: N.
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
    of_model = MODEL_BYTES[precision] * parameters
    copies = parameters if precision == "mixed" else 0
    return Memory(
        of_model,
        of_model,
        FP32_BYTES * (copies + state_elements),
        FP32_BYTES * error_elements,
        wire_bytes,
        activations_bytes,
    )


def shared_out(memory: Memory, sharding: str, workers: IntOrArray, unit_bytes: float) -> Memory:
    """The memory of a worker that keeps a P-th of the optimizer's state, of gradients, too, or of all of a model.

    With ``gradients`` one unit of gradients, with ``full`` two of parameters, too (the one in use and the next), are
    whole beside.

    Args:
        memory: of one that keeps everything.
        sharding: ``none``, ``optimizer``, ``gradients`` or ``full``, see `syncline.costmodel.traffic.sharded`.
        workers: P.
        unit_bytes: of the largest unit that is gathered at once.

    >>> shared_out(model_memory(1_000, state_elements=2_000), "optimizer", 4, 0.0).total_bytes
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
    """Bytes of the buffers of one collective call on the worker that needs most: what it sends, and what it receives.

    With n bytes of payload and P workers: an all-reduce sums in place and needs n, as a broadcast does; an all-to-all
    2 n; an all-gather and, on the server, a gather ``n + P n``; a reduce-scatter ``n + n / P``.

    >>> call_bytes(Call(0, "all_gather", 10.0), workers=4)
    50.0
    """
    received = {"all_to_all": 1.0, "all_gather": workers, "gather": workers, "reduce_scatter": 1 / workers}
    if call.collective not in COLLECTIVES:
        raise SpecError("collective", call.collective, one_of(COLLECTIVES, call.collective))
    return call.payload_bytes * (1.0 + received.get(call.collective, 0.0))


def largest_call_bytes(patterns: Iterable[CallPattern], workers: IntOrArray, together: bool = False) -> FloatOrArray:
    """Bytes of wire buffers: those of the largest call, as calls follow each other and free what they took.

    Args:
        patterns: the calls of each kind of step, of `calls_by_step`.
        workers: P; one worker needs none.
        together: whether all calls of a step are under way at once, as in a stream.
    """
    of_steps = ([call_bytes(call, workers) for call in pattern.calls] for pattern in patterns)
    largest: FloatOrArray = 0.0
    for calls in of_steps:
        for size in [sum(calls)] if together else calls:
            largest = np.maximum(largest, size)
    return np.where(np.greater(workers, 1), largest, 0.0)[()]


def activation_bytes(
    shape: ModelShape, sequences: float, kept: Activations = "stored", bytes_per_number: int = 2
) -> float:
    """An estimate of what a transformer keeps for its backward pass.

    With s tokens in a sequence, b sequences, width h, a heads, L layers, expansion e (twice that with a gate; k times
    with experts, k for a token), vocabulary V and w bytes per number, a layer keeps ``light = s b h ((8 + 2 e) w + 2)``
    and, of attention's scores, ``scores = (2 w + 1) a s^2 b``. Where queries, keys and values are not h wide, theirs
    and the weighted sums' parts of the 8 are as wide as they are:

        stored      L (light + scores)
        selective   L light                        scores are computed again, or never stored (fused kernels)
        recomputed  L w s b h + light + scores     layers' inputs, and one layer at a time

    plus ``s b h (1 + 2 w) + 4 s b V`` for the embedding's dropout mask, the last norm's and the head's inputs and the
    fp32 logits. With w = 2 and e = 4 a stored layer is ``s b h (34 + 5 a s / h)``. It counts two norms per layer and
    three dropout masks of a byte each; kernels that fuse keep less.

    Args:
        shape: the model's.
        sequences: b, sequences whose activations are kept at once: of a micro-batch, if there are several.
        kept: see above.
        bytes_per_number: w, 2 for bf16 and fp16, 4 for fp32.

    Raises:
        SpecError: an unknown ``kept``.

    Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4,
    equation 1 and Table 2; written for any w and e by telling its 16-bit numbers from its masks.
    """
    known = ("stored", "selective", "recomputed")
    if kept not in known:
        raise SpecError("memory.activations", kept, one_of(known, kept))
    w, tokens, gate = bytes_per_number, shape.sequence * sequences, 2 if shape.gated else 1
    inputs = tokens * shape.width * w
    attention = 2 * (shape.query_width + shape.key_width)  # queries and weighted sums, keys and values
    through = shape.expert_width * (shape.experts_per_token + shape.shared_experts)
    mlp = 2 * gate * (through if shape.experts > 1 else shape.hidden_width)
    light = 4 * inputs + tokens * w * (attention + mlp) + 2 * tokens * shape.width
    dense = shape.dense_layers * tokens * w * (2 * gate * shape.hidden_width - mlp)  # what the first ones keep beside
    scores = (2 * w + 1) * shape.heads * shape.sequence * tokens
    layers = {
        "stored": shape.layers * (light + scores),
        "selective": shape.layers * light,
        "recomputed": shape.layers * inputs + light + scores,
    }[kept]
    if kept != "recomputed":
        layers += dense
    return layers + tokens * (shape.width + 4 * shape.vocabulary) + 2 * inputs


def update_s(memory: Memory, hardware: Hardware) -> FloatOrArray:
    """Seconds of an update that memory bounds: everything read once, weights and states written once.

        (gradients + 2 (weights + optimizer state + error feedback)) / bandwidth

    A lower bound, which fused optimizers come near and others do not. No step time contains it: what was measured has
    it already, and an mfu, which counts all time, too.

    Raises:
        SpecError: if the hardware's bandwidth is not known.

    >>> from syncline.costmodel.compute.hardware import HARDWARE
    >>> round(1e3 * update_s(model_memory(10**9, state_elements=2 * 10**9), HARDWARE["a100"]), 1)  # 28 GB
    13.7
    """
    if hardware.memory_bytes_per_s is None:
        raise SpecError("hardware.memory_bytes_per_s", None, "the memory's bandwidth, to time an update by")
    kept = memory.weights_bytes + memory.optimizer_state_bytes + memory.error_feedback_bytes
    return (memory.gradients_bytes + 2 * kept) / hardware.memory_bytes_per_s
