"""A model's shape cut into the stages of a pipeline: what each computes, holds and averages.

Blocks are cut into even runs. The embedding is the first stage's, the last norm and the output head are the last
stage's, which is why the last one is slower. With v chunks per stage there are K v runs, and stage k has the runs k,
K + k, 2 K + k, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.compute.memory import activation_bytes
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.pipeline.closed_form import block_stages


def stage_blocks(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """How many blocks each stage has, ``(K,)``.

    Raises:
        SpecError: more runs than blocks.

    >>> from syncline.costmodel import MODELS
    >>> stage_blocks(MODELS["gpt-160m"], 5), stage_blocks(MODELS["gpt-160m"], 2, chunks=5)
    ([3, 3, 2, 2, 2], [6, 6])
    """
    runs = [len(run) for run in block_stages(model.layers, stages * chunks)]
    return [sum(runs[stage::stages]) for stage in range(stages)]


def stage_flops(model: ModelShape, stages: int, chunks: int = 1) -> list[float]:
    """FLOPs of the forward pass per token, ``(K,)``: a third of `ModelShape.flops_per_token`, where the work is."""
    head = 6 * model.vocabulary * model.width
    block = (model.flops_per_token - head) / model.layers
    return _of_stages([count * block / 3 for count in stage_blocks(model, stages, chunks)], last=head / 3)


def stage_parameters(model: ModelShape, stages: int, chunks: int = 1) -> list[int]:
    """Parameters of each stage, ``(K,)``; where the head is the embedding, the first and the last each have it."""
    names = [(tensor.name.partition("."), tensor.elements) for tensor in model.tensors]
    in_blocks = sum(elements for (_, dot, _), elements in names if dot)
    first = sum(elements for (name, dot, _), elements in names if not dot and name in ("embedding", "positions"))
    last = sum(elements for (name, dot, _), elements in names if not dot) - first
    if model.tied and stages > 1:
        last += model.vocabulary * model.width
    counts = [count * (in_blocks // model.layers) for count in stage_blocks(model, stages, chunks)]
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
