from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from syncline.errors import SpecError
from syncline.runs.folders.folder import CODE_PATH_SETTINGS, RunFolder, environment, processor_record


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_under_its_name_only_when_it_is_whole(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        folder.json("run", {"a": 1})
        assert names(tmp_path) == [".run.lock", f".run.partial-{os.getpid()}"]
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["figures", "manifest.json", "run.json"]


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


@pytest.mark.parametrize("exact", [True, False])
def test_of_many_at_once_each_has_a_folder_of_its_own_or_is_refused_before_it_begins(exact, tmp_path):
    """As when one comes after the other: with an exact name one wins, and the others hear of it at once."""
    barrier, over = threading.Barrier(8), threading.Event()

    def one(number):
        barrier.wait(60)
        try:
            with RunFolder(tmp_path / "run", exact=exact) as folder:
                folder.json("run", number)
                won.put(number)
                over.wait(60)
        except SpecError as error:
            refused.put(str(error))

    won, refused = queue.SimpleQueue(), queue.SimpleQueue()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    said = [refused.get(timeout=60) for _ in range(7)] if exact else []
    winners = {won.get(timeout=60) for _ in range(8 - len(said))}
    over.set()
    for thread in threads:
        thread.join(60)
    assert all("expected a folder that does not exist yet, and that no process writes" in line for line in said)
    assert len(names(tmp_path)) == len(winners)
    assert {json.loads((tmp_path / name / "run.json").read_text()) for name in names(tmp_path)} == winners


def test_a_name_is_free_again_when_its_run_is_over(tmp_path):
    with RunFolder(tmp_path / "run", exact=True):
        pass
    shutil.rmtree(tmp_path / "run")
    with RunFolder(tmp_path / "run", exact=True):
        pass
    assert names(tmp_path) == ["run"]


def test_a_link_to_nowhere_is_a_name_that_is_taken(tmp_path):
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"a folder that does not exist yet$"):
        RunFolder(tmp_path / "run", exact=True)
    with RunFolder(tmp_path / "run") as folder:
        folder.json("run", {})
    assert names(tmp_path) == ["run", "run-2"]


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"--out: .* a place that can be written to \(File name too long\)"):
        RunFolder(tmp_path / ("x" * 300), exact=True)


def killed(path: Path, code: str) -> None:
    """A process that is killed in the middle of a run."""
    begin = f"""
import sys, time
from pathlib import Path
from syncline.runs.folders.folder import RunFolder
with RunFolder(Path({str(path)!r})) as folder:
    {code}
    print("up", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", begin], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.wait(60)
    process.stdout.close()


def test_what_a_killed_run_left_is_told_and_kept_under_a_name_that_is_seen(tmp_path, capsys):
    killed(tmp_path / "run", "folder.table('metrics', {'step': [1, 2]})")
    assert len(names(tmp_path)) == 2
    with RunFolder(tmp_path / "run", exact=True):
        assert str(tmp_path / "run-killed") in capsys.readouterr().err
    assert names(tmp_path) == ["run", "run-killed"]
    assert pq.read_table(tmp_path / "run-killed" / "metrics.parquet").to_pydict() == {"step": [1, 2]}


def test_of_a_run_that_was_killed_before_it_had_anything_nothing_is_left(tmp_path, capsys):
    killed(tmp_path / "run", "folder.json('run', {})")
    with RunFolder(tmp_path / "run", exact=True):
        assert not capsys.readouterr().err
    assert names(tmp_path) == ["run"]


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
    assert names(tmp_path / "run") == ["figures", "manifest.json", "run.json"]


def test_the_environment_names_what_a_result_depends_on():
    told = environment()
    assert {"syncline", "git_commit", "python", "machine", "processor", "packages"} == told.keys()
    assert {"numpy", "torch"} <= {name for name, version in told["packages"].items() if version}


def test_the_processor_and_the_settings_of_code_paths_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CODE_PATH_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    record = processor_record()
    assert record["settings"] == {"MKL_CBWR": "COMPATIBLE"}
    assert record["aten"] == torch.backends.cpu.get_cpu_capability()
    monkeypatch.delitem(sys.modules, "torch")
    record = processor_record()
    assert record["aten"] is None and "torch" not in sys.modules
