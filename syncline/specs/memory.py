"""What of a worker's memory is counted, and against which hardware."""

from __future__ import annotations

from pydantic import Field

from syncline.costmodel import Activations, Precision
from syncline.fields import Spec
from syncline.specs.cluster.spec_fields import HardwareField


class MemorySpec(Spec):
    """How a worker's memory is counted.

    ``precision``: ``fp32``, or ``mixed`` (16-bit weights and gradients, fp32 copies and states). ``activations``:
    none (they are not counted), ``stored``, ``selective`` or ``recomputed``, of a step that is computed in so many
    ``micro_batches``. ``hardware``: whose memory it has to fit into; none: that of ``compute``.
    """

    precision: Precision = "fp32"
    activations: Activations | None = None
    micro_batches: int = Field(default=1, ge=1)
    hardware: HardwareField | None = None
