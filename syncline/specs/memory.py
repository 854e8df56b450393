"""Spec of a worker's memory: the parts that are counted, and the hardware that limits it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from syncline.costmodel import Activations, Precision
from syncline.costmodel.traffic.sharded import Sharding, WeightMessages
from syncline.fields import Spec
from syncline.specs.cluster.spec_fields import HardwareField


class MemorySpec(Spec):
    """The memory of a worker: how it is counted, and what a projection changes if it does not fit.

    ``precision``: ``fp32``, or ``mixed`` (16-bit weights, fp32 copies, gradients and states); by default the number
    format of gradients decides. ``activations`` of transformers: ``stored``, ``selective``, ``recomputed``, null (not
    counted), or ``auto`` (``selective``, and ``recomputed`` where nothing fits otherwise). ``micro_batches``: number of
    micro-batches of a step; by default the smallest number that fits. ``sharding`` of data parallelism: ``none``,
    ``optimizer``, ``gradients``, ``full`` (ZeRO's stages), or ``auto`` (the least sharding that fits).
    ``weights``: with ``optimizer`` and ``gradients``, how updated weights reach the other workers: ``prefetched``
    (gathered layer by layer before their use), or after the update by ``gathers``, or with ``optimizer`` by
    ``broadcasts`` of each worker's tensors. ``gradients``: format in which gradients accumulate, ``fp32`` or ``bf16``.
    ``hardware``: machine whose memory is the limit; by default that of ``compute``.
    """

    precision: Precision | None = None
    activations: Literal["auto"] | Activations | None = "auto"
    micro_batches: int | None = Field(default=None, ge=1)
    sharding: Literal["auto"] | Sharding = "auto"
    weights: WeightMessages = "prefetched"
    gradients: Literal["fp32", "bf16"] = "fp32"
    hardware: HardwareField | None = None

    @property
    def policies(self) -> tuple[Activations | None, ...]:
        """Return the policies for activations to try in order, until a step fits."""
        return ("selective", "recomputed") if self.activations == "auto" else (self.activations,)

    def memory_precision(self, number_format: str) -> Precision:
        """Return the precision of weights, gradients and states for this number format of gradients."""
        return self.precision or ("fp32" if number_format == "fp32" else "mixed")
