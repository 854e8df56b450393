"""The charts on the page of a result: losses, timelines of trainings or pipelines, and collectives by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from syncline.analysis.axes import thinned_indices
from syncline.analysis.curves import Curve, FloatArray, lost_seeds, median_and_range
from syncline.analysis.loss import LOG_TIME_RATIO, durations_differ, loss_limits
from syncline.columns import first_of
from syncline.runs.folders.result_files import FINALS, LEDGER, NETWORKS, SWEEP_METRICS, TEXT, TIMELINE, read_parquet
from syncline.runs.report.reported import Reported
from syncline.runs.sweep.ranking import ranked
from syncline.runs.training.results import FileCurves, read_curves
from syncline.sim.program.timeline import STRIP_WORKERS, WAITING, Timeline, around_first_collectives, is_computing

MOST_CONFIGURATIONS = 12
"""Largest number of lines of a sweep."""

OWN_NETWORK = "the network of the finals"

MEAN_STEP_NOTE = "Times and bytes are steps times those of the mean step."
"""Note for folders that do not store the clock of every step."""

MOST_POINTS = 500
"""Largest number of points of a line; further points are left out, not averaged."""

SIGNIFICANT_DIGITS = 5
"""Number of significant digits on the page, more than a reader can see."""


def lines_chart(file_curves: FileCurves, methods: Sequence[str]) -> dict[str, Any]:
    """Return the chart of losses: the medians over the seeds and their range, at the evaluations.

    Args:
        file_curves: the curves in a result's folder.
        methods: the page's methods, in the order of their colours.

    Returns:
        ``panels`` (one for each horizontal axis: ``steps``, ``bytes``, each network), ``series``, ``columns`` (lists of
        numbers; series have their indices), ``label``, ``limits`` of the loss, ``target``.
    """
    columns = _SharedColumns()
    series = []
    for curve in file_curves.curves:
        median, low, high = median_and_range(curve.loss)
        shown_indices = np.flatnonzero(curve.shown)
        points = shown_indices[thinned_indices(shown_indices.size, MOST_POINTS)]
        line: dict[str, Any] = {
            "name": curve.label, "style": methods.index(curve.label), "seeds": len(curve.loss),
            "lost": lost_seeds(curve.loss), "diverged": curve.diverged_at, "y": columns.index_of(median[points]),
        }  # fmt: skip
        if len(curve.loss) > 1:
            line |= {"low": columns.index_of(low[points]), "high": columns.index_of(high[points])}
        line["x"] = {"steps": columns.index_of(curve.step[points])}
        if curve.label in file_curves.sent_bytes:
            line["x"]["bytes"] = columns.index_of(file_curves.sent_bytes[curve.label][points])
        for name, clock_s in curve.clock_s.items():
            line["x"][f"on {name}"] = columns.index_of(clock_s[points])
        series.append(line)
    return {
        "kind": "lines", "label": file_curves.label, "panels": _loss_panels(file_curves), "series": series,
        "columns": columns.lists, "limits": [shortened(value) for value in loss_limits(file_curves.curves)],
        "target": file_curves.target,
    }  # fmt: skip


def _loss_panels(file_curves: FileCurves) -> list[dict[str, Any]]:
    """Return the panels of losses: over steps, over bytes, and over the time on each network.

    An axis of bytes is logarithmic ("log") if the curves' ends differ much. So are all axes of time if any needs it.
    """
    panels: list[dict[str, Any]] = [{"x": "steps", "title": "Steps", "kind": "count", "log": False}]
    total_bytes = [float(sent_bytes[-1]) for sent_bytes in file_curves.sent_bytes.values() if sent_bytes[-1] > 0]
    if total_bytes:
        is_log = max(total_bytes) > LOG_TIME_RATIO * min(total_bytes)
        panels.append({"x": "bytes", "title": "Bytes that a worker has sent", "kind": "bytes", "log": is_log})
    time_panels = []
    has_log_time = False
    for name, description in file_curves.networks.items():
        timed_curves = [curve for curve in file_curves.curves if name in curve.clock_s]
        if timed_curves:
            subtitle = "" if description == name else description
            time_panels.append({"x": f"on {name}", "title": f"Time on {name}", "told": subtitle, "kind": "seconds"})
            has_log_time |= durations_differ(timed_curves, [name])
    return panels + [panel | {"log": has_log_time} for panel in time_panels]


def loss_lines(result: Reported, methods: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    """Return the chart of a result's losses, None without losses, and a note about their origin."""
    curves_path, finals_path = result.file("curves.parquet"), result.file("finals.parquet")
    file_curves, note = None, ""
    if curves_path is not None:
        file_curves = read_curves(curves_path)
    elif result.command == "sweep" and result.folder is not None:
        file_curves, note = sweep_curves(result)
    elif result.command == "replicate" and finals_path is not None:
        file_curves = final_curves(finals_path, result.file("networks.parquet"))
        note = f"Of the finals, on fresh seeds. {MEAN_STEP_NOTE}"
    if file_curves is None or not file_curves.curves:
        return None, ""
    return lines_chart(file_curves, methods), note


def final_curves(finals_path: Path, networks_path: Path | None = None) -> FileCurves:
    """Return the losses of a replication's final trainings.

    Args:
        networks_path: the ``networks.parquet`` with the step time of each method on other networks; or None.
    """
    step_time_s: dict[str, dict[str, float]] = {}  # by method and network
    if networks_path is not None:
        for row in read_parquet(networks_path, NETWORKS).to_pylist():
            if row["setting"] == "finals":  # the file may have step times of other settings
                step_time_s.setdefault(row["method"], {})[row["network"]] = row["step_time_s"]
    curves, sent_bytes = [], {}
    for method, rows in read_parquet(finals_path, FINALS).to_pandas().groupby("method", sort=False):
        losses = rows.pivot(index="seed", columns="step", values="loss")
        steps = losses.columns.to_numpy()
        step_time_by_network = step_time_s.get(method, {OWN_NETWORK: rows["step_time_s"].median()})
        clock_s = _seconds_at_steps(steps, step_time_by_network)
        curves.append(Curve(str(method), steps, loss=losses.to_numpy(), clock_s=clock_s))
        sent_bytes[str(method)] = steps * rows["bytes_per_worker"].median()
    return _as_file_curves(curves, sent_bytes)


def _as_file_curves(curves: Sequence[Curve], sent_bytes: Mapping[str, FloatArray]) -> FileCurves:
    """Return curves as if they were read from a ``curves.parquet``, with the names of networks as labels.

    ``sent_bytes``: by method, the bytes that a worker has sent by each step of its curve.
    """
    networks = {name: name for curve in curves for name in curve.clock_s}
    return FileCurves(curves, sent_bytes, networks, label="evaluation loss", target=None)


def _seconds_at_steps(steps: NDArray[Any], step_time_s: Mapping[str, float | None]) -> dict[str, FloatArray]:
    """Return by network the seconds at some steps, from the mean step times that are known."""
    return {name: steps * step_s for name, step_s in step_time_s.items() if step_s is not None and step_s > 0}


def names_of_lines(result: Reported) -> list[str]:
    """Return the names of a result's lines and bars, which have a colour on the page."""
    if result.command == "sweep":
        return [name for name, _ in best_configurations(result)]
    names = list(result.methods)
    for file in ("curves.parquet", "ledger.parquet", "finals.parquet"):
        path = result.file(file)
        if path is not None:
            names += read_parquet(path, {"method": TEXT}, only=["method"])["method"].unique().to_pylist()
    return list(dict.fromkeys(names))


def best_configurations(result: Reported) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the configurations of a sweep with the lowest median losses, at most `MOST_CONFIGURATIONS`.

    Each is a pair: its name on the page, made of the swept values, and its rows, one for each seed.
    """
    rows_with_loss = [row for row in result.rows if row.get("error") is None and row.get("loss") is not None]
    if not rows_with_loss:
        return []
    best = []
    for record in ranked(rows_with_loss)[:MOST_CONFIGURATIONS]:
        values = [f"{path.removeprefix('method.')} {record[path]}" for path in result.paths if path in record]
        name = f"{record['configuration']}: {', '.join(values) or record['method']}"
        best.append((name, [row for row in rows_with_loss if row["configuration"] == record["configuration"]]))
    return best


def sweep_curves(result: Reported) -> tuple[FileCurves, str]:
    """Return the losses of a sweep's best configurations, from the metrics of its runs, and a note about them."""
    assert result.folder is not None
    curves, sent_bytes = [], {}
    best = best_configurations(result)
    for name, rows in best:
        evaluations = []  # a table for each seed
        for row in rows:
            path = result.folder / "runs" / row["run"] / "metrics.parquet"
            if path.is_file():
                table = read_parquet(path, SWEEP_METRICS, only=SWEEP_METRICS)
                evaluations.append(table.filter(pc.is_valid(table["eval_loss"])))
        if not evaluations:
            continue
        shortest = min(evaluations, key=len)  # a diverged seed ends early
        steps = shortest["step"].to_numpy()
        losses = np.stack([table["eval_loss"].to_numpy()[: len(steps)] for table in evaluations])
        step_time_s = _median(row.get("step_time_s") for row in rows)
        curves.append(Curve(name, steps, losses, _seconds_at_steps(steps, {rows[0]["network"]: step_time_s})))
        bytes_per_step = _median(row.get("bytes_per_worker") for row in rows)
        if bytes_per_step is not None:
            sent_bytes[name] = steps * bytes_per_step
    note = MEAN_STEP_NOTE
    num_configurations = len({row["configuration"] for row in result.rows})
    if num_configurations > len(best):
        note = f"The best {len(best)} of {num_configurations:,} configurations. {note}"
    return _as_file_curves(curves, sent_bytes), note


def _median(values: Iterable[Any]) -> float | None:
    """Return the median of the values that are not None; None without any."""
    present = [value for value in values if value is not None]
    return float(np.median(present)) if present else None


def shortened(value: float) -> float:
    """Return a number with the digits that a page keeps."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


class _SharedColumns:
    """Lists of numbers for a page; equal lists are stored once."""

    def __init__(self) -> None:
        self.lists: list[list[float | int]] = []
        self._indices: dict[bytes, int] = {}

    def index_of(self, values: FloatArray) -> int:
        """Return the index of a list of numbers; store the list if it is new."""
        key = np.asarray(values, dtype=float).tobytes()
        if key not in self._indices:
            self._indices[key] = len(self.lists)
            numbers: list[float | int] = []
            for value in values:
                number = shortened(float(value))
                is_exact_integer = number.is_integer() and abs(number) < 1e15  # shorter in JSON without its ".0"
                numbers.append(int(number) if is_exact_integer else number)
            self.lists.append(numbers)
        return self._indices[key]


MOST_SPANS = 1500
"""Largest number of spans of one timeline: further workers are left out first, then the latest spans."""

MOST_SPANS_OF_RESULT = 9000
"""Number of spans in a result's timelines; further timelines are left out."""

MOST_STACKED = 8
"""Largest number of schedules that are drawn one below the other; of more the reader chooses one."""

NUM_TICKS = 1_000_000
"""Length of a timeline in ticks: a tick is less than a pixel at any zoom."""

STAGE_TASKS = ("forward", "backward", "weight")
"""Kinds of tasks of a pipeline's stage."""

LEAST_STEPS, MOST_STEPS = 32, 256
"""Fewest and most steps shown; between them they are two rounds of the method that sends least often."""

MOST_NAMED_CALLS = 4
"""Largest number of kinds of calls that are named for a step."""


def spans_chart(path: Path, row_noun: str = "worker") -> dict[str, Any] | None:
    """Return the chart of a folder's timelines.

    Args:
        row_noun: noun for a row of a timeline: ``worker`` or ``stage``.

    Returns:
        ``choices`` with the columns of `_span_columns` for each timeline, ``left`` (number of timelines that are left
        out), ``first`` (index of the timeline that is shown first), and ``stacked`` (whether timelines are drawn one
        below the other); None if there is nothing to draw.
    """
    choices: list[dict[str, Any]] = []
    num_drawn_spans = num_left_out = first_shown = most_steps = 0
    for method, network, timeline in _timelines(path):
        if num_drawn_spans >= MOST_SPANS_OF_RESULT:
            num_left_out += 1
            continue
        spans_and_title = _first_tasks(timeline) if row_noun == "stage" else _first_collectives(timeline)
        if spans_and_title is not None:
            spans, title = spans_and_title
            num_steps = len(np.unique(spans.step))
            if num_steps >= most_steps:  # the timeline with most steps is shown first
                first_shown, most_steps = len(choices), num_steps
            choices.append({"name": f"{method} on {network}", "told": title, **_span_columns(spans, row_noun)})
            num_drawn_spans += len(spans)
    if not choices:
        return None
    is_stacked = row_noun == "stage" and len(choices) <= MOST_STACKED
    return {"kind": "spans", "choices": choices, "left": num_left_out, "first": first_shown, "stacked": is_stacked}


def _timelines(path: Path) -> Iterator[tuple[str, str, Timeline]]:
    """Yield the method (or schedule), the network and the timeline of each part of a ``timeline.parquet``."""
    table = read_parquet(path, TIMELINE)
    # The distinct pairs, in the order of the file.
    pairs = table.select(["method", "network"]).group_by(["method", "network"], use_threads=False).aggregate([])
    names = ("worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step")
    for pair in pairs.to_pylist():
        method, network = pair["method"], pair["network"]
        rows = table.filter(pc.and_(pc.equal(table["method"], method), pc.equal(table["network"], network)))
        columns = {name: rows[name].to_numpy(zero_copy_only=False) for name in names}
        yield method, network, Timeline.from_columns(columns, int(columns["worker"].max()) + 1)


def _first_collectives(timeline: Timeline) -> tuple[Timeline, str] | None:
    """Return the spans around a training's first collectives for the workers that can be drawn, and a title."""
    spans_and_title = around_first_collectives(timeline)
    if spans_and_title is None:
        return None
    spans, title = spans_and_title
    shown_spans = spans
    for num_workers in range(STRIP_WORKERS, 0, -1):
        shown_spans = spans[spans.worker < num_workers]
        if len(shown_spans) <= MOST_SPANS:
            break
    return _first_spans(shown_spans, title)


def _first_tasks(timeline: Timeline) -> tuple[Timeline, str]:
    """Return the first tasks of a pipeline's stages, and a title."""
    # "forward.1" is the forward pass of the second chunk.
    is_task = [activity.split(".")[0] in STAGE_TASKS for activity in timeline.what.tolist()]
    return _first_spans(timeline[np.array(is_task, dtype=bool)], f"{timeline.workers} stages")


def _first_spans(timeline: Timeline, title: str) -> tuple[Timeline, str]:
    """Return the first `MOST_SPANS` spans of a timeline, and a title that tells if spans are left out."""
    if len(timeline) <= MOST_SPANS:
        return timeline, title
    first_left_out_s = np.partition(timeline.start_s, MOST_SPANS)[MOST_SPANS]
    return timeline[timeline.start_s < first_left_out_s], f"{title}, the first {MOST_SPANS:,} spans"


def _span_columns(spans: Timeline, row_noun: str) -> dict[str, Any]:
    """Return the spans of a timeline as columns for the page, with times in ticks, and each distinct text once.

    Returns:
        ``tick`` (its seconds), ``from`` (time of tick 0 in seconds), the texts ``lanes``, ``kinds`` and ``words``, and
        columns with an item for each span: ``lane``, ``kind`` and ``word`` (indices of texts), ``start`` and ``length``
        in ticks, and for stages ``numbers`` of micro-batches.
    """
    kinds, texts = [], []
    for stream, activity, label, step in zip(
        spans.stream.tolist(), spans.what.tolist(), spans.label.tolist(), spans.step.tolist(), strict=True
    ):
        kinds.append(_kind(stream, activity))
        if row_noun == "stage":
            texts.append(f"{activity}, micro-batch {step + 1}")
        elif label and label != activity:
            texts.append(f"{activity}, {label}, step {step}")
        else:
            texts.append(f"{activity}, step {step}")
    kind_indices = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
    text_indices = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    workers = np.unique(spans.worker)
    first_number = 1 if row_noun == "stage" else 0  # stages are counted from 1, workers from 0
    start_s, end_s = float(spans.start_s.min()), float(spans.end_s.max())
    tick_s = (end_s - start_s) / NUM_TICKS if end_s > start_s else 1.0
    start_ticks = np.round((spans.start_s - start_s) / tick_s)
    end_ticks = np.round((spans.end_s - start_s) / tick_s)
    return {
        "tick": tick_s, "from": start_s,
        "lanes": [f"{row_noun} {worker + first_number}" for worker in workers.tolist()],
        "kinds": list(kind_indices), "words": list(text_indices),
        "numbers": [str(step + 1) for step in spans.step.tolist()] if row_noun == "stage" else [],
        "lane": np.searchsorted(workers, spans.worker).tolist(),
        "kind": [kind_indices[kind] for kind in kinds], "word": [text_indices[text] for text in texts],
        "start": start_ticks.astype(int).tolist(),
        "length": np.maximum(end_ticks - start_ticks, 0).astype(int).tolist(),
    }  # fmt: skip


def _kind(stream: str, activity: str) -> str:
    """Return the kind of a span, which decides the colour, from the span's stream and activity."""
    if not is_computing(stream):
        return "network"
    if activity in WAITING:
        return "wait"
    task, _, chunk = activity.partition(".")  # "forward.1" is a task of the second chunk
    if task in STAGE_TASKS:
        is_odd_chunk = chunk != "" and int(chunk) % 2 == 1  # neighbouring chunks differ in colour
        return f"{task} later" if is_odd_chunk else task
    return activity if activity in ("encode", "trigger", "optimizer") else "compute"


def collectives_chart(path: Path, methods_of_page: Sequence[str]) -> dict[str, Any] | None:
    """Return the chart of the collectives in the first steps of each method, with the bytes that a worker sends.

    The result is None if there was no collective.

    Returns:
        ``steps`` (number of shown steps), ``all`` (number of all steps), ``words`` (texts of collectives), and
        ``lanes``: for each method ``steps`` with collectives, their ``bytes``, and ``words`` (indices of texts).
    """
    table = read_parquet(path, LEDGER, LEDGER)
    if not len(table):
        return None
    num_steps = int(pc.max(table["step"]).as_py()) + 1
    methods = table["method"].unique().to_pylist()
    longest_period = 1  # steps from one exchange of a method to the next
    for method in methods:
        steps = np.unique(table.filter(pc.equal(table["method"], method))["step"].to_numpy())
        period = int(np.diff(steps).max()) if len(steps) > 1 else int(steps[0]) + 1  # else from step 0 on
        longest_period = max(longest_period, period)
    steps_of_two_rounds = 2 * longest_period + 1
    num_shown = min(num_steps, max(LEAST_STEPS, min(steps_of_two_rounds, MOST_STEPS)))
    shown_rows = table.filter(pc.less(table["step"], num_shown))
    text_indices: dict[str, int] = {}
    lanes = []
    for method in methods:
        sizes_by_step: dict[int, dict[str, list[float]]] = {}  # payload bytes by the name of a collective
        for row in shown_rows.filter(pc.equal(shown_rows["method"], method)).to_pylist():
            sizes_by_name = sizes_by_step.setdefault(row["step"], {})
            sizes_by_name.setdefault(f"{row['collective']} of {row['label']}", []).append(row["payload_bytes"])
        color_index = methods_of_page.index(method)
        lane: dict[str, Any] = {"name": method, "style": color_index, "steps": [], "bytes": [], "words": []}
        for step, sizes_by_name in sizes_by_step.items():
            calls = [f"{name}, {len(sizes)} times" if len(sizes) > 1 else name for name, sizes in sizes_by_name.items()]
            text = first_of(calls, MOST_NAMED_CALLS, "; ")
            lane["steps"].append(step)
            lane["bytes"].append(round(sum(sum(sizes) for sizes in sizes_by_name.values())))
            lane["words"].append(text_indices.setdefault(text, len(text_indices)))
        lanes.append(lane)
    return {"kind": "placement", "steps": num_shown, "all": num_steps, "lanes": lanes, "words": list(text_indices)}
