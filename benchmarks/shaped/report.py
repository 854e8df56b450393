"""What was measured as pages and pictures: tables in Markdown, with command, date and versions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shaped.learned import points
from syncline.analysis import save
from syncline.analysis.validation import predicted_against_measured
from syncline.costmodel.link_fit import gloo_errors
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.measure.validation.processes import GROUPED_COLUMNS, figure_of
from syncline.units import format_bandwidth, format_seconds

Row = dict[str, Any]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def percent(value: float, sign: str = "") -> str:
    """``1.23%``."""
    return f"{100 * value:{sign}.2f}%"


def prose(*sentences: str) -> str:
    """A paragraph."""
    return textwrap.fill(" ".join(sentences), 120) + "\n"


def versions_line(told: Row) -> str:
    """When, where, and with what."""
    machine = f"{told['cores']} cores of {told['machine']}, Linux {told['kernel']}"
    return f"On {told['date']}, {machine}, Python {told['python']}, torch {told['torch']}, Syncline {told['syncline']}."


def calls_of(costs: GlooCosts) -> list[tuple[str, int, float]]:
    """What a call takes by collective and number of workers."""
    return [(kind, workers, seconds) for kind, of in costs.call_of_s for workers, seconds in of]


def collectives(told: Sequence[Row], learned: Sequence[Row], rows: Sequence[Row], costs: GlooCosts, page: Path) -> None:
    """Collectives at settings that were not learned from: a page, and a picture beside it.

    Args:
        told: what each file of measurements says of itself.
        learned: rows that the costs are from.
        rows: the others.
        costs: of the software.
        page: the file to write.
    """
    off = gloo_errors(points(rows), costs)
    kinds = list(dict.fromkeys(row["collective"] for row in rows))
    settings = list(dict.fromkeys((row["bytes_per_s"], row["delay_s"], row["hosts"]) for row in rows))

    def line(name: str, chosen: Callable[[Row], bool]) -> list[str]:
        of = np.abs([error for error, row in zip(off, rows, strict=True) if chosen(row)])
        spread = float(np.median([row["spread"] for row in rows if chosen(row)]))
        summary = (np.median(of), np.percentile(of, 90), of.max(), spread)
        return [name, str(len(of)), *(percent(float(value)) for value in summary)]

    headings = ["points", "median error", "90%", "worst", "spread of repetitions"]
    by_kind = [line(kind, lambda row, kind=kind: row["collective"] == kind) for kind in kinds]  # type: ignore[misc]
    by_setting = [
        line(
            f"{format_bandwidth(rate)}, {format_seconds(delay)}, {hosts} hosts",
            lambda row, at=(rate, delay, hosts): (row["bytes_per_s"], row["delay_s"], row["hosts"]) == at,  # type: ignore[misc]
        )
        for rate, delay, hosts in settings
    ]
    at, repetitions = learned[0], [row["repetitions"] for row in rows]
    single = [
        [
            f"{format_bandwidth(row['bytes_per_s'])}, {format_seconds(row['delay_s'])}, {row['hosts']}",
            row["collective"],
            f"{row['nbytes']:,}", format_seconds(row["median_s"] * (1 + error)), format_seconds(row["median_s"]),
            percent(error, "+") + (" ~" if abs(error) <= row["spread"] else ""), percent(row["spread"]),
        ]
        for error, row in zip(off, rows, strict=True)
    ]  # fmt: skip
    text = [
        "# Collectives of gloo over links of a known rate and delay\n",
        "".join(f"    {one['command']}\n" for one in told),
        prose(
            versions_line(told[0]),
            f"Medians over {min(repetitions)} to {max(repetitions)} repetitions, from a common start to the end of the",
            "last rank. Latency and bandwidth are as configured. What the software takes was learned at",
            f"{format_bandwidth(at['bytes_per_s'])} and {format_seconds(at['delay_s'])} one way alone",
            f"({len(learned)} points): {format_seconds(costs.message_s)} per message;",
            "per call " + ", ".join(f"{format_seconds(s)} among {p} ({kind})" for kind, p, s in calls_of(costs)) + ";",
            "per byte " + ", ".join(f"{1e9 * seconds:.2f} ns ({kind})" for kind, seconds in costs.byte_s) + ".",
            "All points below are predictions. Errors are absolute, of `predicted / measured - 1`.",
        ),
        markdown(["collective", *headings], [*by_kind, line("**all**", lambda row: True)]),
        markdown(["setting", *headings], by_setting),
        f"![Predicted against measured collectives]({page.stem}.png)\n",
        "All points; ~: the error is within the standard deviation of the repetitions.\n",
        markdown(["setting", "collective", "bytes", "predicted", "measured", "error", "spread"], single),
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(text), encoding="utf-8")
    of_kind = {
        kind: tuple(
            [row["median_s"] * factor for error, row in zip(off, rows, strict=True) if row["collective"] == kind
             for factor in [1 + error if predicted else 1.0]]
            for predicted in (False, True)
        )
        for kind in kinds
    }  # fmt: skip
    panels = {
        "one-way delay": {
            format_seconds(delay): [float(e) for e, row in zip(off, rows, strict=True) if row["delay_s"] == delay]
            for delay in sorted({row["delay_s"] for row in rows})
        },
        "rate": {
            format_bandwidth(rate): [float(e) for e, row in zip(off, rows, strict=True) if row["bytes_per_s"] == rate]
            for rate in sorted({row["bytes_per_s"] for row in rows})
        },
        "hosts": {
            str(hosts): [float(e) for e, row in zip(off, rows, strict=True) if row["hosts"] == hosts]
            for hosts in sorted({row["hosts"] for row in rows})
        },
    }
    save(
        predicted_against_measured(of_kind, panels, title="errors, unseen settings", measured="collective"),
        page.with_suffix(".png"),
    )  # type: ignore[arg-type]


def trainings(folder: Path, command: str, told: Row, page: Path) -> None:
    """Trainings that were predicted and then measured: a page, and a picture beside it.

    Args:
        folder: what a validation has written.
        command: that made it.
        told: date and versions.
        page: the file to write.
    """
    result = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    rows, summary = result["rows"], result["summary"]
    groups = [
        [by if by == "all" else f"{by}: {value}" if by in GROUPED_COLUMNS else value, str(of["points"]),
         percent(of["median"]), percent(of["worst"]), percent(of["bias"], "+"), percent(of["spread"])]
        for of in summary for by, value in [(of["by"], of["value"])]
    ]  # fmt: skip
    devices = [
        abs(row["device_error"]) for row in rows if row["device_error"] is not None and row["device_bytes"] > 100
    ]
    single = [
        [
            f"{row['network']}, {row['workers']}", row["spec"], row["method"], row["bound"],
            format_seconds(row["predicted_s"]), format_seconds(row["measured_s"]),
            percent(row["error"], "+") + (" ~" if row["noisy"] else ""), percent(row["spread"]),
            f"{format_seconds(row['predicted_communication_s'])}, {format_seconds(row['measured_communication_s'])}",
            f"{row['predicted_bytes']:,.0f}, {row['measured_bytes']:,.0f}",
            "-" if row["device_error"] is None else percent(row["device_error"], "+"),
            f"{row['loss_difference']:+.1e}",
        ]
        for row in rows
    ]  # fmt: skip
    text = [
        "# Training steps over links of a known rate and delay\n",
        f"    {command}\n",
        prose(
            versions_line(told),
            "Each repetition of a training was predicted before it ran: by the simulator's traffic, by what steps",
            "take between the same processes with no network between them, and by the cost model with latency and",
            "bandwidth as configured and software costs from collectives at one setting.",
            f"{result['repeats']} repetitions of each; a mean step, of medians.",
        ),
        markdown(["points of", "number", "median error", "worst", "bias", "spread of repetitions"], groups),
        prose(
            "Bytes on the devices (kernel counters) against the ledger with headers and acknowledgements modelled:",
            f"median error {percent(float(np.median(devices)))}, worst {percent(max(devices))}.",
        ),
        f"![Predicted against measured steps]({page.stem}.png)\n",
        prose(
            "All points. ~: the error is within the spread, 1.48 times the median deviation of the repetitions.",
            "Communication: standing still for it, predicted and measured. Bytes: payload per worker and step,",
            "likewise. Device: bytes on the interface, predicted over counted.",
            "Loss: measured less simulated, after the last step.",
        ),
        markdown(
            ["link, workers", "spec", "method", "bound by", "predicted", "measured", "error", "spread", "communication",
             "bytes", "device", "loss"], single,
        ),
    ]  # fmt: skip
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(text), encoding="utf-8")
    save(figure_of(rows), page.with_suffix(".png"))
