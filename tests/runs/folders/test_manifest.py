"""A result folder's manifest: what differs from it is told, file by file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import syncline as sl
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.result_files import MANIFEST, num_files, verify, write_manifest

TRAINING = {
    "kind": "run", "name": "tiny", "problem": "rosenbrock", "workers": 2, "steps": 3, "method": "ddp-adam",
    "network": "wan", "compute": {"seconds": "1 ms"}, "timeline_steps": 1,
}  # fmt: skip
SWEPT = TRAINING, {"method.lr": [0.1, 0.2]}


def written(out: Path) -> Path:
    """Write a folder with three files."""
    with RunFolder(out, exact=True) as folder:
        folder.json("run", {"rows": []})
        folder.table("curves", {"loss": [1.0, 0.5]})
        folder.figure("loss").write_bytes(b"picture")
    return folder.path


def test_a_folder_is_as_it_was_written(tmp_path):
    folder = written(tmp_path / "runs" / "run")
    assert verify(folder) == [] and num_files(folder) == 3
    listed = json.loads((folder / MANIFEST).read_text())
    assert listed["hash"] == "sha256" and list(listed["files"]) == ["curves.parquet", "figures/loss.png", "run.json"]


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda f: (f / "run.json").unlink(), ["missing run.json"]),
        (lambda f: (f / "run.json").write_text("{}"), ["changed run.json"]),
        (lambda f: (f / "figures" / "loss.png").write_bytes(b"picturf"), ["changed figures/loss.png"]),
        (lambda f: (f / "figures" / "more.png").write_bytes(b""), ["added figures/more.png"]),
        (lambda f: (f / ".hidden").write_bytes(b""), ["added .hidden"]),
        (lambda f: shutil.rmtree(f / "figures"), ["missing figures/loss.png"]),
        (lambda f: (f / "run.json").rename(f / "ran.json"), ["added ran.json", "missing run.json"]),
        (
            lambda f: (f / "figures" / MANIFEST).write_text('{"files": {}}'),
            ["missing figures/loss.png", "added figures/loss.png", f"added figures/{MANIFEST}"],
        ),
        (
            lambda f: ((f / "run.json").rename(f.parent / "moved"), (f / "run.json").symlink_to(f.parent / "moved")),
            ["changed run.json"],
        ),
        (lambda f: ((f / "run.json").unlink(), os.mkfifo(f / "run.json")), ["changed run.json"]),
        (lambda f: (f / "link").symlink_to("/"), ["added link"]),
    ],
)
def test_what_differs_is_told_file_by_file(change, rows, command, tmp_path):
    folder = written(tmp_path / "runs" / "run")
    change(folder)
    assert [f"{row['state']} {row['file']}" for row in verify(folder)] == rows
    done = command("verify", "run")
    assert (done.code, done.out.splitlines()) == (1, [row.replace(" ", ": ", 1) for row in rows])
    differ = "1 file differs" if len(rows) == 1 else f"{len(rows)} files differ"
    assert done.err == f"runs/run/: {differ} from the manifest\n"


def test_the_command_says_how_many_files_are_whole(command, tmp_path):
    written(tmp_path / "runs" / "run")
    done = command("verify", "run")
    assert (done.code, done.out, done.err) == (0, "", "runs/run/: 3 files are unchanged since they were written\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "error: run: got 'runs/run'; expected a folder with a manifest.json, which"),
        ("{", "error: folder: runs/run/ is not as it was written (JSONDecodeError: "),
        ('{"files": 3}', "error: folder: runs/run/ is not as it was written (TypeError: "),
        ("[" * 5000, "error: folder: runs/run/ is not as it was written (ValueError: nested too deep"),
    ],
)
def test_without_a_manifest_nothing_is_known(text, said, command, tmp_path):
    folder = written(tmp_path / "runs" / "run")
    (folder / "run.json").write_text('{"syncline": "1", "rows": []}')
    (folder / MANIFEST).unlink() if text is None else (folder / MANIFEST).write_text(text)
    done = command("verify", "run")
    assert done.code == 2 and done.err.startswith(said) and done.err.count("\n") == 1
    assert command("verify", "none").code == 2


def test_a_sweep_has_a_manifest_and_each_of_its_runs_has_its_own(tmp_path):
    out = tmp_path / "rates"
    sl.sweep(*SWEPT, out=out, jobs=1)
    first, second = sorted((out / "runs").iterdir())
    listed = set(json.loads((out / MANIFEST).read_text())["files"])
    assert listed == {"sweep.json", "sweep.parquet", *(f"runs/{run.name}/{MANIFEST}" for run in (first, second))}
    assert verify(out) == verify(first) == [] and num_files(out) == 2 + 2 * (1 + num_files(first))
    (first / "spec.yaml").write_text("kind: run")
    assert verify(out) == [{"state": "changed", "file": f"runs/{first.name}/spec.yaml"}]
    shutil.rmtree(first)
    assert [row["state"] for row in verify(out)] == ["missing"]
    sl.sweep(*SWEPT, out=out, jobs=1)
    assert verify(out) == []


def test_what_a_kill_left_of_a_manifest_is_written_over(tmp_path):
    folder = written(tmp_path / "run")
    (folder / f".{MANIFEST}.partial").write_text('{"files"')
    write_manifest(folder)
    assert verify(folder) == [] and num_files(folder) == 3


def test_what_is_saved_or_copied_has_its_manifest(tmp_path):
    ran = sl.run(TRAINING)
    assert verify(ran.save(tmp_path / "ran")) == verify(ran.folder) == []
    assert verify(sl.project(workers=8, methods=["ddp-adam"]).save(tmp_path / "projected")) == []
    shutil.copytree(tmp_path / "ran", tmp_path / "copy")
    assert verify(tmp_path / "copy") == []


def test_a_folder_that_was_left_half_has_none(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path / "run") as folder:
        folder.table("curves", {"loss": [1 / 0]})
    assert not list(tmp_path.rglob(MANIFEST))
