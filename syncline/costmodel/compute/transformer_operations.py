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
from syncline.costmodel.compute.operations import Operation, Seconds, elementwise, memory, operations_s, product
from syncline.costmodel.compute.tensors import Adapters, TensorShape

LOSS_BYTES, FUSED_LOSS_BYTES = 49.0, 12.0
"""Bytes per logit that the loss reads and writes forward and backward, in PyTorch and in one fused kernel."""

UPDATE_BYTES, FOREACH_SLOWDOWN = 28.0, 2.8
"""Bytes per parameter of Adam's update, and the seconds of PyTorch's ``foreach`` update over those of a fused one."""

SHARD_COPY_BYTES = 14.0
"""Bytes per parameter of copies in and out of the buffers of sharded weights and gradients."""

SCORE_BYTES = 13.0
"""Bytes per score that attention without a fused kernel reads and writes forward, in three kernels."""

Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts"]

MODULES: tuple[Module, ...] = get_args(Module)
"""Modules of a layer that can be recomputed alone, by Megatron-LM's names.

Attention without its projections, norms, the up projections of latent attention, dense MLPs, the activations of
experts, and shared experts."""

EIGHT_BITS = ("fp8", "mxfp8", "nvfp4")
"""Number formats of products whose operands are cast from 16 bits; other kernels stay in bf16."""


@dataclass(frozen=True)
class Software:
    """The choices of a training's software that decide which GPU kernels run.

    Args:
        attention: kind of attention; None means the first kind in the hardware's rates.
        compiled: whether a compiler (or a library of fused kernels) joins elementwise kernels.
        fused_loss: whether the loss is one kernel; None means as ``compiled``.
        fused_optimizer: whether the update is one kernel; None means as ``compiled``.
        causal: whether attention masks half of the scores.
        once_per_node: whether a library for experts sends a token once to each node, and sorts and pads it on the way.
        recomputed: modules (of `MODULES`) of every layer whose forward kernels run again in the backward pass.
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
        """Return the kind of attention: the chosen one, or else the first with known rates on this hardware."""
        if self.attention is not None:
            return self.attention
        if hardware.kernels is None:
            return "flash"
        (first_kind, _, _), *_ = hardware.kernels.attention
        return first_kind

    @property
    def loss_bytes(self) -> float:
        """Return the bytes per logit that the loss reads and writes."""
        is_fused = self.compiled if self.fused_loss is None else self.fused_loss
        return FUSED_LOSS_BYTES if is_fused else LOSS_BYTES

    @property
    def equivalent_update_bytes(self) -> float:
        """Return the bytes per parameter that a fused update would read and write in the time of this update."""
        is_fused = self.compiled if self.fused_optimizer is None else self.fused_optimizer
        return UPDATE_BYTES * (1.0 if is_fused else FOREACH_SLOWDOWN)


class Share(NamedTuple):
    """A worker's share of a micro-batch under tensor, context and expert parallelism.

    Attributes:
        sequences: b, sequences of a micro-batch on the workers of one data-parallel rank.
        tensor: t, workers that share each matrix.
        context: c, workers that share each sequence.
        expert: e, workers that share the experts.
        precision: number format of products.
        expert_tensor: f, workers that share each matrix of an expert.
        by_heads: whether the workers of a context split attention by heads instead of by tokens.
    """

    sequences: float
    tensor: int = 1
    context: int = 1
    expert: int = 1
    precision: str = "bf16"
    expert_tensor: int = 1
    by_heads: bool = False


class Passes(NamedTuple):
    """The kernels of a forward and of a backward pass, each in order."""

    forward: list[Operation]
    backward: list[Operation]

    def add(self, passes: Passes, is_recomputed: bool = False) -> None:
        """Append further kernels; if they are recomputed, their forward kernels run again in the backward pass."""
        self.forward.extend(passes.forward)
        self.backward.extend(passes.backward)
        if is_recomputed:
            self.backward.extend(passes.forward)


def layer_operations(model: ModelShape, share: Share, software: Software, dense: bool = False) -> Passes:
    """Return the kernels of one transformer layer for one micro-batch, without recomputation of the whole layer.

    Args:
        share: the worker's share of the micro-batch.
        software: choices of the software that decide which kernels run.
        dense: whether the layer has no experts, as the first ones of some models.
    """
    passes = Passes([], [])
    tokens = share.sequences * model.sequence / share.context
    has_experts = model.experts > 1 and not dense
    for tensor in model.dense_layer if dense else model.layer:
        group, _, name = tensor.name.rpartition(".")
        if group.startswith("expert_"):
            continue  # see `_expert_passes`
        if tensor.is_matrix:
            products = _product_passes(tensor, tokens, share, software)
            module = _module_of_matrix(name, has_experts, is_shared=group == "shared")
            passes.add(products, is_recomputed=module in software.recomputed)
        elif name.endswith("_bias") and software.adapters is None:  # its gradient is a sum over tokens
            passes.backward.append(memory(bytes_per_number(share.precision) * tokens * tensor.elements))
    if has_experts:
        passes.add(_expert_passes(model, tokens, share, software))
    passes.add(_attention_passes(model, tokens, share, software), is_recomputed="core_attn" in software.recomputed)
    passes.add(_elementwise_passes(model, tokens, share, software, dense=not has_experts))
    return passes


def _module_of_matrix(name: str, has_experts: bool, is_shared: bool) -> Module | None:
    """Return the module of `MODULES` that a matrix outside of experts belongs to, or None."""
    if is_shared:
        return "shared_experts"
    if name in ("query_up", "key_value_up"):
        return "mla_up_proj"
    return "mlp" if name in ("gate", "up", "down") and not has_experts else None


def _shard_sides(tensor: TensorShape, sharers: int) -> tuple[float, float]:
    """Return the outputs and inputs of a matrix on one of the workers that share it by tensor parallelism."""
    outputs, inputs = tensor.shape
    _, _, name = tensor.name.rpartition(".")
    if name in ("router", "query_down", "key_value_down"):  # every worker has the whole matrix
        return outputs, inputs
    # Matrices that project back to the width are split by inputs, all others by outputs.
    return (outputs, inputs / sharers) if name in ("out", "down") else (outputs / sharers, inputs)


def _product_passes(
    tensor: TensorShape,
    tokens: float,
    share: Share,
    software: Software,
    groups: float = 1.0,
    sharers: int | None = None,
) -> Passes:
    """Return the products of a matrix, one forward and two backward, and the casts of their operands to 8 bits.

    A frozen matrix has no product for its own gradient. Its two adapters have three products each, in 16 bits.

    Args:
        tensor: the whole matrix (outputs, inputs).
        share: the worker's share of the micro-batch.
        groups: number of equal matrices (of experts) in a grouped product.
        sharers: workers that share the matrix; None means t.
    """
    outputs, inputs = _shard_sides(tensor, share.tensor if sharers is None else sharers)
    w = bytes_per_number(share.precision)
    operand_bytes = 1 if share.precision in EIGHT_BITS else w
    forward = [product(tokens, outputs, inputs, share.precision, operand_bytes, groups)]
    backward = [product(tokens, inputs, outputs, share.precision, operand_bytes, groups)]
    if software.adapters is None:
        backward.append(product(outputs, inputs, tokens, share.precision, operand_bytes, groups))
    elif software.adapters.has(tensor.name):
        adapters = _adapter_passes(software.adapters.rank, outputs, inputs, tokens, share, groups)
        forward += adapters.forward
        backward += adapters.backward
    if share.precision in EIGHT_BITS:
        # A cast reads w bytes and writes 1 byte for each copy. A weight has two copies, one of them transposed; so do
        # the input and the output's gradient, unless the weight is frozen.
        copies = 2 if software.adapters is None else 1
        weight_bytes = (w + 2) * groups * outputs * inputs
        forward.append(memory((w + copies) * groups * tokens * inputs + weight_bytes))
        backward.append(memory((w + copies) * groups * tokens * outputs))
    return Passes(forward, backward)


def _adapter_passes(rank: int, outputs: float, inputs: float, tokens: float, share: Share, groups: float) -> Passes:
    """Return the kernels of the adapters beside each of ``groups`` matrices: products, and sums with its outputs."""
    precision, w = _format_outside_products(share), bytes_per_number(share.precision)
    passes = Passes([], [])
    for rows, columns in ((rank, inputs), (outputs, rank)):
        passes.forward.append(product(tokens, rows, columns, precision, w, groups))
        passes.backward.append(product(tokens, columns, rows, precision, w, groups))
        passes.backward.append(product(rows, columns, tokens, precision, w, groups))
    passes.forward.append(memory(3 * w * groups * tokens * outputs))  # a sum reads two numbers and writes one
    passes.backward.append(memory(3 * w * groups * tokens * inputs))
    return passes


def _format_outside_products(share: Share) -> str:
    """Return the number format of products that stay in 16 bits or more if the others are in 8 bits."""
    return "bf16" if share.precision in EIGHT_BITS else share.precision


def _expert_passes(model: ModelShape, tokens: float, share: Share, software: Software) -> Passes:
    """Return the grouped products of the experts of a worker, the router's softmax, and the moves of tokens."""
    passes = Passes([], [])
    w = bytes_per_number(share.precision)
    experts = model.experts / share.expert  # number of experts on the worker
    sharers = share.expert_tensor
    tokens_per_expert = sharers * tokens * model.experts_per_token / share.tensor / experts
    for tensor in model.layer:
        if tensor.is_matrix and tensor.name.startswith("expert_0."):  # all experts are alike
            passes.add(_product_passes(tensor, tokens_per_expert, share, software, experts, sharers))
    received_bytes = 2 * w * tokens_per_expert * experts * model.width  # a move reads and writes every token
    is_exchanged = share.expert > 1
    moves = 0 if is_exchanged else 2  # the worker sorts its own tokens by expert, and adds the results up
    if not software.once_per_node:  # else the library sorts and pads on the way
        if is_exchanged and experts > 1:  # received tokens are sorted, and sorted back
            moves += 2
        if share.precision in EIGHT_BITS:  # tokens are padded, and unpadded
            moves += 2
    score_bytes = 4.0 * tokens * model.experts  # fp32 scores of the router
    for operations, score_kernels in ((passes.forward, 4), (passes.backward, 3)):
        if is_exchanged:  # two moves of the tokens that the worker sends: to sort them, and to add up
            operations.append(memory(received_bytes / sharers, 2))
        # Each kernel on the scores, such as softmax, passes their bytes three times.
        operations += [memory(received_bytes, moves), memory(3 * score_bytes, score_kernels)]
    hidden_bytes = w * tokens_per_expert * experts * model.expert_width / sharers
    activation = _activation_passes(model.gated, hidden_bytes, software.compiled)
    passes.add(activation, is_recomputed="moe_act" in software.recomputed)
    return passes


def _attention_passes(model: ModelShape, tokens: float, share: Share, software: Software) -> Passes:
    """Return the kernels of attention between its projections: fused, or two products and the kernels on its scores."""
    # A worker has 1/c of the heads for the whole sequence, or all heads for the queries of 1/c of the sequence.
    head_sharers = share.context if share.by_heads else 1
    heads = model.heads / share.tensor / head_sharers
    head_width = model.scores_width / model.heads
    queries = tokens / share.sequences * head_sharers  # queries of one sequence on the worker
    keys = float(model.sequence)
    if software.attention != "eager":
        shape = (share.sequences, heads, queries, keys, head_width)
        forward = Operation("attention", shape, causal=software.causal)
        return Passes([forward], [forward._replace(kind="attention backward")])
    w, groups = bytes_per_number(share.precision), share.sequences * heads
    precision = _format_outside_products(share)
    scores_product = product(queries, keys, head_width, precision, w, groups)
    values_product = product(queries, head_width, keys, precision, w, groups)
    score_bytes = SCORE_BYTES * (groups * queries * keys)
    return Passes(
        forward=[scores_product, values_product, elementwise(score_bytes, 3)],
        # Each product has two gradients.
        backward=[scores_product, scores_product, values_product, values_product, elementwise(2 * score_bytes, 4)],
    )


def _elementwise_passes(model: ModelShape, tokens: float, share: Share, software: Software, dense: bool) -> Passes:
    """Return the kernels of a layer that the memory's bandwidth limits: norms, sums, rotations, activations.

    Tensor parallelism splits norms and sums by tokens.
    """
    w, t = bytes_per_number(share.precision), share.tensor
    width_bytes = w * tokens * model.width / t
    norms = max(model.norms_per_layer, 2)  # norms without parameters take time, too
    if software.compiled:  # each norm is joined with the sum before it
        passes = _memory_passes(width_bytes, forward=[4] * norms, backward=[4] * norms)
    else:  # norms, and two sums with the residual
        passes = _memory_passes(width_bytes, forward=[2] * norms + [3, 3], backward=[5] * norms + [3, 3])
    if "layernorm" in software.recomputed:
        passes.add(_memory_passes(width_bytes, forward=[], backward=[2] * norms))
    heads_bytes = w * tokens * (model.query_width + model.key_width) / t
    if not model.position_embedding:  # rotary positions
        rotation = memory(2 * heads_bytes, 1 if software.compiled else 5)
        passes.add(Passes([rotation], [rotation]))
    if model.head_norms:
        passes.add(_memory_passes(heads_bytes, forward=[2], backward=[5]))
    if not software.compiled:  # gradients of queries, keys and values are joined
        passes.backward.append(memory(2 * (heads_bytes + w * tokens * model.key_width / t)))
    hidden_width = model.hidden_width if dense else model.shared_experts * model.expert_width
    if hidden_width:
        activation = _activation_passes(model.gated, w * tokens * hidden_width / t, software.compiled)
        passes.add(activation, is_recomputed=("mlp" if dense else "shared_experts") in software.recomputed)
    return passes


def _memory_passes(nbytes: float, forward: list[int], backward: list[int]) -> Passes:
    """Return a kernel for each number in the lists; it reads and writes that number times ``nbytes`` bytes."""
    return Passes([memory(count * nbytes) for count in forward], [memory(count * nbytes) for count in backward])


def _activation_passes(gated: bool, hidden_bytes: float, compiled: bool) -> Passes:
    """Return the kernels of an MLP's activation function, and of the product with its gate, on the hidden numbers."""
    if not gated:
        return _memory_passes(hidden_bytes, forward=[2], backward=[3])
    if compiled:  # activation and product are one kernel
        return _memory_passes(hidden_bytes, forward=[3], backward=[5])
    return _memory_passes(hidden_bytes, forward=[2, 3], backward=[3, 3, 3])


def end_operations(model: ModelShape, share: Share, software: Software) -> Passes:
    """Return the kernels of the embedding, the last norm, the output layer and the loss for one micro-batch."""
    tokens = share.sequences * model.sequence / share.context
    w, vocabulary = bytes_per_number(share.precision), model.vocabulary / share.tensor
    width_bytes = w * tokens * model.width
    table_bytes = w * vocabulary * model.width
    # The embedding copies rows of its table. The workers split the tokens of the last norm.
    passes = Passes([memory(2 * width_bytes), memory(2 * width_bytes / share.tensor)], [])
    if software.adapters is None:  # the embedding has a gradient
        passes.backward.append(memory(width_bytes + 2 * table_bytes, 2))
    passes.backward.append(memory(5 * width_bytes / share.tensor))
    head = TensorShape("head", (model.vocabulary, model.width), is_matrix=True)
    passes.add(_product_passes(head, tokens, share._replace(precision=_format_outside_products(share)), software))
    pass_bytes = software.loss_bytes * tokens * vocabulary / 2  # each pass moves half
    loss = elementwise(pass_bytes, kernels=1 if software.loss_bytes == FUSED_LOSS_BYTES else 3)
    passes.add(Passes([loss], [loss]))
    return passes


class MicroBatch(NamedTuple):
    """The computing seconds of one micro-batch in a transformer layer, and outside of the layers.

    Attributes:
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
def micro_batch_seconds(model: ModelShape, share: Share, software: Software, hardware: Hardware) -> MicroBatch:
    """Return the seconds of one micro-batch in a layer, and outside of the layers, on a GPU with known kernels."""
    attention = software.attention_on(hardware)

    def seconds(operations: list[Operation]) -> Seconds:
        return operations_s(operations, hardware, attention, eager=not software.compiled)

    layer = layer_operations(model, share, software)
    dense_layer = layer_operations(model, share, software, dense=True) if model.dense_layers else layer
    ends = end_operations(model, share, software)
    return MicroBatch(
        forward=seconds(layer.forward),
        backward=seconds(layer.backward),
        dense_forward=seconds(dense_layer.forward),
        dense_backward=seconds(dense_layer.backward),
        ends=seconds([*ends.forward, *ends.backward]),
    )


class Work(NamedTuple):
    """The computing work of one worker in a training step.

    Attributes:
        share: the worker's share of a micro-batch.
        micro_batches: M, number of micro-batches.
        stages: K, pipeline stages, over which layers and ends are spread evenly.
        updated: number of parameters that the worker updates.
        recomputed: numbers of recomputed layers with experts and of recomputed dense layers, over all stages. Without
            experts all layers count as the first kind.
        sharded: whether weights are gathered before their use.
        offloaded: numbers of layers of the same two kinds whose activations move to the host's memory and back.
        offload_s: seconds in which the activations of one layer move to the host, or back.
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
    """Return the computing seconds of a worker's training step by part; the parts sum to the step.

    The parts are ``layers``, ``recomputation``, ``ends`` (embedding, output layer, loss), ``copies`` (of sharded
    weights, and sums of gradients), ``update``, ``offloading`` (the device waits for activations to move to or from the
    host's memory) and ``launches`` (the device waits until the host has launched kernels of layers or ends).
    """
    times = micro_batch_seconds(model, work.share, software, hardware)
    layer_counts = model.layers - model.dense_layers, model.dense_layers
    forward = _seconds_of_layers(layer_counts, times.forward, times.dense_forward)
    backward = _seconds_of_layers(layer_counts, times.backward, times.dense_backward)
    recomputation = _seconds_of_layers(work.recomputed, times.forward, times.dense_forward)

    shard_bytes = SHARD_COPY_BYTES * work.micro_batches * work.parameters if work.sharded else 0.0
    # A sum of gradients reads two numbers and writes one.
    sum_bytes = 3 * bytes_per_number(work.share.precision) * (work.micro_batches - 1) * work.parameters
    copy_bytes = shard_bytes + sum_bytes
    copies = operations_s([memory(copy_bytes)] if copy_bytes else [], hardware)
    update = operations_s([memory(software.equivalent_update_bytes * work.updated)], hardware)

    # Each pass of a layer hides as many seconds of its move as the pass takes.
    passes_of_kinds = (times.forward, times.backward), (times.dense_forward, times.dense_backward)
    wait_s = 0.0
    for num_layers, passes in zip(work.offloaded, passes_of_kinds, strict=True):
        wait_s += num_layers * sum(max(0.0, work.offload_s - part.device_s) for part in passes)

    repetitions = work.micro_batches / work.stages  # the stages share layers and ends evenly
    device_s = {
        "layers": repetitions * (forward.device_s + backward.device_s),
        "recomputation": repetitions * recomputation.device_s,
        "ends": repetitions * times.ends.device_s,
        "copies": copies.device_s,
        "update": update.device_s,
        "offloading": repetitions * wait_s,
    }
    launch_s = repetitions * sum(part.launch_s for part in (forward, backward, recomputation, times.ends))
    return device_s | {"launches": max(0.0, launch_s - sum(device_s.values()))}


def _seconds_of_layers(counts: tuple[int, int], layer: Seconds, dense: Seconds) -> Seconds:
    """Return the seconds of all layers; ``counts`` are the numbers of layers with experts and of dense layers."""
    num_layers, num_dense = counts
    device_s = num_layers * layer.device_s + num_dense * dense.device_s
    return Seconds(device_s, num_layers * layer.launch_s + num_dense * dense.launch_s)
