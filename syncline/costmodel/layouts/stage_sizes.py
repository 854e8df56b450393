"""A model cut into the stages of a pipeline: FLOPs, parameters and activations of each stage.

Blocks are split into even runs. The embedding belongs to the first stage; the last norm and the output head belong to
the last stage, which is slower for this reason. With v chunks per stage there are K v runs, and stage k has the runs k,
K + k, 2 K + k, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.activations import Storage, layer_bytes
from syncline.costmodel.pipeline.closed_form import block_stages


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
    return _of_stages(flops, last=head / 3)


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
    return [int(count) for count in _of_stages(counts, first, last)]


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
    return _of_stages(blocks, first=parts.mask, last=parts.ends - parts.mask + max(parts.logits, parts.working))


def _of_stages(blocks: Sequence[float], first: float = 0, last: float = 0) -> list[float]:
    stages = list(blocks)
    stages[0] += first
    stages[-1] += last
    return stages
