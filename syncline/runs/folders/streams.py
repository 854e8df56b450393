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

MAX_WRITING_SHARE = 0.02
"""Largest part of a training's time that is spent on writing: after a slow write the next one waits longer."""


class TrainingStream:
    """The paths of the files to which one method's training writes its results; it can be sent to another process.

    Args:
        number: number of the method, from 0.
    """

    def __init__(self, folder: Path, number: int, method: str) -> None:
        self.method = method
        (folder / FOLDER).mkdir(exist_ok=True)
        self.metrics = folder / FOLDER / f"{number}-metrics.arrows"
        self.ledger = folder / FOLDER / f"{number}-ledger.arrows"


class SeedStream:
    """The writer of new results of seeds that train side by side.

    Args:
        recorder: the seeds' losses and metrics so far.
        ledger: the seeds' calls; None if other seeds of this training write the same calls.
    """

    def __init__(
        self, stream: TrainingStream, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None
    ) -> None:
        self._stream, self._seeds, self._recorder, self._ledger = stream, seeds, recorder, ledger
        self._num_written_rows = self._num_written_calls = 0
        self._next_write_s = 0.0  # long past: the first write need not wait

    def write_if_due(self, done: int) -> None:
        """Write the new rows after ``done`` steps, if the last write was long enough ago.

        Row ``done``, after the last of these steps, is not written yet, because it may still get an evaluation.
        """
        start_s = time.monotonic()
        if done < 2 or start_s < self._next_write_s:  # row 0 has no traces, so their columns are unknown
            return
        self._write(done)
        end_s = time.monotonic()
        self._next_write_s = end_s + max(SECONDS_BETWEEN_WRITES, (end_s - start_s) / MAX_WRITING_SHARE)

    def finish(self) -> None:
        """Write the rows that still wait in memory."""
        if self._recorder.eval_step:  # else the training ended before row 0
            num_rows = len(self._recorder.losses) + 1
            self._write(num_rows)

    def _write(self, end: int) -> None:
        """Write the rows up to ``end - 1`` that are not written yet, and the calls since the last write."""
        first, method = self._num_written_rows, self._stream.method
        history = self._recorder.part(self._seeds, first, end)
        end_of_history = first + history.steps
        if first == 0:  # row 0 is before the first step, and has no loss
            end_of_history += 1
        schema, tables = metrics_schema([history]), []
        for seed_index in range(len(history.seeds)):
            tables.append(metrics_table(
                method, history, seed_index, schema, begin=first, end=end_of_history, first_with_loss=max(first, 1)
            ))  # fmt: skip
        append(self._stream.metrics, pa.concat_tables(tables))
        self._num_written_rows = end
        calls = [] if self._ledger is None else self._ledger.records[self._num_written_calls :]
        if calls:
            append(self._stream.ledger, {"method": [method] * len(calls)} | columns_of(calls))
            self._num_written_calls += len(calls)


def metrics_schema(histories: Iterable[History]) -> pa.Schema:
    """Return the schema of ``metrics.parquet``: method, seed, step, then the quantities of any of the histories."""
    types: dict[str, pa.DataType] = {"method": pa.string(), "seed": pa.int64(), "step": pa.int64()}
    for history in histories:
        types.setdefault("train_loss", pa.float64())
        for name, values in history.evaluation.items():
            types.setdefault(f"eval_{name}", _arrow_type(values))
        for name, values in history.trace.items():
            for column in trace_columns(name, values):
                types.setdefault(column, _arrow_type(values))
    return pa.schema(list(types.items()))


def _arrow_type(values: np.ndarray) -> pa.DataType:
    """Return an array's type in Parquet files: 64-bit integers, 64-bit floats or booleans."""
    if values.dtype.kind == "b":
        return pa.bool_()
    return pa.int64() if values.dtype.kind in "iu" else pa.float64()


def trace_columns(name: str, values: np.ndarray) -> list[str]:
    """Return the column names of a trace ``(T, S, ...)``: one for each component of a step's and seed's value."""
    if values.ndim == 2:
        return [name]
    return [f"{name}_{component}" for component in range(int(np.prod(values.shape[2:])))]


def metrics_table(
    method: str, history: History, seed_index: int, schema: pa.Schema, begin: int, end: int, first_with_loss: int = 1
) -> pa.Table:
    """Return rows ``begin`` to ``end - 1`` of the metrics of one seed; row t is after t steps.

    Args:
        history: the training's losses, evaluations and traces.
        schema: schema of the table, see `metrics_schema`.
        begin: first row.
        end: row after the last one.
        first_with_loss: row of the history's first loss; above 1 if the history is a later part of a training.
    """
    num_rows = end - begin
    num_without_loss = 1 if begin == 0 else 0  # row 0, before the first step, has no loss and no trace
    # Row t has the loss and the traces with index t - first_with_loss in the history.
    history_slice = slice(begin + num_without_loss - first_with_loss, end - first_with_loss)

    def column_of_steps(values: np.ndarray) -> pa.Array:
        """Return the column of a quantity of each step, with null in row 0."""
        column = np.zeros(num_rows, dtype=values.dtype)
        column[num_without_loss:] = values[history_slice]
        return pa.array(column, mask=np.arange(num_rows) < num_without_loss)

    columns: dict[str, Any] = {
        "method": pa.repeat(pa.scalar(method, pa.string()), num_rows),
        "seed": np.full(num_rows, history.seeds[seed_index]),
        "step": np.arange(begin, end),
        "train_loss": column_of_steps(history.loss[:, seed_index]),
    }
    for name, values in history.evaluation.items():
        steps = history.eval_step[: len(values)]
        in_table = (steps >= begin) & (steps < end)
        rows = steps[in_table] - begin
        column, is_missing = np.zeros(num_rows, dtype=values.dtype), np.ones(num_rows, dtype=bool)
        column[rows], is_missing[rows] = values[: len(steps), seed_index][in_table], False
        columns[f"eval_{name}"] = pa.array(column, mask=is_missing)
    for name, values in history.trace.items():
        components = values[:, seed_index].reshape(history.steps, -1).T
        for column_name, component in zip(trace_columns(name, values), components, strict=True):
            columns[column_name] = column_of_steps(component)
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name]).cast(field.type))
        else:  # only other methods have this quantity
            arrays.append(pa.nulls(num_rows, field.type))
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
    """Return all rows that `append` wrote to a file, without an incomplete last stream; None without rows."""
    tables = []
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            try:
                tables.append(pa.ipc.open_stream(file).read_all())
            except (pa.ArrowInvalid, OSError):  # the last stream is cut off if its process was killed
                break
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


def merge(folder: Path) -> None:
    """Make ``metrics.parquet`` and ``ledger.parquet`` from the streams in an unfinished folder, and remove the streams.

    Rows are in the order of a complete run's folder: by method, then seed, then step.
    """

    for kind in ("metrics", "ledger"):
        tables: list[pa.Table] = []
        for path in sorted((folder / FOLDER).glob(f"*-{kind}.arrows"), key=lambda path: int(path.name.split("-")[0])):
            table = read(path)
            if table is None:
                continue
            if kind == "metrics":  # the rows of a stream's seeds alternate
                tables += [table.filter(pc.equal(table["seed"], seed)) for seed in table["seed"].unique().to_pylist()]
            else:
                tables.append(table)
        if tables:
            with atomic_path(folder / f"{kind}.parquet") as target:
                pq.write_table(pa.concat_tables(tables, promote_options="permissive"), target)
    # Renamed before it is removed: if a kill interrupts the removal, the remaining streams are not merged again.
    merged_folder = folder / f".{FOLDER}.merged"
    if (folder / FOLDER).is_dir():
        (folder / FOLDER).replace(merged_folder)
    shutil.rmtree(merged_folder, ignore_errors=True)
