"""Trainings as columns for parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from syncline.costmodel.traffic.call import columns_of
from syncline.sim.timeline import Words
from syncline.sim.trace import chrome_trace

if TYPE_CHECKING:
    from syncline.costmodel import Call
    from syncline.experiments.folder import RunFolder
    from syncline.experiments.trained import Trained
    from syncline.sim import Timeline
    from syncline.training import History


ROWS_AT_A_TIME = 1 << 18
"""That are in memory while a file of metrics is written."""


def metrics_tables(trained: Sequence[Trained]) -> Iterator[pa.Table]:
    """One row per method, seed and step, some at a time, in tables with one schema.

    ``step`` counts completed steps: row 0 is before the first. ``train_loss`` of row t is that of the batch of the t-th
    step; ``eval_*`` are measured on the mean of the workers' parameters after t steps, null where nothing was measured;
    traces (``distance``, ``position_0``, ...) are taken after the t-th step.
    """
    schema, waiting, rows = _schema([one.history for one in trained]), list[pa.Table](), 0
    for one in trained:
        for s in range(len(one.history.seeds)):
            for begin in range(0, one.history.steps + 1, ROWS_AT_A_TIME):
                end = min(begin + ROWS_AT_A_TIME, one.history.steps + 1)
                waiting.append(_metrics(one.method, one.history, s, schema, begin, end))
                rows += end - begin
                if rows >= ROWS_AT_A_TIME:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [], 0
    yield pa.concat_tables([schema.empty_table(), *waiting])


def metrics_part(method: str, history: History, first: int) -> pa.Table:
    """Some rows of a training under way, from completed step ``first`` on; the history is of these rows alone."""
    schema, end = _schema([history]), first + history.steps + (first == 0)
    return pa.concat_tables(
        [_metrics(method, history, s, schema, first, end, first) for s in range(len(history.seeds))]
    )


def _schema(histories: Iterable[History]) -> pa.Schema:
    """Names, seeds and steps, then what any of the histories has measured."""
    kinds: dict[str, pa.DataType] = {"method": pa.string(), "seed": pa.int64(), "step": pa.int64()}
    for history in histories:
        kinds.setdefault("train_loss", pa.float64())
        for name, values in history.evaluation.items():
            kinds.setdefault(f"eval_{name}", _kind(values))
        for name, values in history.trace.items():
            for column in _components(name, values):
                kinds.setdefault(column, _kind(values))
    return pa.schema(list(kinds.items()))


def _kind(values: np.ndarray) -> pa.DataType:
    return {"i": pa.int64(), "u": pa.int64(), "b": pa.bool_()}.get(values.dtype.kind, pa.float64())


def _components(name: str, values: np.ndarray) -> list[str]:
    return [name] if values.ndim == 2 else [f"{name}_{i}" for i in range(int(np.prod(values.shape[2:])))]


def _metrics(
    method: str, history: History, s: int, schema: pa.Schema, begin: int, end: int, first: int = 0
) -> pa.Table:
    """Rows of completed steps ``begin`` to ``end - 1`` of one seed; the history's first row is that of ``first``."""
    count, before = end - begin, int(begin == 0)  # row 0 is before the first step
    after = slice(begin + before - max(first, 1), end - max(first, 1))
    missing = np.arange(count) < before
    columns: dict[str, Any] = {
        "method": pa.repeat(pa.scalar(method, pa.string()), count),
        "seed": np.full(count, history.seeds[s]),
        "step": np.arange(begin, end),
    }

    def later(values: np.ndarray) -> pa.Array:
        column = np.zeros(count, dtype=values.dtype)
        column[before:] = values[after]
        return pa.array(column, mask=missing)

    columns["train_loss"] = later(history.loss[:, s])
    for name, values in history.evaluation.items():
        at = history.eval_step[: len(values)]
        here = (at >= begin) & (at < end)
        column, unknown = np.zeros(count, dtype=values.dtype), np.ones(count, dtype=bool)
        column[at[here] - begin], unknown[at[here] - begin] = values[: len(at), s][here], False
        columns[f"eval_{name}"] = pa.array(column, mask=unknown)
    for name, values in history.trace.items():
        flat = values[:, s].reshape(history.steps, -1)
        columns |= {column: later(flat[:, i]) for i, column in enumerate(_components(name, values))}
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def ledger_part(method: str, calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Some calls of a training under way."""
    return {"method": [method] * len(calls)} | columns_of(calls) if calls else {}


def ledger_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """The ledgers of several methods, one below the other; one replica's, as all send the same."""
    columns: dict[str, list[Any]] = {"method": []}
    for one in trained:
        columns["method"] += [one.method] * len(one.ledger)
        for name, values in columns_of(one.ledger).items():
            columns.setdefault(name, []).extend(values)
    return columns


def timeline_columns(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """Timelines of (method, network), one below the other."""
    parts: dict[str, list[pa.Array]] = {}
    for method, network, timeline in timelines:
        named = {"method": method, "network": network}
        columns = {name: Words.repeated([word], [len(timeline)]) for name, word in named.items()}
        for name, column in (columns | timeline.columns()).items():
            parts.setdefault(name, []).append(_arrow(column))
    return {name: pa.chunked_array(of) for name, of in parts.items()}


def _arrow(column: Words | NDArray[Any]) -> pa.Array:
    if isinstance(column, Words):
        return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.words, pa.string())).cast(pa.string())
    return pa.array(column)


def watched_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """What measures found along trainings, one below the other; empty if nobody looked."""
    columns: dict[str, list[Any]] = {}
    for one in trained:
        for found in one.history.watched:
            for name, value in {"method": one.method, **found._asdict()}.items():
                columns.setdefault(name, []).append(value)
    return columns


def write_watched(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """``watched.parquet``, where something was measured along the way."""
    columns = watched_columns(trained)
    if columns:
        folder.table("watched", columns)


def write_contributions(folder: RunFolder, trained: Iterable[Trained]) -> None:
    """``contributions.parquet``, where workers came at their own pace: a row for each update, as they came."""
    columns: dict[str, list[Any]] = {}
    for one in trained:
        if one.apart is None:
            continue
        columns.setdefault("method", []).extend([one.method] * len(one.apart.played.contributions))
        columns.setdefault("network", []).extend([one.apart.plan.network.name] * len(one.apart.played.contributions))
        for name, column in one.apart.played.columns().items():
            columns.setdefault(name, []).extend(column.tolist())
    if columns:
        folder.table("contributions", columns)


def names_of_workers(timeline: Timeline, workers: int | None) -> list[str]:
    """What a trace calls them; who comes after so many workers is their server, after local ones if there are some."""
    workers = timeline.workers if workers is None else workers
    local = max(0, timeline.workers - workers - 1)
    after = [*(f"local server {s}" for s in range(local)), "server"][: timeline.workers - workers]
    return [f"worker {worker}" for worker in range(workers)] + after


def side_by_side_trace(timelines: Sequence[tuple[str, str, Timeline]], workers: int | None = None) -> dict[str, Any]:
    """Timelines of (method, network) as one Chrome trace, with a process for each worker of each.

    Who comes after so many workers, if that is given, is their server.
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
