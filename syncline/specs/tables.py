"""Specs of papers' tables: what the paper prints, and what it takes to compute the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from syncline.specs.base import Positive, Seconds, Spec, Steps
from syncline.specs.experiment import Experiment, ModelField, NetworkField
from syncline.specs.methods import MethodSpec

Printed = Annotated[Decimal, Field(gt=0)]
"""A number as a paper prints it: its digits say how exact it is."""


class PaperTable(Experiment):
    """What every spec of a table has."""

    def warnings(self) -> list[str]:
        """None."""
        return []


class MeasuredSync(Spec):
    """A network of a paper's table: what was measured or stated, and the link preset nearest to it."""

    network: NetworkField
    sync: Seconds


class CurvaDionTableSpec(PaperTable):
    """CurvaDion's Appendix E: a step's measured parts and each network's sync time, beside alpha-beta alone."""

    kind: Literal["curvadion-table"]
    compute: Seconds
    optimizer: Seconds
    flag: Seconds
    sync_rate: float = Field(ge=0, le=1)
    payload_bytes: Positive
    workers: int = Field(ge=1)
    networks: tuple[MeasuredSync, ...] = Field(min_length=1)


class TrafficRow(Spec):
    """A method on a model, and the decimal MB per worker and step that the paper prints for it."""

    method: MethodSpec
    model: ModelField
    paper_megabytes_per_step: Printed


class TrafficTableSpec(PaperTable):
    """What methods send per step, beside a paper's numbers."""

    kind: Literal["traffic-table"]
    rows: tuple[TrafficRow, ...] = Field(min_length=1)


class VolumeRow(Spec):
    """A method on a model for so many steps, and the volume per worker that the paper prints for it."""

    method: MethodSpec
    model: ModelField
    steps: Steps
    paper_volume: Printed
    paper_unit: Literal["MB", "GB"]


class VolumeTableSpec(PaperTable):
    """What methods send in whole trainings, beside a paper's numbers, in the unit that the paper must have meant."""

    kind: Literal["volume-table"]
    rows: tuple[VolumeRow, ...] = Field(min_length=1)


TableSpec = CurvaDionTableSpec | TrafficTableSpec | VolumeTableSpec
