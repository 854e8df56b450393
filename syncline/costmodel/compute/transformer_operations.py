"""Kernels of a transformer's training step on one worker, from the model's shape, and their seconds.

A worker computes u tokens of a micro-batch: b sequences of s tokens are split over c workers, matrices over t workers.
A matrix of o outputs and i inputs has three products: ``(u, o, i)`` forward, ``(u, i, o)`` for the gradient of its
input, ``(o, i, u)`` for that of the weight. Attention multiplies the u queries with keys of the whole sequence, and a
causal mask halves the work. An expert layer routes each token to E' of E experts, of which each of e workers has E / e,
with 1/f of their matrices.

Kernels that the memory's bandwidth limits read and write these bytes per token, with w bytes per number:

| kernels                    | eager, forward + backward                 | compiled                    |
|----------------------------|-------------------------------------------|-----------------------------|
| a norm of d numbers        | ``2 w d + 5 w d``                         | with the sum, ``4 w d`` both |
| a sum with the residual    | ``3 w d + 3 w d``                         | with the norm               |
| an activation of f numbers | ``2 w f + 3 w f``; with a gate ``5 + 9``  | the same; ``3 + 5``         |
| a rotation of q numbers    | ``10 w q + 10 w q``                       | ``2 w q + 2 w q``           |
| gradients of q, k, v joined | ``2 w q`` backward                       | none                        |
| a bias of o numbers        | ``w o`` backward                          | the same                    |
| scores without fused attention, each | ``13 + 26`` bytes               | the same                    |
| tokens sorted for E' experts and back, each move | ``2 w E' d``        | the same                    |
| a product in fp8: casts of its operands | ``(w + 2) i + (w + 2) o`` and of the weight, per micro-batch | |
| the loss of V logits       | 49 bytes per logit in all                 | 12                          |

Tokens move twice in each pass: they are sorted by expert, and added up after the experts. After an all-to-all a worker
with several experts also sorts the tokens that it received, and sorts them back. Products in 8 bits need a multiple of
16 tokens, so that the tokens are padded, and unpadded.

The embedding reads and writes u d numbers, and its backward pass 2 V d more. The optimizer passes 28 bytes per fp32
parameter (it reads the gradient, reads and writes weight and two moments); PyTorch's ``foreach`` takes 2.8 times as
long. Sharded weights are copied out of the buffers of their collectives, 14 bytes per parameter and micro-batch.
Gradients of later micro-batches are added, 3 w bytes per parameter. The forward pass of a recomputed layer runs once
more. The activations of an offloaded layer move to the host while the next layer computes, and back while the layer
behind it does; a pass waits for the rest, ``max(0, x - pass)`` with x the seconds of the bytes on the link to the host.

Sources: the counts of kernels in PyTorch; Megatron-LM, ``transformer/moe/token_dispatcher.py`` and ``experts.py``;
cross-entropy, AdamW and FlashAttention as measured on an H100 (``results/gpu``); scores as in
`syncline.costmodel.layouts.transformer_time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.kernel_rates import AttentionKind, bytes_per_number
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.operations import Operation, Seconds, memory, operations_s, product
from syncline.costmodel.compute.tensors import Adapters, TensorShape

LOSS_BYTES, FUSED_LOSS_BYTES = 49.0, 12.0
"""Bytes per logit that the loss reads and writes forward and backward, in PyTorch and in one fused kernel."""

UPDATE_BYTES, FOREACH = 28.0, 2.8
"""Bytes per parameter of Adam's update, and the seconds of PyTorch's ``foreach`` update over those of a fused one."""

SHARD_COPY_BYTES = 14.0
"""Bytes per parameter of copies in and out of the buffers of sharded weights and gradients."""

SCORE_BYTES = 13.0
"""Bytes per score of attention that is not fused, forward."""

Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts"]

MODULES: tuple[Module, ...] = get_args(Module)
"""Modules of a layer that can be recomputed alone, by Megatron-LM's names.

Attention without its projections, norms, the up projections of latent attention, dense MLPs, the activations of
experts, and shared experts."""

EIGHT_BITS = ("fp8", "mxfp8", "nvfp4")
"""Number formats of products whose operands are cast from 16 bits; other kernels stay in bf16."""


@dataclass(frozen=True)
class Software:
    """The choices of a training's software that decide which kernels run.

    Args:
        attention: kind of attention; None means the first kind in the hardware's rates.
        compiled: whether a compiler (or a library of fused kernels) joins elementwise kernels.
        fused_loss: whether the loss is one kernel; None means as ``compiled``.
        fused_optimizer: whether the update is one kernel; None means as ``compiled``.
        causal: whether attention masks half of the scores.
        once_per_node: whether a library for experts sends a token once to each node, and sorts and pads it on the way.
        recomputed: modules of each layer, of `MODULES`, whose forward kernels run again in the backward pass.
        adapters: adapters beside frozen weights, which then have no gradients; None: all weights train.
    """

    attention: AttentionKind | None = None
    compiled: bool = False
    fused_loss: bool | None = None
    fused_optimizer: bool | None = None
    causal: bool = True
    once_per_node: bool = False
    recomputed: tuple[Module, ...] = ()
    adapters: Adapters | None = None

    def attention_on(self, hardware: Hardware) -> str:
        """Return the kind of attention on some hardware."""
        if self.attention is not None or hardware.kernels is None:
            return self.attention or "flash"
        return hardware.kernels.attention[0][0]

    @property
    def loss_bytes(self) -> float:
        """Return the bytes per logit that the loss reads and writes."""
        is_fused = self.compiled if self.fused_loss is None else self.fused_loss
        return FUSED_LOSS_BYTES if is_fused else LOSS_BYTES

    @property
    def update_bytes(self) -> float:
        """Return the bytes per parameter of an update, scaled by its time over that of a fused update."""
        is_fused = self.compiled if self.fused_optimizer is None else self.fused_optimizer
        return UPDATE_BYTES * (1.0 if is_fused else FOREACH)


class Share(NamedTuple):
    """A worker's share of a micro-batch.

    Attributes:
        sequences: b, sequences of a micro-batch on the workers of one data-parallel rank.
        tensor: t, workers that share each matrix.
        context: c, workers that share each sequence.
        expert: e, workers that share the experts.
        precision: number format of products.
        expert_tensor: f, workers that share each matrix of an expert.
        by_heads: whether the workers of a context have the whole sequence for a part of the heads.
    """

    sequences: float
    tensor: int = 1
    context: int = 1
    expert: int = 1
    precision: str = "bf16"
    expert_tensor: int = 1
    by_heads: bool = False


class Passes(NamedTuple):
    """The kernels of a forward and of a backward pass."""

    forward: list[Operation]
    backward: list[Operation]


def layer_operations(model: ModelShape, share: Share, software: Software, dense: bool = False) -> Passes:
    """Return the kernels of one layer and micro-batch, without recomputation.

    Args:
        share: the worker's share.
        software: kernels that run.
        dense: whether the layer has no experts, as the first ones of some models.
    """
    passes = Passes([], [])
    tokens = share.sequences * model.sequence / share.context
    has_experts = model.experts > 1 and not dense
    for tensor in model.dense_layer if dense else model.layer:
        group, _, name = tensor.name.rpartition(".")
        if tensor.is_matrix and not group.startswith("expert_"):
            first = len(passes.forward)
            _add_product(passes, tensor, _split(name), tokens, share, software)
            _run_again(passes, first, _module(name, has_experts, group == "shared"), software)
        elif tensor.name.endswith("_bias") and not group.startswith("expert_"):
            passes.backward.append(memory(bytes_per_number(share.precision) * tokens * tensor.elements))
    if has_experts:
        _add_experts(passes, model, tokens, share, software)
    _add_attention(passes, model, tokens, share, software)
    _add_elementwise(passes, model, tokens, share, software, dense=not has_experts)
    return passes


def _module(name: str, has_experts: bool, is_shared: bool) -> Module | None:
    """Return the module of `MODULES` that a matrix outside of experts belongs to, or None."""
    if is_shared:
        return "shared_experts"
    if name in ("query_up", "key_value_up"):
        return "mla_up_proj"
    return "mlp" if name in ("gate", "up", "down") and not has_experts else None


def _run_again(passes: Passes, first: int, module: Module | None, software: Software) -> None:
    """Append the forward kernels from index ``first`` on to the backward pass if their module is recomputed."""
    if module in software.recomputed:
        passes.backward.extend(passes.forward[first:])


Split = Literal["rows", "columns", "none"]


def _split(name: str) -> Split:
    """Return the side of a matrix that tensor parallelism splits: outputs are rows, inputs are columns."""
    if name in ("out", "down"):
        return "columns"
    return "none" if name in ("router", "query_down", "key_value_down") else "rows"


def _add_product(
    passes: Passes,
    tensor: TensorShape,
    split: Split,
    tokens: float,
    share: Share,
    software: Software,
    groups: float = 1.0,
    sharers: int | None = None,
) -> None:
    """Append the three products of a matrix, and the casts of their operands to 8 bits; ``sharers`` replaces t.

    A frozen matrix has two products, and its adapters have three each, in 16 bits.
    """
    sharers = share.tensor if sharers is None else sharers
    outputs = tensor.shape[0] / (sharers if split == "rows" else 1)
    inputs = tensor.shape[1] / (sharers if split == "columns" else 1)
    w = bytes_per_number(share.precision)
    stored = 1 if share.precision in EIGHT_BITS else w
    passes.forward.append(product(tokens, outputs, inputs, share.precision, stored, groups))
    passes.backward.append(product(tokens, inputs, outputs, share.precision, stored, groups))
    if software.adapters is None:
        passes.backward.append(product(outputs, inputs, tokens, share.precision, stored, groups))
    elif software.adapters.has(tensor.name):
        _add_adapters(passes, software.adapters.rank, (outputs, inputs), tokens, share, groups)
    if share.precision in EIGHT_BITS:  # operands and transposes are cast; a frozen weight needs no others' transposes
        copies = 2 if software.adapters is None else 1
        weights = (w + 2) * groups * outputs * inputs
        passes.forward.append(memory((w + copies) * groups * tokens * inputs + weights))
        passes.backward.append(memory((w + copies) * groups * tokens * outputs))


def _add_adapters(
    passes: Passes, rank: int, sides: tuple[float, float], tokens: float, share: Share, groups: float
) -> None:
    """Append the products of the two adapters beside a matrix, and the sums with its output and input gradient."""
    precision, w = _format_outside_products(share), bytes_per_number(share.precision)
    outputs, inputs = sides
    for rows, columns in ((rank, inputs), (outputs, rank)):
        passes.forward.append(product(tokens, rows, columns, precision, w, groups))
        passes.backward.append(product(tokens, columns, rows, precision, w, groups))
        passes.backward.append(product(rows, columns, tokens, precision, w, groups))
    passes.forward.append(memory(3 * w * groups * tokens * outputs))
    passes.backward.append(memory(3 * w * groups * tokens * inputs))


def _format_outside_products(share: Share) -> str:
    """Return the number format of products that are not in 8 bits."""
    return "bf16" if share.precision in EIGHT_BITS else share.precision


def _add_experts(passes: Passes, model: ModelShape, tokens: float, share: Share, software: Software) -> None:
    """Append the grouped products of the experts of a worker, the router's softmax, and the moves of tokens."""
    w = bytes_per_number(share.precision)
    experts = model.experts / share.expert  # on the worker
    sharers = share.expert_tensor
    tokens_per_expert = sharers * tokens * model.experts_per_token / share.tensor / experts
    for tensor in model.layer:
        if tensor.is_matrix and tensor.name.startswith("expert_0."):
            split = _split(tensor.name.rpartition(".")[2])
            _add_product(passes, tensor, split, tokens_per_expert, share, software, experts, sharers)
    moved_bytes = 2 * w * tokens_per_expert * experts * model.width  # read and written, of received tokens
    moves = 0 if share.expert > 1 else 2
    if not software.once_per_node:
        sorts_received = share.expert > 1 and experts > 1
        pads = share.precision in EIGHT_BITS
        moves += 2 * sorts_received + 2 * pads
    score_bytes = 4.0 * tokens * model.experts  # fp32 scores of the router
    for operations, score_kernels in ((passes.forward, 4), (passes.backward, 3)):
        if share.expert > 1:  # a worker's own tokens sorted by expert, and added up again
            operations.append(memory(moved_bytes / sharers, 2))
        operations.extend((memory(moved_bytes, moves), memory(3 * score_bytes, score_kernels)))
    hidden_bytes = w * tokens_per_expert * experts * model.expert_width / sharers
    first = len(passes.forward)
    _add_activation(passes, model.gated, hidden_bytes, software.compiled)
    _run_again(passes, first, "moe_act", software)


def _add_attention(passes: Passes, model: ModelShape, tokens: float, share: Share, software: Software) -> None:
    """Append fused attention, or its two products and the kernels on its scores."""
    heads = model.heads / share.tensor / (share.context if share.by_heads else 1)
    head = model.scores_width / model.heads
    queries = tokens / share.sequences * (share.context if share.by_heads else 1)
    shape = (share.sequences, heads, queries, float(model.sequence), head)
    first_kernel = len(passes.forward)
    if software.attention != "eager":
        passes.forward.append(Operation("attention", shape, causal=software.causal))
        passes.backward.append(Operation("attention backward", shape, causal=software.causal))
    else:
        _add_eager_attention(passes, shape, share)
    _run_again(passes, first_kernel, "core_attn", software)


def _add_eager_attention(passes: Passes, shape: tuple[float, float, float, float, float], share: Share) -> None:
    """Append attention's two products and the kernels on its scores; ``shape`` is that of an `Operation`."""
    sequences, heads, queries, keys, head = shape
    w, groups = bytes_per_number(share.precision), sequences * heads
    precision = _format_outside_products(share)
    first = product(queries, keys, head, precision, w, groups)
    second = product(queries, head, keys, precision, w, groups)
    scores = groups * queries * keys
    passes.forward.extend((first, second, memory(SCORE_BYTES * scores / 3, 3)))
    passes.backward.extend((first, first, second, second, memory(2 * SCORE_BYTES * scores / 4, 4)))


def _add_elementwise(
    passes: Passes, model: ModelShape, tokens: float, share: Share, software: Software, dense: bool
) -> None:
    """Append the kernels of a layer that the memory limits; tensor parallelism splits norms and sums by tokens."""
    w, t = bytes_per_number(share.precision), share.tensor
    width_bytes = w * tokens * model.width / t
    norms = max(model.norms_per_layer, 2)
    if software.compiled:
        passes.forward.extend([memory(4 * width_bytes)] * norms)
        passes.backward.extend([memory(4 * width_bytes)] * norms)
    else:
        passes.forward.extend([memory(2 * width_bytes)] * norms + [memory(3 * width_bytes)] * 2)
        passes.backward.extend([memory(5 * width_bytes)] * norms + [memory(3 * width_bytes)] * 2)
    if "layernorm" in software.recomputed:
        passes.backward.extend([memory(2 * width_bytes)] * norms)
    heads_bytes = w * tokens * (model.query_width + model.key_width) / t  # of queries and keys
    if not model.position_embedding:  # rotary positions
        for operations in passes:
            operations.append(memory(2 * heads_bytes, 1 if software.compiled else 5))
    if model.head_norms:
        passes.forward.append(memory(2 * heads_bytes))
        passes.backward.append(memory(5 * heads_bytes))
    if not software.compiled:
        passes.backward.append(memory(2 * (heads_bytes + w * tokens * model.key_width / t)))
    first = len(passes.forward)
    if dense:
        _add_activation(passes, model.gated, w * tokens * model.hidden_width / t, software.compiled)
    elif model.shared_experts:
        shared = model.shared_experts * model.expert_width
        _add_activation(passes, model.gated, w * tokens * shared / t, software.compiled)
    _run_again(passes, first, "mlp" if dense else "shared_experts", software)


def _add_activation(passes: Passes, gated: bool, hidden_bytes: float, compiled: bool) -> None:
    """Append the kernels of an MLP's activation, with so many bytes of hidden numbers."""
    if not gated:
        passes.forward.append(memory(2 * hidden_bytes))
        passes.backward.append(memory(3 * hidden_bytes))
    elif compiled:
        passes.forward.append(memory(3 * hidden_bytes))
        passes.backward.append(memory(5 * hidden_bytes))
    else:
        passes.forward.extend((memory(2 * hidden_bytes), memory(3 * hidden_bytes)))
        passes.backward.extend([memory(3 * hidden_bytes)] * 3)


def end_operations(model: ModelShape, share: Share, software: Software) -> Passes:
    """Return the kernels of the embedding, the last norm, the output layer and the loss of one micro-batch."""
    passes = Passes([], [])
    tokens = share.sequences * model.sequence / share.context
    w, vocabulary = bytes_per_number(share.precision), model.vocabulary / share.tensor
    width = w * tokens * model.width
    table = w * vocabulary * model.width
    passes.forward.extend((memory(2 * width), memory(2 * width / share.tensor)))
    if software.adapters is None:
        passes.backward.append(memory(width + 2 * table, 2))
    passes.backward.append(memory(5 * width / share.tensor))
    precision = _format_outside_products(share)
    head = TensorShape("head", (model.vocabulary, model.width), is_matrix=True)
    _add_product(passes, head, "rows", tokens, share._replace(precision=precision), software)
    logits = software.loss_bytes * tokens * vocabulary
    kernels = 1 if software.loss_bytes == FUSED_LOSS_BYTES else 3
    passes.forward.append(memory(logits / 2 / kernels, kernels))
    passes.backward.append(memory(logits / 2 / kernels, kernels))
    return passes


class MicroBatch(NamedTuple):
    """The seconds of one micro-batch in a layer, and outside of the layers.

    Attributes:
        forward: forward pass of one layer.
        backward: backward pass of one layer.
        dense_forward: forward pass of one of the first layers, which have no experts.
        dense_backward: backward pass of one of the first layers.
        ends: forward and backward pass of embedding, last norm, output layer and loss.
    """

    forward: Seconds
    backward: Seconds
    dense_forward: Seconds
    dense_backward: Seconds
    ends: Seconds


@lru_cache(maxsize=4096)
def micro_batch(model: ModelShape, share: Share, software: Software, hardware: Hardware) -> MicroBatch:
    """Return the seconds of one micro-batch in a layer, and outside of the layers, on a GPU with known kernels."""
    attention = software.attention_on(hardware)

    def timed(operations: list[Operation]) -> Seconds:
        return operations_s(operations, hardware, attention, eager=not software.compiled)

    layer = layer_operations(model, share, software)
    dense = layer_operations(model, share, software, dense=True) if model.dense_layers else layer
    ends = end_operations(model, share, software)
    forward, backward, dense_forward, dense_backward = (timed(operations) for operations in (*layer, *dense))
    return MicroBatch(forward, backward, dense_forward, dense_backward, timed([*ends.forward, *ends.backward]))


class Work(NamedTuple):
    """The work of one worker in a step.

    Attributes:
        share: the worker's share of a micro-batch.
        micro_batches: M, number of micro-batches.
        stages: K, pipeline stages, over which layers and ends are spread evenly.
        parameters: number of parameters on the worker.
        updated: number of parameters that the worker updates.
        recomputed: number of layers with experts, and of dense ones (of a model without experts: all and 0), whose
            forward pass the backward pass runs again, over all stages.
        sharded: whether weights are gathered before their use.
        offloaded: numbers of layers whose activations move to the host's memory and back, likewise.
        offload_s: seconds in which the activations of a layer move to the host.
    """

    share: Share
    micro_batches: float
    stages: int
    parameters: float
    updated: float
    recomputed: tuple[int, int] = (0, 0)
    sharded: bool = False
    offloaded: tuple[int, int] = (0, 0)
    offload_s: float = 0.0


def step_seconds(model: ModelShape, work: Work, software: Software, hardware: Hardware) -> dict[str, float]:
    """Return the computing seconds of a worker's step by part; they sum to the step.

    The parts are ``layers``, ``recomputation``, ``ends`` (embedding, output layer, loss), ``copies`` (sharded weights,
    sums of gradients), ``update``, ``offloading``, in which the device waits for activations on their way to and from
    the host's memory, and ``launches``, in which it waits for the host's processor.
    """
    times = micro_batch(model, work.share, software, hardware)
    layers = model.layers - model.dense_layers, model.dense_layers
    forward = _total(layers, times.forward, times.dense_forward)
    backward = _total(layers, times.backward, times.dense_backward)
    m, k = work.micro_batches, work.stages
    w = bytes_per_number(work.share.precision)
    copied = SHARD_COPY_BYTES * m * work.parameters if work.sharded else 0.0
    summed = 3 * w * (m - 1) * work.parameters
    copies = operations_s([memory(copied + summed, 1 if copied + summed else 0)], hardware)
    update = operations_s([memory(software.update_bytes * work.updated)], hardware)
    recomputation = _total(work.recomputed, times.forward, times.dense_forward)
    waits_s = 0.0
    passes = (times.forward, times.backward), (times.dense_forward, times.dense_backward)
    for count, layer in zip(work.offloaded, passes, strict=True):
        waits_s += count * sum(max(0.0, work.offload_s - one_pass.device_s) for one_pass in layer)
    device = {
        "layers": m / k * (forward.device_s + backward.device_s),
        "recomputation": m / k * recomputation.device_s,
        "ends": m / k * times.ends.device_s,
        "copies": copies.device_s,
        "update": update.device_s,
        "offloading": m / k * waits_s,
    }
    launched = (forward, backward, recomputation, times.ends)
    launch_s = m / k * sum(part.launch_s for part in launched)
    return device | {"launches": max(0.0, launch_s - sum(device.values()))}


def _total(counts: tuple[int, int], layer: Seconds, dense: Seconds) -> Seconds:
    """Return the seconds of all layers; ``counts`` are the numbers of layers with experts and of dense ones."""
    device_s = counts[0] * layer.device_s + counts[1] * dense.device_s
    return Seconds(device_s, counts[0] * layer.launch_s + counts[1] * dense.launch_s)
