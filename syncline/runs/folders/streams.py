"""Metrics and ledger of running trainings: written to disk during the training, so that they survive a crash."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.files import atomic_path
from syncline.runs.folders.part_tables import ledger_part, metrics_part

if TYPE_CHECKING:
    from syncline.comm import Ledger
    from syncline.training import Recorder

FOLDER = "streams"
"""Their folder in a working folder: ``0-metrics.arrows``, ``0-ledger.arrows`` of the first method, and so on."""

SECONDS_BETWEEN_WRITES = 1.0
"""Seconds of results that a killed process can lose, besides its current step."""

SHARE_OF_TIME = 0.02
"""Largest part of a training's time for writing: slow writes happen less often."""


class TrainingStream:
    """The files to which one method's training writes its results. It can be sent to another process.

    Args:
        folder: the working folder of the run.
        number: number of the method, from 0.
        method: name of the method.
    """

    def __init__(self, folder: Path, number: int, method: str) -> None:
        self.method = method
        (folder / FOLDER).mkdir(exist_ok=True)
        self._metrics, self._ledger = (folder / FOLDER / f"{number}-{kind}.arrows" for kind in ("metrics", "ledger"))

    def of_seeds(self, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None) -> SeedStream:
        """Return the stream of these seeds; only the first seeds have a ledger, because all send the same."""
        return SeedStream(self, seeds, recorder, ledger)

    def write(self, metrics: pa.Table, ledger: Mapping[str, Sequence[Any]]) -> None:
        """Append rows to the files."""
        append(self._metrics, metrics)
        if ledger:
            append(self._ledger, ledger)


class SeedStream:
    """The new results of seeds that train side by side, written at intervals."""

    def __init__(
        self, stream: TrainingStream, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None
    ) -> None:
        self._stream, self._seeds, self._recorder, self._ledger = stream, seeds, recorder, ledger
        self._rows = self._calls = 0
        self._due_s = 0.0

    def note(self, done: int) -> None:
        """Write the complete rows if it is time, all but the last, which may still get an evaluation."""
        begun_s = time.monotonic()
        if done > 1 and begun_s >= self._due_s:  # the row before the first step has no traces, which give the columns
            self._write(done)
            ended_s = time.monotonic()
            self._due_s = ended_s + max(SECONDS_BETWEEN_WRITES, (ended_s - begun_s) / SHARE_OF_TIME)

    def finish(self) -> None:
        """Write the remaining rows."""
        if self._recorder.eval_step:
            self._write(len(self._recorder.losses) + 1)

    def _write(self, rows: int) -> None:
        calls = self._ledger.records if self._ledger is not None else []
        num_calls = len(calls)
        self._stream.write(
            metrics_part(self._stream.method, self._recorder.part(self._seeds, self._rows, rows), self._rows),
            ledger_part(self._stream.method, calls[self._calls : num_calls]),
        )
        self._rows, self._calls = rows, num_calls


def append(path: Path, rows: pa.Table | Mapping[str, Sequence[Any]]) -> None:
    """Append rows to a file as a separate Arrow stream after the existing ones, which stay readable."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with path.open("ab") as file:
        file.write(sink.getvalue())


def read(path: Path) -> pa.Table | None:
    """Return the rows of a file; None if there are none. A stream that was cut off during a write is left out."""
    parts = []
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            try:
                parts.append(pa.ipc.open_stream(file).read_all())
            except (pa.ArrowInvalid, OSError):
                break
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def merge(folder: Path) -> None:
    """Make ``metrics.parquet`` and ``ledger.parquet`` from the streams in a working folder, and remove the streams.

    Rows are in the order of a complete run's folder: by method, by seed, by step.
    """
    for kind in ("metrics", "ledger"):
        paths = sorted((folder / FOLDER).glob(f"*-{kind}.arrows"), key=lambda path: int(path.name.split("-")[0]))
        parts = [table for table in map(read, paths) if table is not None]
        if parts:
            ordered = [_by_seed(table) if kind == "metrics" else table for table in parts]
            with atomic_path(folder / f"{kind}.parquet") as target:
                pq.write_table(pa.concat_tables(ordered, promote_options="permissive"), target)
    merged = folder / f".{FOLDER}.merged"  # renamed at once, so that the tables are never made from half of the streams
    if (folder / FOLDER).is_dir():
        (folder / FOLDER).replace(merged)
    shutil.rmtree(merged, ignore_errors=True)


def _by_seed(table: pa.Table) -> pa.Table:
    seeds = table["seed"].unique().to_pylist()
    return pa.concat_tables([table.filter(pc.equal(table["seed"], seed)) for seed in seeds])
