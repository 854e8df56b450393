from __future__ import annotations

import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.runs.compare import compare
from syncline.runs.folders import streams
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.streams import TrainingStream
from syncline.runs.training.train_and_time import train_method
from tests.runs.examples import bowl


def test_rows_are_appended_and_columns_may_come_later(tmp_path):
    path = tmp_path / "rows.arrows"
    streams.append(path, {"step": [0], "loss": [None]})
    streams.append(path, {"step": [1, 2], "loss": [0.5, 0.25], "eval": [None, 1.0]})
    assert streams.read(path).to_pydict() == {"step": [0, 1, 2], "loss": [None, 0.5, 0.25], "eval": [None, None, 1.0]}


def test_of_a_file_that_was_cut_off_anywhere_all_whole_parts_are_read(tmp_path):
    path = tmp_path / "rows.arrows"
    ends = []
    for step in range(3):
        streams.append(path, {"step": [step], "label": ["gradient"]})
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    for length in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:length])
        read = streams.read(path)
        steps = [] if read is None else read["step"].to_pylist()
        # A part may be whole but for the mark of its end.
        assert steps == list(range(len(steps))) and len(steps) >= sum(end <= length for end in ends)


@pytest.mark.parametrize("every_write", [True, False])
def test_what_is_merged_from_streams_is_what_a_whole_run_writes(every_write, tmp_path, monkeypatch):
    if every_write:  # after each step, whatever the clock says
        monkeypatch.setattr(streams, "SECONDS_BETWEEN_WRITES", 0.0)
        monkeypatch.setattr(streams, "MAX_WRITING_SHARE", float("inf"))
        monkeypatch.setattr("syncline.runs.training.trained.SECONDS_BETWEEN_REPORTS", 0.0)
    spec = bowl()
    compare(spec, tmp_path / "whole", jobs=1)
    for number, method in enumerate(spec.methods):
        stream = pickle.loads(pickle.dumps(TrainingStream(tmp_path, number, method.name)))
        train_method(spec, method, None, stream)
    streams.merge(tmp_path)
    assert not (tmp_path / streams.FOLDER).exists()
    for name in ("metrics", "ledger"):
        merged, whole = (pq.read_table(folder / f"{name}.parquet") for folder in (tmp_path, tmp_path / "whole"))
        assert merged.column_names == whole.column_names and merged.equals(whole)


class Crash(Exception):
    """Something that nobody foresaw."""


def test_a_training_that_crashes_leaves_the_steps_before(tmp_path, monkeypatch):
    monkeypatch.setattr("syncline.runs.training.trained.SECONDS_BETWEEN_REPORTS", 0.0)
    # As if a second passed with each step.
    monkeypatch.setattr(streams, "SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(streams, "MAX_WRITING_SHARE", float("inf"))

    def crash(done):
        if done == 30:
            raise Crash

    spec = bowl(eval_every=0, steps=10**6)
    with pytest.raises(Crash) as told, RunFolder(tmp_path / "run") as folder:
        stream = TrainingStream(folder.working, 0, "local")
        train_method(spec, spec.methods[1], crash, stream)
    assert f"run.partial-{os.getpid()}" in told.value.__notes__[0]
    with RunFolder(tmp_path / "run"):
        pass
    metrics = pq.read_table(tmp_path / "run-killed" / "metrics.parquet")
    assert metrics["step"].to_pylist() == [*range(30)] * 2
    assert metrics.schema.field("train_loss").type == pa.float64()
