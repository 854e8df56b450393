"""Memory of one worker: the model, the state of the method, wire buffers, activations.

A model has N parameters; a method keeps S further numbers and E numbers of error feedback:

| bytes           | fp32 | mixed     |
|-----------------|------|-----------|
| weights         | 4 N  | 2 N       |
| gradients       | 4 N  | 4 N       |
| optimizer state | 4 S  | 4 N + 4 S |
| error feedback  | 4 E  | 4 E       |

Mixed precision computes with 16-bit copies of parameters that the optimizer keeps in fp32, and accumulates gradients in
fp32: with Adam (S = 2 N) it takes 18 bytes per parameter, fp32 takes 16. Gradients that accumulate in bf16 (Megatron-LM
without ``grad_reduce_in_fp32``) take 2 N. All numbers count as if they were in memory all the time. The rounding and
fragmentation of allocators is not counted, so that a worker whose total fits by a few percent may run out of memory.

Sources: S. Rajbhandari et al., "ZeRO" (2020), section 3.1, of mixed precision; NVIDIA, Megatron Core user guide,
"Distributed Optimizer", table of bytes per parameter (16-bit parameters with fp32 gradients: 18, or 6 + 12 / d with
optimizer states sharded over d workers).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.model_shape import LARGEST, ModelShape
from syncline.costmodel.compute.transformer_operations import Module
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.errors import SpecError, require_one_of

Precision = Literal["fp32", "mixed"]

FP32_BYTES = 4

MODEL_BYTES: dict[str, int] = {"fp32": 4, "mixed": 2}
"""Bytes of a parameter, and of a gradient that is sent, in the format in which the model computes."""

USABLE = 0.95
"""Fraction of the hardware's memory that a training can use, an assumption without a source.

The rest is for the driver, a process's context and kernels, the buffers of collectives, and fragmentation."""


@dataclass(frozen=True)
class Memory:
    """Memory of one worker in bytes, by its use.

    Args:
        weights_bytes: the parameters in the format in which the model computes.
        gradients_bytes: one gradient of each parameter, in fp32 or bf16.
        optimizer_state_bytes: momenta, anchors, references, and fp32 copies of 16-bit weights.
        error_feedback_bytes: residuals of compressors.
        wire_bytes: send and receive buffers of the largest call.
        activations_bytes: an estimate of the activations for the backward pass; 0 if they are not counted.

    A field may be an array, for several numbers of workers at once.

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
        """Return the bytes of memory by their use."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def total_bytes(self) -> FloatOrArray:
        """Return the bytes of memory for all uses together, as a float or an array of floats."""
        return 1.0 * sum(self.parts.values())

    def fits(self, hardware: Hardware | None) -> bool | NDArray[np.bool_] | None:
        """Return whether the memory fits into the hardware's usable memory, or None if that is unknown."""
        limit_bytes = usable_bytes(hardware)
        return None if math.isinf(limit_bytes) else self.total_bytes <= limit_bytes


def usable_bytes(hardware: Hardware | None) -> float:
    """Return the bytes of an accelerator's memory that a training can use; infinite if the memory is unknown."""
    if hardware is None or hardware.memory_bytes is None:
        return math.inf
    return USABLE * hardware.memory_bytes


def model_memory(
    parameters: int,
    state_elements: IntOrArray = 0,
    error_elements: IntOrArray = 0,
    precision: Precision = "fp32",
    wire_bytes: FloatOrArray = 0.0,
    activations_bytes: FloatOrArray = 0.0,
    gradient_bytes: int = FP32_BYTES,
) -> Memory:
    """Return the memory of one worker for a model and a method, by the table at the top of this module.

    Args:
        parameters: N, number of parameters.
        state_elements: S, numbers that the method keeps beyond the parameters, without error feedback.
        error_elements: E, numbers of error feedback.
        precision: ``fp32``, or ``mixed`` for 16-bit weights with fp32 copies, gradients and states.
        wire_bytes: see `largest_call_bytes`.
        activations_bytes: see `activation_bytes`.
        gradient_bytes: bytes of a parameter's gradient, in the format in which gradients accumulate.

    >>> model_memory(1_000, state_elements=2_000, precision="mixed").total_bytes
    18000.0
    """
    require_one_of("memory.precision", precision, MODEL_BYTES)
    fp32_copies = parameters if precision == "mixed" else 0
    return Memory(
        weights_bytes=MODEL_BYTES[precision] * parameters,
        gradients_bytes=gradient_bytes * parameters,
        optimizer_state_bytes=FP32_BYTES * (fp32_copies + state_elements),
        error_feedback_bytes=FP32_BYTES * error_elements,
        wire_bytes=wire_bytes,
        activations_bytes=activations_bytes,
    )


def sharded_memory(
    memory: Memory, sharding: str, workers: IntOrArray, unit_bytes: float, precision: Precision = "fp32"
) -> Memory:
    """Return the memory of a worker that shards its states with P workers.

    A worker keeps 1/P of the optimizer state, with ``gradients`` also of the gradients, with ``full`` also of the
    weights. ``gradients`` adds a buffer for one unsharded unit of gradients. ``full`` adds that buffer and two
    unsharded units of parameters (the current and the next). In mixed precision ``full`` gathers units from the shards
    of the fp32 copies, so that no 16-bit shards stay in memory (PyTorch's FSDP).

    Args:
        memory: memory of a worker without sharding.
        sharding: ``none``, ``optimizer``, ``gradients`` or ``full``, see `syncline.costmodel.traffic.sharded`.
        workers: P.
        unit_bytes: bytes of the largest unit that is gathered at once.
        precision: see `model_memory`.

    Source: Y. Zhao et al., "PyTorch FSDP" (2023), sections 3.2 and 4.4.

    >>> sharded_memory(model_memory(1_000, state_elements=2_000), "optimizer", 4, 0.0).total_bytes
    10000.0
    """
    if sharding == "none":
        return memory
    sharded = replace(memory, optimizer_state_bytes=memory.optimizer_state_bytes / workers)
    if sharding == "optimizer":
        return sharded
    sharded = replace(sharded, gradients_bytes=memory.gradients_bytes / workers, wire_bytes=1.0 * unit_bytes)
    if sharding == "gradients":
        return sharded
    weights_bytes = 0.0 if precision == "mixed" else memory.weights_bytes / workers
    return replace(sharded, weights_bytes=weights_bytes, wire_bytes=3.0 * unit_bytes)


def call_bytes(call: Call, workers: IntOrArray) -> FloatOrArray:
    """Return the bytes of send and receive buffers of one call, on the worker that needs most.

    With n bytes of payload and P workers, a sum in place and a broadcast need n bytes, an all-to-all ``2 n``, an
    all-gather (and a gather, at its root) ``n + P n``, and a reduce-scatter ``n + n / P``.

    >>> call_bytes(Call(0, "all_gather", 10.0), workers=4)
    50.0
    """
    require_one_of("collective", call.collective, COLLECTIVES)
    received_payloads = {"all_to_all": 1.0, "all_gather": workers, "gather": workers, "reduce_scatter": 1 / workers}
    return call.payload_bytes * (1.0 + received_payloads.get(call.collective, 0.0))


def largest_call_bytes(patterns: Iterable[CallPattern], workers: IntOrArray, concurrent: bool = False) -> FloatOrArray:
    """Return the bytes of the send and receive buffers of the largest call; a call frees its buffers at its end.

    Args:
        patterns: call patterns of the steps, by `calls_by_step`.
        workers: P, for calls without a group; a single worker needs no buffers.
        concurrent: whether all calls of a step are in flight at once, so that their buffers add up.
    """
    largest_bytes: FloatOrArray = 0.0
    for pattern in patterns:
        buffer_bytes = [call_bytes(call, len(call.group) if call.group else workers) for call in pattern.calls]
        if concurrent:
            buffer_bytes = [sum(buffer_bytes)]
        for nbytes in buffer_bytes:
            largest_bytes = np.maximum(largest_bytes, nbytes)
    return np.where(np.greater(workers, 1), largest_bytes, 0.0)[()]  # a number for one number of workers


def update_s(memory: Memory, hardware: Hardware) -> FloatOrArray:
    """Return the least seconds of an optimizer's update, which reads all numbers once and writes weights and states.

    The seconds are ``(gradients + 2 (weights + optimizer state + error feedback)) / bandwidth`` of the memory. Only
    fused optimizers approach them. Step times do not add them: measured seconds and an mfu include the update.

    >>> from syncline.costmodel.compute.hardware import HARDWARE
    >>> round(1e3 * update_s(model_memory(10**9, state_elements=2 * 10**9), HARDWARE["a100"]), 1)  # 28 GB
    13.7
    """
    if hardware.memory_bytes_per_s is None:
        raise SpecError("hardware.memory_bytes_per_s", None, "the memory's bandwidth, to time an update by")
    updated_bytes = memory.weights_bytes + memory.optimizer_state_bytes + memory.error_feedback_bytes
    return (memory.gradients_bytes + 2 * updated_bytes) / hardware.memory_bytes_per_s


Activations = Literal["stored", "selective", "recomputed"]
"""Policy for activations: store all; all but attention scores; or only the input of each layer, and recompute it."""

POLICIES: tuple[Activations, ...] = ("stored", "selective", "recomputed")


class ActivationPolicy(NamedTuple):
    """A policy for activations, for all layers or for the first ones.

    A number of layers n means the first n layers of each chunk of a stage, or of the stage if it has one chunk.

    Attributes:
        kind: policy of the layers. With ``recomputed``, layers beyond ``recomputed_layers`` have ``selective``.
        recomputed_layers: layers that ``recomputed`` runs again (Megatron-LM's ``recompute_method: block``); None: all.
        layers_per_checkpoint: consecutive recomputed layers that keep only the input of the first
            (``recompute_method: uniform``).
        offloaded_layers: layers whose activations wait in the host's memory for the backward pass.
        modules: modules of each kept layer that run again, of
            `syncline.costmodel.compute.transformer_operations.MODULES`.
    """

    kind: Activations
    recomputed_layers: int | None = None
    layers_per_checkpoint: int = 1
    offloaded_layers: int = 0
    modules: tuple[Module, ...] = ()

    @property
    def most_recomputed(self) -> int:
        """Return the number of first layers of each chunk that run again in the backward pass; `LARGEST` means all."""
        if self.kind != "recomputed":
            return 0
        return LARGEST if self.recomputed_layers is None else self.recomputed_layers

    def describe(self) -> str:
        """Return the policy as text: ``recomputed``, ``recomputed: 3 layers``, ``selective, mlp recomputed``."""
        layers = f": {_layers_text(self.recomputed_layers)}" if self.recomputed_layers is not None else ""
        per_checkpoint = f", {self.layers_per_checkpoint} per checkpoint" if self.layers_per_checkpoint > 1 else ""
        offloaded = f", {_layers_text(self.offloaded_layers)} offloaded" if self.offloaded_layers else ""
        modules = f", {' and '.join(self.modules)} recomputed" if self.modules else ""
        return f"{self.kind}{layers}{per_checkpoint}{offloaded}{modules}"


def _layers_text(count: int) -> str:
    """Return ``1 layer``, ``2 layers`` and so on."""
    return "1 layer" if count == 1 else f"{count} layers"


SELECTIVE = ActivationPolicy("selective")
"""All activations of every layer but attention scores."""

LOGIT_BYTES = 4
"""Bytes of a logit and its gradient at the peak of a fused loss."""

EAGER_LOGIT_BYTES = 12
"""Bytes of a logit, its copies and its gradient at the peak of PyTorch's own loss under autocast."""


class Storage(NamedTuple):
    """The way in which software stores activations.

    Attributes:
        bytes_per_number: w, bytes of an activation: 2 for bf16 and fp16, 4 for fp32.
        operand_bytes: bytes of a number of a matrix's input, 1 with products in 8 bits; None means w.
        fused: whether kernels are fused (`torch.compile`, Transformer Engine), so that no dropout masks are stored.
        logit_bytes: bytes that the loss takes for each logit at its peak, see `activation_parts`.
    """

    bytes_per_number: int = 2
    operand_bytes: int | None = None
    fused: bool = False
    logit_bytes: int = LOGIT_BYTES


PLAIN = Storage()
"""16-bit numbers, as PyTorch without fused kernels stores them, and a fused loss."""


class ActivationParts(NamedTuple):
    """Bytes of activations of a transformer by part, see `activation_parts`.

    Attributes:
        layers: bytes that all layers keep.
        layer_backward: bytes that one layer adds during its backward pass.
        ends: bytes of the embedding, the last norm and the head that are kept until the backward pass.
        logits: bytes of the logits, and of what the loss computes from them.
        embedding_mask: bytes of the embedding's dropout mask, the part of ``ends`` that a pipeline's first stage keeps.
    """

    layers: float
    layer_backward: float
    ends: float
    logits: float
    embedding_mask: float

    @property
    def total(self) -> float:
        """Return the bytes of activations at a step's peak, with the larger of ``logits`` and ``layer_backward``."""
        return self.layers + self.ends + max(self.logits, self.layer_backward)


def activation_parts(
    shape: ModelShape,
    sequences: float,
    policy: Activations = "stored",
    storage: Storage = PLAIN,
    modules: Collection[Module] = (),
) -> ActivationParts:
    """Return the bytes of activations that a transformer keeps for its backward pass, by part.

    The model has width h, a heads, L layers, hidden width f (with experts: of all experts of a token together), g = 2
    with a gate and else 1, and vocabulary V. A batch has b sequences of s tokens, and a number takes w bytes:

    | part | bytes |
    |---|---|
    | ``light``, a layer without attention scores | ``s b (8 w h + 2 w g f + 2 h)`` |
    | ``scores`` of a layer | ``(2 w + 1) a s^2 b`` |
    | ``inputs`` of a layer | ``w s b h`` |
    | ``gradients`` of one layer in its backward pass | ``w s b (h + g f)`` |
    | ``ends``: the embedding's dropout mask, the inputs of the last norm and of the head | ``s b h (1 + 2 w)`` |
    | ``logits`` of the loss | ``4 s b V`` |

    The 8 in ``light`` counts two norms, queries, keys, values and others; if queries, keys or values are not h wide,
    their own widths replace h. ``2 h`` are two dropout masks of a byte. A policy keeps at its peak:

        stored      L (light + scores) + ends + max(logits, gradients)
        selective   L light            + ends + max(logits, gradients)
        recomputed  L inputs           + ends + max(logits, light + gradients)

    Only the larger of logits and gradients counts, because the logits are freed before the first layer's backward pass.
    Fused attention (FlashAttention) stores no scores under any policy. Fused kernels store no dropout masks, and only
    ``w g f + w f`` of a gated MLP instead of ``2 w g f``. With products in 8 bits, Transformer Engine keeps the inputs
    of matrices in 8 bits instead of w bytes, and attention's output in both formats. A fused loss takes 4 bytes per
    logit: 16-bit numbers with their gradient, or fp32 numbers that their gradient replaces. PyTorch's own loss under
    autocast takes `EAGER_LOGIT_BYTES`: the logits in 16 bits and in fp32, their logarithms, and gradients.

    Args:
        sequences: b, sequences whose activations are kept at once: those of one micro-batch.
        policy: ``stored``, ``selective`` or ``recomputed``.
        storage: the way in which the software stores activations.
        modules: modules that run again in the backward pass of each layer, and therefore do not store the results of
            norms, the queries, keys and values of latent attention, anything of an MLP, or the results of experts'
            activations. Fused attention stores nothing of its own in any case.

    Sources: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4,
    equations 1, 4 and 5 and Table 2, generalised to any w and f; T. Dao et al., "FlashAttention" (2022), section 3.1;
    T. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), section 4; NVIDIA/TransformerEngine,
    ``module/layernorm_linear.py`` and ``module/layernorm_mlp.py``, tensors saved for the backward pass.
    """
    require_one_of("memory.activations", policy, POLICIES)
    w = storage.bytes_per_number
    operand = w if storage.operand_bytes is None else storage.operand_bytes
    tokens = shape.sequence * sequences
    inputs = tokens * shape.width * w
    mask = 0 if storage.fused else tokens * shape.width
    logits = storage.logit_bytes * tokens * shape.vocabulary

    # A layer without attention scores: `light`.
    gate = 2 if shape.gated else 1
    hidden = gate * shape.hidden_width  # numbers of a token between the matrices of the MLP
    if shape.experts > 1:
        hidden = gate * (shape.expert_width * (shape.experts_per_token + shape.shared_experts))
    # Bytes of a hidden number before and after the activation; fused kernels multiply with the gate before they store.
    hidden_bytes = w + operand / gate if storage.fused else w + operand
    attention = 2 * (shape.query_width + shape.key_width)  # queries and weighted sums, keys and values
    attention_output = shape.query_width * operand if operand < w else 0  # also kept in 8 bits
    matrix_inputs = 2 * operand * shape.width  # attention and MLP keep one input each
    per_token = matrix_inputs + w * attention + attention_output + hidden_bytes * hidden
    light = 2 * inputs + tokens * per_token + 2 * mask  # inputs of two norms, and masks of two dropouts
    # Bytes by which the first layers, with a dense MLP, exceed as many layers with experts.
    dense_extra = shape.dense_layers * tokens * hidden_bytes * (gate * shape.hidden_width - hidden)

    # Recomputed modules store nothing, and add what they rebuild to a layer's backward pass.
    rebuilt_per_token, rebuilt_per_token_of_dense = _rebuilt_bytes(shape, modules, w, operand, hidden_bytes)
    rebuilt, rebuilt_dense = tokens * rebuilt_per_token, tokens * rebuilt_per_token_of_dense
    light -= rebuilt
    dense_extra += shape.dense_layers * (rebuilt - rebuilt_dense)
    gradients = inputs + tokens * w * hidden + max(rebuilt, rebuilt_dense)

    if policy == "recomputed":
        layers, layer_backward = shape.layers * inputs, gradients + light
    else:
        scores = (2 * w + 1) * shape.heads * shape.sequence * tokens if policy == "stored" else 0.0
        layers, layer_backward = shape.layers * (light + scores) + dense_extra, gradients
    return ActivationParts(layers, layer_backward, ends=mask + 2 * inputs, logits=logits, embedding_mask=mask)


def _rebuilt_bytes(
    shape: ModelShape, modules: Collection[Module], w: int, operand: int, hidden_bytes: float
) -> tuple[float, float]:
    """Return the bytes per token that recomputed modules do not keep, in a layer with experts and in a dense layer.

    In a model without experts the two numbers are equal.

    Args:
        w: bytes of a number.
        operand: bytes of a number of a matrix's input.
        hidden_bytes: bytes of a hidden number: those before the activation plus those after it.
    """
    gate = 2 if shape.gated else 1
    norm_results_bytes = 2.0 * operand * shape.width  # inputs of the first matrices of attention and of the MLP
    attention_bytes = norm_results_bytes if "layernorm" in modules else 0.0
    if "mla_up_proj" in modules and shape.key_rank is not None:
        # Queries, keys and values are rebuilt from the numbers of lower rank, which are kept.
        kept_numbers = shape.key_rank + shape.rotary_width
        if shape.query_rank is not None:
            kept_numbers += shape.query_rank
        attention_bytes += w * (shape.query_width + 2 * shape.key_width - kept_numbers)
    dense_bytes = attention_bytes + (hidden_bytes * gate * shape.hidden_width if "mlp" in modules else 0.0)
    if shape.experts == 1:
        return dense_bytes, dense_bytes
    expert_numbers = gate * shape.expert_width
    expert_bytes = hidden_bytes * expert_numbers * shape.shared_experts if "shared_experts" in modules else 0.0
    if "moe_act" in modules:  # only the input of the activation is kept, in w bytes
        expert_bytes += (hidden_bytes - w) * expert_numbers * shape.experts_per_token
    return attention_bytes + expert_bytes, dense_bytes


def activation_bytes(
    shape: ModelShape, sequences: float, policy: Activations = "stored", storage: Storage = PLAIN
) -> float:
    """Return an estimate of the bytes of a transformer's activations at the peak of a step, see `activation_parts`."""
    return activation_parts(shape, sequences, policy, storage).total


def worker_activation_bytes(
    model: ModelShape,
    layout: Layout,
    sequences: float,
    micro_batches: float,
    policy: ActivationPolicy = SELECTIVE,
    storage: Storage = PLAIN,
) -> float:
    """Return the bytes of activations that a worker keeps for the backward pass, at the stage that keeps most.

    Tensor and context parallelism split all activations (with sequence parallelism, a stored layer keeps
    ``s b h (34 + 5 a s / h) / t``). A stage with j of k stages behind it has ``min(M, j + 1)`` micro-batches in flight,
    with v > 1 chunks ``min(M v, 2 j + (v - 1) k + 1)`` micro-batches of a chunk. One layer at a time is in its backward
    pass, or all recomputed layers of a checkpoint. With offloading, two layers are on the device: one computes, one
    moves.

    Args:
        sequences: b, sequences of a step on the workers of one data-parallel rank.
        micro_batches: M, number of micro-batches of these sequences.
        storage: see `activation_parts`.
    """
    micro_sequences = sequences / micro_batches
    is_recomputed = policy.kind == "recomputed"
    kind_of_stored = "selective" if is_recomputed else policy.kind  # policy of the other layers
    stored = activation_parts(model, micro_sequences, kind_of_stored, storage, policy.modules)
    checkpoint_bytes = 0.0  # inputs of all layers, which recomputation starts from
    working_bytes = stored.layer_backward  # of layers in their backward pass, or on their way to the device
    if is_recomputed:
        recomputed = activation_parts(model, micro_sequences, "recomputed", storage)
        checkpoint_bytes = recomputed.layers
        # The layers of a checkpoint are all rebuilt before the backward pass of the last of them.
        working_bytes += policy.layers_per_checkpoint * (recomputed.layer_backward - stored.layer_backward)
    working_bytes += min(2, policy.offloaded_layers) * stored.layers / model.layers

    largest_bytes = 0.0
    stages, chunks = layout.pipeline, layout.chunks
    layers_of_chunks = layout.layers_of_chunks(model.layers)
    for stage in range(stages):
        num_kept = num_checkpoints = 0
        for layers in layers_of_chunks[stage::stages]:  # chunks are dealt to the stages in turn
            num_recomputed = min(layers, policy.most_recomputed)
            num_kept += layers - num_recomputed - min(layers, policy.offloaded_layers)
            num_checkpoints += math.ceil(num_recomputed / policy.layers_per_checkpoint)
        stage_bytes = (stored.layers * num_kept + checkpoint_bytes * num_checkpoints) / model.layers
        if stage == 0:
            stage_bytes += stored.embedding_mask
        stages_behind = stages - 1 - stage
        in_flight = min(micro_batches, stages_behind + 1.0)  # micro-batches of the whole stage
        if chunks > 1:  # micro-batches of a chunk, over the chunks of a stage
            in_flight = min(micro_batches * chunks, 2 * stages_behind + (chunks - 1) * stages + 1) / chunks
        peak_bytes = working_bytes
        if stages_behind == 0:  # the last stage has the last norm, the head and the loss
            stage_bytes += stored.ends - stored.embedding_mask
            peak_bytes = max(stored.logits, working_bytes)
        largest_bytes = max(largest_bytes, in_flight * stage_bytes + peak_bytes)
    return largest_bytes / (layout.tensor * layout.context)


def offloaded_layer_bytes(model: ModelShape, layout: Layout, sequences: float, storage: Storage = PLAIN) -> float:
    """Return the bytes of a layer's activations of a micro-batch that a worker moves to its host's memory and back.

    The layer has the policy ``selective``.

    Args:
        sequences: sequences of a micro-batch on the workers of one data-parallel rank.
        storage: see `activation_parts`.
    """
    one_layer_bytes = activation_parts(model, sequences, "selective", storage).layers / model.layers
    return one_layer_bytes / (layout.tensor * layout.context)
