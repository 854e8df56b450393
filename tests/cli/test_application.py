"""The command line as a user meets it: exit codes, what goes to which stream, what is left on disk."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from syncline.costmodel import COLLECTIVES
from syncline.runs.catalogue import CATALOGUES
from syncline.runs.folders import streams
from syncline.runs.training import limits
from syncline.specs import bundled
from syncline.version import __version__, git_commit
from tests.forked import Forked

SMALL = ("digits-skewed", "--set", "steps=8", "--set", "seeds=[0]", "--set", "methods=[ddp-adam, local-adam]",
         "--set", "methods.1.period=4", "--jobs", "1")  # fmt: skip
GPT = ("compare-text", "--set", "steps=2", "--set", "schedule={}", "--set", "methods=[ddp-adam]", "--jobs", "1",
       "--set", "problem.width=8", "--set", "problem.context=8", "--set", "problem.layers=1")  # fmt: skip
CLOCK = {"method", "network", "workers", "step_time_s", "compute_s", "communication_s", "communication_share",
         "exposed_communication_s", "bytes_per_worker", "wall_clock_s", "encode_s", "trigger_s", "optimizer_s",
         "step_time_low_s", "step_time_high_s", "wall_clock_low_s", "wall_clock_high_s", "basis"}  # fmt: skip


PATIENCE_S = 600
"""For machines that are many times slower, and busy; whatever takes so long has failed."""


def everything_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_version_and_the_commands_are_told(command):
    told = command("--version")
    assert (told.code, told.err) == (0, "")
    assert re.fullmatch(rf"{re.escape(__version__)}(, commit {str(git_commit())[:12]}\+?)?\n", told.out)
    help_ = command("--help")
    assert help_.code == 0 and all(
        name in help_.out for name in ("compare", "run", "project", "collectives", "pipeline", "list", "--version")
    )
    for name in ("compare", "run", "project", "pipeline"):
        assert "--set" in command(name, "--help").out


@pytest.mark.parametrize("what", CATALOGUES)
def test_lists_come_as_a_table_and_as_json(what, command):
    table, listed = command("list", what), command("list", what, "--json")
    assert (table.code, table.out, listed.code, listed.err) == (0, "", 0, "")
    for row in json.loads(listed.out)["rows"]:
        assert row["name"] in table.err


def test_every_bundled_spec_is_listed_with_a_command_that_takes_it(command):
    rows = json.loads(command("list", "specs", "--json").out)["rows"]
    assert [row["name"] for row in rows] == list(bundled())
    for row in rows:
        program, verb, name = row["command"].split()
        assert (program, name) == ("syncline", row["name"])
        # A mistake in the last override is told only after the kind of the spec was found right.
        assert "workers: got 0" in command(verb, name, "--set", "workers=0").err


def test_a_projection_as_json_and_as_tables(command):
    told, shown = command("project", "--json"), command("project")
    result = json.loads(told.out)
    assert (told.code, told.err, shown.code, shown.out) == (0, "", 0, "")
    assert result.keys() == {"spec", "assumptions", "transferred", "rows"} and result["spec"] == "project-gpt-160m"
    assert len(result["rows"]) == 32 and all(row.keys() >= CLOCK | {"speedup"} for row in result["rows"])
    assert all(f"{row['speedup']:.{2 - (row['speedup'] >= 10)}f}x" in shown.err for row in result["rows"])


def test_a_sweep_as_tables_rows_in_a_file_and_a_figure(command, tmp_path):
    options = ("--workers", "8,64,512,4096", "--method", "ddp-adam,diloco", "--method", "lion-cub")
    files = ("--csv", "rows.csv", "--plot", "speedup.pdf")
    done = command("project", *options, "--network", "10gbe", *files)
    left_out, *_, rows, figure = done.err.splitlines()
    assert (done.code, done.out) == (0, "") and left_out.startswith("warning: lion-cub: left out for 512 workers")
    assert (rows, figure) == ("rows in rows.csv", "figure in speedup.pdf")
    assert all(f" {workers} " in done.err for workers in ("8", "64", "512", "4,096"))
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + 3 + 3 + 2 + 2
    assert (tmp_path / "speedup.pdf").stat().st_size


def test_the_paper_s_table_as_json(command):
    rows = json.loads(command("project", "curvadion-table3", "--json").out)["rows"]
    assert [round(row["speedup"], 4) for row in rows] == [1.0201, 1.2024, 4.3610]


@pytest.mark.parametrize(("name", "count", "same"), [("demo-table1", 24, 22), ("curvadion-table2", 7, 3)])
def test_tables_of_papers_as_json_and_for_people(name, count, same, command):
    told, shown = command("project", name, "--json"), command("project", name)
    rows = json.loads(told.out)["rows"]
    assert (told.code, told.err, shown.code, shown.out) == (0, "", 0, "")
    assert (len(rows), sum(row["matches"] for row in rows)) == (count, same)
    assert sum(" yes " in line for line in shown.err.splitlines()) == same


def test_methods_are_listed_for_a_model(command):
    rows = json.loads(command("list", "methods", "--model", "olmo-1b", "--json").out)["rows"]
    adam = next(row for row in rows if row["name"] == "ddp-adam")
    assert (adam["bytes_per_worker"], adam["state_bytes"]) == (4 * 1_176_764_416, 8 * 1_176_764_416)
    assert all(row["model"] == "olmo-1b" and row["family"] and row["source"] for row in rows)
    default = json.loads(command("list", "methods", "--json").out)["rows"]
    assert {row["model"] for row in default} == {"gpt-160m"}


HEAVY = {"torch", "matplotlib", "pandas"}


@pytest.mark.parametrize(
    ("arguments", "heavy", "most_modules"),
    [
        (["project", "--json"], HEAVY | {"numba", "rich", "syncline.sim", "syncline.specs.cluster.descriptions"}, 160),
        (["collectives", "--json"], HEAVY | {"rich", "numpy.ma", "syncline.methods"}, 115),
        (["list", "networks", "--json"], HEAVY | {"syncline.sim"}, 140),
        (["runs", "--json"], HEAVY | {"syncline.specs"}, 35),
        (["--help"], HEAVY | {"numpy", "pydantic", "rich"}, 25),
        (["run", "--help"], HEAVY | {"numpy", "rich"}, 17),
    ],
    ids=["project", "collectives", "list", "runs", "help", "help of a command"],
)
def test_a_quick_command_loads_only_what_it_needs(arguments, heavy, most_modules):
    code = f"""
import atexit, os, sys
from syncline.cli.application import main

def check():
    own = [name for name in sys.modules if name.startswith("syncline")]
    os._exit(not {heavy}.isdisjoint(sys.modules) or len(own) > {most_modules})

atexit.register(check)
sys.argv[1:] = {arguments}
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_collectives_as_json_as_tables_and_as_a_figure(command, tmp_path):
    (tmp_path / "lab.yaml").write_text("latency: 50 us\nbandwidth: 10 Gbit/s\n")
    options = ("--workers", "8", "--bytes", "619MiB", "--network", "lab.yaml", "--network", "10gbe")
    told = command("collectives", *options, "--json", "--plot", "cost.pdf")
    result = json.loads(told.out)
    assert (told.code, told.err) == (0, "figure in cost.pdf\n") and (tmp_path / "cost.pdf").stat().st_size
    halves = [[row for row in result["rows"] if row["network"] == name] for name in ("lab", "10gbe")]
    assert [row["lockstep_s"] for row in halves[0]] == [row["lockstep_s"] for row in halves[1]]
    assert {row["collective"] for row in halves[0]} == set(COLLECTIVES)
    shown = command("collectives", *options)
    assert (shown.code, shown.out) == (0, "")
    assert all(row["algorithm"] in shown.err and row["collective"] in shown.err for row in result["rows"])
    assert " ".join(shown.err.split()).count("then rabenseifner from 150 kB on") == 2  # however wide lines are


def test_workers_that_come_late_to_a_collective(command):
    told = command("collectives", "--starts", "0,0,0,1.0", "--collective", "all_reduce", "--json")
    rows = json.loads(told.out)["rows"]
    assert {row["collective"] for row in rows} == {"all_reduce"} and {row["workers"] for row in rows} == {4}
    assert all(len(row["finish_s"]) == 4 and min(row["finish_s"]) > 1.0 for row in rows)


def test_networks_are_presets_numbers_or_files(command, tmp_path):
    (tmp_path / "lab.yaml").write_text("latency: 1 ms\nbandwidth: 2 Gbit/s\n")
    networks = ("--network", "50us,10Gbit/s", "--network", "10gbe", "--network", "lab.yaml")
    rows = json.loads(command("project", *networks, "--set", "methods=[ddp-adam]", "--json").out)["rows"]
    assert [row["network"] for row in rows] == ["50us,10Gbit/s", "10gbe", "lab"]
    assert rows[0]["step_time_s"] == rows[1]["step_time_s"] < rows[2]["step_time_s"]


def test_comparing_writes_json_to_one_stream_and_the_rest_to_the_other(command, tmp_path):
    done = command("compare", *SMALL, "--json")
    result = json.loads(done.out)
    assert done.code == 0
    assert result.keys() == {"rows", "folder", "target_loss", "interrupted", "measured_step_s"}
    keys = {"steps", "speedup", "speedup_low", "speedup_high", "loss", "loss_min", "loss_max", "target_loss",
            "time_to_target_s", "time_to_target_speedup", "diverged_at", "diverged_seeds", "interrupted"}  # fmt: skip
    assert all(row.keys() == CLOCK | keys for row in result["rows"]) and len(result["rows"]) == 6
    assert result["folder"] == "runs/digits-skewed" and result["interrupted"] is False
    assert "local-adam" in done.err and "runs/digits-skewed/figures/loss_against_clock.png" in done.err
    again = command("compare", *SMALL)
    assert again.out == "" and "results in runs/digits-skewed-2/" in again.err
    assert everything_under(tmp_path / "runs" / "digits-skewed") == everything_under(tmp_path / "runs/digits-skewed-2")
    metrics = [pq.read_table(tmp_path / "runs" / name / "metrics.parquet") for name in os.listdir(tmp_path / "runs")]
    assert metrics[0].equals(metrics[1])


def test_running_writes_a_row_per_seed_as_json(command):
    options = ("--set", "workers=2", "--set", "steps=40", "--set", "seeds=[3, 4]", "--network", "wan", "--json")
    done = command("run", "rosenbrock-mt-dao", *options, "--out", "here")
    result = json.loads(done.out)
    assert done.code == 0 and result["folder"] == "here"
    assert result.keys() == {"rows", "folder", "interrupted", "measured_step_s"}
    metrics = {"seed", "steps", "diverged_at", "loss", "distance", "train_loss", "distance_mean", "spread_mean"}
    assert [row["seed"] for row in result["rows"]] == [3, 4]
    assert all(row.keys() == CLOCK | metrics and row["network"] == "wan" for row in result["rows"])
    assert "here/trace.json" in done.err and "here/figures/timeline.png" in done.err


def test_a_period_longer_than_the_training_is_a_warning_and_no_error(command):
    done = command("run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=3", "--set", "seeds=[0]")
    assert done.code == 0
    assert "warning: mt-dao: never averaged in 3 steps: params (every 32), momentum_1 (every 32)" in done.err


def test_a_divergence_is_told_and_json_has_null(command):
    done = command("compare", *SMALL, "--set", "steps=60", "--set", "methods.1.lr=1e30", "--json")
    rows = json.loads(done.out, parse_constant=pytest.fail)["rows"]
    assert done.code == 0
    assert {row["diverged_at"] for row in rows if row["method"] == "local-adam"} == {1}
    assert {row["loss"] for row in rows if row["method"] == "local-adam"} == {None}
    assert all(row["steps"] == 60 and row["loss"] for row in rows if row["method"] == "ddp-adam")
    assert done.err.count("warning: local-adam: diverged at step 1\n") == 1


def test_a_text_of_one_s_own(command, tmp_path):
    (tmp_path / "mine.txt").write_text("to be or not to be, " * 100)
    done = command("compare", *GPT, "--text", "mine.txt", "--json", "--out", "out")
    assert done.code == 0
    told = json.loads((tmp_path / "out" / "run.json").read_text())["problem"]
    held_out = 100  # a half of the last tenth
    assert (told["corpus"], told["train_bytes"], told["validation_bytes"]) == ("mine.txt", 1800, held_out)


REFUSED = [
    (("project", "--set", "worker=3"), "worker: got 3; expected no such field here, but one of"),
    (("compare", "digits-skewed", "--set", "seeds=[1, 1]"), "seeds: got (1, 1); expected seeds that differ"),
    (("compare", "rosenbrock-mt-dao"), "kind: got 'run'; expected one of 'compare'; a spec of kind 'run'"),
    (("run", "nothing.yaml"), "spec: got 'nothing.yaml'; expected a YAML file that exists"),
    (("run", "n" * 5000), f"spec: got '{'n' * 199}... (5,002 characters); expected a YAML file"),
    (("list", "network"), "list: got 'network'; expected one of"),
    (("list", "methods", "--model", "gpt-16m"), "--model: got 'gpt-16m'; expected one of"),
    (("list", "models", "--model", "gpt-160m"), "--model: got 'gpt-160m'; expected no model"),
    (("list", "networks", "--workers", "4"), "--workers: got 4; expected no workers"),
    (("collectives", "--workers", "0"), "--workers: got 0; expected at least 1"),
    (("collectives", "--workers", "3", "--starts", "0,1"), "--starts: got '0,1'; expected 3 times"),
    (("collectives", "--collective", "all-reduce"), "--collective: got 'all-reduce'; expected one of"),
    (("collectives", "--bytes", "much"), "--bytes: got 'much'; expected a size with its unit"),
    (("collectives", "--network", "10gb"), "--network: got '10gb'; expected one of"),
    (("collectives", "--plot", "short.txt"), "--plot: got 'short.txt'; expected a name that ends in"),
    (("project", "--network", "10gb"), "--network.0: got '10gb'; expected one of"),
    (("project", "--workers", "8,many"), "--workers: got '8,many'; expected whole numbers"),
    (("project", "--plot", "short.txt"), "--plot: got 'short.txt'; expected a name that ends in"),
    (("project", "lion-cub-table1", "--plot", "x.pdf"), "--plot: got 'lion-cub-table1'; expected no figure"),
    (("project", "--csv", "short.txt/x"), "--csv: got 'short.txt/x'; expected a place that can be written to"),
    (("run", "rosenbrock-mt-dao", "--network", "wan", "--network", "10gbe"), "--network: got ['wan', '10gbe']"),
    (("run", "rosenbrock-mt-dao", "--scale", "gpu"), "--scale: got 'gpu'; expected none, as this spec has no scales"),
    (("run", "basis-rotation-fig5", "--scale", "cpu"), "--scale: got 'cpu'; expected one of 'gpu'"),
    (("run", "rosenbrock-mt-dao", "--set", "compute.seconds=0"), "compute.seconds: got 0.0; expected a time above 0"),
    (("compare", *SMALL, "--set", "compute.seconds=0"), "compute.seconds: got 0.0; expected a time above 0"),
    (("run", "rosenbrock-mt-dao", "--set", "threads=100000"), "threads: got 100000; expected at most"),
    (("run", "rosenbrock-mt-dao", "--set", f"seeds=[{2**63}]"), f"seeds.0: got {2**63}; expected less than {2**63}"),
    (("compare", *SMALL, "--set", f"problem.hidden={10**21}"), f"problem.hidden: got {10**21}; expected an integer of"),
    (("compare", *GPT, "--set", f"problem.width={10**11}"), f"problem.width: got {10**11}; expected an integer of"),
    (("compare", *GPT, "--set", "problem.layers=1000000"), "problem.layers: got 1000000; expected an integer of at m"),
    (
        ("compare", *SMALL, "--set", "compute.jitter=1000"),
        "compute.jitter: got 1000; expected less than or equal",
    ),
    (("compare", *SMALL, "--set", "compute.seconds=1e-320"), "compute.seconds: got 1e-320; expected a time above 0"),
    (("run", "staleness-quadratic", "--set", "threads=100000"), "threads: got 100000; expected at most"),
    (("run", "staleness-quadratic", "--set", f"seeds=[{2**63}]"), f"seeds.0: got {2**63}; expected less than {2**63}"),
    (("launch", "rosenbrock-mt-dao", "--workers", "100000"), "--workers: got 100000; expected at most"),
    (("calibrate", "--workers", "2,100000"), "--workers: got 100000; expected at most"),
    (("validate", "rosenbrock-mt-dao", "--workers", "100000"), "--workers: got 100000; expected at most"),
    (
        ("run", "rosenbrock-mt-dao", "--set", "workers=1e12"),
        "workers: got 1000000000000.0; expected less than or equal",
    ),
    (
        ("run", "rosenbrock-mt-dao", "--set", "workers=1000000000", "--set", "seeds=[0, 1, 2, 3, 4]"),
        "workers: got 1000000000; expected a training that fits: this one needs 160 GB of memory at least",
    ),
    (
        ("compare", *SMALL, "--set", "problem.batch_size=100000000"),
        "problem.batch_size: got 100000000; expected a training that fits: this one needs 161 GB of memory at least",
    ),
    (
        ("compare", *SMALL, "--set", f"name={'x' * 300}"),
        f"name: got '{'x' * 199}... (302 characters); expected text of",
    ),
    (("compare", *SMALL, "--out", "y" * 300), f"--out: got '{'y' * 199}... (302 characters); expected a place"),
    (("project", "lion-cub-fig2", "--set", f"workers=[1{'0' * 30}]"), "workers.0: got 1000000"),
    (("project", "lion-cub-table1", "--set", f"workers=[1{'0' * 30}]"), "workers.0: got 1000000"),
    (("run", "rosenbrock-mt-dao", "--set", "compute={}"), "compute.seconds: got None; expected seconds per step"),
    (("compare", *SMALL, "--text", "x.txt"), "problem.path: got 'x.txt'; expected no such field here"),
    (("compare", *SMALL, "--set", "workers=2000"), "workers: got 2000; expected at most 1438 workers"),
    (("compare", *GPT, "--text", "no.txt"), "problem.path: got 'no.txt'; expected a text file that can be read"),
    (("compare", *GPT, "--text", "short.txt"), "problem.path: got 'short.txt'; expected a text of at least 180 bytes"),
    (("compare", *SMALL, "--out", "short.txt"), "--out: got 'short.txt'; expected a folder that does not exist yet"),
    (("compare", *SMALL, "--out", "short.txt/x"), "--out: got 'short.txt/x'; expected a place that can be written to"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_mistake_is_one_line_and_leaves_no_run_behind(arguments, said, command, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "memory_bytes", lambda: 64e9)
    (tmp_path / "short.txt").write_text("too short")
    done = command(*arguments)
    errors = [line for line in done.err.splitlines() if not line.startswith("warning: ")]
    assert (done.code, done.out, len(errors)) == (2, "", 1)
    assert errors[0].startswith(f"error: {said}")
    assert [name for name in everything_under(tmp_path) if name != "runs"] == ["short.txt"]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")]
)
def test_memory_that_runs_out_is_one_line(error, command, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("syncline.api.spec_arguments.load_spec", full)
    done = command("project")
    assert (done.code, done.out, done.err) == (1, "", "error: not enough memory\n")


def test_what_standard_output_cannot_take_is_one_line():
    """A pipe that nobody reads is left in silence, a full disk is told."""
    program = [sys.executable, "-c", "from syncline.cli.application import main; main()", "project", "--json"]
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                program, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
            )
        assert done.returncode == 1 and done.stderr == "error: [Errno 28] No space left on device\n"
    unread, write = os.pipe()
    os.close(unread)
    done = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_a_disk_that_takes_no_more_is_one_line_that_says_where_the_rest_is(number, command, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("syncline.runs.folders.folder.RunFolder.trace", full)
    done = command("run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=40", "--set", "seeds=[0]")
    assert (done.code, done.out) == (1, "")
    said = done.err.splitlines()[-1]
    left = f"runs/.rosenbrock-mt-dao.partial-{os.getpid()}"
    assert said == f"error: [Errno {number}] {os.strerror(number)}; what was finished until then is in {left}"
    assert (tmp_path / left / "metrics.parquet").stat().st_size


def test_columns_are_as_wide_as_the_reader_says(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, command("project").err.splitlines())) <= 60


SHORT_AND_LONG = ["own.yaml", "--set", "methods=[{kind: ddp, rule: sgdm, lr: 1e30, label: short}, "
                  "{kind: local, rule: sgdm, lr: 0.003, label: long}]"]  # fmt: skip
OWN = """{kind: compare, name: own, problem: {kind: quadratic, spectrum: [1, 10]}, workers: 2, seeds: [0],
steps: 100000000, eval_every: 0, networks: [10gbe, wan], compute: {seconds: 0.001}}"""
"""The first method has diverged, and is over, at the first look at its losses: after 50 steps."""


OWN_RUN = """{kind: run, name: own, problem: {kind: quadratic, spectrum: [1, 10]}, workers: 2, seeds: [0],
method: ddp-adam, steps: 1000, network: 10gbe, compute: {seconds: 0.001}}"""


def begun(arguments: list[str], folder: Path, ready: Callable[[Path], bool], afresh: bool = False) -> Any:
    """A command that is under way: what it has written is such that it is ready.

    A command in this process's child is under way seconds earlier. One that starts processes, or that is to import what
    it needs, runs ``afresh``: processes come from a server, which a child would share with this process.
    """
    program = [sys.executable, "-c", "from syncline.cli.application import main; main()", *arguments]
    (folder / "own.yaml").write_text(OWN_RUN if arguments[0] in ("run", "launch") else OWN)
    if not afresh:
        process: Any = Forked(arguments, folder)
        process.start()
    else:
        process = subprocess.Popen(program, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    while not ready(folder) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def interrupted(
    arguments: list[str], folder: Path, ready: Callable[[Path], bool], afresh: bool = False
) -> tuple[int, str]:
    """Run a command, interrupt it as a terminal does once it is ready, and wait."""
    process = begun(arguments, folder, ready, afresh)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


def on_disk(folder: Path, number: int) -> list[int]:
    """The completed steps of a method that a run under way has noted."""
    table = next(map(streams.read, folder.rglob(f"{number}-metrics.arrows")), None)
    return [] if table is None else table["step"].to_pylist()


def measured(folder: Path, rank: int) -> int:
    """The lines that a real process has left."""
    return sum(path.read_text().count("\n") for path in folder.rglob(f"ranks/{rank}.jsonl"))


def short_is_over(folder: Path) -> bool:
    return on_disk(folder, 0)[-1:] == [50] and len(on_disk(folder, 1)) > 1


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_an_interrupted_comparison_keeps_what_was_finished(jobs, tmp_path):
    code, errors = interrupted(
        ["compare", *SHORT_AND_LONG, "--jobs", jobs], tmp_path, short_is_over, afresh=jobs != "1"
    )
    assert code == 130 and "Traceback" not in errors
    assert "interrupted: what was finished until then is in the folder above" in errors
    assert os.listdir(tmp_path / "runs") == ["own"]
    folder = tmp_path / "runs" / "own"
    assert not (folder / streams.FOLDER).exists()
    told = json.loads((folder / "run.json").read_text())
    steps = {row["method"]: row["steps"] for row in told["rows"]}
    assert steps["short"] == 50 and 0 < steps["long"] < 100_000_000
    assert told["interrupted"] == ["long"]
    assert pq.read_table(folder / "metrics.parquet").num_rows == sum(steps.values()) + 2


def test_a_comparison_that_is_killed_leaves_no_process_and_its_steps_on_disk(tmp_path):
    process = begun(["compare", *SHORT_AND_LONG, "--jobs", "2"], tmp_path, short_is_over, afresh=True)
    started = children(process.pid)
    assert started
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while any(map(runs, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(runs, started))
    assert on_disk(tmp_path, 0) == list(range(51)) and len(on_disk(tmp_path, 1)) > 1


def children(pid: int) -> list[int]:
    """Processes that a process started, as far as the system tells."""
    of = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _stat(int(path.name))[1:2] == [str(pid)]]
    return of


def runs(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """State, parent and so on of a process; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def test_three_runs_with_one_name_are_one_run_and_two_that_are_refused(tmp_path, command):
    """As when one comes after the other."""
    arguments = ["compare", *SHORT_AND_LONG, "--jobs", "1", "--out", "cc"]
    first = begun(arguments, tmp_path, lambda folder: any(folder.rglob("spec.yaml")))
    for _ in range(2):
        done = command(*arguments)
        assert done.code == 2 and "--out: got 'cc'; expected a folder that does not exist yet" in done.err
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=PATIENCE_S)
    assert [name for name in os.listdir(tmp_path) if name != "own.yaml" and name[0] != "."] in (["cc"], [])


def test_an_interrupted_run_keeps_the_steps_that_it_took(tmp_path):
    arguments = ["run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=100000000"]
    code, errors = interrupted(arguments, tmp_path, lambda folder: len(on_disk(folder, 0)) > 5)
    assert code == 130 and "Traceback" not in errors
    folder = tmp_path / "runs" / "rosenbrock-mt-dao"
    told = json.loads((folder / "run.json").read_text())
    steps = told["rows"][0]["steps"]
    assert told["interrupted"] and 0 < steps < 100_000_000
    assert pq.read_table(folder / "metrics.parquet").num_rows == 5 * (steps + 1)


@pytest.mark.parametrize("arguments", [
    ["run", "own.yaml", "--set", "steps=100000000"],
    ["launch", "own.yaml", "--set", "steps=1000000", "--device", "cpu"],
])  # fmt: skip
def test_a_scheduler_that_ends_a_job_by_sigterm_leaves_it_what_it_has(arguments, tmp_path):
    enough = (lambda at: len(on_disk(at, 0)) > 5) if arguments[0] == "run" else (lambda at: measured(at, 1) > 50)
    process = begun(arguments, tmp_path, enough, afresh=arguments[0] == "launch")
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143 and "Traceback" not in errors
    assert os.listdir(tmp_path / "runs") == ["own"]
    told = json.loads((tmp_path / "runs" / "own" / "run.json").read_text())
    assert told["interrupted"] and 0 < told["rows"][0]["steps"] < 1_000_000


def test_a_run_that_is_interrupted_before_its_first_step_leaves_nothing_or_what_it_has(tmp_path):
    """While torch is imported, or weights are drawn: there is nothing yet that could be kept."""
    arguments = ["run", "rosenbrock-mt-dao", "--set", "workers=2", "--set", "steps=100000000"]
    code, errors = interrupted(arguments, tmp_path, lambda folder: any(folder.rglob("spec.yaml")), afresh=True)
    assert code == 130 and "Traceback" not in errors
    left = [path for path in (tmp_path / "runs").glob("*") if not path.name.startswith(".")]
    assert all((folder / "run.json").exists() for folder in left)
    assert not list((tmp_path / "runs").glob(".*.partial-*"))


@pytest.mark.slow
def test_an_interrupt_before_the_first_step_is_no_traceback_either(tmp_path):
    code, errors = interrupted(
        ["compare", "digits-skewed", "--jobs", "2"], tmp_path, lambda folder: (folder / "runs").exists(), afresh=True
    )
    assert code == 130 and "Traceback" not in errors
