"""What of a worker's memory is counted, and against which hardware."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from syncline.costmodel import Activations, Precision
from syncline.costmodel.traffic.sharded import Sharding
from syncline.fields import Spec
from syncline.specs.cluster.spec_fields import HardwareField


class MemorySpec(Spec):
    """How a worker's memory is counted, and what is done where it is too small.

    ``precision``: ``fp32``, or ``mixed`` (16-bit weights and gradients, fp32 copies and states); if there is none, what
    gradients are computed in says it. ``activations`` of transformers: ``stored``, ``selective``, ``recomputed``, or
    none (they are not counted). ``micro_batches``: in so many a step is computed; if there is none, in as few as fit.
    ``sharding`` of data parallelism: ``none``, ``optimizer``, ``gradients``, ``full`` (ZeRO's stages); ``auto``: as
    little as fits. ``hardware``: whose memory it has to fit into; none: that of ``compute``.
    """

    precision: Precision | None = None
    activations: Activations | None = "selective"
    micro_batches: int | None = Field(default=None, ge=1)
    sharding: Literal["auto"] | Sharding = "auto"
    hardware: HardwareField | None = None

    def counted_in(self, number_format: str) -> Precision:
        """How weights, gradients and states are kept where gradients are computed in this format."""
        return self.precision or ("fp32" if number_format == "fp32" else "mixed")
