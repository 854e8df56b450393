"""The part of a model on each pipeline stage, and the tensors of a model on one worker of a replica.

Blocks (layers) are split into even runs, or as a layout says. The embedding belongs to the first stage; the last norm
and the output head belong to the last stage. With v chunks per stage there are K v runs, and stage k has the runs k,
K + k, 2 K + k, and so on.

Each of the t workers that share matrices has 1/t of the rows of the matrices for queries, keys, values, gates and
hidden units, and of both tables of the vocabulary. It has 1/t of the columns of the matrices that project back to the
width, whose biases it keeps whole. Norms, routers and the down projections of latent attention are whole, too. Each of
the e workers that share experts has 1/e of the experts, with 1/f of their matrices.

Source: M. Shoeybi et al., "Megatron-LM" (2019), section 3; D. Lepikhin et al., "GShard" (2020), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.model_shape import LARGEST, Model, ModelShape
from syncline.costmodel.compute.tensors import Adapters, TensorShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import Storage, activation_parts
from syncline.costmodel.layouts.pipelines import block_stages

FIRST_STAGE = ("embedding", "positions")
"""Tensors outside of blocks that the first stage has; the last stage has the others."""

BY_COLUMNS = ("out", "down")
"""Matrices that are split by columns."""

WHOLE = ("router", "query_down", "key_value_down", "positions")
"""Tensors that every worker holds whole, besides norms; a bias is split as the rows of its matrix."""


def blocks_of_stages(model: ModelShape, stages: int, chunks: int = 1) -> list[list[int]]:
    """Return the indices of a model's blocks on each of K pipeline stages, after an even split into v chunks of each.

    Raises:
        SpecError: more chunks than blocks.

    >>> from syncline.costmodel import MODELS
    >>> blocks_of_stages(MODELS["gpt-160m"], 2, chunks=5)
    [[0, 1, 4, 6, 8, 10], [2, 3, 5, 7, 9, 11]]
    """
    return _blocks_of_chunks(block_stages(model.layers, stages * chunks), stages)


def _blocks_of_chunks(chunks: Sequence[range], stages: int) -> list[list[int]]:
    """Return the indices of each stage's blocks; the chunks, of consecutive blocks, are dealt to the stages in turn."""
    return [list(chain(*chunks[stage::stages])) for stage in range(stages)]


LayerKind = Literal["all", "experts", "dense"]
"""All layers, those with experts, or those without."""


class StageLayers(NamedTuple):
    """The layers of each pipeline stage, all of them or those to which a recomputation policy applies.

    Attributes:
        blocks: indices of the layers of each stage.
        dense_layers: number of the model's first layers that have no experts; the number of all its layers if none has.
    """

    blocks: tuple[tuple[int, ...], ...]
    dense_layers: int
    has_experts: bool

    def counts(self, kind: LayerKind = "all") -> NDArray[np.int64]:
        """Return the number of layers of a kind on each pipeline stage, ``(stages,)``."""
        num_layers = np.array([len(blocks) for blocks in self.blocks], dtype=np.int64)
        num_dense = np.array([sum(block < self.dense_layers for block in blocks) for blocks in self.blocks], np.int64)
        return {"all": num_layers, "dense": num_dense, "experts": num_layers - num_dense}[kind]

    @property
    def totals(self) -> tuple[int, int]:
        """Return the numbers of layers with experts and of dense layers; without experts, all layers and 0."""
        if not self.has_experts:
            return int(self.counts().sum()), 0
        return int(self.counts("experts").sum()), int(self.counts("dense").sum())


@lru_cache(maxsize=512)
def stage_layers(model: ModelShape, layout: Layout, limit: int = LARGEST) -> StageLayers:
    """Return the layers of each pipeline stage of a layout, or only the first layers of each chunk.

    Args:
        limit: number of first layers of each chunk, such as those to which a recomputation policy applies.
    """
    chunks = []
    first = 0
    for num_layers in layout.layers_of_chunks(model.layers):
        chunks.append(range(first, first + min(num_layers, limit)))
        first += num_layers
    blocks = tuple(tuple(blocks) for blocks in _blocks_of_chunks(chunks, layout.pipeline))
    has_experts = model.experts > 1
    return StageLayers(blocks, model.dense_layers if has_experts else model.layers, has_experts)


def stage_flops(
    model: ModelShape, stages: int, chunks: int = 1, blocks_by_stage: Sequence[Sequence[int]] | None = None
) -> list[float]:
    """Return the forward FLOPs per token of each stage, ``(stages,)``: in all, a third of `ModelShape.flops_per_token`.

    Args:
        blocks_by_stage: indices of the blocks of each stage; None: an even split, see `blocks_of_stages`.
    """
    if blocks_by_stage is None:
        blocks_by_stage = blocks_of_stages(model, stages, chunks)
    block_flops, dense_block_flops = model.block_flops(), model.block_flops(dense=True)  # a third is forward
    forward_flops = []
    for blocks in blocks_by_stage:
        num_dense = sum(block < model.dense_layers for block in blocks)
        forward_flops.append(((len(blocks) - num_dense) * block_flops + num_dense * dense_block_flops) / 3)
    forward_flops[-1] += 2 * model.vocabulary * model.width  # the output head
    return forward_flops


def stage_parameters(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """Return the parameters of each stage, ``(stages,)``; the first and the last stage each hold a tied head."""
    block_parameters = [0] * model.layers
    first_extra = last_extra = 0  # parameters outside of blocks
    for tensor in model.tensors:
        block, dot, _ = tensor.name.partition(".")  # "3.up" is a tensor of block 3
        if dot:
            block_parameters[int(block)] += tensor.elements
        elif tensor.name in FIRST_STAGE:
            first_extra += tensor.elements
        else:
            last_extra += tensor.elements
    if model.tied and stages > 1:
        last_extra += model.vocabulary * model.width
    counts = [sum(block_parameters[block] for block in blocks) for blocks in blocks_of_stages(model, stages, chunks)]
    counts[0] += first_extra
    counts[-1] += last_extra
    return counts


def stage_activation_bytes(
    model: ModelShape, stages: int, tokens: int, chunks: int = 1, bytes_per_number: int = 2
) -> list[float]:
    """Return the bytes of activations that each stage keeps of one micro-batch for its backward pass, ``(stages,)``.

    The policy is ``selective`` of `activation_parts`, which keeps no attention scores. The last stage also needs room
    for the larger of the logits and the bytes that a layer adds during its backward pass.

    Args:
        bytes_per_number: 2 for bf16 and fp16, 4 for fp32.
    """
    parts = activation_parts(model, tokens / model.sequence, "selective", Storage(bytes_per_number))
    stage_bytes = [len(blocks) * parts.layers / model.layers for blocks in blocks_of_stages(model, stages, chunks)]
    stage_bytes[0] += parts.embedding_mask
    stage_bytes[-1] += parts.ends - parts.embedding_mask + max(parts.logits, parts.layer_backward)
    return stage_bytes


@dataclass(frozen=True, eq=False)
class WorkerTensors:
    """The tensors of one worker of a replica, some of which belong to experts.

    Two objects are equal only if they are identical, so that caches need not hash all tensors.

    Args:
        tensors: n tensors in order.
        experts: mask over the tensors, ``(n,)``, that selects those of experts.
        frozen: number of further parameters, which do not train.
    """

    tensors: tuple[TensorShape, ...]
    experts: tuple[bool, ...]
    frozen: int = 0

    @cached_property
    def elements(self) -> int:
        """Return the number of elements of all tensors of the worker."""
        return sum(tensor.elements for tensor in self.tensors)

    def with_adapters(self, adapters: Adapters) -> WorkerTensors:
        """Return the low-rank adapters that a worker trains beside these tensors, which are then frozen."""
        trained: list[TensorShape] = []
        are_experts: list[bool] = []
        for tensor, is_expert in zip(self.tensors, self.experts, strict=True):
            adapter_tensors = adapters.trained_tensors([tensor])
            trained += adapter_tensors
            are_experts += [is_expert] * len(adapter_tensors)
        return WorkerTensors(tuple(trained), tuple(are_experts), frozen=self.elements)


def _shard(tensor: TensorShape, sharers: int) -> TensorShape:
    """Return a worker's shard of a tensor that several workers share, or the whole tensor if it is not split."""
    if sharers == 1:
        return tensor
    _, _, name = tensor.name.rpartition(".")  # without the block and the expert
    matrix = name.removesuffix("_bias")
    if matrix in WHOLE or "norm" in matrix:
        return tensor
    if matrix in BY_COLUMNS:
        if name.endswith("_bias"):  # a bias has the rows of its matrix, which are not split here
            return tensor
        rows, columns = tensor.shape
        return tensor._replace(shape=(rows, columns // sharers))
    rows, *other_sides = tensor.shape
    return tensor._replace(shape=(math.ceil(rows / sharers), *other_sides))


def worker_tensors(model: Model, layout: Layout) -> WorkerTensors:
    """Return the tensors of a worker in the pipeline stage with the most elements."""
    if layout.workers > 1:
        model = layout.check(model)
    # Context, data and copies change no tensor; with fixed values more layouts share a cached result. Experts are
    # spread over data-parallel workers, so `data` must be at least `expert`.
    layout_of_tensors = replace(layout, context=1, data=layout.expert, copies=1, context_by="gathers")
    return _largest_stage(model, layout_of_tensors)


@lru_cache(maxsize=512)
def _largest_stage(model: Model, layout: Layout) -> WorkerTensors:
    """Return the tensors of a worker in the pipeline stage with the most elements."""
    if not isinstance(model, ModelShape):  # a user's module, which no layout divides
        return WorkerTensors(tuple(model.tensors), (False,) * len(model.tensors))
    return max(_stage_tensors(model, layout), key=attrgetter("elements"))


def _stage_tensors(model: ModelShape, layout: Layout) -> list[WorkerTensors]:
    """Return the tensors of the first worker of each pipeline stage, ``(stages,)``, which has the first experts."""
    stages = layout.pipeline
    shards: list[list[TensorShape]] = [[] for _ in range(stages)]
    are_experts: list[list[bool]] = [[] for _ in range(stages)]

    def add(stage: int, tensor: TensorShape, is_expert: bool = False) -> None:
        """Give a stage the first worker's shard of a tensor."""
        shards[stage].append(_shard(tensor, layout.expert_tensor_workers if is_expert else layout.tensor))
        are_experts[stage].append(is_expert)

    outside_blocks = [tensor for tensor in model.tensors if "." not in tensor.name]
    for tensor in outside_blocks:
        if tensor.name in FIRST_STAGE:
            add(stage=0, tensor=tensor)
    experts_per_worker = model.experts // layout.expert
    for stage, blocks in enumerate(stage_layers(model, layout).blocks):
        for block in blocks:
            for tensor in model.layer_at(block):
                part, dot, _ = tensor.name.partition(".")
                is_expert = bool(dot) and part.startswith("expert_")
                if is_expert and int(part.removeprefix("expert_")) >= experts_per_worker:
                    continue  # another worker has this expert
                add(stage, tensor._replace(name=f"{block}.{tensor.name}"), is_expert)
    for tensor in outside_blocks:  # after the blocks, in the model's order
        if tensor.name not in FIRST_STAGE:
            add(stages - 1, tensor)
    if model.tied and stages > 1:  # the last stage needs a copy of the embedding
        add(stages - 1, TensorShape("head", (model.vocabulary, model.width)))
    return [WorkerTensors(tuple(tensors), tuple(mask)) for tensors, mask in zip(shards, are_experts, strict=True)]
