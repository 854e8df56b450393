from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest

from syncline.errors import SpecError
from syncline.experiments.folder import RunFolder, environment


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_under_its_name_only_when_it_is_whole(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        folder.json("run", {"a": 1})
        assert names(tmp_path) == [f".run.partial-{os.getpid()}"]
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["figures", "run.json"]


def test_results_are_never_overwritten(tmp_path):
    for number in range(3):
        with RunFolder(tmp_path / "run") as folder:
            folder.json("run", {"number": number})
    assert names(tmp_path) == ["run", "run-2", "run-3"]
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == {"number": 0}


def test_two_runs_at_once_get_two_folders(tmp_path):
    with RunFolder(tmp_path / "run") as one, RunFolder(tmp_path / "run") as other:
        one.json("run", 1)
        other.json("run", 2)
    assert {json.loads((tmp_path / name / "run.json").read_text()) for name in ("run", "run-2")} == {1, 2}


def test_an_exact_folder_that_exists_is_refused_and_untouched(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(SpecError, match=r"--out: got .*; expected a folder that does not exist yet"):
        RunFolder(tmp_path / "run", exact=True)
    assert names(tmp_path) == ["run"] and not names(tmp_path / "run")


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"--out: .* a place that can be written to"):
        RunFolder(tmp_path / "file" / "run")


def test_a_crash_leaves_what_was_finished(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path / "run") as folder:
        folder.table("metrics", {"step": [1, 2]})
        raise ZeroDivisionError
    (left,) = names(tmp_path)
    assert left.startswith(".run.partial-")
    assert pq.read_table(tmp_path / left / "metrics.parquet").to_pydict() == {"step": [1, 2]}


def test_a_mistake_in_the_input_leaves_nothing_but_what_was_trained_before_it(tmp_path):
    with pytest.raises(SpecError), RunFolder(tmp_path / "run") as folder:
        folder.json("run", {})
        raise SpecError("workers", 3000, "at most 1438")
    assert not names(tmp_path)
    with pytest.raises(SpecError), RunFolder(tmp_path / "run") as folder:
        folder.table("metrics", {"step": [1]})
        raise SpecError("workers", 3000, "at most 1438")
    assert len(names(tmp_path)) == 1


def test_the_remains_of_a_crash_are_in_nobodys_way(tmp_path):
    (tmp_path / f".run.partial-{os.getpid()}").mkdir()
    with RunFolder(tmp_path / "run") as folder:
        folder.json("run", {})
    assert names(tmp_path / "run") == ["figures", "run.json"]


def test_the_environment_names_what_a_result_depends_on():
    told = environment()
    assert {"syncline", "git_commit", "python", "machine", "packages"} == told.keys()
    assert {"numpy", "torch"} <= {name for name, version in told["packages"].items() if version}
