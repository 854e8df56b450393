"""Specs of papers' tables: what the paper prints, and what it takes to compute the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from syncline.fields import MANY, Period, Positive, Seconds, Spec, Steps, Workers, parsed, refusal
from syncline.methods import MethodSpec
from syncline.specs.experiment import Experiment, HardwareField, ModelField
from syncline.specs.network import LinkField
from syncline.units import parse_bandwidth

Printed = Annotated[Decimal, Field(gt=0)]
"""A number as a paper prints it: its digits say how exact it is."""


class PaperTable(Experiment):
    """What every spec of a table has."""

    def warnings(self) -> list[str]:
        """None."""
        return []


class MeasuredSync(Spec):
    """A network of a paper's table: what was measured or stated, and the link preset nearest to it."""

    network: LinkField
    sync: Seconds


class CurvaDionTableSpec(PaperTable):
    """CurvaDion's Appendix E: a step's measured parts and each network's sync time, beside alpha-beta alone."""

    kind: Literal["curvadion-table"]
    compute: Seconds
    optimizer: Seconds
    flag: Seconds
    sync_rate: float = Field(ge=0, le=1)
    payload_bytes: Positive
    workers: Workers
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


MOST_PLAYED = 4096
"""Workers of a collective whose every message is played: those of an all-to-all are as many as the square."""


class VoteTableSpec(PaperTable):
    """Lion Cub's Table 1: what its four votes cost, as printed and by the collectives that they are made of."""

    kind: Literal["vote-table"]
    model: ModelField
    word_bits: int = Field(default=32, ge=1)
    workers: tuple[Annotated[int, Field(ge=1, le=MOST_PLAYED)], ...] = Field(min_length=1)
    networks: tuple[LinkField, ...] = Field(min_length=1)


class Mark(Spec):
    """A model and a network whose N β / α is drawn into a figure."""

    model: ModelField
    network: LinkField


class VoteFigureSpec(PaperTable):
    """Lion Cub's Figure 2: its Table 1 over the number of workers, at several ``ratios`` N β / α."""

    kind: Literal["vote-figure"]
    word_bits: int = Field(default=32, ge=1)
    workers: tuple[Workers, ...] = Field(min_length=1)
    ratios: tuple[Positive, ...] = Field(min_length=1)
    marks: tuple[Mark, ...] = ()


class SpeedCell(Spec):
    """A measured step: its seconds and the percentage of it that was communication, as printed.

    ``fitted`` cells are those that the constants are fitted on; the others are predicted.
    """

    method: str
    bits: Annotated[float, Field(gt=0)]
    bandwidth: Annotated[float, parsed(parse_bandwidth)]
    step: Printed
    communication_percent: Annotated[Decimal, Field(gt=0, lt=100)]
    fitted: bool = False


class SpeedTableSpec(PaperTable):
    """Lion Cub's Table 4: steps at several bandwidths, two constants fitted on some cells, the others predicted.

    ``bits`` of a cell are those that each parameter's word has on the wire.
    """

    kind: Literal["speed-table"]
    workers: int = Field(ge=2, le=MANY)
    cells: tuple[SpeedCell, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _two_bandwidths(self) -> SpeedTableSpec:
        if len({cell.bandwidth for cell in self.cells if cell.fitted}) < 2:
            raise refusal("cells", [], "fitted: true at two bandwidths or more, as two constants are fitted")
        return self


class Strategy(Spec):
    """A method of MT-DAO's wall-clock model: K_x, K_u, K_v; one period alone stands for all three in one call."""

    method: str = Field(min_length=1)
    panel: str = ""
    periods: tuple[Period, ...] = Field(min_length=1, max_length=3)

    @model_validator(mode="after")
    def _one_or_three(self) -> Strategy:
        if len(self.periods) == 2:
            raise refusal("periods", self.periods, "one period, or three")
        return self


class WallClockFigureSpec(PaperTable):
    """MT-DAO's Figures 9 and 10: its equations (5) and (6) over bandwidth, beside the same from the simulation.

    A step computes ``tokens_per_worker`` on ``gpus_per_worker`` of the hardware.
    """

    kind: Literal["wall-clock-figure"]
    shows: Literal["total", "communication"]
    model: ModelField
    tokens_per_worker: int = Field(ge=1)
    gpus_per_worker: int = Field(default=1, ge=1)
    hardware: HardwareField
    workers: Workers
    steps: Steps
    latency: Seconds
    bandwidths: tuple[Annotated[float, parsed(parse_bandwidth)], ...] = Field(min_length=2)
    strategies: tuple[Strategy, ...] = Field(min_length=1)


TableSpec = (
    CurvaDionTableSpec
    | TrafficTableSpec
    | VolumeTableSpec
    | VoteTableSpec
    | VoteFigureSpec
    | SpeedTableSpec
    | WallClockFigureSpec
)
