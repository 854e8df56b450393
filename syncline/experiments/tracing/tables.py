"""What ``syncline trace`` shows to people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.experiments.columns import Column, number_of, seconds_of, table, text_of
from syncline.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Group

MOST_SITES = 5

ROWS: list[Column] = [
    text_of("network"),
    ("step\ntime", seconds_of("step_time_s")),
    ("waits", seconds_of("exposed_communication_s")),
    ("bytes\n/step", lambda row: format_bytes(row["bytes_per_worker"])),
    ("all\nof it", seconds_of("wall_clock_s")),
    ("last\nloss", number_of("loss")),
]
SITES: list[Column] = [
    ("line", lambda row: Path(row["site"]).name),
    ("network", lambda row: row["network"]),
    ("calls", number_of("calls")),
    ("bytes", lambda row: format_bytes(row["bytes"])),
    ("on the\nnetwork", seconds_of("communication_s")),
]


def trace_tables(told: dict[str, Any]) -> list[Group]:
    """The rows, and the lines of the script that take longest."""
    rows, sites = told["rows"], told["sites"]
    first = rows[0]
    title = f"{first['workers']} workers, {first['steps']} steps, computing on {first['hardware']}"
    note = "Means per worker; waits: for the network with nothing to compute. Computing: operations, by their roofline."
    longest = [row for name in dict.fromkeys(row["network"] for row in rows)
               for row in [one for one in sites if one["network"] == name][:MOST_SITES]]  # fmt: skip
    out = [table(title, ROWS, rows, note)]
    if longest:
        out.append(
            table("lines that communicate", SITES, longest, "In all; a mean over the workers.", section="network")
        )
    return out
