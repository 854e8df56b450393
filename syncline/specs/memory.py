"""What of a worker's memory is counted, and against which hardware."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, InstanceOf, PlainSerializer

from syncline.costmodel import Activations, Hardware, Precision, hardware, hardware_fields
from syncline.fields import Spec, parsed

HardwareField = Annotated[InstanceOf[Hardware], parsed(hardware), PlainSerializer(hardware_fields)]
"""A preset's name, a machine's fields, or a YAML file of them; written back as a name or as all fields."""


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
