"""The functions of the API against the commands: the same rows, tables and refusals."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import syncline as sl
from syncline.costmodel import Link
from syncline.specs import load_spec

PROBLEM = {"kind": "rosenbrock", "noise_std": 1.0}
METHODS = ["ddp-adam", {"kind": "local", "lr": 0.01, "period": 4}]
SMALL = {"problem": PROBLEM, "methods": METHODS, "workers": 2, "steps": 12, "compute": {"seconds": "1 ms"}}
"""A comparison of two methods."""

SPEC = """
kind: compare
name: small
problem: {kind: rosenbrock, noise_std: 1.0}
methods: [ddp-adam, {kind: local, lr: 0.01, period: 4}]
workers: 2
steps: 12
eval_every: 4
seeds: 2
compute: {seconds: 1 ms}
networks: [10gbe, "20 ms, 1 Gbit/s"]
"""


def shown(result: sl.Result) -> list[str]:
    return [line.rstrip() for line in str(result).splitlines() if line.strip()]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return path


def test_a_comparison_is_what_the_command_prints(small, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    done = command("compare", str(small), "--jobs", "1", "--json")
    result = sl.compare(small, jobs=1)
    told = json.loads(done.out)
    assert (done.code, told["rows"], told["target_loss"]) == (0, result.rows, result.json()["target_loss"])
    printed = [line.rstrip() for line in done.err.splitlines() if line.strip()]
    assert shown(result) == printed[: printed.index("results in runs/small/")]
    loaded = sl.load("runs/small")
    assert loaded.rows == result.rows and shown(loaded) == shown(result)
    assert repr(loaded) == "<compare 'small': 4 rows, runs/small>"


def test_by_keywords_it_is_the_same_training(small):
    by_file = sl.compare(small, jobs=1)
    by_keywords = sl.compare(
        **SMALL, eval_every=4, seeds=2, networks=["10gbe", sl.Link("20 ms", "1 Gbit/s")], jobs=1,
    )  # fmt: skip
    assert by_keywords.rows == by_file.rows
    assert by_keywords.spec == by_file.spec.model_copy(update={"name": "compare"})


def test_fields_of_a_spec_are_replaced_by_name_and_by_path(small):
    result = sl.compare(small, jobs=1, steps=8, seeds=[5], **{"methods.1.period": 2})
    assert (result.spec.steps, result.spec.seeds, result.spec.methods[1].period) == (8, (5,), 2)
    again = sl.compare(result.spec, jobs=1, networks=["wan"])
    assert [row["network"] for row in again.rows] == ["wan", "wan"]
    assert [row["loss"] for row in again.rows] == [row["loss"] for row in result.rows][:2]


def test_a_run_and_a_projection_are_what_the_commands_print(command):
    run = command("run", "rosenbrock-local-adam", "--set", "steps=40", "--json")
    assert json.loads(run.out)["rows"] == sl.run("rosenbrock-local-adam", steps=40).rows
    project = command("project", "--workers", "8,64", "--method", "ddp-adam,lion-cub", "--json")
    assert "warning: lion-cub: left out for 64" not in project.err
    result = sl.project(workers=[8, 64], methods=["ddp-adam", "lion-cub"])
    assert json.loads(project.out) == result.json()
    table = command("project", "curvadion-table3", "--json")
    assert json.loads(table.out) == sl.project("curvadion-table3").json()


def test_collectives_and_pipelines_are_what_the_commands_print(command):
    asked = ("--workers", "4", "--bytes", "1MB", "--collective", "all_reduce", "--starts", "0,0,0,1ms", "--json")
    done = command("collectives", *asked)
    result = sl.collectives(4, "1 MB", collectives="all_reduce", starts=[0, 0, 0, "1 ms"])
    assert json.loads(done.out) == result.json()
    played = command("pipeline", "--schedule", "gpipe,1f1b", "--stages", "3", "--json")
    assert json.loads(played.out)["rows"] == sl.pipeline(schedules=["gpipe", "1f1b"], stages=3).rows


def test_what_is_surely_not_meant_is_a_warning_of_python(small):
    with pytest.warns(UserWarning, match="never averaged in 3 steps") as caught:
        sl.compare(small, jobs=1, steps=3)
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sl.project(load_spec("project-gpt-160m"))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (sl.compare, "problem: got None; expected a value"),
        (lambda: sl.compare(**SMALL, networks=["10gbe"], stepz=3), "stepz: got 3; expected no such field here"),
        (lambda: sl.compare(**SMALL, networks=["10gb"]), r"networks.0: got '10gb'.*\(did you mean '10gbe'\?\)"),
        (lambda: sl.compare(**SMALL, networks=["10gbe"], seeds=0), "seeds: got 0; expected a number of seeds from 1"),
        (lambda: sl.compare(**SMALL, networks=["10gbe"], seeds=True), "seeds: got True; expected a number of seeds"),
        (lambda: sl.run(load_spec("compare-text")), "spec: got 'compare-text'; expected a spec of kind run"),
        (lambda: sl.compare("compare-tex"), r"spec: got 'compare-tex'.*\(did you mean 'compare-text'\?\)"),
        (lambda: sl.collectives(0), "workers: got 0; expected at least 1"),
        (lambda: sl.collectives(nbytes="3 potatoes"), "^nbytes: got '3 potatoes'"),
        (lambda: sl.project(hardware="a10"), "^hardware: got 'a10'; expected one of"),
        (lambda: sl.project(workers=[8, 0]), "^workers: got .8, 0.; expected whole numbers"),
        (lambda: sl.Link("20 metres", "1 Gbit/s"), "^latency: got '20 metres'"),
        (lambda: sl.load("nowhere"), "folder: got 'nowhere'; expected a run folder"),
    ],
)
def test_a_mistake_is_one_line(ask, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sl.SynclineError, match=message) as refused:
        ask()
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_a_folder_that_nobody_named_goes_with_its_result(tmp_path):
    result = sl.run(problem=PROBLEM, method="ddp-adam", network="wan", workers=2, steps=4, compute={"seconds": 1})
    folder = result.folder
    assert folder is not None and (folder / "metrics.parquet").is_file() and not list((folder / "figures").iterdir())
    kept = result.save(tmp_path / "kept")
    rows = result.rows
    del result
    gc.collect()
    assert not folder.parent.exists() and sl.load(kept).rows == rows
    with pytest.raises(sl.SpecError, match="a name that does not exist yet"):
        sl.load(kept).save(kept)


def test_a_named_folder_is_the_command_s_and_is_never_overwritten(tmp_path, small):
    result = sl.compare(small, jobs=1, out=tmp_path / "named")
    assert (tmp_path / "named" / "figures" / "loss_against_clock.png").is_file()
    with pytest.raises(sl.SpecError, match="a folder that does not exist yet"):
        sl.compare(small, jobs=1, out=tmp_path / "named")
    shutil.rmtree(tmp_path / "named")
    assert result.rows


def test_a_failure_keeps_what_was_finished(monkeypatch, small):
    def fails(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("syncline.runs.compare.time_with_bounds", fails)
    with pytest.raises(OSError, match="no space left") as failure:
        sl.compare(small, jobs=1)
    (note,) = failure.value.__notes__
    kept = Path(note.removeprefix("what was finished until then is in "))
    assert (kept / "metrics.parquet").is_file()
    shutil.rmtree(kept.parent)


def test_a_link_is_the_network_that_a_spec_would_name():
    assert sl.Link("20 ms", "1 Gbit/s") == Link(0.02, 125e6)
    assert sl.Link(0.02, "125 MB/s", name="dsl") == Link(0.02, 125e6, "dsl")


def test_a_picture_of_what_trains_nothing():
    assert len(sl.project().plot()) == 1
    with pytest.raises(sl.SynclineError, match="no picture"):
        sl.pipeline().plot()


def test_a_sweep_is_what_the_command_prints_and_ranks(small, command):
    rates = {"method.lr": [0.01, 0.02]}
    done = command("sweep", str(small), "--grid", "method.lr=0.01,0.02", "--jobs", "1", "--json")
    result = sl.sweep(small, rates, jobs=1)
    assert json.loads(done.out)["rows"] == result.rows and len(result.rows) == 16
    assert list(zip(result.summary.method, result.summary.network, strict=True))[::2] == [
        (method, network)
        for method in ("ddp-adam", "local-adam")
        for network in ("10gbe", "20 ms, 1 Gbit/s")
        for _ in rates["method.lr"]
    ]
    best = result.best()
    assert best.loss.is_monotonic_increasing and len(best) == 8 and best.loss[0] < best.loss[7]
    with pytest.raises(sl.SpecError, match=r"grid\['method.lr'\]: got -1"):
        sl.sweep(small, {"method.lr": [-1]})
    again = sl.sweep(result_spec := load_spec(small), rates, jobs=1, steps=8, seeds=1)
    assert {row["steps"] for row in again.rows} == {8} and result_spec.steps == 12


def test_a_sweeps_folder_is_its_result_again(small, command, tmp_path):
    command("sweep", str(small), "--grid", "method.lr=0.01,0.02", "--jobs", "1", "--out", "rates")
    made = sl.sweep(small, {"method.lr": [0.01, 0.02]}, jobs=1, out="rates")
    kept = sl.load("rates")
    assert type(kept) is type(made) and kept.json() == made.json() and str(kept) == str(made)
    assert kept.best().equals(made.best()) and kept.summary.equals(made.summary)
    shown = command("show", "rates", "--json")
    assert json.loads(shown.out) == made.json() and "8 configurations by loss" in shown.err
    (tmp_path / "none").mkdir()
    with pytest.raises(sl.SpecError, match=r"a run folder, with a run\.json, or a sweep's"):
        sl.load(tmp_path / "none")


def test_data_frames_and_picture_of_a_training(small, tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    result = sl.compare(small, jobs=1)
    assert result.curves.attrs["units"]["seconds"] == "s" and result.summary.attrs["units"]["bytes_per_worker"] == "B"
    assert len(result.curves) == 2 * 2 * 2 * 13 and len(result.summary) == 2 * 2 * 2
    axes = result.plot()
    assert len(axes) == 2 and axes[0].figure.number in plt.get_fignums()
    plt.close("all")
    page = result._repr_html_()
    assert "target" in page and "data:image/png;base64," in page
    kept = result.save(tmp_path / "kept")
    (kept / "spec.yaml").write_text("kind: compare\nproblem: {kind: gone.from:here}\n")
    bare = sl.load(kept)
    assert bare.spec is None and bare.tables == [] and bare.rows == result.rows
    assert bare.command == "compare" and bare.curves.equals(result.curves) and len(bare.plot()) == 2
    assert "time_to_target_s" in str(bare) and "time_to_target_s" in bare._repr_html_()
    plt.close("all")


def test_what_trains_nothing_has_no_curves():
    assert len(sl.project().summary) == len(sl.project().rows)
    with pytest.raises(sl.SynclineError, match="a result of 'project' has no curves"):
        _ = sl.project().curves


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sl.project(workers=[8, 64], methods=["ddp-adam", "diloco"]),
        lambda: sl.project("curvadion-table3"),
        lambda: sl.collectives(4, "1 MB", ["10gbe", "dgx-h100"], collectives=["all_reduce", "broadcast"]),
        lambda: sl.collectives(nbytes=8, starts=[0, "1 ms"], algorithms="ring", collectives="all_reduce"),
        lambda: sl.pipeline(schedules=["gpipe", "zb-h1"]),
    ],
)
def test_what_trains_nothing_is_saved_and_loaded_too(ask, tmp_path):
    result = ask()
    loaded = sl.load(result.save(tmp_path / "kept"))
    told, again = result.json(), loaded.json()
    assert {name: again[name] for name in told if name != "folder"} == {
        name: told[name] for name in told if name != "folder"
    }
    assert str(loaded) == str(result) and loaded.command == result.command


PROGRAM = """
import torch, syncline as sl

class Valley:
    name = "valley"
    def __init__(self, f):
        self.f = f
    def build(self, rows):
        task = sl.problems.Quadratic(spectrum=(1.0, 10.0)).build(rows)
        evaluate = task.evaluate
        task.evaluate = lambda means: {name: self.f(value) for name, value in evaluate(means).items()}
        return task

import syncline.problems
result = sl.compare(problem=Valley(lambda x: x + 1), methods=["ddp-adam", "local-adam"], networks=["wan"], workers=2,
                    steps=4, compute={"seconds": "1 ms"}, jobs=2)
alone = sl.compare(problem=Valley(lambda x: x + 1), methods=["ddp-adam", "local-adam"], networks=["wan"], workers=2,
                   steps=4, compute={"seconds": "1 ms"}, jobs=1)
assert result.rows == alone.rows and result.rows[0]["loss"] > 1
print(len(result.curves))
"""


@pytest.mark.slow  # three processes import torch
def test_a_program_on_the_command_line_sends_lambdas_to_other_processes():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
