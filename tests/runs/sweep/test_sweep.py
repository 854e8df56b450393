"""A sweep is its runs: each equals ``syncline run`` with one seed, none is made twice, no finished one is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from syncline.errors import SpecError
from syncline.runs.processes.progress import Listener
from syncline.runs.run import run
from syncline.runs.sweep.folder import read_sweep
from syncline.runs.sweep.search import Search
from syncline.runs.sweep.sweep import sweep
from syncline.specs import load_spec
from tests.runs.sweep.small import FIELDS, RATES, counted_trainings, small_sweep

PRODUCT = [(rate, seed) for rate in RATES for seed in (0, 1)]


def contents(folder: Path) -> dict[str, bytes]:
    """What must be equal of runs that are the same."""
    files = [*folder.glob("runs/*/metrics.parquet"), *folder.glob("runs/*/spec.yaml")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_each_row_is_what_a_run_with_that_seed_alone_says(tmp_path, monkeypatch):
    monkeypatch.setattr("syncline.runs.run.run_figures", lambda *_, **__: None)
    result = small_sweep(tmp_path / "sweep")
    assert [(row["method.lr"], row["seed"]) for row in result.rows] == PRODUCT
    assert [row["configuration"] for row in result.rows] == [1, 1, 2, 2, 3, 3]
    for row, (rate, seed) in zip(result.rows, PRODUCT, strict=True):
        spec = load_spec(FIELDS, {"method.lr": rate, "seeds": [seed]})
        alone = run(spec, tmp_path / "alone")
        (expected,) = alone["rows"]
        assert {name: row[name] for name in expected} == expected
        own = tmp_path / "sweep" / "runs" / row["run"]
        metrics = [pq.read_table(Path(folder) / "metrics.parquet") for folder in (own, alone["folder"])]
        assert metrics[0].equals(metrics[1])
        assert load_spec(own / "spec.yaml") == spec


def test_what_is_finished_is_not_run_again_and_a_wider_grid_runs_what_is_new(tmp_path):
    with counted_trainings() as begun:
        first = small_sweep(tmp_path / "out")
        assert begun == PRODUCT and (len(first.requests), first.repeated) == (6, 0)
        again = small_sweep(tmp_path / "out")
        assert begun == PRODUCT and again.repeated == 6 and again.rows == first.rows
        wider = sweep(FIELDS, {"method.lr": [0.03, *RATES]}, seeds=3, out=tmp_path / "out", jobs=1)
    new = [(0.03, 0), (0.03, 1), (0.03, 2), *((rate, 2) for rate in RATES)]
    assert begun[6:] == new and wider.repeated == 6
    assert [row for row in wider.rows if (row["method.lr"], row["seed"]) in PRODUCT] == [
        row | {"configuration": row["configuration"] + 1} for row in first.rows
    ]


@pytest.mark.parametrize("between_runs", [True, False])
def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path, between_runs):
    """Killed after the third run was told of, or in the middle of the fourth."""

    class Killer(Listener):
        def finished(self, label, row):
            told.append(label)
            if between_runs and len(told) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    told: list[str] = []
    whole = small_sweep(tmp_path / "whole")
    child = os.fork()
    if child == 0:
        if not between_runs:
            _kill_in_training(number=4)
        small_sweep(tmp_path / "killed", listener=Killer())
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(read_sweep(tmp_path / "killed").rows) == 3
    with counted_trainings() as begun:
        result = small_sweep(tmp_path / "killed")
    assert begun == PRODUCT[3:] and result.repeated == 3
    assert result.rows == whole.rows and contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob(".*"))


def _kill_in_training(number: int) -> None:
    from syncline.runs.training import train_and_time

    train, begun = train_and_time.train_method, []

    def train_method(*arguments):
        begun.append(1)
        if len(begun) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return train(*arguments)

    train_and_time.train_method = train_method


def test_networks_and_clocks_share_a_training_and_give_the_same_numbers(tmp_path):
    grid = {"network": ["10gbe", "wan"], "compute.seconds": ["1 ms", "2 ms"]}
    with counted_trainings() as begun:
        together = sweep(FIELDS, grid, out=tmp_path / "together", jobs=1)
    assert len(begun) == 2  # the seeds
    for row in together.rows:
        values = {path: row[path] for path in grid}
        alone = sweep(FIELDS, overrides=values | {"seeds": [row["seed"]]}, out=tmp_path / row["run"], jobs=1)
        (expected,) = alone.rows
        assert expected["run"] == row["run"]
        assert row.items() >= {name: value for name, value in expected.items() if name != "configuration"}.items()
    assert len({row["step_time_s"] for row in together.rows}) == 4


def test_a_step_is_measured_once_for_a_folder(tmp_path, monkeypatch):
    from syncline.runs.training import trained

    times_s = iter([2e-3, 3e-3, 4e-3])
    monkeypatch.setattr(trained, "measured_step_s", lambda *_, **__: next(times_s))
    for rates in ([0.01], [0.01, 0.02]):
        result = sweep(FIELDS, {"method.lr": rates, "workers": [2, 3]}, overrides={"compute": "measure"},
                       out=tmp_path / "out", jobs=1)  # fmt: skip
    assert {(row["workers"], round(row["compute_s"], 9)) for row in result.rows} == {(2, 2e-3), (3, 3e-3)}
    assert len(result.rows) == 8


def test_a_comparison_is_its_methods_on_its_networks(tmp_path):
    fields = FIELDS | {
        "kind": "compare", "networks": ["10gbe", "wan"],
        "methods": ["ddp-adam", {"kind": "local", "label": "local-adam", "period": 2, "lr": 0.5}],
    }  # fmt: skip
    for name in ("method", "network"):
        fields.pop(name)
    result = sweep(
        fields, {"method.lr": [0.01]}, seeds=1, overrides={"methods.1.period": 3}, out=tmp_path / "a", jobs=1
    )
    assert [(row["method"], row["network"]) for row in result.rows] == [
        ("ddp-adam", "10gbe"), ("ddp-adam", "wan"), ("local-adam", "10gbe"), ("local-adam", "wan"),
    ]  # fmt: skip
    specs = [load_spec(tmp_path / "a" / "runs" / row["run"] / "spec.yaml") for row in result.rows]
    assert [spec.method.lr for spec in specs] == [0.01] * 4
    assert [spec.method.period for spec in specs[2:]] == [3, 3]
    chosen = sweep(fields, {"network": ["infiniband"]}, seeds=1, out=tmp_path / "b", jobs=1)
    assert [(row["method"], row["network"]) for row in chosen.rows] == [
        ("ddp-adam", "infiniband"),
        ("local-adam", "infiniband"),
    ]


def test_a_clock_that_cannot_be_is_told_of_its_runs_alone(tmp_path):
    result = sweep(FIELDS, {"compute": [{}, {"seconds": "1 ms"}]}, seeds=1, out=tmp_path / "out", jobs=1)
    failed, good = result.rows
    assert failed["error"].startswith("compute.seconds: got None; expected seconds per step")
    assert good["error"] is None and good["step_time_s"] > 1e-3


def test_a_run_that_fails_is_a_row_with_its_error_and_finished(tmp_path):
    fields = FIELDS | {"problem": {"kind": "digits", "hidden": 2, "batch_size": 1}, "steps": 1}
    with counted_trainings() as begun:
        results = [sweep(fields, {"workers": [2, 5000]}, seeds=1, out=tmp_path / "out", jobs=1) for _ in range(2)]
    assert len(begun) == 2 and results[0].rows == results[1].rows
    good, failed = results[0].rows
    assert good["error"] is None and good["loss"] > 0
    assert (failed["workers"], failed["seed"]) == (5000, 0) and "loss" not in failed
    assert failed["error"].startswith("workers: got 5000; expected at most")


def test_a_run_for_which_the_machine_had_no_memory_is_tried_again(tmp_path, monkeypatch):
    from syncline.runs.training import train_and_time

    def train_method(*arguments):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(train_and_time, "train_method", train_method)
        failed = small_sweep(tmp_path / "out")
    assert {row["error"] for row in failed.rows} == {"MemoryError: no room"}
    assert all(row["error"] is None for row in small_sweep(tmp_path / "out").rows)


@pytest.mark.slow
def test_processes_give_the_same_bits(tmp_path):
    one, two = small_sweep(tmp_path / "one"), small_sweep(tmp_path / "two", jobs=2)
    assert one.rows == two.rows and contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(contents(tmp_path / "one")) == 12


def test_a_stop_keeps_what_is_finished(tmp_path):
    class Stopper(Listener):
        def finished(self, label, row):
            os.kill(os.getpid(), signal.SIGINT)

    with counted_trainings() as begun:
        result = small_sweep(tmp_path / "out", listener=Stopper())
        assert result.interrupted and len(result.rows) == 1 and begun == PRODUCT[:1]
        rest = small_sweep(tmp_path / "out")
    assert not rest.interrupted and begun == PRODUCT and rest.repeated == 1


def test_a_stop_in_a_training_leaves_nothing_of_it(tmp_path):
    class Stopper(Listener):
        def reached(self, runs):
            if runs > 0 and not stopped:
                stopped.append(runs)
                os.kill(os.getpid(), signal.SIGINT)

    stopped: list[float] = []
    result = small_sweep(tmp_path / "out", overrides={"steps": 10**8, "eval_every": 0}, listener=Stopper())
    assert result.interrupted and result.rows == [] and os.listdir(tmp_path / "out" / "runs") == []


def test_the_files_say_what_the_rows_say(tmp_path):
    result = small_sweep(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert told["rows"] == result.rows and told["grids"] == {"method.lr": list(RATES)}
    table = pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist()
    assert table == [dict.fromkeys(table[0]) | row for row in result.rows]
    (tmp_path / "out" / "sweep.parquet").unlink()
    shutil.rmtree(tmp_path / "out" / "runs" / result.rows[0]["run"])
    small_sweep(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist() == table


def test_a_folder_has_one_sweep_at_a_time_and_is_no_other_one(tmp_path):
    class Second(Listener):
        def finished(self, label, row):
            with pytest.raises(SpecError, match="no other sweep is writing"):
                small_sweep(tmp_path / "out")
            tried.append(label)

    tried: list[str] = []
    small_sweep(tmp_path / "out", listener=Second())
    assert len(tried) == 6
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for place in ("mine", "mine/thesis.tex"):
        with pytest.raises(SpecError, match="expected a sweep's folder, or one that does not exist yet"):
            small_sweep(tmp_path / place)
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


DEADLY = """
import os, signal
from dataclasses import dataclass
from syncline.problems import Quadratic

@dataclass(frozen=True)
class Deadly(Quadratic):
    name = "deadly"

    def build(self, rows, **options):
        if rows.seeds == (1,):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build(rows, **options)
"""


@pytest.mark.slow
def test_a_run_that_takes_its_process_along_fails_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deadly.py").write_text(DEADLY)
    problem = {"kind": "deadly.py:Deadly", "spectrum": [1, 10], "noise_std": 0.1}
    result = sweep(FIELDS, overrides={"problem": problem}, seeds=4, out=tmp_path / "out", jobs=2)
    assert [row["seed"] for row in result.rows] == [0, 1, 2, 3] and not result.interrupted
    assert [row["error"] is None for row in result.rows] == [True, False, True, True]
    assert "its process was killed" in result.rows[1]["error"]
    assert len(os.listdir(tmp_path / "out" / "runs")) == 3


def test_methods_with_knobs_of_their_own_can_have_equal_effort(tmp_path):
    grid = {
        "method": ["ddp-sgdm", "local-sgdm"], "method.lr": [0.01, 0.02], "local-sgdm:method.period": [1, 2, 3],
        "network": ["10gbe", "wan"],
    }  # fmt: skip
    fields = {"seeds": 1, "out": tmp_path / "out", "jobs": 1}
    all_of_them = sweep(FIELDS, grid, **fields)
    assert all_of_them.effort == {"ddp-sgdm": 2, "local-sgdm": 6} and len(all_of_them.rows) == 16
    assert [row.get("method.period") for row in all_of_them.rows if row["network"] == "wan"] == [
        None, None, 1, 2, 3, 1, 2, 3,
    ]  # fmt: skip
    drawn = [sweep(FIELDS, grid, equal_effort=True, **fields) for _ in range(2)]
    assert drawn[0].effort == {"ddp-sgdm": 2, "local-sgdm": 2} and drawn[0].rows == drawn[1].rows
    assert len(drawn[0].rows) == 8 == drawn[0].repeated
    with pytest.raises(SpecError, match="--equal-effort: got 'ddp-sgdm 2, local-sgdm 6'; expected the same number"):
        decay = Search.from_options({"method.weight_decay": (0.01, 0.1)}, trials=2)
        sweep(FIELDS, grid, search=decay, equal_effort=True, **fields)
