"""Scripts that know nothing of Syncline: recorded once and replayed on links, beside the same scripts measured there.

Computing is what the recording measured, the network what the line is and what gloo runs on it. Nothing is fitted to a
script's steps. Processes run in real time, gloo's threads first, so that whatever else a machine does counts little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shaped.measure import ROOT, link
from benchmarks.shaped.network import PRIORITIES, Network, possible_priority, run_on_hosts
from benchmarks.shaped.report import markdown, percent, prose, versions_line
from syncline.analysis import save
from syncline.analysis.validation import predicted_against_measured
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.measure.recording.ranks import ForeignScript, trace_program
from syncline.measure.recording.record import RankRecord
from syncline.measure.replaying.replay import MeasuredComputing, replay
from syncline.units import format_bandwidth, format_seconds

HOSTS = 2
SCRIPTS = tuple(sorted((Path(__file__).parent / "scripts").glob("*.py")))

Row = dict[str, Any]
Setting = tuple[float, float]
"""Bytes per second, and seconds one way."""


@contextlib.contextmanager
def in_real_time() -> Iterator[None]:
    """Inside, processes that are started compute before others, as on the hosts."""
    if possible_priority("both") != "both":
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(int(PRIORITIES["both"][-1])))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def recorded(script: Path) -> list[RankRecord]:
    """What the ranks of a script do, and how long its computing takes here."""
    with in_real_time():
        return trace_program(ForeignScript(str(script)), HOSTS)


def measured_steps_s(script: Path, network: Network) -> np.ndarray:
    """From the end of each step on the last host to that of the next."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.shaped.steps", f"{folder}/steps", str(script)]
        codes = run_on_hosts(network, command, "both", 600.0, {"PYTHONPATH": str(ROOT)}, cwd=ROOT)
        if any(codes):
            raise RuntimeError(f"{script.name}: processes ended with {codes}")
        ends = [json.loads(Path(f"{folder}/steps.{host}").read_text()) for host in range(HOSTS)]
    return np.diff(np.max(ends, axis=0))


def predicted_steps_s(ranks: Sequence[RankRecord], setting: Setting, costs: GlooCosts) -> tuple[np.ndarray, float]:
    """The same by a replay; and the part of a step that waits for the network with nothing to compute."""
    on = dataclasses.replace(link(*setting), gloo=costs)
    told = replay(ranks, on, MeasuredComputing())
    spans = told.timeline
    waited_s = float((spans.end_s - spans.start_s)[spans.what == "wait"].sum()) / HOSTS
    return np.diff(told.step_end_s), waited_s / float(spans.end_s.max())


def validate(scripts: Sequence[Path], settings: Sequence[Setting], costs: GlooCosts, repeats: int) -> list[Row]:
    """A row per script and setting; scripts are recorded before anything is measured."""
    records = {script: recorded(script) for script in scripts}
    rows = []
    for setting in settings:
        found: dict[Path, list[np.ndarray]] = {script: [] for script in scripts}
        with Network(HOSTS, *setting) as network:
            for _ in range(repeats):  # by turns, so that a minute in which a machine is slower is one for all
                for script in scripts:
                    found[script].append(measured_steps_s(script, network))
        for script in scripts:
            rows.append(row_of(script, setting, found[script], *predicted_steps_s(records[script], setting, costs)))
            show(rows[-1])
    return rows


def row_of(script: Path, setting: Setting, found: Sequence[np.ndarray], predicted_s: np.ndarray, waits: float) -> Row:
    """Mean steps: of what was predicted, and of the medians over the repetitions."""
    measured_s = float(np.median(found, axis=0).mean())
    means = [float(one.mean()) for one in found]
    middle = statistics.median(means)
    told_s = float(predicted_s.mean())
    return {
        "script": script.stem,
        "hosts": HOSTS,
        "bytes_per_s": setting[0],
        "delay_s": setting[1],
        "steps": len(predicted_s) + 1,
        "repetitions": len(found),
        "predicted_s": told_s,
        "measured_s": measured_s,
        "error": told_s / measured_s - 1,
        "spread": 1.48 * statistics.median(abs(mean / middle - 1) for mean in means),
        "predicted_waits": waits,
        "priority": possible_priority("both"),
    }


def name_of(row: Row) -> str:
    """The line."""
    return f"{format_bandwidth(row['bytes_per_s'])}, {format_seconds(row['delay_s'])}"


def show(row: Row) -> None:
    """A line of a row."""
    print(
        f"{row['script']:12}{name_of(row):22}{1e3 * row['predicted_s']:>9.1f} ms {1e3 * row['measured_s']:>9.1f} ms"
        f"{100 * row['error']:>+7.1f}%{100 * row['spread']:>6.1f}%{100 * row['predicted_waits']:>6.0f}%",
        flush=True,
    )


def page_of(rows: Sequence[Row], command: str, told: Row, costs: str, page: Path) -> None:
    """A page, and a picture beside it."""
    scripts, lines = (list(dict.fromkeys(of(row) for row in rows)) for of in (lambda row: row["script"], name_of))

    def line(name: str, of: Sequence[Row]) -> list[str]:
        off = np.array([row["error"] for row in of])
        spread = float(np.median([row["spread"] for row in of]))
        return [name, str(len(of)), *(percent(float(one)) for one in (np.median(abs(off)), abs(off).max())),
                percent(float(off.mean()), "+"), percent(spread)]  # fmt: skip

    single = [
        [row["script"], name_of(row), format_seconds(row["predicted_s"]), format_seconds(row["measured_s"]),
         percent(row["error"], "+") + (" ~" if abs(row["error"]) <= row["spread"] else ""), percent(row["spread"]),
         f"{100 * row['predicted_waits']:.0f}%"] for row in rows
    ]  # fmt: skip
    text = [
        "# Scripts that know nothing of Syncline, over links of a known rate and delay\n",
        f"    {command}\n",
        prose(
            versions_line(told),
            f"Each script was recorded once, by {HOSTS} processes over this machine's loopback, and replayed on lines",
            "with the CPU seconds that its segments took in that recording. Latency and rate are as configured.",
            f"{costs} Nothing was fitted to steps. {rows[0]['repetitions']} runs of each; a mean step, of medians.",
        ),
        markdown(
            ["points of", "number", "median error", "worst", "bias", "spread of repetitions"],
            [line("**all**", rows), *(line(name, [row for row in rows if row["script"] == name]) for name in scripts),
             *(line(name, [row for row in rows if name_of(row) == name]) for name in lines)],
        ),
        f"![Predicted against measured steps]({page.stem}.png)\n",
        prose(
            "All points. ~: the error is within the spread, 1.48 times the median deviation of the repetitions. Waits:",
            "the part of a step in which the host stands still for the network, by the replay.",
        ),
        markdown(["script", "line", "predicted", "measured", "error", "spread", "waits"], single),
    ]  # fmt: skip
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(text), encoding="utf-8")
    points = {
        name: tuple([row[part] for row in rows if row["script"] == name] for part in ("measured_s", "predicted_s"))
        for name in scripts
    }
    panels = {"line": {name: [row["error"] for row in rows if name_of(row) == name] for name in lines}}
    save(predicted_against_measured(points, panels, title="errors"), page.with_suffix(".png"))  # type: ignore[arg-type]
