"""Every write of a run can fail or be the last one: nothing finished is lost, and no half folder is taken for whole."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import syncline as sl
from replication.lines import resumed_lines
from syncline.analysis import axes
from syncline.costmodel import Link
from syncline.errors import SynclineError
from syncline.files import write_csv
from syncline.measure.calibration.cluster_file import ClusterFile
from syncline.measure.launching import launch as launching
from syncline.measure.launching.process import Launch
from syncline.measure.launching.rank_files import RankFile, last_step, lines_of
from syncline.measure.processes.watchdog import Failure
from syncline.measure.validation import validate
from syncline.measure.validation.processes import Question, validate_processes
from syncline.runs.compare import compare
from syncline.runs.folders import streams
from syncline.runs.folders.folder import RunFolder
from syncline.runs.pipeline import pipeline
from syncline.runs.run import run, run_study
from syncline.runs.sweep.sweep import sweep
from syncline.specs import CompareSpec, load_spec
from tests.costmodel.collectives.gloo.shaped import SHAPED
from tests.measure.validation.test_step_times import made_up, spec_of, written
from tests.runs.examples import bowl

TRAINING = {
    "kind": "run", "name": "tiny", "problem": "rosenbrock", "workers": 2, "steps": 3, "method": "ddp-adam",
    "network": "wan", "compute": {"seconds": "1 ms"}, "timeline_steps": 1,
}  # fmt: skip
STAGES = {
    "kind": "pipeline", "name": "stages", "schedules": ["gpipe"], "stages": 2, "microbatches": 2, "forward": 1,
    "backward": 2,
}  # fmt: skip

WRITES = [
    (Path, "write_text"), (Path, "write_bytes"), (Path, "mkdir"), (Path, "rename"), (Path, "replace"), (Path, "open"),
    (pq, "write_table"), (pq, "ParquetWriter"), (streams, "append"), (axes.Figure, "savefig"),
    (torch, "save"), (shutil, "copyfile"), (RankFile, "write_line"),
]  # fmt: skip
"""Where something is put on a disk, or given its name."""


class Writer(NamedTuple):
    """What writes: called with the path of its result, which is whole as soon as it has its name."""

    write: object
    suffix: str = ""


def _csv(out):
    write_csv([{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3]}], out)


def _cluster(out):
    with ClusterFile(out, exact=True) as file:
        file.write({"network": {"latency_s": 1e-3, "bandwidth_bytes_per_s": 1e9}, "collectives": []})


def _sweep(out):
    sweep(TRAINING, {"method.lr": [0.1, 0.2]}, out=out, jobs=1)


def _launch(out):
    """A launch whose one process, of two workers, is this one."""

    def in_this_one(target, processes, args, how, parts, on_progress):
        try:
            target(0, *args)
        except OSError as error:
            return launching.Ended(Failure(0, None, f"failed ({error})"), False, 1.0)
        return launching.Ended(None, False, 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "run_local_processes", in_this_one)
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        how = Launch(device="cpu", workers_per_process=2, keep_parameters=True)
        launching.launch(load_spec(TRAINING), out, how, exact=True)


TRAININGS = CompareSpec.model_validate({
    "kind": "compare", "name": "small", "problem": "rosenbrock", "workers": 2, "steps": 3, "networks": ["wan"],
    "methods": ["ddp-adam", "ddp-sgdm"], "compute": {"seconds": "1 ms"},
})  # fmt: skip


LINES: list[dict[str, object]] = [
    {"machine": "a", "device": "cpu", "offset_ns": 0, "problem": {}, "flops_per_step": 1.0,
     "tensors": [["x", [2], False]]},
    *({"seed": 0, "step": step, "loss": 1.0, "begun_ns": step * 10**6, "ended_ns": (step + 1) * 10**6,
       "laps": [["compute", "compute", "", step * 10**6, step * 10**6 + 10**5, 0, step]], "ledger": [],
       "readbacks": 0, "carried": [], "stood_in_ns": 0} for step in range(3)),
]  # fmt: skip
"""What a process leaves."""


class MadeUpHosts:
    """Hosts whose steps take what is written here, on two links."""

    def links(self, networks):
        return [Link(2e-5, 2e9, name, gloo=SHAPED) for name in ("near", "far")]

    def segment_bytes(self, link):
        return 1448

    def run(self, link, workers, arguments, timeout_s):
        plan = json.loads(Path(arguments[-1]).read_text())
        for case in plan["cases"]:
            for way in ("software/0", "measured/0"):
                folder = Path(plan["folder"], case["name"], way)
                os.makedirs(folder)  # not by what is counted: these are the hosts' writes
                for rank in range(workers):
                    with open(folder / f"{rank}.jsonl", "w") as file:
                        file.writelines(json.dumps(line) + "\n" for line in LINES)


def _trainings(out):
    validate_processes(Question((TRAININGS,), (2,), 1), MadeUpHosts(), out, exact=True, on_progress=lambda line: None)


@cache
def published():
    """A spec of measurements, and what comes of it: a fit takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(written(Path(folder) / "measured", made_up()))
        return spec, validate.validate_step_times(spec)


def _published(out):
    spec, result = published()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "validate_step_times", lambda spec: result)
        validate.validate_published(spec, out, exact=True)


@cache
def a_result():
    """Of a run, in a folder of its own."""
    return sl.run(TRAINING)


def _study(out):
    run_study(load_spec("lion-cub-ties", ["votes=100", "distributions=[gaussian]"]), out, exact=True, jobs=1)


WRITERS = {
    "run": Writer(lambda out: run(load_spec(TRAINING), out, exact=True, figures=False)),
    "compare": Writer(lambda out: compare(bowl(steps=3), out, exact=True, jobs=1, figures=False)),
    "run with figures": Writer(lambda out: run(load_spec(TRAINING), out, exact=True)),
    "pipeline": Writer(lambda out: pipeline(load_spec(STAGES), out, exact=True)),
    "study": Writer(_study),
    "launch": Writer(_launch),
    "validate trainings": Writer(_trainings),
    "validate": Writer(_published),
    "save": Writer(lambda out: a_result().save(out)),
    "sweep": Writer(_sweep),
    "project --csv": Writer(_csv, ".csv"),
    "calibrate": Writer(_cluster, ".yaml"),
}


def content(path: Path) -> dict[str, int] | None:
    """The files of a result; None if it is not there."""
    if path.is_file():
        return {"": path.stat().st_size}
    found = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else None
    return found if found is None else {str(one.relative_to(path)): 0 for one in found}


def counted(patch: pytest.MonkeyPatch, at: int, happens) -> list[str]:
    """From now on, ``happens`` in place of write number ``at`` (from 0); returns where the writes were."""
    seen: list[str] = []

    def watched(owner, name):
        real = getattr(owner, name)

        def call(*args, **kwargs):
            mode = args[1] if name == "open" and len(args) > 1 else kwargs.get("mode", "r")
            if name != "open" or set(mode) & set("wax+"):
                seen.append(name)
                if len(seen) == at + 1:
                    happens()
            return real(*args, **kwargs)

        patch.setattr(owner, name, call)

    for owner, name in WRITES:
        watched(owner, name)
    return seen


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only():
    raise OSError(errno.EROFS, "Read-only file system")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(call) -> None:
    """In a fork, which may be killed in it."""
    child = os.fork()
    if not child:
        try:
            call()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def tried(writer: Writer, folder: Path, at: int, happens, forked: bool) -> int:
    """With a fault at this write; how many writes there were."""
    out = folder / f"out{writer.suffix}"
    with pytest.MonkeyPatch.context() as patch:
        seen = counted(patch, at, happens)
        if forked:
            in_a_process(lambda: writer.write(out))
        else:
            try:
                writer.write(out)
            except (OSError, SynclineError) as error:
                assert isinstance(error, SynclineError) or error.errno in (errno.ENOSPC, errno.EROFS)
    return len(seen)


def unfinished(folder: Path) -> set[str]:
    """Tables, and lines of processes, in folders that were never whole: under whatever name these are now."""
    left = [one for one in folder.iterdir() if one.is_dir() and (".partial-" in one.name or "-killed" in one.name)]
    found = [path for one in left for path in one.rglob("*") if path.suffix in (".parquet", ".jsonl")]
    return {path.name for path in found if path.stat().st_size and not path.name.startswith(".")}


def check(writer: Writer, folder: Path, wanted: dict[str, int] | None) -> None:
    """Either there is no result or it is whole; and the same command makes it now."""
    out = folder / f"out{writer.suffix}"
    measured = unfinished(folder) if writer not in (WRITERS["sweep"], WRITERS["save"]) else set()
    if writer is WRITERS["sweep"]:
        before = {p: p.stat().st_ino for p in out.glob("runs/[!.]*/run.json")} if out.exists() else {}
        writer.write(out)
        assert all(path.stat().st_ino == inode for path, inode in before.items()), "a finished run was made again"
    elif not out.exists():
        writer.write(out)
    elif (out / "run.json").is_file() and sl.load(out).failed:  # which nobody takes for whole, and has what there was
        shutil.rmtree(out)
        writer.write(out)
    else:
        assert content(out) == wanted
    if out.is_dir() and (out / "run.json").is_file():
        assert sl.load(out).rows
    assert measured <= unfinished(folder), "what was finished of a run that was not is gone"
    got = content(out)
    assert got is not None and wanted is not None and set(got) == set(wanted)


def writes_of(name: str, folder: Path) -> tuple[int, dict[str, int] | None]:
    """How many writes a result takes, and its files."""
    folder.mkdir()
    WRITERS[name].write(folder / f"first{WRITERS[name].suffix}")  # what is made once is there now
    count = tried(WRITERS[name], folder, -1, full, forked=False)
    return count, content(folder / f"out{WRITERS[name].suffix}")


def every_fault(name, tmp_path, faults, every):
    """At every so many writes have each of the faults; those of a tuple take turns."""
    count, wanted = writes_of(name, tmp_path / "whole")
    assert count >= 2
    for in_turn in faults:
        for number, at in enumerate(range(0, count, every)):
            happens = in_turn[number % len(in_turn)]
            folder = tmp_path / f"{happens.__name__}{at}"
            folder.mkdir()
            tried(WRITERS[name], folder, at, happens, forked=happens is killed)
            check(WRITERS[name], folder, wanted)


@pytest.mark.parametrize("name", ["run", "save", "sweep", "project --csv", "calibrate"])
def test_a_full_disk_leaves_nothing_half(name, tmp_path):
    every_fault(name, tmp_path, [(full,)], 3)


EVERY = {"run with figures": 3}
"""Writes from one fault to the next, where drawing takes long; its other writes are those of ``run``."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_of_every_write_that_fails_or_is_the_last_nothing_is_left_half(name, tmp_path):
    every_fault(name, tmp_path, [(full, read_only), (killed,)], EVERY.get(name, 1))


DRAWN = ("run with figures", "pipeline", "study", "launch", "validate trainings")


@pytest.mark.parametrize("name", [*DRAWN, pytest.param("validate", marks=pytest.mark.slow)])
def test_a_figure_that_cannot_be_written_loses_nothing_else(name, tmp_path):
    out = tmp_path / "out"
    WRITERS[name].write(out)
    wanted = {path for path in content(out) or () if not path.startswith("figures/")} - {"manifest.json"}
    shutil.rmtree(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axes.Figure, "savefig", lambda *_, **__: full())
        with pytest.raises(OSError, match="No space left") as told:
            WRITERS[name].write(out)
    (left,) = tmp_path.glob(".out.partial-*")
    assert str(left) in told.value.__notes__[0] and not out.exists()
    assert wanted <= set(content(left) or ()) and sl.load(left).rows


def test_what_a_launch_measured_until_a_line_could_not_be_written_is_its_result(tmp_path, monkeypatch):
    real, written_lines = RankFile.write_line, []

    def line(part, fields):
        written_lines.append(fields)
        if fields.get("step") == 2:
            part._file.write('{"seed": 0, "st')  # as far as there was room
            part._file.flush()
            full()
        real(part, fields)

    monkeypatch.setattr(RankFile, "write_line", line)
    _launch(tmp_path / "out")
    result = sl.load(tmp_path / "out")
    assert "No space left" in str(result.failed) and result.rows[0]["steps"] == 2
    assert len(written_lines) > 3 and not (tmp_path / "out" / "ranks").exists()


def test_a_line_that_was_cut_off_is_none(tmp_path):
    whole = "".join(json.dumps(line) + "\n" for line in LINES)
    for at in range(0, len(whole), 7):
        (tmp_path / "0.jsonl").write_text(whole[:at])
        assert list(lines_of(tmp_path / "0.jsonl")) == LINES[: whole[: at + 1].count("\n")]  # of one, its end alone
    (tmp_path / "0.jsonl").write_text(whole)
    assert last_step(tmp_path, 0) == 2 and last_step(tmp_path, 1) == -1


def test_after_a_line_that_was_cut_off_the_next_one_begins_anew(tmp_path):
    whole, path = "".join(json.dumps(line) + "\n" for line in LINES), tmp_path / "lines.jsonl"
    assert resumed_lines(path) == [] and not path.exists()
    for at in range(0, len(whole) + 1, 7):
        path.write_text(whole[:at])
        complete = LINES[: whole[:at].count("\n")]
        assert resumed_lines(path) == complete
        with path.open("a") as file:
            file.write(json.dumps({"next": at}) + "\n")
        assert resumed_lines(path) == [*complete, {"next": at}]


def test_parameters_that_could_not_be_written_leave_no_half_file(tmp_path, monkeypatch):
    """A process that dies in the middle of its parameters has none; the launch has all the rest."""

    def half(_, path):
        Path(path).write_bytes(b"PK")
        full()

    monkeypatch.setattr(torch, "save", half)
    _launch(tmp_path / "out")
    result = sl.load(tmp_path / "out")
    assert "No space left" in str(result.failed) and result.rows[0]["steps"] == 3
    assert not list(tmp_path.rglob("*.pt"))


def test_a_table_whose_bytes_do_not_fit_is_not_there(tmp_path):
    """The system's own error, in the middle of the bytes: files may have 4,096 each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError) as told, RunFolder(tmp_path / "run") as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            folder.table("big", {"number": np.random.default_rng(0).random(10_000)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in str(told.value)
    assert [path.name for path in folder.working.iterdir()] == ["figures"] and not (tmp_path / "run").exists()


def test_a_file_that_exists_survives_a_write_that_fails(tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    _csv(out)
    before = out.read_bytes()
    monkeypatch.setattr("csv.DictWriter.writerow", lambda *_: full())
    with pytest.raises(SynclineError, match="--csv"):
        _csv(out)
    assert out.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_streams_that_were_merged_are_not_merged_again_by_halves(tmp_path, monkeypatch):
    (tmp_path / streams.FOLDER).mkdir()
    for number in range(2):
        rows = {"method": [f"m{number}"], "seed": [0], "step": [0]}
        streams.append(tmp_path / streams.FOLDER / f"{number}-metrics.arrows", rows)
    with monkeypatch.context() as patch:
        patch.setattr(
            "shutil.rmtree", lambda path, **_: next(Path(path).glob("0-*")).unlink()
        )  # killed after the first
        streams.merge(tmp_path)
    streams.merge(tmp_path)
    assert pq.read_table(tmp_path / "metrics.parquet")["method"].to_pylist() == ["m0", "m1"]


def test_no_parameters_are_unpickled(tmp_path):
    """What launches keep is tensors alone, which torch reads without running anything."""
    package = Path(sl.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "torch.load(" in text:
            assert text.count("torch.load(") == text.count("weights_only=True"), path
        assert "pickle.load(" not in text, path  # loads is of messages
        assert "yaml.load(" not in text and "unsafe_load" not in text, path
    torch.save({"x": torch.zeros(2), "bad": Path}, tmp_path / "p.pt")
    with pytest.raises(Exception, match="weights_only"):
        torch.load(tmp_path / "p.pt", weights_only=True)


def test_what_hosts_measured_before_a_kill_is_kept(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "table", lambda *_: killed())
        in_a_process(lambda: _trainings(tmp_path / "out"))
    (left,) = tmp_path.glob(".out.partial-*")
    before = content(left)
    _trainings(tmp_path / "out")
    assert content(tmp_path / "out-killed") == before and any(name.endswith(".jsonl") for name in before or ())
