"""The tables of ``syncline calibrate``: constants, errors of the fit, compute, wire formats; with ``--from``: logs."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.planner.tables.table import table
from syncline.specs.study import Record
from syncline.units import format_bandwidth, format_seconds

CONSTANTS_NOTE = (
    "Spread: standard error of the fit. latency: one way, with the software's time per message. call_overhead: "
    "per call among this many processes. byte_overhead: per GB of the largest tensor. The fit found no other costs."
)
RESIDUALS_NOTE = (
    "Relative to the measured medians. Bias: mean with sign, + is predicted too slow. Spread: of the repetitions "
    "themselves, median; where it is as large as the errors, they are noise."
)
COMPUTE_NOTE = (
    "All processes compute at once. Step: gradients of the problem; slowest: of the slowest process. Peak: fp32 "
    "products. Memory: read and written by a copy. Medians over blocks of repetitions."
)
WIRES_NOTE = (
    "Fixed time, and time per million numbers (of sparse formats, pairs). Memory: fp32 numbers both ways, without the "
    "fixed times, as 'compute.encode_bandwidth' of a spec has it."
)


def _value(row: Record) -> str:
    """Return the value of a constant with its unit."""
    name, value = row["constant"], row["value"]
    if name == "bandwidth":
        return format_bandwidth(value)
    if name.startswith("byte_overhead."):  # seconds per byte
        return f"{format_seconds(1e9 * value)}/GB"
    return format_seconds(value)


def _wire_time(row: Record, direction: str) -> str:
    """Return the fixed time of encoding or decoding a wire format, and the time per million numbers."""
    return f"{format_seconds(row[f'{direction}_fixed_s'])} + {format_seconds(1e6 * row[f'{direction}_element_s'])}"


def calibrate_tables(result: dict[str, Any]) -> list[Group]:
    """Return the tables of a calibration's results."""
    measured = result["measured"]
    link_note = "" if measured["link_fitted"] else "; latency and bandwidth as given"
    return [
        table(
            f"Network: {measured['backend']}{link_note}", "constant value constant_spread", result["constants"],
            note=CONSTANTS_NOTE, values={
                "value": _value,
                "constant_spread": lambda row: "given" if row["given"] else row["spread"],
            },
        ),
        table(
            "Errors of the fit", "collective workers points median worst bias spread", result["residuals"],
            note=RESIDUALS_NOTE,
        ),
        table(
            f"Compute: {measured['problem']}",
            "workers step_s slowest_s spread flops_per_s peak_flops mfu memory_bytes_per_s", result["compute"],
            note=COMPUTE_NOTE,
        ),
        table(
            "Wire formats", "wire workers encode decode bytes_per_s", result["wires"], note=WIRES_NOTE,
            section="workers",
            values={"encode": lambda row: _wire_time(row, "encode"), "decode": lambda row: _wire_time(row, "decode")},
        ),
    ]  # fmt: skip


STREAMS_NOTE = (
    "Predicted: min(streams x window / round trip, cap), with the window of the fewest streams. Error: of the time."
)


def log_tables(result: dict[str, Any]) -> list[Group]:
    """Return the table of logged measurements and their predictions by the fitted network, with its bounds."""
    rows, network = result["rows"], result["network"]
    fitted_link = network.get("between", network)  # in a network of two levels, the link between nodes was fitted
    note = "No bounds: as many numbers as measurements."
    if bounds := fitted_link.get("bounds"):
        factors = f"{bounds['low']:.2f} to {bounds['high']:.2f}"
        note = f"Bounds of the file: {factors} times the predicted time, from {bounds['points']} errors."
    if network.get("kind") == "matrix":
        if not any(row["capped"] for row in rows):
            note = f"No measurement reached a cap: the largest rate stands for it. {note}"
        columns = "from to streams measured_bytes_per_s predicted_bytes_per_s error"
        return [table("Streams", columns, rows, note=f"{STREAMS_NOTE} {note}")]
    algorithm = result["measured"].get("algorithm")
    if algorithm and "gloo" not in network:  # commands choose gloo's algorithms on a network with gloo's costs
        note += f" They hold for {algorithm}: give other commands --algorithm {algorithm}, too."
    columns = "collective algorithm workers nbytes measured_s predicted_s error"
    return [table("Collectives", columns, rows, note=note)]
