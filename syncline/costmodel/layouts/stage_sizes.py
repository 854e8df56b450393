"""A model's shape cut into the stages of a pipeline: what each computes, holds and averages.

Blocks are cut into even runs. The embedding is the first stage's, the last norm and the output head are the last
stage's, which is why the last one is slower. With v chunks per stage there are K v runs, and stage k has the runs k,
K + k, 2 K + k, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.memory import activation_bytes
from syncline.costmodel.pipeline.closed_form import block_stages


def stage_blocks(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """How many blocks each stage has, ``(K,)``.

    Raises:
        SpecError: more runs than blocks.

    >>> from syncline.costmodel import MODELS
    >>> stage_blocks(MODELS["gpt-160m"], 5), stage_blocks(MODELS["gpt-160m"], 2, chunks=5)
    ([3, 3, 2, 2, 2], [6, 6])
    """
    return [len(blocks) for blocks in blocks_of_stages(model, stages, chunks)]


def blocks_of_stages(model: ModelShape, stages: int, chunks: int = 1) -> list[list[int]]:
    """Which blocks each stage has.

    Raises:
        SpecError: more runs than blocks.
    """
    runs = block_stages(model.layers, stages * chunks)
    return [[block for run in runs[stage::stages] for block in run] for stage in range(stages)]


def stage_flops(model: ModelShape, stages: int, chunks: int = 1) -> list[float]:
    """FLOPs of the forward pass per token, ``(K,)``: a third of `ModelShape.flops_per_token`, where the work is."""
    head = 6 * model.vocabulary * model.width
    block, dense = model.block_flops(), model.block_flops(dense=True)
    of = []
    for blocks in blocks_of_stages(model, stages, chunks):
        first = sum(one < model.dense_layers for one in blocks)
        of.append(((len(blocks) - first) * block + first * dense) / 3)
    return _of_stages(of, last=head / 3)


def stage_parameters(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """Parameters of each stage, ``(K,)``; where the head is the embedding, the first and the last each have it."""
    of_block, first, last = [0] * model.layers, 0, 0
    for tensor in model.tensors:
        number, dot, _ = tensor.name.partition(".")
        if dot:
            of_block[int(number)] += tensor.elements
        elif number in ("embedding", "positions"):
            first += tensor.elements
        else:
            last += tensor.elements
    if model.tied and stages > 1:
        last += model.vocabulary * model.width
    counts = [sum(of_block[block] for block in blocks) for blocks in blocks_of_stages(model, stages, chunks)]
    return [int(count) for count in _of_stages(counts, first, last)]


def stage_activation_bytes(
    model: ModelShape, stages: int, tokens: int, chunks: int = 1, bytes_per_number: int = 2
) -> list[float]:
    """Bytes that each stage keeps of one micro-batch for its backward pass, ``(K,)``.

    As `activation_bytes` counts them where attention's scores are not stored (fused kernels, ``selective``).

    Args:
        model: the shape.
        stages: K.
        tokens: of a micro-batch.
        chunks: v.
        bytes_per_number: 2 for bf16 and fp16, 4 for fp32.
    """
    sequences, width = tokens / model.sequence, bytes_per_number
    whole = activation_bytes(model, sequences, "selective", width)
    mask = tokens * model.width  # of the dropout behind the embedding
    ends = tokens * (model.width + 4 * model.vocabulary) + 2 * width * tokens * model.width
    counts = stage_blocks(model, stages, chunks)
    blocks = [count * (whole - ends) / model.layers for count in counts]
    return _of_stages(blocks, first=mask, last=ends - mask)


def _of_stages(blocks: Sequence[float], first: float = 0, last: float = 0) -> list[float]:
    out = list(blocks)
    out[0] += first
    out[-1] += last
    return out
