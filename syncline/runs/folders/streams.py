"""Metrics and calls of running trainings, which are written to disk at intervals so that they survive a crash."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.costmodel.traffic.call import columns_of
from syncline.files import atomic_path

if TYPE_CHECKING:
    from syncline.comm import Ledger
    from syncline.training import History, Recorder

FOLDER = "streams"
"""The folder of the streams in an unfinished run folder; ``0-metrics.arrows`` is of the first method, and so on."""

SECONDS_BETWEEN_WRITES = 1.0
"""Seconds between two writes: the results that a killed process can lose, besides its current step."""

SHARE_OF_TIME = 0.02
"""Largest part of a training's time for writing: slow writes happen less often."""


class TrainingStream:
    """The paths of the files to which one method's training writes its results; another process can receive them.

    Args:
        folder: the working folder of the run.
        number: number of the method, from 0.
    """

    def __init__(self, folder: Path, number: int, method: str) -> None:
        self.method = method
        (folder / FOLDER).mkdir(exist_ok=True)
        self.metrics, self.ledger = (folder / FOLDER / f"{number}-{kind}.arrows" for kind in ("metrics", "ledger"))


class SeedStream:
    """The writer of new results of seeds that train side by side.

    Args:
        stream: the files of the training.
        recorder: the seeds' losses and metrics so far.
        ledger: the seeds' calls; None for all but the first seeds of a training, because all send the same.
    """

    def __init__(
        self, stream: TrainingStream, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None
    ) -> None:
        """Begin without written rows."""
        self._stream, self._seeds, self._recorder, self._ledger = stream, seeds, recorder, ledger
        self._rows = self._calls = 0
        self._due_s = 0.0

    def note(self, done: int) -> None:
        """Write the new rows after ``done`` steps if it is time; the last row waits, as it may get an evaluation."""
        begun_s = time.monotonic()
        if done > 1 and begun_s >= self._due_s:  # the row before the first step has no traces, which give the columns
            self._write(done)
            ended_s = time.monotonic()
            self._due_s = ended_s + max(SECONDS_BETWEEN_WRITES, (ended_s - begun_s) / SHARE_OF_TIME)

    def finish(self) -> None:
        """Write the rows that still wait in memory."""
        if self._recorder.eval_step:
            self._write(len(self._recorder.losses) + 1)

    def _write(self, rows: int) -> None:
        """Write the rows before number ``rows`` that are not written yet, and the calls since the last write."""
        first, method = self._rows, self._stream.method
        history = self._recorder.part(self._seeds, first, rows)
        schema, end = metrics_schema([history]), first + history.steps + (first == 0)
        parts = [
            metrics_table(method, history, s, schema, begin=first, end=end, first=first)
            for s in range(len(history.seeds))
        ]
        append(self._stream.metrics, pa.concat_tables(parts))
        calls = self._ledger.records[self._calls :] if self._ledger is not None else []
        if calls:
            append(self._stream.ledger, {"method": [method] * len(calls)} | columns_of(calls))
        self._rows, self._calls = rows, self._calls + len(calls)


def metrics_schema(histories: Iterable[History]) -> pa.Schema:
    """Return the schema of ``metrics.parquet``: method, seed, step, then the quantities of any of the histories."""
    kinds: dict[str, pa.DataType] = {"method": pa.string(), "seed": pa.int64(), "step": pa.int64()}

    def add(column: str, values: np.ndarray) -> None:
        kind = {"i": pa.int64(), "u": pa.int64(), "b": pa.bool_()}.get(values.dtype.kind, pa.float64())
        kinds.setdefault(column, kind)

    for history in histories:
        kinds.setdefault("train_loss", pa.float64())
        for name, values in history.evaluation.items():
            add(f"eval_{name}", values)
        for name, values in history.trace.items():
            for column in trace_columns(name, values):
                add(column, values)
    return pa.schema(list(kinds.items()))


def trace_columns(name: str, values: np.ndarray) -> list[str]:
    """Return the column names of a trace ``(T, S, ...)``: one for each component of a step's and seed's value."""
    return [name] if values.ndim == 2 else [f"{name}_{i}" for i in range(int(np.prod(values.shape[2:])))]


def metrics_table(
    method: str, history: History, s: int, schema: pa.Schema, begin: int, end: int, first: int = 0
) -> pa.Table:
    """Return rows ``begin`` to ``end - 1`` of the metrics of one seed; row t is after t steps.

    Args:
        history: the training's losses, evaluations and traces.
        s: index of the seed.
        schema: schema of the table, see `metrics_schema`.
        end: row after the last one.
        first: number of steps before the history's first one, if the history is a part of a training.
    """
    count, num_before = end - begin, int(begin == 0)
    rows_after = slice(begin + num_before - max(first, 1), end - max(first, 1))
    columns: dict[str, Any] = {
        "method": pa.repeat(pa.scalar(method, pa.string()), count),
        "seed": np.full(count, history.seeds[s]),
        "step": np.arange(begin, end),
    }

    def later(values: np.ndarray) -> pa.Array:
        column = np.zeros(count, dtype=values.dtype)
        column[num_before:] = values[rows_after]
        return pa.array(column, mask=np.arange(count) < num_before)

    columns["train_loss"] = later(history.loss[:, s])
    for name, values in history.evaluation.items():
        steps = history.eval_step[: len(values)]
        in_block = (steps >= begin) & (steps < end)
        column, unknown = np.zeros(count, dtype=values.dtype), np.ones(count, dtype=bool)
        column[steps[in_block] - begin], unknown[steps[in_block] - begin] = values[: len(steps), s][in_block], False
        columns[f"eval_{name}"] = pa.array(column, mask=unknown)
    for name, values in history.trace.items():
        flat = values[:, s].reshape(history.steps, -1)
        columns |= {column: later(flat[:, i]) for i, column in enumerate(trace_columns(name, values))}
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def append(path: Path, rows: pa.Table | Mapping[str, Sequence[Any]]) -> None:
    """Append rows to a file as a separate Arrow stream; the streams before it stay readable."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with path.open("ab") as file:
        file.write(sink.getvalue())


def read(path: Path) -> pa.Table | None:
    """Return all rows of a file of streams, without a stream that was cut off during its write; None without rows."""
    parts = []
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            try:
                parts.append(pa.ipc.open_stream(file).read_all())
            except (pa.ArrowInvalid, OSError):
                break
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def merge(folder: Path) -> None:
    """Make ``metrics.parquet`` and ``ledger.parquet`` from the streams in an unfinished folder, and remove the streams.

    Rows are in the order of a complete run's folder: by method, then seed, then step.
    """
    for kind in ("metrics", "ledger"):
        paths = sorted((folder / FOLDER).glob(f"*-{kind}.arrows"), key=lambda path: int(path.name.split("-")[0]))
        parts = [table for table in map(read, paths) if table is not None]
        if kind == "metrics":
            parts = [
                table.filter(pc.equal(table["seed"], seed))
                for table in parts
                for seed in table["seed"].unique().to_pylist()
            ]
        if parts:
            with atomic_path(folder / f"{kind}.parquet") as target:
                pq.write_table(pa.concat_tables(parts, promote_options="permissive"), target)
    merged_folder = (
        folder / f".{FOLDER}.merged"
    )  # renamed at once, so that the tables are never made from half of the streams
    if (folder / FOLDER).is_dir():
        (folder / FOLDER).replace(merged_folder)
    shutil.rmtree(merged_folder, ignore_errors=True)
