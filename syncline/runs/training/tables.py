"""Tables of trainings for Parquet files (metrics, ledger, timeline, contributions), and traces of timelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from numpy.typing import NDArray

from syncline.costmodel.traffic.call import Call, columns_of
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.streams import metrics_schema, metrics_table
from syncline.sim import Timeline
from syncline.sim.program.timeline import Words, chrome_trace

if TYPE_CHECKING:
    from syncline.runs.training.trained import Trained


ROWS_AT_A_TIME = 1 << 18
"""Largest number of rows in memory while a file of metrics is written."""


def metrics_tables(trained: Sequence[Trained]) -> Iterator[pa.Table]:
    """Yield the parts of ``metrics.parquet``, with one schema and a row per method, seed and step.

    ``step`` counts completed steps, so that row 0 is before the first step. In row t, ``train_loss`` is the loss of the
    batch of the t-th step. ``eval_*`` are measured on the mean of the workers' parameters after t steps, and null
    without an evaluation. Traces (``distance``, ``position_0``, ...) are taken after the t-th step.
    """
    schema = metrics_schema([training.history for training in trained])
    tables: list[pa.Table] = []
    num_rows = 0
    for training in trained:
        num_steps = training.history.steps + 1
        for seed_index in range(len(training.history.seeds)):
            for begin in range(0, num_steps, ROWS_AT_A_TIME):
                end = min(begin + ROWS_AT_A_TIME, num_steps)
                tables.append(metrics_table(training.method, training.history, seed_index, schema, begin, end))
                num_rows += end - begin
                if num_rows >= ROWS_AT_A_TIME:
                    yield pa.concat_tables(tables)
                    tables, num_rows = [], 0
    yield pa.concat_tables([schema.empty_table(), *tables])  # the file has columns even without rows


def write_measurements(folder: RunFolder, trained: Sequence[Trained]) -> None:
    """Write the files of metrics and calls, and ``watched.parquet`` if the spec's ``watch`` measured values."""
    folder.long_table("metrics", metrics_tables(trained))
    folder.table("ledger", ledger_columns((training.method, training.ledger) for training in trained))
    watched = watched_columns(trained)
    if watched:
        folder.table("watched", watched)


def ledger_columns(ledgers: Iterable[tuple[str, Sequence[Call]]]) -> dict[str, list[Any]]:
    """Return the collectives of several methods or scripts, each with its name, as columns, one below the other."""
    columns: dict[str, list[Any]] = {"method": []}
    for method, calls in ledgers:
        columns["method"] += [method] * len(calls)
        for name, values in columns_of(calls).items():
            columns.setdefault(name, []).extend(values)
    return columns


def timeline_columns(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """Return several timelines as columns of one table."""

    def arrow_array(column: Words | NDArray[Any]) -> pa.Array:
        if isinstance(column, Words):  # the column has codes, and the file gets their texts
            return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.words, pa.string())).cast(pa.string())
        return pa.array(column)

    chunks: dict[str, list[pa.Array]] = {}
    for method, network, timeline in timelines:
        columns = {
            "method": Words.repeated([method], [len(timeline)]),
            "network": Words.repeated([network], [len(timeline)]),
            **timeline.columns(),
        }
        for name, column in columns.items():
            chunks.setdefault(name, []).append(arrow_array(column))
    return {name: pa.chunked_array(arrays) for name, arrays in chunks.items()}


def watched_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """Return the values that the specs' ``watch`` measured during trainings as columns; no columns without any."""
    columns: dict[str, list[Any]] = {}
    for training in trained:
        for measurement in training.history.watched:
            for name, value in {"method": training.method, **measurement._asdict()}.items():
                columns.setdefault(name, []).append(value)
    return columns


def write_contributions(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """Write ``contributions.parquet`` of asynchronous trainings: a row for each update, in the order of arrival."""
    columns: dict[str, list[Any]] = {}
    for training in trained:
        if training.asynchronous is None:
            continue
        result, network = training.asynchronous.result, training.asynchronous.plan.network
        num_updates = len(result.contributions)
        columns.setdefault("method", []).extend([training.method] * num_updates)
        columns.setdefault("network", []).extend([network.name] * num_updates)
        for name, column in result.columns().items():
            columns.setdefault(name, []).extend(column.tolist())
    if columns:
        folder.table("contributions", columns)


def names_of_workers(timeline: Timeline, workers: int | None) -> list[str]:
    """Return the name of each participant of a timeline: workers, then local servers if there are any, then the server.

    Args:
        timeline: the timeline, whose ``workers`` counts all participants.
        workers: number of workers; None if all participants are workers.
    """
    num_workers = timeline.workers if workers is None else workers
    names = [f"worker {worker}" for worker in range(num_workers)]
    num_servers = timeline.workers - num_workers
    if num_servers > 0:  # the last one is the single or the global server
        names += [f"local server {server}" for server in range(num_servers - 1)]
        names.append("server")
    return names


def side_by_side_trace(timelines: Sequence[tuple[str, str, Timeline]], workers: int | None = None) -> dict[str, Any]:
    """Return several timelines as one Chrome trace, with a process for each worker of each timeline.

    Args:
        workers: number of workers of each timeline; further participants are servers. None if all are workers.
    """
    events: list[dict[str, Any]] = []
    first_pid = 0  # process id of the timeline's first participant
    for method, network, timeline in timelines:
        names = [f"{method} on {network}, {name}" for name in names_of_workers(timeline, workers)]
        for event in chrome_trace(timeline, names)["traceEvents"]:
            event["pid"] += first_pid
            if event["name"] == "process_sort_index":  # the order of processes in the viewer
                event["args"] = {"sort_index": event["args"]["sort_index"] + first_pid}
            events.append(event)
        first_pid += timeline.workers
    return {"traceEvents": events, "displayTimeUnit": "ms"}
