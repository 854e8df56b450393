"""A model cut into the stages of a pipeline: FLOPs, parameters and activations of each stage.

Blocks are split into even runs. The embedding belongs to the first stage; the last norm and the output head belong to
the last stage, which is slower for this reason. With v chunks per stage there are K v runs, and stage k has the runs k,
K + k, 2 K + k, and so on.

The shard of a model on one worker of a replica, tensor by tensor.

Each of the t workers that share matrices has 1/t of the rows of the matrices that make queries, keys, values, gates and
hidden numbers, and of both tables of the vocabulary. It has 1/t of the columns of the matrices that project back to the
width, whose biases it keeps whole. Norms, routers and the down projections of latent attention are whole, too. Each of
the e workers that share experts has 1/e of the experts.

Source: M. Shoeybi et al., "Megatron-LM" (2019), section 3; D. Lepikhin et al., "GShard" (2020), section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from syncline.costmodel.compute.model_shape import Model, ModelShape
from syncline.costmodel.compute.tensors import TensorShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import Storage, layer_bytes
from syncline.costmodel.layouts.pipelines import block_stages


def stage_blocks(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """Return the number of blocks of each stage, ``(K,)``.

    Raises:
        SpecError: more runs than blocks.

    >>> from syncline.costmodel import MODELS
    >>> stage_blocks(MODELS["gpt-160m"], 5), stage_blocks(MODELS["gpt-160m"], 2, chunks=5)
    ([3, 3, 2, 2, 2], [6, 6])
    """
    return [len(blocks) for blocks in blocks_of_stages(model, stages, chunks)]


def blocks_of_stages(model: ModelShape, stages: int, chunks: int = 1) -> list[list[int]]:
    """Return the indices of the blocks of each stage.

    Raises:
        SpecError: more runs than blocks.
    """
    runs = block_stages(model.layers, stages * chunks)
    return [[block for run in runs[stage::stages] for block in run] for stage in range(stages)]


def stage_flops(model: ModelShape, stages: int, chunks: int = 1) -> list[float]:
    """Return the forward FLOPs per token of each stage, ``(K,)``; they sum to `ModelShape.flops_per_token` / 3."""
    head = 6 * model.vocabulary * model.width
    block, dense = model.block_flops(), model.block_flops(dense=True)
    flops = []
    for blocks in blocks_of_stages(model, stages, chunks):
        first = sum(number < model.dense_layers for number in blocks)
        flops.append(((len(blocks) - first) * block + first * dense) / 3)
    return _with_ends(flops, last=head / 3)


def stage_parameters(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """Return the parameters of each stage, ``(K,)``; the first and the last stage each hold a copy of a tied head."""
    block_parameters, first, last = [0] * model.layers, 0, 0
    for tensor in model.tensors:
        number, dot, _ = tensor.name.partition(".")
        if dot:
            block_parameters[int(number)] += tensor.elements
        elif number in ("embedding", "positions"):
            first += tensor.elements
        else:
            last += tensor.elements
    if model.tied and stages > 1:
        last += model.vocabulary * model.width
    counts = [sum(block_parameters[block] for block in blocks) for blocks in blocks_of_stages(model, stages, chunks)]
    return [int(count) for count in _with_ends(counts, first, last)]


def stage_activation_bytes(
    model: ModelShape, stages: int, tokens: int, chunks: int = 1, bytes_per_number: int = 2
) -> list[float]:
    """Return the bytes of activations that each stage keeps of one micro-batch for its backward pass, ``(K,)``.

    `layer_bytes` counts them under ``selective``, without attention scores, as fused kernels do. The last stage keeps
    the logits, or what a layer adds in its backward pass if that is more.

    Args:
        model: shape of the model.
        stages: K.
        tokens: tokens of a micro-batch.
        chunks: v, chunks per stage.
        bytes_per_number: 2 for bf16 and fp16, 4 for fp32.
    """
    parts = layer_bytes(model, tokens / model.sequence, "selective", Storage(bytes_per_number))
    counts = stage_blocks(model, stages, chunks)
    blocks = [count * parts.layers / model.layers for count in counts]
    return _with_ends(blocks, first=parts.mask, last=parts.ends - parts.mask + max(parts.logits, parts.working))


def _with_ends(blocks: Sequence[float], first: float = 0, last: float = 0) -> list[float]:
    stages = list(blocks)
    stages[0] += first
    stages[-1] += last
    return stages


BY_COLUMNS = ("out", "down")
"""Matrices that are split by columns."""

WHOLE = ("router", "query_down", "key_value_down", "positions")
"""Tensors that every worker holds whole, besides norms; a bias is split as the rows of its matrix."""


class WorkerTensors(NamedTuple):
    """The tensors of one worker, with a mask that selects the experts' tensors.

    Attributes:
        tensors: n tensors in order.
        experts: mask over the tensors, ``(n,)``, that selects the experts' tensors; fewer workers hold a copy of them.
    """

    tensors: tuple[TensorShape, ...]
    experts: tuple[bool, ...]

    @property
    def elements(self) -> int:
        """Return the number of elements of all tensors."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def expert_elements(self) -> int:
        """Return the number of elements of the experts' tensors."""
        return sum(tensor.elements for tensor, is_expert in zip(self.tensors, self.experts, strict=True) if is_expert)


def _cut(tensor: TensorShape, t: int) -> TensorShape:
    name = tensor.name.rpartition(".")[2]
    bias = name.endswith("_bias")
    matrix = name.removesuffix("_bias")
    if t == 1 or matrix in WHOLE or "norm" in matrix or (bias and matrix in BY_COLUMNS):
        return tensor
    rows, *columns = tensor.shape
    if matrix in BY_COLUMNS:
        return tensor._replace(shape=(rows, columns[0] // t))
    return tensor._replace(shape=(-(-rows // t), *columns))


@lru_cache(maxsize=512)
def worker_tensors(model: Model, layout: Layout) -> WorkerTensors:
    """Return the tensors of a worker in the stage with the most elements, or in the first of several such stages.

    Raises:
        SpecError: the model cannot have this layout.
    """
    if layout.workers > 1:
        model = layout.check(model)
    if not isinstance(model, ModelShape) or layout.tensor * layout.pipeline * layout.expert == 1:
        tensors, with_experts = tuple(model.tensors), isinstance(model, ModelShape) and model.experts > 1
        experts = (with_experts and tensor.name.partition(".")[2].startswith("expert_") for tensor in tensors)
        return WorkerTensors(tensors, tuple(experts))
    return max(_of_stages(model, layout), key=lambda stage_tensors: stage_tensors.elements)


def _of_stages(model: ModelShape, layout: Layout) -> list[WorkerTensors]:
    k, t, e = layout.pipeline, layout.tensor, layout.expert
    stages: list[tuple[list[TensorShape], list[bool]]] = [([], []) for _ in range(k)]

    def add(stage: int, tensor: TensorShape, expert: bool = False) -> None:
        stages[stage][0].append(_cut(tensor, t))
        stages[stage][1].append(expert)

    ends = [tensor for tensor in model.tensors if "." not in tensor.name]
    for tensor in ends:
        if tensor.name in ("embedding", "positions"):
            add(0, tensor)
    stage_of = {b: stage for stage, blocks in enumerate(blocks_of_stages(model, k, layout.chunks)) for b in blocks}
    experts_per_worker = model.experts // e
    for block in range(model.layers):
        for tensor in model.layer_at(block):
            first, dot, _ = tensor.name.partition(".")
            is_expert = bool(dot) and first.startswith("expert_")
            if is_expert and int(first.removeprefix("expert_")) >= experts_per_worker:
                continue
            add(stage_of[block], tensor._replace(name=f"{block}.{tensor.name}"), is_expert)
    for tensor in ends:
        if tensor.name not in ("embedding", "positions"):
            add(k - 1, tensor)
    if model.tied and k > 1:
        add(k - 1, TensorShape("head", (model.vocabulary, model.width)))
    return [WorkerTensors(tuple(tensors), tuple(experts)) for tensors, experts in stages]
