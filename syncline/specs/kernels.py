"""Spec of the kernels that a training's software runs."""

from __future__ import annotations

from syncline.costmodel.compute.transformer_operations import AttentionKind, Software
from syncline.fields import Spec


class KernelsSpec(Spec):
    """The kernels of a training's software, for transformers on GPUs whose kernels are known.

    Args:
        attention: ``flash`` (FlashAttention-2), ``flash-1`` (the first version), ``cudnn``, or ``eager`` (products with
            softmax between them); by default the first one that is known for the GPU.
        compiled: whether a compiler or a library joins elementwise kernels.
        fused_loss: whether the loss is one kernel; by default as ``compiled``.
        fused_optimizer: whether the optimizer's update is one kernel; by default as ``compiled``.
        tensor_overlap: whether collectives of tensor parallelism overlap with the products beside them.
    """

    attention: AttentionKind | None = None
    compiled: bool = False
    fused_loss: bool | None = None
    fused_optimizer: bool | None = None
    tensor_overlap: bool = False

    def build(self) -> Software:
        """Return the kernels as the cost model's `Software`."""
        return Software(self.attention, self.compiled, self.fused_loss, self.fused_optimizer)
