"""Tables of the rows of an alignment study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.alignment.spec import AlignmentSpec
from syncline.columns import column_of
from syncline.planner.tables.table import table
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group


MOST_ANGLES = 12
"""Maximum number of angles for which the table with a row per angle is printed."""

NOTE = (
    "Misalignment: the Hessian's (1,1)-norm over the least of all rotations. Steps: medians until "
    "arrival; slowdown: of each draw, late over on time. Undone: of the way along the dominant "
    "eigenvector, what other steps took back, on time and late. Restored: draws that take as many "
    "steps as Adam at angle 0, on time and late."
)
RANK_NOTE = "Rank: rank correlation with the misalignment; what never arrives has the largest value."


def alignment_tables(rows: list[Record], spec: AlignmentSpec) -> list[Group]:
    """Return the tables: steps and slowdown per angle, summaries over the angles, random problems and the trap."""
    angles = [row for row in rows if row["part"] == "angles"]
    tables: list[Group] = []
    if angles and len(spec.angles_deg) <= MOST_ANGLES:
        columns = f"method {'lr ' if len(spec.rates) > 1 else ''}angle_deg misalignment arrived_of steps steps_delayed"
        columns += " slowdown slowdown_range undone_both restored"
        title = spec.description or spec.name
        tables.append(
            table(
                title, columns, angles, note=NOTE, section="method", values={
                    "arrived_of": _arrived,
                    "slowdown_range": slowdown_range,
                    "undone_both": lambda row: ", ".join(
                    column_of("undone").text(row[name]) for name in ("undone", "undone_delayed")
                    ),
                },
            )
        )  # fmt: skip
    if angles:
        summaries = [angle_summary(angles, lr, method) for lr in spec.rates for method in spec.methods]
        columns = "method lr arrived_of steps_min steps steps_max slowdown steps_rank slowdown_rank slowdown_rank_draws"
        with_draws = [row for row in summaries if row["draws"]]
        tables.append(
            table(
                f"Over {len(spec.angles_deg)} angles",
                columns,
                with_draws,
                note=RANK_NOTE,
                section="lr",
                values={"arrived_of": _arrived},
            )
        )
    claims = [row for row in rows if row["part"] == "random"]
    if claims:
        columns = "claim share arrived draws"
        tables.append(
            table("Random quadratics", columns, claims, note="Arrived: problems with a slowdown at every angle.")
        )
    traps = [row for row in rows if row["part"] == "trap"]
    if traps:
        columns = "lr trap_radius trap_closed_form draws arrived"
        tables.append(
            table(
                "Starts on the axes",
                columns,
                traps,
                note="Radii. Draws: starts; arrived: those that came away. Closed form: 64 (rate / 0.1)^2.",
            )
        )
    return tables


def _arrived(row: Record) -> str:
    """Return the number of draws that arrived, and of all."""
    return f"{row['arrived']:,}/{row['draws']:,}"


def slowdown_range(row: Record) -> str:
    """Return the lowest and the highest slowdown of a row's draws, as text."""
    # If some draws did not arrive, the highest slowdown is unknown.
    low, high = (column_of("slowdown").text(row[name]) for name in ("slowdown_min", "slowdown_max"))
    return low if low == high == "-" else f"{low}-{high}"


def angle_summary(angles: list[Record], lr: float, method: str) -> Record:
    """Return one row that summarises all angles of a learning rate and a method."""
    method_rows = [row for row in angles if (row["lr"], row["method"]) == (lr, method)]
    steps = sorted(row["steps"] for row in method_rows if row["steps"] is not None)
    ratios = sorted(row["slowdown"] for row in method_rows if row["slowdown"] is not None)
    ranks = {
        name: method_rows[0][name] if method_rows else None
        for name in ("steps_rank", "slowdown_rank", "slowdown_rank_draws")
    }
    return ranks | {
        "method": method,
        "lr": lr,
        "draws": sum(row["draws"] for row in method_rows),
        "arrived": sum(row["arrived"] for row in method_rows),
        "steps_min": steps[0] if steps else None,
        "steps": steps[len(steps) // 2] if steps else None,
        "steps_max": steps[-1] if steps else None,
        "slowdown": ratios[len(ratios) // 2] if ratios else None,
    }
