"""Tables of the rows of an alignment study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.alignment.spec import AlignmentSpec
from syncline.planner.tables.columns import RATE, Column, count_of, digits_of, table, text_of
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
    tables = []
    if angles and len(spec.angles_deg) <= MOST_ANGLES:
        columns: list[Column] = [
            text_of("method"),
            *([RATE] if len(spec.rates) > 1 else []),
            ("angle", lambda row: f"{row['angle_deg']:g}°"),
            ("misalignment", digits_of("misalignment", ".2f")),
            ("arrived", lambda row: f"{row['arrived']}/{row['draws']}"),
            ("steps", digits_of("steps", ",.0f")),
            ("steps,\nlate", digits_of("steps_delayed", ",.0f")),
            ("slowdown", digits_of("slowdown", ".2f")),
            ("range", slowdown_range),
            ("undone", lambda row: f"{digits_of('undone', '.0%')(row)}, {digits_of('undone_delayed', '.0%')(row)}"),
            ("restored", digits_of("restored", ".0%")),
        ]
        tables.append(table(spec.description or spec.name, columns, angles, NOTE, (0,), "method"))
    if angles:
        summaries = [angle_summary(angles, lr, method) for lr in spec.rates for method in spec.methods]
        columns = [
            text_of("method"),
            RATE,
            ("arrived", lambda row: f"{row['arrived']:,}/{row['draws']:,}"),
            ("steps,\nlowest", digits_of("steps_min", ",.0f")),
            ("median", digits_of("steps", ",.0f")),
            ("highest", digits_of("steps_max", ",.0f")),
            ("slowdown", digits_of("slowdown", ".2f")),
            ("rank of\nsteps", digits_of("steps_rank", ".2f")),
            ("rank of\nslowdown", digits_of("slowdown_rank", ".2f")),
            ("of all\ndraws", digits_of("slowdown_rank_draws", ".2f")),
        ]
        with_draws = [row for row in summaries if row["draws"]]
        tables.append(table(f"Over {len(spec.angles_deg)} angles", columns, with_draws, RANK_NOTE, (0,), "lr"))
    claims = [row for row in rows if row["part"] == "random"]
    if claims:
        columns = [text_of("claim"), ("share", digits_of("share", ".0%")), count_of("arrived"), count_of("draws")]
        tables.append(table("Random quadratics", columns, claims, "Arrived: problems with a slowdown at every angle."))
    traps = [row for row in rows if row["part"] == "trap"]
    if traps:
        columns = [
            RATE,
            ("trapped below", digits_of("trap_radius", ".3g")),
            ("closed form", digits_of("trap_closed_form", ".3g")),
            ("starts", count_of("draws")[1]),
            ("came away", count_of("arrived")[1]),
        ]
        tables.append(table("Starts on the axes", columns, traps, "Radii. Closed form: 64 (rate / 0.1)^2."))
    return tables


def slowdown_range(row: Record) -> str:
    """Return the lowest and the highest slowdown of a row's draws, as text."""
    # If some draws did not arrive, the highest slowdown is unknown.
    low, high = (digits_of(name, ".2f")(row) for name in ("slowdown_min", "slowdown_max"))
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
