"""Measured times of collectives among the GPUs of a node, which a link inside a node may carry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeTimes:
    """NCCL's measured all-reduces among the GPUs of a node, see `syncline.costmodel.collectives.nccl.nvlink`.

    Args:
        gpu: GPU of the node, ``a100`` or ``v100``.
        factor: factor of the measured times; 1 unless the network is slowed down.
    """

    gpu: str
    factor: float = 1.0
