"""The charts on the page of a result: losses, timelines of trainings or pipelines, and collectives by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from syncline.analysis.axes import thinned
from syncline.analysis.curves import Curve, FloatArray, lost_seeds, median_and_range
from syncline.analysis.loss import LOG_TIME_RATIO, loss_limits, spans_differ
from syncline.columns import first_of
from syncline.runs.folders.result_files import FINALS, LEDGER, NETWORKS, SWEEP_METRICS, TEXT, TIMELINE, read_parquet
from syncline.runs.report.reported import Reported
from syncline.runs.sweep.ranking import ranked
from syncline.runs.training.results import FileCurves, read_curves
from syncline.sim.program.timeline import STRIP_WORKERS, WAITING, Timeline, is_computing, strip_of

MOST_CONFIGURATIONS = 12
"""Largest number of lines of a sweep."""

OWN_NETWORK = "the network of the finals"

BY_MEANS = "Times and bytes are steps times those of the mean step."
"""Note for folders that do not store the clock of every step."""

MOST_POINTS = 500
"""Largest number of points of a line; of more points some are left out, none is averaged."""

DIGITS = 5
"""Number of significant digits on the page, more than a reader can see."""


def lines_chart(read: FileCurves, styles: Sequence[str]) -> dict[str, Any]:
    """Return the chart of losses: the medians over the seeds and their range, at the evaluations.

    Args:
        read: the curves in a result's folder.
        styles: the page's methods, in the order of their colours.

    Returns:
        ``panels`` (the horizontal axis of each: ``steps``, ``bytes``, a network), ``series``, ``columns`` (each list of
        numbers once; series refer to them by index), ``label``, ``limits`` of the loss, ``target``.
    """
    columns = _Columns()
    networks = [name for name in read.networks if any(name in curve.clock_s for curve in read.curves)]
    series = []
    for curve in read.curves:
        median, low, high = median_and_range(curve.loss)
        shown_steps = np.flatnonzero(curve.shown)
        points = shown_steps[thinned(shown_steps.size, MOST_POINTS)]
        series.append({
            "name": curve.label,
            "style": styles.index(curve.label),
            "seeds": len(curve.loss),
            "lost": lost_seeds(curve.loss),
            "diverged": curve.diverged_at,
            "y": columns.place(median[points]),
            **({"low": columns.place(low[points]), "high": columns.place(high[points])} if len(curve.loss) > 1 else {}),
            "x": {
                "steps": columns.place(curve.step[points]),
                **({"bytes": columns.place(read.sent[curve.label][points])} if curve.label in read.sent else {}),
                **{f"on {name}": columns.place(clock[points]) for name, clock in curve.clock_s.items()},
            },
        })  # fmt: skip
    is_log_time = any(
        spans_differ([curve for curve in read.curves if name in curve.clock_s], [name]) for name in networks
    )
    panels = [{"x": "steps", "title": "Steps", "kind": "count", "log": False}]
    totals = [float(sent_bytes[-1]) for sent_bytes in read.sent.values() if float(sent_bytes[-1]) > 0]
    if totals:
        is_log = max(totals) > LOG_TIME_RATIO * min(totals)
        panels.append({"x": "bytes", "title": "Bytes that a worker has sent", "kind": "bytes", "log": is_log})
    for name in networks:
        description = "" if read.networks[name] == name else read.networks[name]
        panel = {"x": f"on {name}", "title": f"Time on {name}", "told": description, "kind": "seconds"}
        panels.append(panel | {"log": is_log_time})
    limits = loss_limits(read.curves)
    return {
        "kind": "lines", "label": read.label, "panels": panels, "series": series, "columns": columns.kept,
        "limits": [shortened(value) for value in limits], "target": read.target,
    }  # fmt: skip


def loss_lines(result: Reported, styles: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    """Return the chart of a result's losses, and a note about their origin; None if the result has no losses."""
    curves = result.file("curves.parquet")
    if curves is not None and (read := read_curves(curves)).curves:
        return lines_chart(read, styles), ""
    if result.command == "sweep" and result.folder is not None:
        read, note = sweep_curves(result)
        return (lines_chart(read, styles), note) if read.curves else (None, "")
    finals = result.file("finals.parquet") if result.command == "replicate" else None
    if finals is not None:
        read = final_curves(finals, result.file("networks.parquet"))
        return lines_chart(read, styles), f"Of the finals, on fresh seeds. {BY_MEANS}"
    return None, ""


def final_curves(path: Path, elsewhere: Path | None = None) -> FileCurves:
    """Return the losses of a replication's final trainings.

    Args:
        path: the ``finals.parquet``.
        elsewhere: the ``networks.parquet`` with the step time of each method on other networks; or None.
    """
    frame = read_parquet(path, FINALS).to_pandas()
    step_time_s: dict[str, dict[str, float]] = {}
    if elsewhere is not None:
        for row in read_parquet(elsewhere, NETWORKS).to_pylist():
            if row["setting"] == "finals":
                step_time_s.setdefault(row["method"], {})[row["network"]] = row["step_time_s"]
    curves, sent_bytes = [], {}
    for method, group in frame.groupby("method", sort=False):
        by_step = group.pivot(index="seed", columns="step", values="loss")
        network_step_s = step_time_s.get(str(method)) or {OWN_NETWORK: group["step_time_s"].median()}
        step = by_step.columns.to_numpy()
        curves.append(Curve(str(method), step, loss=by_step.to_numpy(), clock_s=_clocks(step, network_step_s)))
        sent_bytes[str(method)] = step * group["bytes_per_worker"].median()
    networks = dict.fromkeys(name for curve in curves for name in curve.clock_s)
    return FileCurves(
        curves, sent_bytes, networks={name: name for name in networks}, label="evaluation loss", target=None
    )


def _clocks(step: NDArray[Any], step_time_s: Mapping[str, float | None]) -> dict[str, FloatArray]:
    """Return by network the seconds at some steps, from the mean step times that are known."""
    return {name: step * step_s for name, step_s in step_time_s.items() if step_s is not None and step_s > 0}


def named_lines(result: Reported) -> list[str]:
    """Return the names of a result's lines and bars, which have a colour on the page."""
    if result.command == "sweep":
        return [name for name, _ in best_configurations(result)]
    names = result.methods
    for file in ("curves.parquet", "ledger.parquet", "finals.parquet"):
        path = result.file(file)
        if path is not None:
            names += read_parquet(path, {"method": TEXT}, ["method"])["method"].unique().to_pylist()
    return list(dict.fromkeys(names))


def best_configurations(result: Reported) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the best configurations of a sweep, as pairs of a name and the rows of the seeds."""
    finished = [row for row in result.rows if row.get("error") is None and row.get("loss") is not None]
    if not finished:
        return []
    rows_of: dict[Any, list[dict[str, Any]]] = {}
    for row in finished:
        rows_of.setdefault(row["configuration"], []).append(row)
    best = ranked(finished)[:MOST_CONFIGURATIONS]
    return [(_configuration(record, result.paths), rows_of[record["configuration"]]) for record in best]


def _configuration(record: Mapping[str, Any], paths: Sequence[str]) -> str:
    """Return a configuration's name: the number, and the swept values or the method."""
    values = ", ".join(f"{path.removeprefix('method.')} {record[path]}" for path in paths if path in record)
    return f"{record['configuration']}: {values or record['method']}"


def sweep_curves(result: Reported) -> tuple[FileCurves, str]:
    """Return the losses of a sweep's best configurations, from the metrics of its runs, and a note about them."""
    assert result.folder is not None
    curves, sent_bytes, label = [], {}, "evaluation loss"
    best_rows = best_configurations(result)
    for name, rows in best_rows:
        paths = [result.folder / "runs" / row["run"] / "metrics.parquet" for row in rows]
        tables = [read_parquet(path, SWEEP_METRICS, SWEEP_METRICS) for path in paths if path.is_file()]
        seeds = [table.filter(pc.is_valid(table["eval_loss"])) for table in tables]
        if not seeds:
            continue
        shortest = min(seeds, key=len)["step"].to_numpy()  # a diverged seed ends early
        losses = np.stack([seed["eval_loss"].to_numpy()[: len(shortest)] for seed in seeds])
        means = {key: _median(row.get(key) for row in rows) for key in ("step_time_s", "bytes_per_worker")}
        curves.append(Curve(name, shortest, losses, _clocks(shortest, {rows[0]["network"]: means["step_time_s"]})))
        if means["bytes_per_worker"] is not None:
            sent_bytes[name] = shortest * means["bytes_per_worker"]
    num_configurations = len({row["configuration"] for row in result.rows})
    note = (
        f"The best {len(best_rows)} of {num_configurations:,} configurations. "
        if num_configurations > len(best_rows)
        else ""
    )
    networks = dict.fromkeys(name for curve in curves for name in curve.clock_s)
    return FileCurves(
        curves, sent_bytes, networks={name: name for name in networks}, label=label, target=None
    ), note + BY_MEANS


def _median(values: Iterable[Any]) -> float | None:
    """Return the median of the values that are not None; None without any."""
    present = [value for value in values if value is not None]
    return float(np.median(present)) if present else None


def shortened(value: float) -> float:
    """Return a number with the digits that a page keeps."""
    return float(f"{value:.{DIGITS}g}")


class _Columns:
    """Lists of numbers for a page, of which equal lists are stored once."""

    def __init__(self) -> None:
        self.kept: list[list[float | int]] = []
        self._places: dict[bytes, int] = {}

    def place(self, values: FloatArray) -> int:
        """Store a list of numbers, and return its index."""
        key = np.asarray(values, dtype=float).tobytes()
        if key not in self._places:
            self._places[key] = len(self.kept)
            tick_labels = [shortened(float(value)) for value in values]
            self.kept.append(
                [int(value) if value.is_integer() and abs(value) < 1e15 else value for value in tick_labels]
            )
        return self._places[key]


MOST_SPANS = 1500
"""Largest number of spans of one timeline: further workers are left out first, then the latest spans."""

MOST_OF_A_PAGE = 9000
"""Number of spans of a result's timelines after which further timelines are left out."""

MOST_STACKED = 8
"""Largest number of schedules that are drawn one below the other; of more schedules the reader chooses one."""

TICKS = 1_000_000
"""Length of a timeline in ticks: a tick is less than a pixel at any zoom."""

STAGE_TASKS = ("forward", "backward", "weight")
"""Kinds of tasks of a pipeline's stage."""

LEAST_STEPS, MOST_STEPS = 32, 256
"""Limits of the number of steps shown, which are otherwise two rounds of the method that sends least often."""

MOST_NAMED = 4
"""Largest number of kinds of calls of a step that are named."""


def spans_chart(path: Path, key: str = "worker") -> dict[str, Any] | None:
    """Return the chart of a folder's timelines.

    Args:
        path: a ``timeline.parquet``.
        key: noun for a row of a timeline: ``worker`` or ``stage``.

    Returns:
        ``choices`` with the columns of `_columns` for each timeline, ``left`` (number of timelines that are left out),
        ``first`` (index of the timeline that is shown first), ``stacked``; None if there is nothing to draw.
    """
    choices, num_drawn, num_skipped = [], 0, 0
    for method, network, timeline in _timelines(path):
        if num_drawn >= MOST_OF_A_PAGE:
            num_skipped += 1
            continue
        strip = _of_a_pipeline(timeline) if key == "stage" else _of_a_training(timeline)
        if strip is not None:
            shown_timeline, title = strip
            choices.append({"name": f"{method} on {network}", "told": title, **_columns(shown_timeline, key)})
            num_drawn += len(shown_timeline)
    if not choices:
        return None
    # The timeline with most steps shows most, so it is shown first.
    longest = max(range(len(choices)), key=lambda index: (choices[index].pop("steps"), index))
    stacked = key == "stage" and len(choices) <= MOST_STACKED
    return {"kind": "spans", "choices": choices, "left": num_skipped, "first": longest, "stacked": stacked}


def _timelines(path: Path) -> Iterator[tuple[str, str, Timeline]]:
    """Yield the method (or schedule), the network and the timeline of each part of a ``timeline.parquet``."""
    table = read_parquet(path, TIMELINE)
    named = table.select(["method", "network"]).group_by(["method", "network"], use_threads=False).aggregate([])
    names = ("worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step")
    for method, network in (tuple(pair.values()) for pair in named.to_pylist()):
        part = table.filter(pc.and_(pc.equal(table["method"], method), pc.equal(table["network"], network)))
        columns = {name: part[name].to_numpy(zero_copy_only=False) for name in names}
        yield method, network, Timeline.from_columns(columns, int(columns["worker"].max()) + 1)


def _of_a_training(timeline: Timeline) -> tuple[Timeline, str] | None:
    """Return the spans around the first collectives, of as many workers as can be drawn, and a title."""
    strip = strip_of(timeline)
    if strip is None:
        return None
    spans, title = strip
    shown_spans = spans
    for workers in range(STRIP_WORKERS, 0, -1):
        shown_spans = spans[spans.worker < workers]
        if len(shown_spans) <= MOST_SPANS:
            break
    return _first(shown_spans, title)


def _of_a_pipeline(timeline: Timeline) -> tuple[Timeline, str]:
    """Return the first tasks of a pipeline's stages, and a title."""
    tasks = timeline[np.array([kind.split(".")[0] in STAGE_TASKS for kind in timeline.what.tolist()], dtype=bool)]
    return _first(tasks, f"{timeline.workers} stages")


def _first(shown: Timeline, title: str) -> tuple[Timeline, str]:
    """Return the first `MOST_SPANS` spans, and the title, which says whether spans are left out."""
    if len(shown) <= MOST_SPANS:
        return shown, title
    until_s = np.partition(shown.start_s, MOST_SPANS)[MOST_SPANS]
    return shown[shown.start_s < until_s], f"{title}, the first {MOST_SPANS:,} spans"


def _columns(shown: Timeline, key: str) -> dict[str, Any]:
    """Return the spans of a timeline as columns for the page, with times in ticks, and each distinct text once."""
    start_s, end_s = float(shown.start_s.min()), float(shown.end_s.max())
    tick_s = (end_s - start_s) / TICKS or 1.0
    kind_names, streams, labels = shown.what.tolist(), shown.stream.tolist(), shown.label.tolist()
    steps = shown.step.tolist()
    kinds = [_kind(stream, kind_name) for stream, kind_name in zip(streams, kind_names, strict=True)]
    texts = []
    for kind_name, label, step in zip(kind_names, labels, steps, strict=True):
        named = f", {label}" if label and label != kind_name else ""
        texts.append(f"{kind_name}, micro-batch {step + 1}" if key == "stage" else f"{kind_name}{named}, step {step}")
    lanes = np.unique(shown.worker)
    kinds_there = list(dict.fromkeys(kinds))
    place_of = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    begin = np.round((shown.start_s - start_s) / tick_s)
    return {
        "steps": len(np.unique(shown.step)),
        "tick": tick_s,
        "from": start_s,
        "lanes": [f"{key} {lane + 1 if key == 'stage' else lane}" for lane in lanes.tolist()],
        "kinds": kinds_there,
        "words": list(place_of),
        "numbers": [str(step + 1) for step in steps] if key == "stage" else [],
        "lane": np.searchsorted(lanes, shown.worker).tolist(),
        "kind": [kinds_there.index(kind) for kind in kinds],
        "word": [place_of[text] for text in texts],
        "start": begin.astype(int).tolist(),
        "length": np.maximum(np.round((shown.end_s - start_s) / tick_s) - begin, 0).astype(int).tolist(),
    }


def _kind(stream: str, activity: str) -> str:
    """Return the kind of a span, which decides the colour, from the span's stream and activity."""
    if not is_computing(stream):
        return "network"
    if activity in WAITING:
        return "wait"
    first, _, chunk = activity.partition(".")
    if first in STAGE_TASKS:
        return f"{first} later" if chunk and int(chunk) % 2 else first
    return activity if activity in ("encode", "trigger", "optimizer") else "compute"


def placement_chart(path: Path, styles: Sequence[str]) -> dict[str, Any] | None:
    """Return the chart of the collectives in the first steps of each method, with the bytes that a worker sends.

    Args:
        path: a ``ledger.parquet``.
        styles: the page's methods, in the order of their colours.
    """
    table = read_parquet(path, LEDGER, LEDGER)
    if not len(table):
        return None
    last = int(pc.max(table["step"]).as_py()) + 1
    gaps = []
    methods = table["method"].unique().to_pylist()
    for method in methods:
        steps = np.unique(table.filter(pc.equal(table["method"], method))["step"].to_numpy())
        gaps.append(int(np.diff(steps).max()) if len(steps) > 1 else int(steps[0]) + 1)
    count = min(last, max(LEAST_STEPS, min(2 * max(gaps) + 1, MOST_STEPS)))
    shown_rows = table.filter(pc.less(table["step"], count))
    word_indices: dict[str, int] = {}
    lanes = []
    for method in methods:
        by_step: dict[int, dict[str, list[float]]] = {}
        for row in shown_rows.filter(pc.equal(shown_rows["method"], method)).to_pylist():
            sizes = by_step.setdefault(row["step"], {}).setdefault(f"{row['collective']} of {row['label']}", [])
            sizes.append(row["payload_bytes"])
        lanes.append({
            "name": method,
            "style": styles.index(method),
            "steps": list(by_step),
            "bytes": [round(sum(map(sum, calls.values()))) for calls in by_step.values()],
            "words": [word_indices.setdefault(_calls_text(calls), len(word_indices)) for calls in by_step.values()],
        })  # fmt: skip
    return {"kind": "placement", "steps": count, "all": last, "lanes": lanes, "words": list(word_indices)}


def _calls_text(calls: dict[str, list[float]]) -> str:
    """Return the collectives of a step as text, with the number of each; ``calls`` has their sizes by name."""
    call_texts = [name + (f", {len(sizes)} times" if len(sizes) > 1 else "") for name, sizes in calls.items()]
    return first_of(call_texts, MOST_NAMED, "; ")
