"""Files of a folder of results that a command cannot have written are refused in one line."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline as sl
from syncline.errors import SpecError, SynclineError
from syncline.files import refuse_changed_files
from syncline.runs.folders.result_files import CURVES, ROWS, check_rows, is_row, read_object, read_parquet
from syncline.runs.sweep.folder import read_sweep
from tests.robustness.damage import folder_files, write_files

CURVE = {
    "method": ["adam"], "network": ["wan"], "seed": [0], "step": [0], "seconds": [0.0], "bytes": [0.0], "loss": [1.0],
    "train_loss": [None],
}  # fmt: skip


def put(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_table_as_it_is_written_is_read(tmp_path):
    path = put(tmp_path / "curves.parquet", CURVE | {"method": pa.array(["adam"]).dictionary_encode()})
    assert read_parquet(path, CURVES)["method"].to_pylist() == ["adam"]
    assert read_parquet(path, CURVES, ["step"]).column_names == ["step"]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({name: value for name, value in CURVE.items() if name != "loss"}, "expected a table with one column 'loss'"),
        (CURVE | {"step": ["0"]}, "curves.parquet.step: got 'string'; expected a column of whole numbers"),
        (CURVE | {"seconds": [float("nan")]}, "curves.parquet.seconds: got 'double'; expected a column of finite numb"),
        (
            CURVE | {"method": pa.nulls(1, pa.string())},
            "curves.parquet.method: got 'string'; expected a column of text",
        ),
    ],
)
def test_a_table_that_no_command_writes_is_refused(columns, line, tmp_path):
    with pytest.raises(SpecError) as error:
        read_parquet(put(tmp_path / "curves.parquet", columns), CURVES)
    assert line in str(error.value)


@pytest.mark.parametrize("damage", ["missing", "folder", "empty", "garbled"])
def test_a_file_that_cannot_be_read_is_named(damage, tmp_path):
    path = tmp_path / "curves.parquet"
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else b"PAR1 and no more")
    for read in (lambda: read_parquet(path, CURVES), lambda: read_object(path)):
        with pytest.raises(SpecError, match=r"curves\.parquet'; expected a file"):
            read()


ROW = {"method": "adam", "network": "wan", "workers": 2, "seed": 0}


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (7, "rows.0: got 7; expected an object"),
        ({}, "expected a row with 'method'"),
        (ROW | {"method": 1}, "rows.0.method: got 1; expected text"),
        (ROW | {"workers": True}, "rows.0.workers: got True; expected whole numbers"),
        (ROW | {"step_time_s": "1"}, "rows.0.step_time_s: got '1'; expected numbers or nothing"),
        (ROW | {"loss": float("nan")}, "rows.0.loss: got nan; expected numbers or nothing"),
        (ROW | {"waited_s": [1.0, "x"]}, "rows.0.waited_s: got [1.0, 'x']; expected numbers or nothing"),
    ],
)
def test_rows_that_no_command_writes_are_refused(row, line, tmp_path):
    with pytest.raises(SpecError) as error:
        check_rows([row], tmp_path / "run.json", ROWS["sweep"])
    assert line in str(error.value)
    assert not is_row(row, ROWS["sweep"]) and is_row(ROW, ROWS["sweep"])


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), AssertionError(), RecursionError("deep"), KeyError("x")]
)
def test_what_does_not_fit_together_is_one_line(error, tmp_path):
    with pytest.raises(SynclineError, match=r"^folder: "), refuse_changed_files(tmp_path):
        raise error


def laid(kind, folder, **changes):
    """A folder of this kind with other files; None removes one."""
    files = folder_files(kind) | {name.replace("__", "."): data for name, data in changes.items()}
    write_files({name: data for name, data in files.items() if data is not None}, folder)
    return folder


@pytest.mark.parametrize("read", ["show", "report"])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("trace", {"curves__parquet": None}),
        ("compare", {"curves__parquet": b"PAR1"}),
        ("compare", {"timeline__parquet": b""}),
        ("compare", {"run__json": b'{"syncline": "1", "rows": [{"method": "a", "network": "b"}]}'}),
        ("pipeline", {"run__json": b'{"syncline": "1", "rows": [{"schedule": "gpipe", "network": "free"}]}'}),
        ("sweep", {"sweep__json": b'{"name": "x", "runs": [1], "rows": []}'}),
    ],
)
def test_damaged_folders_are_refused_in_one_line(kind, changes, read, command, tmp_path):
    """The files that gave tracebacks once; `tests.robustness` damages all of them."""
    folder = laid(kind, tmp_path / "result", **changes)
    told = command(read, str(folder))
    assert told.code in (0, 2) and told.err.count("error: ") == (told.code == 2), told.err
    assert told.code == 2 or read == "show"  # which needs no more than rows and spec


def test_a_loaded_result_tells_in_one_line_what_is_wrong_with_its_rows(tmp_path):
    noted = json.loads(folder_files("pipeline")["run.json"])
    noted["rows"][0]["per_stage"] = [{}]
    result = sl.load(laid("pipeline", tmp_path / "result", run__json=json.dumps(noted).encode()))
    with pytest.raises(SynclineError, match="is not as it was written"):
        _ = result.tables


def test_a_file_that_cannot_be_read_is_not_said_to_be_missing(command, tmp_path):
    folder = laid("collectives", tmp_path / "result", run__json=None)
    (folder / "run.json").mkdir(parents=True)
    told = command("show", str(folder))
    assert told.code == 2 and "run.json'; expected a file that can be read (Is a directory)" in told.err


def test_a_damaged_run_of_a_sweep_is_made_again(command, tmp_path):
    folder = laid("sweep", tmp_path / "swept")
    path = next(folder.glob("runs/*/run.json"))
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"row": whole["row"] | {"loss": "1"}}))
    spec = next(folder.glob("runs/*/spec.yaml"))
    told = command(
        "sweep", str(spec), "--grid", "method.lr=0.1,0.2", "--grid", "network=10gbe,wan", "--seeds", "2", "--jobs", "1",
        "--out", str(folder),
    )  # fmt: skip
    assert told.code == 0, told.err
    assert all(isinstance(row["loss"], float) for row in read_sweep(folder).rows)
