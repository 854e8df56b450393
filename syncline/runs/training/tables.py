"""Tables of trainings for Parquet files (metrics, ledger, timeline, contributions), and traces of timelines."""

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
    """Yield the parts of ``metrics.parquet``, with one schema and a row per method, seed and step.

    ``step`` counts completed steps, so that row 0 is before the first step. In row t, ``train_loss`` is the loss of the
    batch of the t-th step. ``eval_*`` are measured on the mean of the workers' parameters after t steps, and null
    without an evaluation. Traces (``distance``, ``position_0``, ...) are taken after the t-th step.
    """
    schema = metrics_schema([training.history for training in trained])
    waiting, rows = list[pa.Table](), 0
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
    """Write the files of metrics and calls, and ``watched.parquet`` if the spec's ``watch`` measured values."""
    folder.long_table("metrics", metrics_tables(trained))
    folder.table("ledger", ledger_columns(trained))
    write_watched(folder, trained)


def ledger_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """Return the calls of several methods as columns; those of one replica represent all, because all send the same."""
    columns: dict[str, list[Any]] = {"method": []}
    for training in trained:
        columns["method"] += [training.method] * len(training.ledger)
        for name, values in columns_of(training.ledger).items():
            columns.setdefault(name, []).extend(values)
    return columns


def timeline_columns(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """Return several timelines as columns of one table.

    Args:
        timelines: method, network and timeline of each.
    """

    def arrow(column: Words | NDArray[Any]) -> pa.Array:
        if isinstance(column, Words):
            return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.words, pa.string())).cast(pa.string())
        return pa.array(column)

    parts: dict[str, list[pa.Array]] = {}
    for method, network, timeline in timelines:
        name_columns = {"method": method, "network": network}
        columns = {name: Words.repeated([word], [len(timeline)]) for name, word in name_columns.items()}
        for name, column in (columns | timeline.columns()).items():
            parts.setdefault(name, []).append(arrow(column))
    return {name: pa.chunked_array(chunks) for name, chunks in parts.items()}


def watched_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """Return what the specs' ``watch`` measured during trainings as columns; no columns without measurements."""
    columns: dict[str, list[Any]] = {}
    for training in trained:
        for row in training.history.watched:
            for name, value in {"method": training.method, **row._asdict()}.items():
                columns.setdefault(name, []).append(value)
    return columns


def write_watched(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """Write ``watched.parquet``, if the specs' ``watch`` measured anything during trainings."""
    if columns := watched_columns(trained):
        folder.table("watched", columns)


def write_contributions(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """Write ``contributions.parquet`` of asynchronous trainings: a row for each update, in the order of arrival."""
    columns: dict[str, list[Any]] = {}
    for training in trained:
        if training.asynchronous is None:
            continue
        result = training.asynchronous.result
        part = {name: column.tolist() for name, column in result.columns().items()}
        labels = {"method": training.method, "network": training.asynchronous.plan.network.name}
        repeated = {name: [label] * len(result.contributions) for name, label in labels.items()}
        for name, values in (repeated | part).items():
            columns.setdefault(name, []).extend(values)
    if columns:
        folder.table("contributions", columns)


def names_of_workers(timeline: Timeline, workers: int | None) -> list[str]:
    """Return the name of each participant of a timeline: workers, then local servers if there are any, then the server.

    Args:
        workers: number of workers; None if all participants are workers.
    """
    workers = timeline.workers if workers is None else workers
    local = max(0, timeline.workers - workers - 1)
    server_names = [*(f"local server {s}" for s in range(local)), "server"][: timeline.workers - workers]
    return [f"worker {worker}" for worker in range(workers)] + server_names


def side_by_side_trace(timelines: Sequence[tuple[str, str, Timeline]], workers: int | None = None) -> dict[str, Any]:
    """Return several timelines as one Chrome trace, with a process for each worker of each timeline.

    Args:
        timelines: method, network and timeline of each.
        workers: number of workers of each timeline, behind which are servers; None if all participants are workers.
    """
    events: list[dict[str, Any]] = []
    num_before = 0
    for method, network, timeline in timelines:
        names = [f"{method} on {network}, {name}" for name in names_of_workers(timeline, workers)]
        for event in chrome_trace(timeline, names)["traceEvents"]:
            event["pid"] += num_before
            if event["name"] == "process_sort_index":
                event["args"] = {"sort_index": event["args"]["sort_index"] + num_before}
            events.append(event)
        num_before += timeline.workers
    return {"traceEvents": events, "displayTimeUnit": "ms"}
