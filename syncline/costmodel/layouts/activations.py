"""Activations that a transformer keeps for its backward pass, by layer, by policy, and by stage of a pipeline.

The model has width h, a heads, L layers, hidden width f (with experts: of the k experts of a token together), g = 2
with a gate and else 1, and vocabulary V. A batch has b sequences of s tokens, and a number takes w bytes. In bytes:

| part | bytes |
|---|---|
| ``light``, a layer without attention scores | ``s b (8 w h + 2 w g f + 2 h)`` |
| ``scores`` of a layer | ``(2 w + 1) a s^2 b`` |
| ``inputs`` of a layer | ``w s b h`` |
| ``gradients`` of one layer in its backward pass | ``w s b (h + g f)`` |
| ``ends``: the embedding's dropout mask, the inputs of the last norm and of the head | ``s b h (1 + 2 w)`` |
| ``logits`` of the loss | ``4 s b V`` |

If queries, keys or values are not h wide, their own widths replace h in their terms of the 8. `Storage` describes
software that keeps less: fused kernels (`torch.compile`, Transformer Engine) have no dropout masks, and keep of a gate
its input and the product alone, ``w g f + w f`` instead of ``2 w g f``. With products in 8 bits, Transformer Engine
keeps the inputs of the matrices in 8 bits: of norms and of the hidden layer in place of the 16-bit numbers, and of
attention's output beside them. A policy keeps:

    stored      L (light + scores) + ends + max(logits, gradients)
    selective   L light            + ends + max(logits, gradients)           scores are recomputed, or never stored
    recomputed  L inputs           + ends + max(logits, light + gradients)   the inputs of all layers, one layer at once

The head's logits are free again before the first layer's backward pass, so that only the larger of both counts. Fused
attention (FlashAttention) stores no scores, recomputed or not. With w = 2 and f = 4 h a stored layer is ``s b h (34 + 5
a s / h)``. Light layers count two norms, and two dropout masks of a byte each; fused kernels keep less.

The logits are 16-bit numbers with their gradient, or fp32 numbers that their gradient replaces, as in Megatron-LM's and
FlashAttention's fused losses. PyTorch's own loss under autocast keeps ``12 s b V`` (`EAGER_LOGIT_BYTES`): the logits in
16 bits and in fp32, their logarithms, and gradients.

Transformer Engine: NVIDIA/TransformerEngine, ``module/layernorm_linear.py`` and ``module/layernorm_mlp.py``, tensors
saved for the backward pass.

Sources: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4,
equations 1, 4 and 5 and Table 2, generalised to any w and f by separating its 16-bit numbers from its masks; T. Dao et
al., "FlashAttention" (2022), section 3.1; T. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016),
section 4.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.layout import Layout
from syncline.errors import SpecError, one_of

Activations = Literal["stored", "selective", "recomputed"]

POLICIES: tuple[Activations, ...] = ("stored", "selective", "recomputed")

RECOMPUTED = 4 / 3
"""Factor on the work of a step that recomputes every layer for its backward pass: one more forward pass."""

LOGIT_BYTES = 4
"""Bytes of a logit and its gradient at the peak of a fused loss."""

EAGER_LOGIT_BYTES = 12
"""Bytes of a logit, its copies and its gradient at the peak of PyTorch's own loss under autocast."""


class Storage(NamedTuple):
    """The way in which software stores activations.

    Attributes:
        bytes_per_number: w, 2 for bf16 and fp16, 4 for fp32.
        operand_bytes: bytes of a number of a matrix's input; None: w. Products in 8 bits: 1.
        fused: whether kernels are fused.
        logit_bytes: bytes of a logit at the peak of the loss.
    """

    bytes_per_number: int = 2
    operand_bytes: int | None = None
    fused: bool = False
    logit_bytes: int = LOGIT_BYTES


PLAIN = Storage()
"""16-bit numbers, as PyTorch without fused kernels stores them, and a fused loss."""


class LayerBytes(NamedTuple):
    """Bytes of activations of a transformer, by part; see the head of the module.

    Attributes:
        layers: bytes that all layers keep.
        working: bytes that one layer adds during its backward pass.
        ends: bytes beside the layers that are kept from the forward to the backward pass.
        logits: bytes of the loss.
        mask: bytes of ``ends`` that the first stage of a pipeline keeps.
    """

    layers: float
    working: float
    ends: float
    logits: float
    mask: float

    @property
    def total(self) -> float:
        """Return the bytes at the peak of a step."""
        return self.layers + self.ends + max(self.logits, self.working)


def layer_bytes(
    shape: ModelShape,
    sequences: float,
    policy: Activations = "stored",
    storage: Storage = PLAIN,
) -> LayerBytes:
    """Return the bytes of activations of a transformer, by part.

    Args:
        shape: shape of the model.
        sequences: b, sequences whose activations are kept at once: those of one micro-batch.
        policy: ``stored``, ``selective`` or ``recomputed``.
        storage: how the software stores them.

    Raises:
        SpecError: an unknown ``policy``.
    """
    if policy not in POLICIES:
        raise SpecError("memory.activations", policy, one_of(POLICIES, policy))
    w, tokens, gate = storage.bytes_per_number, shape.sequence * sequences, 2 if shape.gated else 1
    operand = w if storage.operand_bytes is None else storage.operand_bytes
    inputs, mask = tokens * shape.width * w, 0 if storage.fused else tokens * shape.width
    attention = 2 * (shape.query_width + shape.key_width)  # queries and weighted sums, keys and values
    active_width = shape.expert_width * (shape.experts_per_token + shape.shared_experts)
    hidden = gate * (active_width if shape.experts > 1 else shape.hidden_width)
    per_hidden = w + operand / gate if storage.fused else w + operand  # the input of the activation, and its result
    queries = shape.query_width * operand if operand < w else 0  # attention's backward pass needs its output in w bytes
    light = 2 * inputs + tokens * (2 * operand * shape.width + w * attention + queries + per_hidden * hidden) + 2 * mask
    # The first layers have a dense MLP instead of experts; this is the difference in bytes.
    dense_extra = shape.dense_layers * tokens * per_hidden * (gate * shape.hidden_width - hidden)
    scores = (2 * w + 1) * shape.heads * shape.sequence * tokens if policy == "stored" else 0.0
    gradients = inputs + tokens * w * hidden
    ends = mask + 2 * inputs, storage.logit_bytes * tokens * shape.vocabulary, mask
    if policy == "recomputed":
        return LayerBytes(shape.layers * inputs, light + gradients, *ends)
    return LayerBytes(shape.layers * (light + scores) + dense_extra, gradients, *ends)


def activation_bytes(
    shape: ModelShape, sequences: float, policy: Activations = "stored", storage: Storage = PLAIN
) -> float:
    """Return an estimate of the bytes of activations at the peak of a step; arguments as of `layer_bytes`."""
    return layer_bytes(shape, sequences, policy, storage).total


def worker_activation_bytes(
    model: ModelShape,
    layout: Layout,
    sequences: float,
    micro_batches: float,
    policy: Activations = "selective",
    storage: Storage = PLAIN,
) -> float:
    """Return the bytes of activations that a worker keeps for the backward pass, at the stage that keeps most.

    Tensor and context parallelism split all activations (with sequence parallelism, a stored layer keeps
    ``s b h (34 + 5 a s / h) / t``). The first stage has ``min(M, k)`` micro-batches in flight; v chunks multiply their
    number by ``1 + (k - 1) / (k v)``. One layer at a time is in its backward pass.

    Args:
        model: shape of the model.
        layout: layout of the replica.
        sequences: b, sequences of a step on the workers of one data-parallel rank.
        micro_batches: M, number of micro-batches of these sequences.
        policy: see the head of the module.
        storage: how the software stores activations.
    """
    k, v = layout.pipeline, layout.chunks
    parts = layer_bytes(model, sequences / micro_batches, policy, storage)
    split = layout.tensor * layout.context
    if k == 1:
        return parts.total / split
    stage = parts.layers * -(-model.layers // k) / model.layers
    in_flight = min(micro_batches, k) * (1 + (k - 1) / (k * v) if v > 1 else 1.0)
    last_stage = stage + parts.ends - parts.mask + max(parts.logits, parts.working)
    return max(in_flight * (stage + parts.mask) + parts.working, last_stage) / split
