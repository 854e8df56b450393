"""Answers outside of what was measured: their first lines, their records, and their refusal.

An answer is *transferred* if it rests on measurements of other machines, other software, other sizes or another scale:
then the bounds of its times are those that sources left out had, and the answer says so before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError
from syncline.registry import lazy_function


@dataclass(frozen=True)
class Transfer:
    """A part of a prediction, such as its computing time, that lies outside of what was measured.

    Args:
        part: ``computing``, ``communication`` or ``failures``.
        uncertainty: bounds of the part's times, with the reasons.
    """

    part: str
    uncertainty: Uncertainty

    @property
    def line(self) -> str:
        """Return text for the terminal: what the part was transferred from, why, and the bounds of its times."""
        uncertainty = self.uncertainty
        sources = f" of {uncertainty.sources} sources" if uncertainty.sources else ""
        bounds = f"{uncertainty.low:.2f} to {uncertainty.high:.2f} times the predicted time"
        measured = f"Nine of ten rows of sources left out took {bounds}." if sources else f"Measured: {bounds}."
        return (
            f"{self.part.capitalize()} transferred from {uncertainty.basis} ({uncertainty.points} rows{sources}): "
            f"{'; '.join(uncertainty.reasons)}. {measured}"
        )

    def record(self) -> dict[str, Any]:
        """Return the part, the basis of its uncertainty, the reasons and the bounds, as ``--json`` shows them."""
        names = ("basis", "points", "sources", "low", "high")
        return {"part": self.part} | {name: getattr(self.uncertainty, name) for name in names} | {
            "reasons": list(self.uncertainty.reasons)
        }  # fmt: skip


def transfers(parts: Iterable[tuple[str, Uncertainty]]) -> tuple[Transfer, ...]:
    """Return the parts that lie outside of what was measured; parts of one name and basis are joined."""
    by_part_and_basis: dict[tuple[str, str], Uncertainty] = {}
    for part, uncertainty in parts:
        if uncertainty.reasons:
            earlier = by_part_and_basis.get((part, uncertainty.basis), uncertainty)
            by_part_and_basis[part, uncertainty.basis] = earlier.outside(uncertainty.reasons)  # adds these reasons
    return tuple(Transfer(part, uncertainty) for (part, _), uncertainty in by_part_and_basis.items())


def transfers_of(specs: Iterable[Any]) -> tuple[Transfer, ...]:
    """Return the parts of projections that lie outside of what was measured; specs of studies have none."""
    from syncline.specs import ProjectSpec  # imported late, because `collectives` needs neither specs nor methods

    parts: dict[tuple[Any, ...], tuple[str, Uncertainty]] = {}
    for spec in specs:
        if not isinstance(spec, ProjectSpec):
            continue
        key: tuple[Any, ...] = id(spec.model), id(spec.compute), spec.workers  # specs with equal keys compute alike
        if key not in parts:
            parts[key] = "computing", spec.compute.uncertainty(spec.width, spec.workers, spec.kernel_experts)
        for network in spec.networks if spec.workers > 1 else ():
            key = id(network), spec.algorithm, spec.workers
            if key not in parts:
                uncertainty = communication_uncertainty(network, spec.algorithm_on(network), spec.workers)
                parts[key] = "communication", uncertainty
    return transfers(parts.values())


def refuse_transfers(transfers: Sequence[Transfer], strict: bool) -> None:
    """Refuse an answer outside of what was measured if a question is strict."""
    if strict and transfers:
        reasons = dict.fromkeys(reason for transfer in transfers for reason in transfer.uncertainty.reasons)
        raise SpecError("--strict", "; ".join(reasons), "what was measured, or a file of 'syncline calibrate'")


tables_after = lazy_function("syncline.planner.prediction_tables:tables_after")
"""Return a line for each transferred part, followed by the tables; rich is imported when tables are drawn."""
