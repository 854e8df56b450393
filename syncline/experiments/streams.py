"""Metrics and ledger of trainings under way: on disk while they go on, so that no crash takes them along."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.experiments.tables import ledger_part, metrics_part
from syncline.files import whole_file

if TYPE_CHECKING:
    from syncline.comm import Ledger
    from syncline.training import Recorder

FOLDER = "streams"
"""Where they are in a working folder: ``0-metrics.arrows``, ``0-ledger.arrows`` of the first method, and so on."""

SECONDS_BETWEEN_WRITES = 1.0
"""What a process that is killed can lose, beside the step that it is in."""

SHARE_OF_TIME = 0.02
"""Of a training that writing may take: where it is slow, it is done less often."""


class TrainingStream:
    """Where one method's training notes what it has. It can be sent to another process.

    Args:
        folder: the working folder of the run.
        number: of the method, from 0.
        method: its name.
    """

    def __init__(self, folder: Path, number: int, method: str) -> None:
        self.method = method
        (folder / FOLDER).mkdir(exist_ok=True)
        self._metrics, self._ledger = (folder / FOLDER / f"{number}-{what}.arrows" for what in ("metrics", "ledger"))

    def of_seeds(self, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None) -> SeedStream:
        """The part of these seeds; a ledger of the first ones alone, as all send the same."""
        return SeedStream(self, seeds, recorder, ledger)

    def write(self, metrics: pa.Table, ledger: Mapping[str, Sequence[Any]]) -> None:
        """Add rows."""
        append(self._metrics, metrics)
        if ledger:
            append(self._ledger, ledger)


class SeedStream:
    """What is new of seeds that are trained side by side, written now and then."""

    def __init__(
        self, stream: TrainingStream, seeds: tuple[int, ...], recorder: Recorder, ledger: Ledger | None
    ) -> None:
        self._stream, self._seeds, self._recorder, self._ledger = stream, seeds, recorder, ledger
        self._rows = self._calls = 0
        self._due_s = 0.0

    def note(self, done: int) -> None:
        """Write what is complete after so many steps, if it is time: all but the row whose evaluation may follow."""
        begun_s = time.monotonic()
        if done > 1 and begun_s >= self._due_s:  # the row before the first step has no traces to go by
            self._write(done)
            ended_s = time.monotonic()
            self._due_s = ended_s + max(SECONDS_BETWEEN_WRITES, (ended_s - begun_s) / SHARE_OF_TIME)

    def finish(self) -> None:
        """Write the rest."""
        if self._recorder.eval_step:
            self._write(len(self._recorder.losses) + 1)

    def _write(self, rows: int) -> None:
        calls = self._ledger.records if self._ledger is not None else []
        made = len(calls)
        self._stream.write(
            metrics_part(self._stream.method, self._recorder.part(self._seeds, self._rows, rows), self._rows),
            ledger_part(self._stream.method, calls[self._calls : made]),
        )
        self._rows, self._calls = rows, made


def append(path: Path, rows: pa.Table | Mapping[str, Sequence[Any]]) -> None:
    """Add rows to a file, as an Arrow stream of their own after those that are there: what is there stays readable."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with path.open("ab") as file:
        file.write(sink.getvalue())


def read(path: Path) -> pa.Table | None:
    """The rows of a file; None if there are none. What was cut off in the middle of a write is left out."""
    parts = []
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            try:
                parts.append(pa.ipc.open_stream(file).read_all())
            except (pa.ArrowInvalid, OSError):
                break
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def merge(folder: Path) -> None:
    """Make ``metrics.parquet`` and ``ledger.parquet`` of the streams in a working folder, and remove them.

    Rows are in the order of the folder of a whole run: by method, by seed, by step.
    """
    for what in ("metrics", "ledger"):
        paths = sorted((folder / FOLDER).glob(f"*-{what}.arrows"), key=lambda path: int(path.name.split("-")[0]))
        parts = [table for table in map(read, paths) if table is not None]
        if parts:
            ordered = [_by_seed(table) if what == "metrics" else table for table in parts]
            with whole_file(folder / f"{what}.parquet") as target:
                pq.write_table(pa.concat_tables(ordered, promote_options="permissive"), target)
    merged = folder / f".{FOLDER}.merged"  # at once: of half of them nobody may make the tables again
    if (folder / FOLDER).is_dir():
        (folder / FOLDER).replace(merged)
    shutil.rmtree(merged, ignore_errors=True)


def _by_seed(table: pa.Table) -> pa.Table:
    seeds = table["seed"].unique().to_pylist()
    return pa.concat_tables([table.filter(pc.equal(table["seed"], seed)) for seed in seeds])
