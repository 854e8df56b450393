"""Lion Cub's Table 4: two constants fitted on some of its steps, the others predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from syncline.costmodel import vote_bits_per_parameter
from syncline.fields import Spec, parsed, refusal
from syncline.specs.study import Record
from syncline.specs.tables.columns import Column, seconds_of
from syncline.studies.papers.base import PaperTable, Printed, bandwidth_of, paper_table
from syncline.units import parse_bandwidth


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
    workers: int = Field(ge=2)
    cells: tuple[SpeedCell, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _two_bandwidths(self) -> SpeedTableSpec:
        if len({cell.bandwidth for cell in self.cells if cell.fitted}) < 2:
            raise refusal("cells", [], "fitted: true at two bandwidths or more, as two constants are fitted")
        return self


class SpeedFit(NamedTuple):
    """The constants of ``communication = w (V / B + h)``, with w the bits that pass a link per parameter.

    Attributes:
        parameters: V, as if so many were sent at the printed bandwidth.
        software_s_per_bit: h, seconds per bit that no bandwidth takes away.
        compute_s: the rest of a step: the median of ``step (1 - share)`` over the fitted cells. Not fitted.
    """

    parameters: float
    software_s_per_bit: float
    compute_s: float

    def communication_s(self, wire_bits: float, bits_per_s: float) -> float:
        """Seconds in which ``wire_bits`` per parameter are sent."""
        return wire_bits * (self.parameters / bits_per_s + self.software_s_per_bit)

    @property
    def software_bits_per_s(self) -> float:
        """The bandwidth above which the software takes longer than the link: ``V / h``."""
        return self.parameters / self.software_s_per_bit


def wire_bits(bits: float, workers: int) -> float:
    """Bits per parameter that pass a link: ``2 (P - 1) / P b`` of an all-reduce, or those of the one-bit vote."""
    return float(vote_bits_per_parameter("one-bit", workers)) if bits == 1 else 2 * (workers - 1) / workers * bits


def fit(spec: SpeedTableSpec) -> SpeedFit:
    """Least squares of the relative error of communication over the fitted cells.

    A cell's communication is ``share / (1 - share)`` of the computing, which is the same in all of them: a share is
    printed with three digits, a step with one.
    """
    cells = [cell for cell in spec.cells if cell.fitted]
    compute_s = float(np.median([float(cell.step) * (1 - _share(cell)) for cell in cells]))
    measured_s = np.array([_communication_s(cell, compute_s) for cell in cells])
    sent = np.array([wire_bits(cell.bits, spec.workers) for cell in cells])
    terms = np.column_stack([sent / [8 * cell.bandwidth for cell in cells], sent]) / measured_s[:, None]
    constants, *_ = np.linalg.lstsq(terms, np.ones(len(cells)), rcond=None)
    return SpeedFit(float(constants[0]), float(constants[1]), compute_s)


def _share(cell: SpeedCell) -> float:
    return float(cell.communication_percent) / 100


def _communication_s(cell: SpeedCell, compute_s: float) -> float:
    return compute_s * _share(cell) / (1 - _share(cell))


def speed_rows(spec: SpeedTableSpec) -> list[dict[str, Any]]:
    """A row per cell: the paper's step and share of communication, and those of the two constants."""
    constants = fit(spec)
    rows = []
    for cell in spec.cells:
        communication_s = constants.communication_s(wire_bits(cell.bits, spec.workers), 8 * cell.bandwidth)
        measured_s = _communication_s(cell, constants.compute_s)
        step_s = constants.compute_s + communication_s
        half_digit = 0.5 * 10.0 ** int(cell.step.as_tuple().exponent)
        rows.append({
            "method": cell.method,
            "bandwidth_bytes_per_s": cell.bandwidth,
            "workers": spec.workers,
            "bits": cell.bits,
            "wire_bits_per_parameter": wire_bits(cell.bits, spec.workers),
            "fitted": cell.fitted,
            "paper_step_s": float(cell.step),
            "step_s": step_s,
            "step_error": step_s / float(cell.step) - 1,
            "within_rounding": abs(step_s - float(cell.step)) <= half_digit,
            "paper_communication_share": _share(cell),
            "communication_share": communication_s / step_s,
            "paper_communication_s": measured_s,
            "communication_s": communication_s,
            "communication_error": communication_s / measured_s - 1,
            "unexplained_s": measured_s - communication_s,
            "parameters": constants.parameters,
            "software_s_per_bit": constants.software_s_per_bit,
            "compute_s": constants.compute_s,
        })  # fmt: skip
    return rows


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """What the constants are and how well they hold, in a sentence or two."""
    told = [row for row in rows if not row["fitted"]] or rows
    steps = np.abs([row["step_error"] for row in told])
    sent = np.abs([row["communication_error"] for row in told])
    constants = SpeedFit(rows[0]["parameters"], rows[0]["software_s_per_bit"], rows[0]["compute_s"])
    return (
        f"Fitted: {constants.parameters / 1e6:.3g} M parameters at the printed bandwidth, "
        f"{constants.software_s_per_bit * 1e3:.3g} ms of software per bit "
        f"(together {constants.software_bits_per_s / 1e9:.3g} Gbit/s at most); "
        f"computing {constants.compute_s * 1e3:.3g} ms.\n"
        f"Cells that were not fitted: steps off by {np.median(steps):.0%} (median) and {steps.max():.0%} (worst), "
        f"communication by {np.median(sent):.0%} and {sent.max():.0%}; "
        f"{sum(row['within_rounding'] for row in told)} of {len(told)} steps within the printed digit."
    )


def _signed(name: str) -> Callable[[Record], str]:
    return lambda row: f"{row[name]:+.0%}"


def _part(name: str) -> Callable[[Record], str]:
    return lambda row: f"{row[name]:.1%}"


SPEED_COLUMNS: list[Column] = [
    ("optimizer", lambda row: row["method"]),
    ("bandwidth", bandwidth_of("bandwidth_bytes_per_s")),
    ("step\n(paper)", seconds_of("paper_step_s")),
    ("step", seconds_of("step_s")),
    ("error", _signed("step_error")),
    ("comm.\n(paper)", _part("paper_communication_share")),
    ("comm.", _part("communication_share")),
    ("error of\nits time", _signed("communication_error")),
    ("not\nexplained", lambda row: f"{row['unexplained_s'] * 1e3:+.0f} ms"),
    ("", lambda row: "fitted" if row["fitted"] else "predicted"),
]

STUDY = paper_table(SpeedTableSpec, speed_rows, SPEED_COLUMNS, lambda rows: f"{verdict(rows)}\n", "method")
