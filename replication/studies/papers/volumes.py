"""Traffic of methods per step and per training, beside the numbers that papers print."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any, Literal

from pydantic import Field

from replication.studies.papers.base import PaperTable, Printed, paper_table
from syncline.costmodel import bytes_per_step, mean_bytes_per_step
from syncline.fields import Spec, Steps
from syncline.methods import MethodSpec
from syncline.specs import ModelField

ANY_GROUP = 2
"""Number of workers; the traffic per worker of the methods in these tables does not depend on it."""

UNITS = {
    "MB": {"MB": 10**6, "MiB": 2**20},
    "GB": {"GB": 10**9, "1000 MiB": 1000 * 2**20, "GiB": 2**30},
}
"""Possible meanings of a printed unit, in bytes."""


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
    """A method on a model for a number of steps, and the volume per worker that the paper prints for it."""

    method: MethodSpec
    model: ModelField
    steps: Steps
    paper_volume: Printed
    paper_unit: Literal["MB", "GB"]


class VolumeTableSpec(PaperTable):
    """What methods send in whole trainings, beside a paper's numbers, in the unit that the paper must have meant."""

    kind: Literal["volume-table"]
    rows: tuple[VolumeRow, ...] = Field(min_length=1)


def traffic_rows(spec: TrafficTableSpec) -> list[dict[str, Any]]:
    """Return rows with decimal MB per worker and step.

    A row matches if our number, truncated to the digits that the paper prints, is the paper's number.
    """
    rows = []
    for row in spec.rows:
        nbytes = mean_bytes_per_step(row.method.exchanges(row.model.tensors, ANY_GROUP))
        megabytes, paper = Decimal(nbytes) / 10**6, row.paper_megabytes_per_step
        rows.append({
            "method": row.method.name, "model": row.model.name, "k": getattr(row.method, "k", None),
            "chunk": getattr(row.method, "chunk", None), "bytes_per_worker": nbytes,
            "megabytes_per_step": float(megabytes), "paper_megabytes_per_step": float(paper),
            "matches": megabytes.quantize(paper, ROUND_DOWN) == paper, "deviation": _deviation(paper, megabytes),
        })  # fmt: skip
    return rows


def volume_rows(spec: VolumeTableSpec) -> list[dict[str, Any]]:
    """Return rows with volumes in the meaning of the printed unit that brings ours nearest to the paper's volume.

    A row matches if our volume in that unit, rounded to the digits that the paper prints, is the paper's number. If it
    does not match, no meaning of the unit explains the paper's number.
    """
    rows = []
    for row in spec.rows:
        nbytes = Decimal(bytes_per_step(row.method.exchanges(row.model.tensors, ANY_GROUP), row.steps) * row.steps)
        paper = row.paper_volume
        volumes = {unit: nbytes / size for unit, size in UNITS[row.paper_unit].items()}
        unit = min(volumes, key=lambda unit: abs(volumes[unit] / paper - 1))
        rows.append({
            "method": row.method.name, "model": row.model.name, "steps": row.steps, "bytes": float(nbytes),
            "volume": float(volumes[unit]), "unit": unit, "unit_bytes": UNITS[row.paper_unit][unit],
            "paper_volume": float(paper), "paper_unit": row.paper_unit,
            "matches": volumes[unit].quantize(paper, ROUND_HALF_UP) == paper,
            "deviation": _deviation(paper, volumes[unit]),
        })  # fmt: skip
    return rows


def _deviation(paper: Decimal, ours: Decimal) -> float:
    """Return the relative difference of the paper's number from ours, as a share of ours."""
    return float(paper / ours - 1) if ours else math.inf


TRAFFIC_COLUMNS = "method model k chunk megabytes_per_step paper_megabytes_per_step matches deviation"
VOLUME_COLUMNS = "method model steps volume unit paper_volume matches deviation"

TRAFFIC = paper_table(
    TrafficTableSpec, traffic_rows, TRAFFIC_COLUMNS,
    "Same: equal when cut off after as many digits as the paper prints. ",
)  # fmt: skip
VOLUMES = paper_table(
    VolumeTableSpec, volume_rows, VOLUME_COLUMNS,
    "Unit: the reading of the paper's unit that comes nearest to its number; without 'same', none explains it. ",
    values={"paper_volume": lambda row: f"{row['paper_volume']:,.10g} {row['paper_unit']}"},
)  # fmt: skip
