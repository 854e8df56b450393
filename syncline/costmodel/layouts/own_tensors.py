"""What of a model one worker of a replica has, tensor by tensor; and what it keeps for the backward pass.

Of t workers that share matrices each has a t-th of the rows of what makes queries, keys, values, gates and hidden
numbers, of both tables of the vocabulary, and a t-th of the columns of what goes back to the width (its biases are
whole); norms, routers and latent attention's way down are whole. Of e workers that share experts each has an e-th of
them.

Source: M. Shoeybi et al., "Megatron-LM" (2019), section 3; D. Lepikhin et al., "GShard" (2020), section 2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.tensors import TensorShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import Activations, activation_bytes
from syncline.costmodel.layouts.stage_sizes import blocks_of_stages

BY_COLUMNS = ("out", "down")
"""Whose columns are shared out."""

WHOLE = ("router", "query_down", "key_value_down", "positions")
"""What every worker has, beside what has one dimension; biases are as the rows of their matrix."""


class OwnTensors(NamedTuple):
    """Of one worker.

    Attributes:
        tensors: in order.
        experts: which of them, ``(n,)``, are experts', which fewer workers have a copy of.
    """

    tensors: tuple[TensorShape, ...]
    experts: tuple[bool, ...]

    @property
    def elements(self) -> int:
        """Numbers."""
        return sum(one.elements for one in self.tensors)

    @property
    def expert_elements(self) -> int:
        """Those of experts."""
        return sum(one.elements for one, is_expert in zip(self.tensors, self.experts, strict=True) if is_expert)


def _cut(tensor: TensorShape, t: int) -> TensorShape:
    name = tensor.name.rpartition(".")[2]
    bias = name.endswith("_bias")
    of = name.removesuffix("_bias")
    if t == 1 or of in WHOLE or "norm" in of or (bias and of in BY_COLUMNS):
        return tensor
    rows, *columns = tensor.shape
    if of in BY_COLUMNS:
        return tensor._replace(shape=(rows, columns[0] // t))
    return tensor._replace(shape=(-(-rows // t), *columns))


@lru_cache(maxsize=512)
def own_tensors(model: ModelShape, layout: Layout) -> OwnTensors:
    """What a worker has of the stage that has most, of several the first."""
    return max(_of_stages(model, layout), key=lambda own: own.elements)


def _of_stages(model: ModelShape, layout: Layout) -> list[OwnTensors]:
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
    own = model.experts // e
    for block in range(model.layers):
        for tensor in model.layer_at(block):
            first, dot, _ = tensor.name.partition(".")
            is_expert = bool(dot) and first.startswith("expert_")
            if is_expert and int(first.removeprefix("expert_")) >= own:
                continue
            add(stage_of[block], tensor._replace(name=f"{block}.{tensor.name}"), is_expert)
    for tensor in ends:
        if tensor.name not in ("embedding", "positions"):
            add(k - 1, tensor)
    if model.tied and k > 1:
        add(k - 1, TensorShape("head", (model.vocabulary, model.width)))
    return [OwnTensors(tuple(tensors), tuple(experts)) for tensors, experts in stages]


def own_activation_bytes(
    model: ModelShape,
    layout: Layout,
    sequences: float,
    micro_batches: float,
    kept: Activations = "selective",
    bytes_per_number: int = 2,
) -> float:
    """Bytes that a worker keeps for the backward pass, at the stage that keeps most.

    All is shared out over tensor and context (sequence parallelism; ``s b h (34 + 5 a s / h) / t`` of a stored layer).
    The first stage has ``min(M, k)`` micro-batches under way at a time, with v chunks ``1 + (k - 1) / (k v)`` as many.

    Args:
        model: it.
        layout: of the replica.
        sequences: b, of a step, of the workers of one ``data``.
        micro_batches: M, in which they are computed.
        kept: see `activation_bytes`.
        bytes_per_number: 2 for bf16 and fp16.

    Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.2,
    equations 4 and 5.
    """
    b, k, v = sequences / micro_batches, layout.pipeline, layout.chunks
    tokens, w = b * model.sequence, bytes_per_number
    ends = tokens * (model.width + 4 * model.vocabulary) + 2 * w * tokens * model.width
    most = -(-model.layers // k)
    layers = (activation_bytes(model, b, kept, w) - ends) * _part(model, most, kept, w, b)
    first = min(micro_batches, k) * (1 + (k - 1) / (k * v) if v > 1 else 1.0) * layers
    shared = layout.tensor * layout.context
    if k == 1:
        return (layers + ends) / shared
    return max(first + tokens * model.width, layers + ends) / shared


def _part(model: ModelShape, layers: int, kept: Activations, w: int, b: float) -> float:
    """Of all layers' activations those of so many."""
    if kept != "recomputed":
        return layers / model.layers
    inputs = b * model.sequence * model.width * w
    tokens = b * model.sequence
    ends = tokens * (model.width + 4 * model.vocabulary) + 2 * w * tokens * model.width
    every = activation_bytes(model, b, kept, w) - ends
    return 1 - (model.layers - layers) * inputs / every
