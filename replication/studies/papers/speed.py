"""Lion Cub's Table 4: two constants fitted on some of its steps, and predictions of the other steps."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from replication.studies.papers.base import PaperTable, Printed, paper_table
from replication.theory.votes import vote_bits_per_parameter
from syncline.fields import Spec, parsed, refusal
from syncline.units import parse_bandwidth


class SpeedCell(Spec):
    """A measured step: its seconds and the percentage of it that was communication, as printed.

    The constants are fitted on the ``fitted`` cells; the other cells are predicted.
    """

    method: str
    bits: Annotated[float, Field(gt=0)]
    bandwidth: Annotated[float, parsed(parse_bandwidth)]
    step: Printed
    communication_percent: Annotated[Decimal, Field(gt=0, lt=100)]
    fitted: bool = False


class SpeedTableSpec(PaperTable):
    """Lion Cub's Table 4: steps at several bandwidths, two constants fitted on some cells, the others predicted.

    ``bits`` of a cell is the size of a parameter's word on the wire, in bits.
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
        parameters: V, the number of parameters that explains the time on the link at the printed bandwidth.
        software_s_per_bit: h, seconds per bit that do not depend on the bandwidth.
        compute_s: the rest of a step: the median of ``step (1 - share)`` over the fitted cells. Not fitted.
    """

    parameters: float
    software_s_per_bit: float
    compute_s: float

    def communication_s(self, wire_bits: float, bits_per_s: float) -> float:
        """Return the seconds to send ``wire_bits`` per parameter at a bandwidth in bits per second."""
        return wire_bits * (self.parameters / bits_per_s + self.software_s_per_bit)

    @property
    def software_bits_per_s(self) -> float:
        """Return the bandwidth in bits per second above which software takes longer than the link: ``V / h``."""
        return self.parameters / self.software_s_per_bit


def wire_bits(bits: float, workers: int) -> float:
    """Return the bits per parameter that pass a link: ``2 (P - 1) / P b`` of an all-reduce, or those of the vote."""
    return float(vote_bits_per_parameter("one-bit", workers)) if bits == 1 else 2 * (workers - 1) / workers * bits


def fit(spec: SpeedTableSpec) -> SpeedFit:
    """Fit the constants by least squares of the relative error of communication over the fitted cells.

    The communication of a cell is ``share / (1 - share)`` of the computing, which is the same in all cells. The fit
    uses shares because the paper prints a share with three digits and a step with one.
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
    """Return a row per cell: the paper's step and share of communication, beside those that the constants predict."""
    constants = fit(spec)
    rows = []
    for cell in spec.cells:
        communication_s = constants.communication_s(wire_bits(cell.bits, spec.workers), 8 * cell.bandwidth)
        measured_s = _communication_s(cell, constants.compute_s)
        step_s = constants.compute_s + communication_s
        half_digit = 0.5 * 10.0 ** int(cell.step.as_tuple().exponent)
        rows.append({
            "method": cell.method, "bandwidth_bytes_per_s": cell.bandwidth, "workers": spec.workers,
            "bits": cell.bits, "wire_bits_per_parameter": wire_bits(cell.bits, spec.workers), "fitted": cell.fitted,
            "paper_step_s": float(cell.step), "step_s": step_s, "step_error": step_s / float(cell.step) - 1,
            "within_rounding": abs(step_s - float(cell.step)) <= half_digit,
            "paper_communication_share": _share(cell), "communication_share": communication_s / step_s,
            "paper_communication_s": measured_s, "communication_s": communication_s,
            "communication_error": communication_s / measured_s - 1, "unexplained_s": measured_s - communication_s,
            "parameters": constants.parameters, "software_s_per_bit": constants.software_s_per_bit,
            "compute_s": constants.compute_s,
        })  # fmt: skip
    return rows


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Return sentences that state the constants and the errors of the predicted cells."""
    predicted = [row for row in rows if not row["fitted"]] or rows
    steps = np.abs([row["step_error"] for row in predicted])
    sent = np.abs([row["communication_error"] for row in predicted])
    constants = SpeedFit(rows[0]["parameters"], rows[0]["software_s_per_bit"], rows[0]["compute_s"])
    return (
        f"Fitted: {constants.parameters / 1e6:.3g} M parameters at the printed bandwidth, "
        f"{constants.software_s_per_bit * 1e3:.3g} ms of software per bit "
        f"(together {constants.software_bits_per_s / 1e9:.3g} Gbit/s at most); "
        f"computing {constants.compute_s * 1e3:.3g} ms.\n"
        f"Cells that were not fitted: steps off by {np.median(steps):.0%} (median) and {steps.max():.0%} (worst), "
        f"communication by {np.median(sent):.0%} and {sent.max():.0%}; "
        f"{sum(row['within_rounding'] for row in predicted)} of {len(predicted)} steps within the printed digit."
    )


SPEED_COLUMNS = (
    "method bandwidth_bytes_per_s paper_step_s step_s step_error paper_communication_share communication_share "
    "communication_error unexplained_s origin"
)

STUDY = paper_table(SpeedTableSpec, speed_rows, SPEED_COLUMNS, lambda rows: f"{verdict(rows)}\n", "method",
    values={"origin": lambda row: "fitted" if row["fitted"] else "predicted"},
)  # fmt: skip
