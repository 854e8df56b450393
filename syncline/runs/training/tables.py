"""Trainings as columns for parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from numpy.typing import NDArray

from syncline.costmodel.traffic.call import columns_of
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.streams import metrics_schema, metrics_table
from syncline.sim import Timeline
from syncline.sim.program.timeline import Words, chrome_trace

if TYPE_CHECKING:
    from syncline.runs.training.trained import Trained


ROWS_AT_A_TIME = 1 << 18
"""Rows that are in memory while a file of metrics is written."""


def metrics_tables(trained: Sequence[Trained]) -> Iterator[pa.Table]:
    """Yield tables with one schema, one row per method, seed and step.

    ``step`` counts completed steps: row 0 is before the first. ``train_loss`` of row t is that of the batch of the t-th
    step; ``eval_*`` are measured on the mean of the workers' parameters after t steps, null at steps without an
    evaluation; traces (``distance``, ``position_0``, ...) are taken after the t-th step.
    """
    schema, waiting, rows = metrics_schema([training.history for training in trained]), list[pa.Table](), 0
    for training in trained:
        for s in range(len(training.history.seeds)):
            for begin in range(0, training.history.steps + 1, ROWS_AT_A_TIME):
                end = min(begin + ROWS_AT_A_TIME, training.history.steps + 1)
                waiting.append(metrics_table(training.method, training.history, s, schema, begin, end))
                rows += end - begin
                if rows >= ROWS_AT_A_TIME:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [], 0
    yield pa.concat_tables([schema.empty_table(), *waiting])


def write_measurements(folder: RunFolder, trained: Sequence[Trained]) -> None:
    """Write the metrics, the ledger and, if trainings were watched, their measurements along the way."""
    folder.long_table("metrics", metrics_tables(trained))
    folder.table("ledger", ledger_columns(trained))
    write_watched(folder, trained)


def ledger_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """Return the ledgers of several methods, one below the other; each is one replica's, because all send the same."""
    columns: dict[str, list[Any]] = {"method": []}
    for training in trained:
        columns["method"] += [training.method] * len(training.ledger)
        for name, values in columns_of(training.ledger).items():
            columns.setdefault(name, []).extend(values)
    return columns


def timeline_columns(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """Return timelines of (method, network) as columns, one below the other."""

    def arrow(column: Words | NDArray[Any]) -> pa.Array:
        if isinstance(column, Words):
            return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.words, pa.string())).cast(pa.string())
        return pa.array(column)

    parts: dict[str, list[pa.Array]] = {}
    for method, network, timeline in timelines:
        named = {"method": method, "network": network}
        columns = {name: Words.repeated([word], [len(timeline)]) for name, word in named.items()}
        for name, column in (columns | timeline.columns()).items():
            parts.setdefault(name, []).append(arrow(column))
    return {name: pa.chunked_array(chunks) for name, chunks in parts.items()}


def watched_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """Return the measurements along trainings as columns, one training below the other; empty without measurements."""
    rows = [{"method": training.method, **row._asdict()} for training in trained for row in training.history.watched]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def write_watched(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """Write ``watched.parquet``, if trainings were measured along the way."""
    columns = watched_columns(trained)
    if columns:
        folder.table("watched", columns)


def write_contributions(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """Write ``contributions.parquet`` for workers at their own pace: a row for each update, in the order of arrival."""
    columns: dict[str, list[Any]] = {}
    for asynchronous, method in (
        (training.asynchronous, training.method) for training in trained if training.asynchronous is not None
    ):
        count = len(asynchronous.result.contributions)
        part = {"method": [method] * count, "network": [asynchronous.plan.network.name] * count}
        for name, column in (
            part | {name: column.tolist() for name, column in asynchronous.result.columns().items()}
        ).items():
            columns.setdefault(name, []).extend(column)
    if columns:
        folder.table("contributions", columns)


def names_of_workers(timeline: Timeline, workers: int | None) -> list[str]:
    """Return the names in a trace: workers, then local servers if there are any, then the server."""
    workers = timeline.workers if workers is None else workers
    local = max(0, timeline.workers - workers - 1)
    after = [*(f"local server {s}" for s in range(local)), "server"][: timeline.workers - workers]
    return [f"worker {worker}" for worker in range(workers)] + after


def side_by_side_trace(timelines: Sequence[tuple[str, str, Timeline]], workers: int | None = None) -> dict[str, Any]:
    """Return timelines of (method, network) as one Chrome trace, with a process for each worker of each.

    If ``workers`` is set, further indices are servers.
    """
    events: list[dict[str, Any]] = []
    before = 0
    for method, network, timeline in timelines:
        names = [f"{method} on {network}, {name}" for name in names_of_workers(timeline, workers)]
        for event in chrome_trace(timeline, names)["traceEvents"]:
            event["pid"] += before
            if event["name"] == "process_sort_index":
                event["args"] = {"sort_index": event["args"]["sort_index"] + before}
            events.append(event)
        before += timeline.workers
    return {"traceEvents": events, "displayTimeUnit": "ms"}
