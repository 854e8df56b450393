"""The tables of ``syncline calibrate``: constants, errors of the fit, compute, wire formats; with ``--from``: logs."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.planner.tables.columns import Column, count_of, percent_of, seconds_of, table, text_of
from syncline.specs.study import Record
from syncline.units import format_bandwidth, format_bytes, format_seconds

CONSTANTS_NOTE = (
    "Spread: standard error of the fit. latency: one way, with the software's time per message. call_overhead: "
    "per call among this many processes. byte_overhead: per GB of the largest tensor. The fit found no other costs."
)
RESIDUALS_NOTE = (
    "In percent of the measured medians. Bias: mean with sign, + is predicted too slow. Spread: of the repetitions "
    "themselves, median; where it is as large as the errors, they are noise."
)
COMPUTE_NOTE = (
    "All processes compute at once. Step: gradients of the problem; slowest: of the slowest process. Peak: fp32 "
    "products. Memory: read and written by a copy. Medians over blocks of repetitions."
)
WIRES_NOTE = (
    "Fixed time, and time per million numbers (of sparse formats, pairs). fp32/s: both ways, without the fixed times, "
    "as 'compute.encode_bandwidth' of a spec has it."
)


def _value(row: Record) -> str:
    """Return the value of a constant with its unit."""
    name, value = row["constant"], row["value"]
    if name == "bandwidth":
        return format_bandwidth(value)
    return f"{format_seconds(1e9 * value)}/GB" if name.startswith("byte_overhead.") else format_seconds(value)


def _rate(name: str) -> Any:
    """Return a function that shows a row's bytes per second; "-" if the row has none."""
    return lambda row: "-" if row.get(name) is None else f"{format_bytes(row[name])}/s"


def _flops(name: str) -> Any:
    """Return a function that shows a row's FLOP/s; "-" if the row has none."""
    return lambda row: "-" if row.get(name) is None else f"{row[name] / 1e9:.3g} GFLOP/s"


def _percent(row: Record) -> str:
    """Return the spread of a row in percent; "-" if the row has none."""
    return "-" if row["spread"] is None else f"{100 * row['spread']:.3g}%"


def _both(direction: str) -> Any:
    """Return a function that shows a wire format's fixed time and its time per million numbers."""

    def show(row: Record) -> str:
        return f"{format_seconds(row[f'{direction}_fixed_s'])} + {format_seconds(1e6 * row[f'{direction}_element_s'])}"

    return show


WORKERS: Column = ("processes", lambda row: "-" if row["workers"] is None else str(row["workers"]))

CONSTANTS: list[Column] = [
    text_of("constant"),
    ("value", _value),
    ("spread", lambda row: "given" if row["given"] else _percent(row)),
]
RESIDUALS: list[Column] = [
    text_of("collective"),
    WORKERS,
    ("points", lambda row: str(row["points"])),
    *((name, percent_of(name)) for name in ("median", "worst", "bias", "spread")),
]
COMPUTE: list[Column] = [
    WORKERS,
    ("step", seconds_of("step_s")),
    ("slowest", seconds_of("slowest_s")),
    ("spread", _percent),
    ("achieved", _flops("flops_per_s")),
    ("peak", _flops("peak_flops")),
    ("mfu", lambda row: "-" if row.get("mfu") is None else f"{row['mfu']:.3g}"),
    ("memory", _rate("memory_bytes_per_s")),
]
WIRES: list[Column] = [
    text_of("wire"),
    WORKERS,
    ("encode", _both("encode")),
    ("decode", _both("decode")),
    ("fp32/s", _rate("bytes_per_s")),
]


def calibrate_tables(result: dict[str, Any]) -> list[Group]:
    """Return the tables of a calibration's results."""
    measured = result["measured"]
    link_note = "" if measured["link_fitted"] else "; latency and bandwidth as given"
    return [
        table(f"Network: {measured['backend']}{link_note}", CONSTANTS, rows=result["constants"], note=CONSTANTS_NOTE),
        table("Errors of the fit", RESIDUALS, rows=result["residuals"], note=RESIDUALS_NOTE),
        table(f"Compute: {measured['problem']}", COMPUTE, rows=result["compute"], note=COMPUTE_NOTE, text_columns=()),
        table("Wire formats", WIRES, rows=result["wires"], note=WIRES_NOTE, section="workers"),
    ]


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
    """Return the table of logged measurements and their predictions by the fitted network, with its bounds."""
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
        return [table("Streams", STREAMS, rows, note=f"{STREAMS_NOTE}{lacks_cap} {note}", text_columns=(0, 1))]
    return [table("Collectives", COLLECTIVES, rows, note)]
