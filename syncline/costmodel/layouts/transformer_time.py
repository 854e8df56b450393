"""Seconds of a transformer's training step on GPUs with data, pipeline and tensor parallelism, from fitted constants.

For a layer with b sequences of s tokens, width h, a heads, split over t devices, w = 2 bytes per number:

    device  g = (24 b s h^2 + 4 b s^2 h) / (t R) + ((13 b a s^2 + 20 b s h) / t + 22 b s h) / B
    layer   n / 3 (serial + max(launch, 3 g)) + 2 (n - 1) [t > 1] (call + 2 (t - 1) / t w b s h / B_t)
            or 2 (n - 1) T(w b s h, t) with measured all-reduces T, above the calibrated bytes

R is the rate of matrix products and B the bandwidth of the memory for 16-bit numbers. Each attention score moves 13
bytes (written by the product; read and written by softmax; read and written, with a mask, by dropout). Each activation
moves 20 bytes that tensor parallelism splits (GELU of four times the width 16, the context's transposition 4) and 22
that it does not split (two norms 8, two additions with dropout 14). g is a forward pass; a backward pass takes 2 g.
``launch`` is the time in which the host launches a layer's kernels both ways; work on the device can hide it.
``serial`` are gaps that nothing hides. n is 3, or 4 with recomputed activations; each pass has two sums over t devices,
with [t > 1] = 1 if t > 1, else 0. Beyond the layers:

    head    head + 6 b s h V / (t R_head)                                         at the last stage
    1F1B    stages of l = L / K layers, w b s h / B_link per message: `syncline.costmodel.layouts.pipelines`
    after   step + 28 N / (d B) + 2 (d - 1) / d w N / B_link

A stage has N = (12 h^2 l + V h at both ends) / t parameters on a device. The d replicas reduce-scatter the gradient,
each replica updates its share of fp32 weights and moments (28 bytes per parameter with Adam), and all gather the
weights. Over several nodes of D devices, t d > D, the rings of the min(t, D) devices that share a layer also share the
network cards of a node: B_link = B_node / min(t, D). If K does not divide L, the first stages have one layer more.

The step ends with its slowest stage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.layouts.pipelines import one_f_one_b_s
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.costmodel.numerics.measured_times import MeasuredTimes

NUMBER_BYTES = 2
"""Bytes of a weight, gradient or activation as the model computes and sends it: fp16 or bf16."""

SCORE_BYTES, SPLIT_BYTES, WHOLE_BYTES = 13, 20, 22
"""Bytes through memory in a forward pass: per score; per activation that tensor parallelism splits; per other one."""

UPDATE_BYTES = 28
"""Bytes through memory per parameter in Adam's update.

It reads the gradient, reads and writes the weights and two moments, and writes a 16-bit copy."""

STATE_BYTES = 16
"""Bytes of memory per parameter: 2 for the weight, 2 for the gradient, 12 for the fp32 weight and moments."""


@dataclass(frozen=True, eq=False)
class Layouts:
    """N trainings of a GPT with their parallel layouts.

    Each field is a number or an array that broadcasts to ``(N,)``.

    Args:
        layers: L, at least one for each stage.
        width: h.
        heads: a.
        sequence: s, tokens in a sequence.
        micro_batch: b, sequences in a micro-batch.
        microbatches: M, micro-batches of a pipeline in a step; without a pipeline, steps of gradient accumulation.
        data: d, replicas.
        stages: K, pipeline stages.
        tensor: t, devices that share each layer.
        vocabulary: V.
        recomputed: whether the backward pass recomputes each layer's activations.
    """

    layers: Any
    width: Any
    heads: Any
    sequence: Any
    micro_batch: Any
    microbatches: Any
    data: Any = 1
    stages: Any = 1
    tensor: Any = 1
    vocabulary: Any = 51200
    recomputed: Any = False

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self)]
        arrays = np.broadcast_arrays(*(np.atleast_1d(getattr(self, name)) for name in names))
        for name, array in zip(names, arrays, strict=True):
            if name != "recomputed":  # a flag
                require(array >= 1, name, array, "at least 1")
            object.__setattr__(self, name, array)
        require(self.layers >= self.stages, "layers", self.layers, "a layer at least for each stage")

    def __len__(self) -> int:
        """Return N, the number of trainings."""
        return int(self.layers.size)

    def select(self, index: NDArray[Any]) -> Layouts:
        """Return the trainings of this set at some indices."""
        return Layouts(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def layers_of(self, stage: int) -> NDArray[np.int_]:
        """Return l, the number of layers of a stage, counted from 0, ``(N,)``; the first stages may have one more."""
        return np.asarray(self.layers // self.stages + (stage < self.layers % self.stages))

    def parameters_of(self, stage: int) -> NDArray[np.float64]:
        """Return the parameters of a stage on one device, ``(N,)``: ``(12 h^2 l + V h at both ends) / t``."""
        is_end = (stage == 0) | (stage == self.stages - 1)
        return (12.0 * self.width**2 * self.layers_of(stage) + is_end * self.vocabulary * self.width) / self.tensor

    @property
    def memory_bytes(self) -> NDArray[np.float64]:
        """Return the bytes on a device of the first stage that keeps all activations, if d replicas shard its states.

        With N parameters and l layers it is ``(4 + 12 / d) N + min(M, K) l s b h (10 + (24 + 5 a s / h) / t)``.

        Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), 4.1-4.2.
        """
        inputs = 1.0 * self.sequence * self.micro_batch * self.width  # as a float, which does not overflow
        activation_bytes = inputs * (10 + (24 + 5 * self.heads * self.sequence / self.width) / self.tensor)
        in_flight = np.minimum(self.microbatches, self.stages) * self.layers_of(stage=0)
        parameter_bytes = 4 + (STATE_BYTES - 4) / self.data  # weight and gradient, and the share of optimizer states
        return np.asarray(parameter_bytes * self.parameters_of(stage=0) + in_flight * activation_bytes)


@dataclass(frozen=True)
class Node:
    """A node and its connection to other nodes.

    Args:
        devices: D, devices in a node.
        bytes_per_s: B_node, bandwidth of all network cards of a node together, each way.
    """

    devices: int
    bytes_per_s: float

    def __post_init__(self) -> None:
        require(self.devices >= 1, "node.devices", self.devices, "at least 1")
        require(self.bytes_per_s > 0, "node.nic_bandwidth", self.bytes_per_s, "positive")


@dataclass(frozen=True)
class StepConstants:
    """Fitted constants of a machine and its software; each is a number, or an array that broadcasts before ``(N,)``.

    Args:
        serial_s: serial, seconds of a layer's forward and backward pass of a micro-batch; nothing hides them.
        launch_s: launch, seconds of the host for the same two passes; work on the device can hide them.
        matmul_flops: R, FLOP/s of the layers' matrix products.
        memory_bytes_per_s: B, bandwidth of passes over activations and scores, and of the update.
        head_s: head, fixed seconds per micro-batch at the last stage.
        head_flops: R_head, FLOP/s of the output layer on one device; an output layer on several devices runs at R.
        step_s: step, fixed seconds per step.
        link_bytes_per_s: B_link, bandwidth between replicas and between stages.
        tensor_call_s: call, latency of a sum between devices that share a layer.
        tensor_bytes_per_s: B_t, bandwidth of the links between devices that share a layer.
        tensor_times: T, measured all-reduces between such devices; None without measurements.
        tensor_calibrated_bytes: bytes of the largest sum in the fit of B_t; larger sums take T.
        node: node of the devices; None means that all devices are in one node.
        calibrated_on: ``(folds, fold)``: the constants were fitted to part ``fold`` of the measurements, which were
            divided into ``folds`` parts; None if unknown.
        name: display name.
        source: origin of the numbers.
    """

    serial_s: FloatOrArray
    launch_s: FloatOrArray
    matmul_flops: FloatOrArray
    memory_bytes_per_s: FloatOrArray
    head_s: FloatOrArray
    head_flops: FloatOrArray
    step_s: FloatOrArray
    link_bytes_per_s: FloatOrArray
    tensor_call_s: FloatOrArray
    tensor_bytes_per_s: FloatOrArray
    tensor_times: MeasuredTimes | None = None
    tensor_calibrated_bytes: float = 0.0
    node: Node | None = None
    calibrated_on: tuple[int, int] | None = None
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in (*STEP_FIELDS, *TENSOR_FIELDS):
            value = getattr(self, name)
            require(np.greater(value, 0), name, value, "a positive number")


TENSOR_FIELDS = ("tensor_call_s", "tensor_bytes_per_s")
"""The constants of tensor parallelism."""

STEP_FIELDS = (
    "serial_s", "launch_s", "matmul_flops", "memory_bytes_per_s", "head_s", "head_flops", "step_s", "link_bytes_per_s",
)  # fmt: skip
"""The other fitted constants."""


def layer_s(layouts: Layouts, constants: StepConstants) -> NDArray[np.float64]:
    """Return the seconds of one transformer layer for one micro-batch, forward and backward, ``(..., N)``.

    N is the number of trainings in ``layouts``; other axes are those of the constants.
    """
    tokens = 1.0 * layouts.micro_batch * layouts.sequence  # as a float, which does not overflow
    flops = 24 * tokens * layouts.width**2 + 4 * tokens * layouts.sequence * layouts.width
    split_bytes = SCORE_BYTES * tokens * layouts.heads * layouts.sequence + SPLIT_BYTES * tokens * layouts.width
    moved_bytes = split_bytes / layouts.tensor + WHOLE_BYTES * tokens * layouts.width
    device_s = flops / (layouts.tensor * constants.matmul_flops) + moved_bytes / constants.memory_bytes_per_s
    # In units of a forward pass: forward 1, backward 2, recomputation 1.
    passes = np.where(layouts.recomputed, 4, 3)
    # Two sums in a forward pass, two in the backward pass, and two in a recomputed forward pass.
    sums_s = 2 * (passes - 1) * np.where(layouts.tensor > 1, _all_reduce_s(layouts, constants), 0.0)
    both_ways_s = constants.serial_s + np.maximum(constants.launch_s, 3 * device_s)  # without recomputation
    return np.asarray(passes / 3 * both_ways_s + sums_s)


def _all_reduce_s(layouts: Layouts, constants: StepConstants) -> NDArray[np.float64]:
    """Return the seconds of one all-reduce of activations among the devices that share a layer, ``(..., N)``."""
    nbytes = 1.0 * NUMBER_BYTES * layouts.micro_batch * layouts.sequence * layouts.width
    ring_bytes = 2 * (layouts.tensor - 1) / layouts.tensor * nbytes  # each device of a ring sends them
    fitted_s = np.asarray(constants.tensor_call_s + ring_bytes / constants.tensor_bytes_per_s)
    if constants.tensor_times is None:
        return fitted_s
    measured_s = constants.tensor_times.time_s(nbytes, layouts.tensor)
    # The seconds are NaN for a number of devices outside of the measured ones.
    is_measured = (nbytes > constants.tensor_calibrated_bytes) & np.isfinite(measured_s)
    return np.where(is_measured, measured_s, fitted_s)


def step_s(layouts: Layouts, constants: StepConstants) -> NDArray[np.float64]:
    """Return the seconds of a training step, ``(..., N)``, by the formulas of this module.

    Args:
        layouts: N trainings with their layouts.
        constants: constants of the machine; with arrays ``(B, 1)`` the result is ``(B, N)``.
    """
    head_flops_per_s = np.where(layouts.tensor > 1, constants.matmul_flops, constants.head_flops)
    activations = 1.0 * layouts.micro_batch * layouts.sequence * layouts.width
    # `_after_passes_s` is broadcast with the others only because its constants can have further axes.
    one_layer_s, head_s, send_s, _ = np.broadcast_arrays(
        layer_s(layouts, constants),
        constants.head_s + 6.0 * activations * layouts.vocabulary / (layouts.tensor * head_flops_per_s),
        NUMBER_BYTES * activations / constants.link_bytes_per_s,
        _after_passes_s(layouts, constants, stage=0),
    )
    seconds = np.empty(one_layer_s.shape)
    # Trainings with equally many stages and micro-batches are computed together.
    shapes, inverse = np.unique(np.stack([layouts.stages, layouts.microbatches]), axis=1, return_inverse=True)
    for number, (stages, microbatches) in enumerate(shapes.T.tolist()):
        index = np.flatnonzero(np.ravel(inverse) == number)
        group = layouts.select(index)
        blocks_s = np.stack([one_layer_s[..., index] * group.layers_of(stage) for stage in range(stages)])
        # A backward pass takes as long as two forward passes, and as three if it first recomputes the layer.
        backward_fraction = np.where(group.recomputed, 3 / 4, 2 / 3)
        forward_s, backward_s = blocks_s * (1 - backward_fraction), blocks_s * backward_fraction
        forward_s[-1] += head_s[..., index] / 3  # the head is not recomputed
        backward_s[-1] += head_s[..., index] * 2 / 3
        passes_end_s = one_f_one_b_s(forward_s, backward_s, microbatches, send_s[..., index])
        ends_s = [passes_end_s[stage] + _after_passes_s(group, constants, stage) for stage in range(stages)]
        seconds[..., index] = np.max(ends_s, axis=0)
    return seconds


def _after_passes_s(layouts: Layouts, constants: StepConstants, stage: int) -> NDArray[np.float64]:
    """Return the seconds of a stage after its last backward pass: the update and its collectives, ``(..., N)``."""
    parameters = layouts.parameters_of(stage)
    update_s = UPDATE_BYTES * parameters / (layouts.data * constants.memory_bytes_per_s)
    # A ring of replicas reduce-scatters the gradients and all-gathers the weights.
    wire_bytes = 2 * (layouts.data - 1) / layouts.data * NUMBER_BYTES * parameters
    rate, node = constants.link_bytes_per_s, constants.node  # the rate of a ring
    if node is not None:
        num_rings = np.minimum(layouts.tensor, node.devices)  # the rings that share a node's network cards
        crosses_nodes = layouts.tensor * layouts.data > node.devices
        rate = np.where(crosses_nodes, np.minimum(rate, node.bytes_per_s / num_rings), rate)
    return np.asarray(constants.step_s + update_s + wire_bytes / rate)


STEP_TIMES: dict[str, StepConstants] = {
    "a100-megatron-deepspeed": StepConstants(
        serial_s=1.34354e-3,
        launch_s=1.68172e-3,
        matmul_flops=271.44e12,
        memory_bytes_per_s=1.28438e12,
        head_s=2.67053e-3,
        head_flops=92.7272e12,
        step_s=1.81078e-3,
        link_bytes_per_s=138.627e9,
        tensor_call_s=51.3766e-6,
        tensor_bytes_per_s=89.84e9,
        tensor_calibrated_bytes=2.0**25,
        calibrated_on=(5, 0),
        name="a100-megatron-deepspeed",
        source="Fitted by `syncline validate vtrain-a100` to 136 of vTrain's measurements (J. Bang et al., MICRO 2024; "
        "github.com/VIA-Research/vTrain) of Megatron-DeepSpeed on nodes of up to 8 A100.",
    )
}
"""Constants of step times by name."""
