"""What is kept of runs: listed, shown again, removed; and nothing else is."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from syncline import run
from syncline.api.folders import load
from syncline.api.result import Result
from syncline.measure.validation.tables import validate_tables
from syncline.measure.validation.validate import validate_published
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.folders.path_lock import PathLock
from syncline.runs.folders.result_files import json_value
from syncline.runs.folders.run_index import run_entries
from tests.measure.validation.test_step_times import made_up, spec_of, written
from tests.test_docs import documented

PLAYED = ("pipeline", "--stages", "2", "--microbatches", "2", "--schedule", "gpipe,1f1b")
TRAINED = ("run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=8", "--set", "seeds=[0, 1]")


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def left_by(pid: int, name: str = "lost") -> Path:
    """What a process has under a working name after its beginnings."""
    folder = Path("runs") / f".{name}.partial-{pid}"
    (folder / "figures").mkdir(parents=True)
    (folder / "spec.yaml").write_text(
        "{kind: compare, methods: [ddp-adam, {kind: local, label: mine}], networks: [wan]}"
    )
    return folder


def listed(command, *arguments: str) -> list[dict]:
    return json.loads(command("runs", *arguments, "--json").out)["rows"]


def test_where_nothing_was_run_the_next_step_is_told(command):
    done = command("runs")
    assert (done.code, done.err) == (0, "no run folders in runs/; 'syncline compare' writes one\n")
    assert command("rm", "--partial").code == 0
    assert command("runs", "elsewhere").err.startswith("error: folder: got 'elsewhere'; expected a folder")


def test_runs_are_listed_with_what_they_are_of(command):
    assert command(*PLAYED).code == command(*TRAINED).code == 0
    os.utime("runs/pipeline-schedules/run.json", (0, 0))
    first, last = listed(command)
    assert set(first) == set(last) == documented("runs")
    assert (first["name"], first["kind"], first["state"]) == ("rosenbrock-mt-dao", "run", "whole")
    assert (first["methods"], first["networks"], first["workers"], first["rows"]) == (["mt-dao"], ["10gbe"], 2, 2)
    sizes = [path.stat().st_size for path in Path(first["folder"]).rglob("*") if path.is_file()]
    assert (first["files"], first["size_bytes"]) == (len(sizes), sum(sizes))
    assert (last["name"], last["kind"], last["methods"]) == ("pipeline-schedules", "pipeline", ["gpipe", "1f1b"])
    assert last["written"].startswith(("1970-01-01T", "1969-12-31T"))
    shown = command("runs").err
    assert "mt-dao on 10gbe" in shown and "gpipe, 1f1b" in shown


COMPARED = ("compare", "digits-skewed", "--set", "steps=8", "--set", "seeds=[0]", "--set", "target_loss=0.001",
            "--set", "methods=[ddp-adam, local-adam]", "--jobs", "1", "--network", "wan")  # fmt: skip
DIVERGED = ("run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=60", "--set", "method.lr=1e30")


@pytest.mark.parametrize("made", [PLAYED, TRAINED, COMPARED, DIVERGED], ids=["pipeline", "run", "compare", "diverged"])
def test_a_run_is_shown_as_it_was_when_it_ran(made, command):
    ran = command(*made, "--json", "--out", "it")
    shown = command("show", "it", "--json")
    assert (ran.code, shown.code) == (0, 0) and json.loads(shown.out) == json.loads(ran.out)
    once = ("warning: mt-dao: never", "warning: local-adam: never", "show the tables again")
    assert shown.err == "".join(line for line in ran.err.splitlines(True) if not line.startswith(once)) != ""


def test_a_validation_is_shown_as_it_was(tmp_path):
    spec = spec_of(written(tmp_path / "measured", made_up()), constants="a100-megatron-deepspeed")
    told = validate_published(spec, tmp_path / "published", exact=True)
    again = load(tmp_path / "published")
    assert again.json() == json_value(told) and str(again) == text_of(validate_tables(told, spec))
    between = {"rows": [{"spec": "mine", "predicted_s": 1.0}], "summary": []}
    with RunFolder(tmp_path / "between", exact=True) as folder:
        folder.json("run", environment() | {"specs": []} | between)
    assert load(tmp_path / "between").json() == between | {"folder": str(tmp_path / "between")}
    assert [one.kind for one in run_entries(tmp_path)] == ["validate", "step-times"]


def text_of(tables) -> str:
    return str(Result("", {"rows": []}, tables=lambda: tables))


def test_a_run_is_found_by_its_name_and_a_wrong_one_is_told(command):
    command(*PLAYED)
    assert command("show", "pipeline-schedules").err == command("show", "runs/pipeline-schedules/").err
    said = command("show", "pipeline-schedule").err
    assert said == (
        "error: run: got 'pipeline-schedule'; expected one of 'pipeline-schedules' (did you mean "
        "'pipeline-schedules'?); see 'syncline runs'\n"
    )


def test_what_is_not_finished_is_not_shown(command):
    left = left_by(dead())
    done = command("show", left.name)
    assert done.code == 2 and f"this one was killed, and what it left is in {left}/" in done.err


def test_what_killed_processes_left_is_removed_and_nothing_else(command):
    command(*PLAYED)
    gone, kept = left_by(dead()), Path("runs/lost-killed-2")
    shutil.copytree(gone, kept)
    for name in ("notes-killed", ".notes.partial-12"):  # nobody began these as a run
        Path("runs", name).mkdir()
        Path("runs", name, "thesis.tex").touch()
    states = {row["name"]: row["state"] for row in listed(command)}
    assert states == {gone.name: "partial", kept.name: "killed", "pipeline-schedules": "whole"}
    assert {row["name"]: row for row in listed(command)}[kept.name]["methods"] == ["ddp-adam", "mine"]
    assert "syncline rm --partial" in command("runs").err
    done = command("rm", "--partial")
    assert done.code == 0 and done.err.count("removed ") == 2
    assert sorted(os.listdir("runs")) == [".notes.partial-12", "notes-killed", "pipeline-schedules"]


def test_what_a_living_process_writes_stays(command):
    with RunFolder(Path("runs/mine")) as folder:  # this process lives
        (row,) = listed(command)
        assert (row["name"], row["state"]) == (folder.working.name, "running")
        assert "no process is writing" in command("rm", folder.working.name, "--yes").err
        assert command("rm", "--partial").code == 0 and folder.working.is_dir()
        folder.json("run", {"syncline": "1", "rows": []})
    (row,) = listed(command)
    assert (row["name"], row["state"]) == ("mine", "whole")


def test_where_no_lock_can_tell_the_number_of_the_process_does(command):
    mine, gone = left_by(os.getpid(), "mine"), left_by(dead())
    assert {row["name"]: row["state"] for row in listed(command)} == {mine.name: "running", gone.name: "partial"}


def test_a_number_that_lives_again_is_no_reason_where_a_lock_is_free(command):
    mine = left_by(os.getpid(), "mine")
    Path("runs/.mine.lock").touch()
    assert listed(command)[0]["state"] == "partial"
    assert command("rm", "--partial").code == 0 and not mine.exists() and os.listdir("runs") == []


def test_whole_runs_are_removed_if_the_user_says_so(command, monkeypatch):
    command(*PLAYED)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = command("rm", "pipeline-schedules")
    assert done.code == 2 and done.err.endswith(
        "--yes: got nothing; expected it, as there is no terminal for the question\n"
    )
    for answer, left in ((False, ["pipeline-schedules"]), (True, [])):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("typer.confirm", lambda *_, answer=answer, **__: answer)
        assert command("rm", "pipeline-schedules").code == (0 if answer else 1)
        assert os.listdir("runs") == left
    command(*PLAYED)
    assert command("rm", "pipeline-schedules", "--yes").code == 0 and os.listdir("runs") == []


def test_only_folders_of_runs_are_removed(command, tmp_path):
    Path("precious").mkdir()
    Path("precious/run.json").write_text('{"rows": []}')
    command(*PLAYED, "--out", "it")
    os.symlink("it", "link")
    for name in ("precious", "link", ".", "nothing"):
        done = command("rm", name, "--yes")
        assert done.code == 2 and done.err.startswith(f"error: run: got '{name}'")
    claim = PathLock.acquire(tmp_path / "it")
    assert claim is not None and "no process is writing" in command("rm", "it", "--yes").err
    claim.release()
    os.chdir("it")
    assert "expected a folder other than the current one" in command("rm", ".", "--yes").err
    os.chdir(tmp_path)
    assert {"precious", "it", "link"} <= {*os.listdir(".")} and Path("it/run.json").is_file()


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000, "\N{DIGIT ONE}" * 5000], ids=["long", "deep", "longest"])
def test_a_name_that_no_file_can_have_is_a_mistake(name, command):
    for arguments in (("runs", name), ("show", name), ("rm", name), ("rm", "--partial", "x", "--folder", name)):
        done = command(*arguments)
        assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Return the folder of a run."""
    folder = tmp_path_factory.mktemp("trained") / "it"
    run("rosenbrock-local-adam", workers=2, steps=8, seeds=[0, 1], out=folder)
    return folder


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ('{"rows": [{}]}', "rows.0: got []; expected a row with 'method'"),
        ('{"rows": [{"method": [1], "network": {}, "loss": "x", "steps": null}]}', "rows.0.method: got [1]; expected"),
        ('{"rows": 1}', "got 'runs/it/run.json'; expected a list of rows"),
        ("[" * 5000, "got 'runs/it/run.json'; expected a file of JSON"),
    ],
    ids=["nothing", "other", "none", "deep"],
)
def test_results_that_somebody_has_changed_are_a_mistake(told, line, command, trained):
    shutil.copytree(trained, "runs/it")
    path = Path("runs/it/run.json")
    path.write_text(told if told.startswith("[") else json.dumps(json.loads(path.read_text()) | json.loads(told)))
    for arguments in (("show", "runs/it"), ("show", "runs/it", "--json")):
        done = command(*arguments)
        assert done.code == 2 and done.err.startswith("error: ") and line in done.err and done.err.count("\n") == 1
    assert command("runs").code == 0


def test_nothing_to_remove_is_a_mistake(command):
    assert command("rm").err == "error: run: got nothing; expected run folders, or --partial; see 'syncline runs'\n"
