"""Specs of validations, which compare predictions with measurements."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, model_validator

from syncline.costmodel.layouts.transformer_time import STEP_TIMES, StepConstants
from syncline.errors import named
from syncline.fields import INSTANCE, Spec, parsed, refusal
from syncline.specs.clock import BandwidthField
from syncline.specs.cluster.clusters import HardwareField, NetworkField
from syncline.specs.experiment import Experiment

ConstantsField = Annotated[
    StepConstants, INSTANCE,
    parsed(lambda value, path: value if isinstance(value, StepConstants) else named(value, STEP_TIMES, path)),
    PlainSerializer(lambda constants: constants.name),
]  # fmt: skip
"""The name of published constants of step times."""


class NodeSpec(Spec):
    """The nodes of a cluster: ``devices`` in each, and the total ``nic_bandwidth`` of a node's network cards."""

    devices: int = Field(ge=1)
    nic_bandwidth: BandwidthField


class StepTimesSpec(Experiment):
    """A validation of `syncline.costmodel.layouts.transformer_time` on measured step times of GPTs on GPUs.

    The single-node points are divided into ``folds`` parts; part number ``fold`` calibrates the constants, which then
    predict the rest. A hash of a point's configuration decides its part. With ``constants`` there is no calibration:
    these constants predict the rest. ``repeats`` random parts of the same size show how much the result depends on
    chance. Two inputs are not fitted: all-reduces measured on ``hardware``, for sums larger than in the calibration,
    and ``node``, for messages between nodes.
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

    @model_validator(mode="after")
    def _check_fold_and_hardware(self) -> StepTimesSpec:
        """Refuse a ``fold`` that is out of range, and hardware of unknown memory."""
        if self.fold >= self.folds:
            raise refusal("fold", self.fold, f"a number from 0 to {self.folds - 1}")
        if self.hardware.memory_bytes is None:
            raise refusal("hardware", self.hardware.name, "hardware with known memory, to decide what fits into it")
        return self


class ClustersSpec(Experiment):
    """A validation of the shipped constants on measurements from other clusters.

    ``measurements``: tables, or logs (`syncline.measure.logs`) whose collectives are predicted on ``network``. By
    default they are those of the package, with a cross-validation, which fits constants without one group of
    measurements at a time; ``cross_validation: false`` skips these fits.
    """

    kind: Literal["clusters"]
    measurements: tuple[str, ...] = ()
    network: NetworkField | None = None
    cross_validation: bool = True


ValidationSpec = StepTimesSpec | ClustersSpec
"""The specs that ``syncline validate`` takes, besides folders of trainings."""

VALIDATIONS: tuple[type[StepTimesSpec] | type[ClustersSpec], ...] = (StepTimesSpec, ClustersSpec)
"""The classes of the specs of validations."""
