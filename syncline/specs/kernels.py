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
        expert_overlap: whether messages to experts overlap with the computing of another micro-batch.
        once_per_node: whether a library of messages to experts (DeepEP, HybridEP) sends a token once to each node.
    """

    attention: AttentionKind | None = None
    compiled: bool = False
    fused_loss: bool | None = None
    fused_optimizer: bool | None = None
    tensor_overlap: bool = False
    expert_overlap: bool = False
    once_per_node: bool = False

    @property
    def overlapped(self) -> tuple[str, ...]:
        """Return the dimensions of parallelism whose collectives overlap with computing."""
        chosen = {"tensor": self.tensor_overlap, "expert": self.expert_overlap}
        return tuple(name for name, overlaps in chosen.items() if overlaps)

    def build(self) -> Software:
        """Return the kernels as the cost model's `Software`."""
        return Software(
            self.attention, self.compiled, self.fused_loss, self.fused_optimizer, once_per_node=self.once_per_node
        )
