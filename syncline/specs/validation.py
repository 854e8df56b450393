"""Specs of validations: what is predicted, and the measurements that it is held against."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf, PlainSerializer, model_validator

from syncline.costmodel.compute.transformer_time import STEP_TIMES, StepConstants
from syncline.costmodel.presets import preset
from syncline.fields import Spec, parsed, refusal
from syncline.specs.clock import BandwidthField
from syncline.specs.experiment import Experiment
from syncline.specs.memory import HardwareField


def _constants(value: Any, path: str) -> StepConstants:
    return value if isinstance(value, StepConstants) else preset(value, STEP_TIMES, path)


ConstantsField = Annotated[InstanceOf[StepConstants], parsed(_constants), PlainSerializer(lambda c: c.name)]
"""The name of constants that are known."""


class NodeSpec(Spec):
    """What joins nodes: ``devices`` in each, ``bandwidth`` of all network cards of a node together."""

    devices: int = Field(ge=1)
    bandwidth: BandwidthField


class StepTimesSpec(Experiment):
    """Measured step times of GPTs on GPUs against `syncline.costmodel.compute.transformer_time`.

    One part in ``folds`` of the points on single nodes calibrates, the rest is predicted: a point is in the part that
    a hash of its configuration says, so that no order and no choice is involved. ``constants`` that are known need no
    calibration; the same points are predicted with them. ``repeats`` random parts of the same size tell how much of
    the result is luck. Not fitted: ``hardware``'s measured all-reduces, which time sums of more bytes than were
    calibrated on, and ``node``, what travels between nodes.
    """

    kind: Literal["step-times"]
    data: str = Field(min_length=1)
    single_node: str = Field(min_length=1)
    multi_node: str | None = None
    hardware: HardwareField
    node: NodeSpec | None = None
    constants: ConstantsField | None = None
    folds: int = Field(default=5, ge=2, le=100)
    fold: int = Field(default=0, ge=0)
    repeats: int = Field(default=20, ge=0, le=1000)
    seed: int = Field(default=0, ge=0)

    def warnings(self) -> list[str]:
        """None."""
        return []

    @model_validator(mode="after")
    def _fits(self) -> StepTimesSpec:
        if self.fold >= self.folds:
            raise refusal("fold", self.fold, f"a number from 0 to {self.folds - 1}")
        if self.hardware.memory_bytes is None:
            raise refusal("hardware", self.hardware.name, "hardware whose memory is known, to tell what fits into it")
        return self


class ClustersSpec(Experiment):
    """Measurements on others' clusters against the constants that ship.

    Without ``measurements`` those that come with the package, and by how much predictions are off when constants are
    fitted without a group of them; ``left_out: false`` leaves these fits out.
    """

    kind: Literal["clusters"]
    measurements: tuple[str, ...] = ()
    left_out: bool = True

    def warnings(self) -> list[str]:
        """None."""
        return []


ValidationSpec = StepTimesSpec | ClustersSpec
"""What ``syncline validate`` takes beside trainings."""

VALIDATIONS: tuple[type[StepTimesSpec] | type[ClustersSpec], ...] = (StepTimesSpec, ClustersSpec)
"""All of them."""
