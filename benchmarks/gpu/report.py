"""The tables that people read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from syncline.units import format_bytes, format_seconds

Row = dict[str, Any]
Cell = Callable[[Row, dict[str, Any]], str]


def value(key: str) -> Cell:
    return lambda row, result: str(row.get(key, ""))


def seconds(key: str) -> Cell:
    return lambda row, result: format_seconds(row[key]) if key in row else ""


def percent(key: str, sign: str = "") -> Cell:
    return lambda row, result: f"{100 * row[key]:{sign}.1f}%" if key in row else ""


def nbytes(key: str) -> Cell:
    return lambda row, result: format_bytes(row[key]) if key in row else ""


def scaled(key: str, unit: float) -> Cell:
    return lambda row, result: f"{row[key] / unit:.4g}" if key in row else ""


def of_ceiling(row: Row, result: dict[str, Any]) -> str:
    """FLOP/s over the best matrix product's in the same precision, where that was measured too."""
    found = result["parts"].get("ceilings", {}).get("rows", [])
    best = [one["flops_per_s"] for one in found if one.get("precision") == row.get("precision")]
    return f"{100 * row['flops_per_s'] / max(best):.1f}%" if best and "flops_per_s" in row else ""


def over_adam(row: Row, result: dict[str, Any]) -> str:
    """A mean step over DDP-Adam's on the same model."""
    parts = (result["parts"].get(name, {}) for name in ("optimizers", "other-optimizers"))
    rows = [row for part in parts for row in part.get("rows", [])]
    adam = [r["mean_s"] for r in rows if r["model"] == row["model"] and r["method"] == "ddp-adam" and "mean_s" in r]
    return f"{row['mean_s'] / adam[0]:.2f}" if adam and "mean_s" in row else ""


def note(row: Row, result: dict[str, Any]) -> str:
    """What kept a row from being measured."""
    if row.get("out_of_memory"):
        return "out of memory"
    return str(row.get("failed", "cut short" if row.get("cut_short") else ""))


TIMES: dict[str, Cell] = {"median": seconds("median_s"), "least": seconds("min_s"), "spread": percent("spread")}

OPTIMIZERS: dict[str, Cell] = {
    "model": value("model"),
    "method": value("method"),
    "precision": value("precision"),
    **TIMES,
    "slowest": seconds("slowest_s"),
    "mean": seconds("mean_s"),
    "over adam": over_adam,
    "predicted more": seconds("predicted_added_s"),
    "memory": nbytes("peak_bytes"),
    "": note,
}

COLUMNS: dict[str, dict[str, Cell]] = {
    "ceilings": {
        "what": value("what"),
        "precision": value("precision"),
        "size": lambda row, result: str(row["size"]) if "size" in row else format_bytes(row["nbytes"]),
        **TIMES,
        "TFLOP/s": scaled("flops_per_s", 1e12),
        "GB/s": scaled("bytes_per_s", 1e9),
        "clock": value("clocks.sm"),
        "power": value("power.draw"),
    },
    "shapes": {
        "operation": value("operation"),
        "pass": value("pass"),
        "shape": lambda row, result: " x ".join(map(str, row["shape"])) if "shape" in row else "",
        "precision": value("precision"),
        **TIMES,
        "TFLOP/s": scaled("flops_per_s", 1e12),
        "MFU": percent("mfu"),
        "GB/s": scaled("bytes_per_s", 1e9),
        "": note,
    },
    "compute": {
        "model": value("model"),
        "micro-batch": value("micro_batch"),
        "precision": value("precision"),
        **TIMES,
        "TFLOP/s": scaled("flops_per_s", 1e12),
        "of matmul": of_ceiling,
        "MFU": percent("mfu"),
        "causal MFU": percent("causal_mfu"),
        "predicted": seconds("predicted_s"),
        "error": percent("error", "+"),
        "memory": nbytes("peak_bytes"),
        "": note,
    },
    "optimizers": OPTIMIZERS,
    "other-optimizers": OPTIMIZERS,
    "workers": {
        "method": value("method"),
        "execution": value("execution"),
        "autocast": value("autocast"),
        "workers": value("workers"),
        **TIMES,
        "tokens/s": scaled("tokens_per_s", 1.0),
        "of one worker's": lambda row, result: f"{row['of_one']:.2f}" if "of_one" in row else "",
        "memory": nbytes("peak_bytes"),
        "at least": nbytes("least_bytes"),
        "": note,
    },
    "readback": {"how": value("how"), "numbers": value("numbers"), **TIMES},
    "updates": {
        "kernel": value("kernel"),
        "operation": value("operation"),
        "precision": value("precision"),
        "shape": lambda row, result: (
            " x ".join(map(str, row["shape"])) if "shape" in row else value("model")(row, result)
        ),
        **TIMES,
        "host": seconds("host_s"),
        "": note,
    },
    "kernels": {
        "kernel": lambda row, result: str(row.get("format", row["kernel"])),
        "shape": lambda row, result: " x ".join(map(str, row["shape"])),
        **TIMES,
        "GB/s": lambda row, result: f"{row['held_gb_per_s']:.4g}" if "held_gb_per_s" in row else "",
    },
    "alone": {
        "backend": value("backend"),
        "ranks": value("ranks"),
        "collective": value("collective"),
        "bytes": nbytes("nbytes"),
        **TIMES,
        "queued": seconds("queued_s"),
    },
    "nccl": {
        "backend": value("backend"),
        "ranks": value("ranks"),
        "collective": value("collective"),
        "bytes": nbytes("nbytes"),
        **TIMES,
        "bus GB/s": scaled("bus_bytes_per_s", 1e9),
        "": note,
    },
    "shared": {
        "backend": value("backend"),
        "ranks": value("ranks"),
        "tensors": value("device"),
        "collective": value("collective"),
        "bytes": nbytes("nbytes"),
        **TIMES,
        "": note,
    },
}
"""Headings and cells by part; columns in which nothing stands are left out."""


def show(name: str, result: dict[str, Any], console: Console) -> None:
    """Print a part of a result."""
    part = result["parts"][name]
    if name == "facts":
        for row in part["rows"]:
            console.print(", ".join(f"{key} {told}" for key, told in row.items()), highlight=False, markup=False)
    elif part["rows"]:
        cells = [[cell(row, result) for cell in COLUMNS[name].values()] for row in part["rows"]]
        used = [i for i in range(len(COLUMNS[name])) if any(line[i] for line in cells)]
        table = Table(title=f"{name}, {part['seconds']:.1f} s", title_justify="left")
        for i in used:
            table.add_column(list(COLUMNS[name])[i], justify="left" if i < 2 else "right", no_wrap=True)
        for line in cells:
            table.add_row(*(line[i] for i in used))
        console.print(table, highlight=False, markup=False)
    for how in ("skipped", "stopped", "failed"):
        if how in part:
            console.print(f"{name}: {how}: {part[how]}", highlight=False, markup=False, soft_wrap=True)
