"""The tables of ``syncline calibrate --from``: each measurement with its prediction by the network that was fitted."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.planner.tables.columns import Column, count_of, seconds_of, table, text_of
from syncline.units import format_bandwidth, format_bytes

COLLECTIVES: list[Column] = [
    text_of("collective"),
    count_of("workers"),
    ("size", lambda row: format_bytes(row["nbytes"])),
    ("measured", seconds_of("measured_s")),
    ("predicted", seconds_of("predicted_s")),
    ("error", lambda row: f"{row['error']:+.1%}"),
]
STREAMS: list[Column] = [
    text_of("from"),
    text_of("to"),
    count_of("streams"),
    ("measured", lambda row: format_bandwidth(row["measured_bytes_per_s"])),
    ("predicted", lambda row: format_bandwidth(row["predicted_bytes_per_s"])),
    ("error", lambda row: f"{row['error']:+.1%}"),
]
STREAMS_NOTE = (
    "Predicted: min(streams x window / round trip, cap), with the window of the fewest streams. Error: of the time."
)


def log_tables(result: dict[str, Any]) -> list[Group]:
    """Return the table of the measurements, with the bounds that the file has."""
    rows, section = result["rows"], result["network"]
    bounds = section.get("bounds") or section.get("between", {}).get("bounds")
    note = "No bounds: as many numbers as measurements." if bounds is None else (
        f"Bounds of the file: {bounds['low']:.2f} to {bounds['high']:.2f} times the predicted time, from "
        f"{bounds['points']} errors."
    )  # fmt: skip
    if section.get("kind") == "matrix":
        lacks_cap = "" if any(row["capped"] for row in rows) else (
            " No measurement reached a cap: the largest rate stands for it."
        )  # fmt: skip
        return [table("Streams", STREAMS, rows, f"{STREAMS_NOTE}{lacks_cap} {note}", text_columns=(0, 1))]
    return [table("Collectives", COLLECTIVES, rows, note)]
