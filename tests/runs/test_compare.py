from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from syncline.costmodel import ring_all_reduce_s
from syncline.errors import SpecError
from syncline.runs.compare import compare, longest_first
from syncline.runs.folders.result_files import json_value
from syncline.runs.processes.shared_progress import SharedProgress
from syncline.runs.run import run
from syncline.specs import CompareSpec, RunSpec, load_spec
from tests.runs.examples import bowl, bowl_run, digits

TABLES = ("metrics", "ledger", "timeline", "curves", "summary")


def tables(folder):
    return {name: pq.read_table(f"{folder}/{name}.parquet") for name in TABLES}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A short comparison on digits, trained in two processes."""
    out = tmp_path_factory.mktemp("compare") / "short"
    return compare(digits("steps=40", "methods=[ddp-adam, local-adam]", "algorithm=ring"), out, jobs=2)


def test_a_comparison_leaves_everything_that_is_needed_to_read_and_repeat_it(short):
    folder = Path(short["folder"])
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    figures = {"figures/loss_against_clock.png", "figures/loss_against_steps.png"}
    assert (
        files
        == {"manifest.json", "spec.yaml", "run.json", "trace.json", *(f"{name}.parquet" for name in TABLES)} | figures
    )
    asked = digits("steps=40", "methods=[ddp-adam, local-adam]", "algorithm=ring")
    assert load_spec(folder / "spec.yaml", (), CompareSpec) == asked
    told = json.loads((folder / "run.json").read_text())
    assert told["rows"] == json_value(short["rows"]) and told["seeds"] == [0] and told["interrupted"] == []
    assert told["problem"]["parameters"] == 64 * 64 + 64 + 64 * 10 + 10


def test_the_ledger_and_the_timeline_tell_the_traffic_of_the_rows(short):
    read, nbytes = tables(short["folder"]), 4 * 4810
    ledger = read["ledger"].to_pydict()
    assert ledger["method"] == ["ddp-adam"] * 40 + ["local-adam"]
    assert ledger["step"] == [*range(40), 31]
    assert ledger["payload_bytes"] == [nbytes] * 40 + [3 * nbytes]
    by = {(row["method"], row["network"]): row for row in short["rows"]}
    assert by["ddp-adam", "wan"]["bytes_per_worker"] == nbytes
    assert by["local-adam", "wan"]["bytes_per_worker"] == 3 * nbytes / 40
    link = digits().networks[2]
    sync_s = float(ring_all_reduce_s(4, nbytes, link))
    assert by["ddp-adam", "wan"]["step_time_s"] == pytest.approx(1e-3 + sync_s, rel=1e-9)
    timeline = read["timeline"].to_pydict()
    assert set(zip(timeline["method"], timeline["network"], strict=True)) == set(by)


def test_the_trace_has_a_process_of_its_own_for_every_worker_of_every_row(short):
    with open(f"{short['folder']}/trace.json", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(set(processes)) == len(processes) == len(short["rows"]) * 4
    assert "local-adam on wan, worker 3" in processes
    assert len({event["pid"] for event in events}) == len(processes)


def test_numbers_do_not_depend_on_how_many_trainings_run_side_by_side(short, tmp_path):
    again = compare(digits("steps=40", "methods=[ddp-adam, local-adam]", "algorithm=ring"), tmp_path / "again", jobs=1)
    assert again["rows"] == short["rows"]
    one, other = tables(short["folder"]), tables(again["folder"])
    assert all(one[name].equals(other[name]) for name in TABLES)


def test_metrics_of_two_seeds_are_told_by_seed_and_step(tmp_path):
    result = compare(bowl(), tmp_path / "out", jobs=1)
    metrics = pq.read_table(tmp_path / "out" / "metrics.parquet").to_pydict()
    own = [i for i, key in enumerate(zip(metrics["method"], metrics["seed"], strict=True)) if key == ("local-adam", 1)]
    assert [metrics["step"][i] for i in own] == list(range(41))
    evaluated = [metrics["step"][i] for i in own if metrics["eval_loss"][i] is not None]
    assert evaluated == [0, 10, 20, 30, 40]
    assert metrics["train_loss"][own[0]] is None
    # Everybody starts at (1, 1), where the loss is (1 + 10) / 2 without noise.
    assert metrics["train_loss"][own[1]] == metrics["eval_loss"][own[0]] == 5.5
    ends = [metrics["eval_loss"][i] for i, step in enumerate(metrics["step"]) if step == 40]
    row = next(row for row in result["rows"] if row["method"] == "local-adam")
    assert sorted(ends[2:]) == [row["loss_min"], row["loss_max"]]
    assert row["loss"] == pytest.approx(np.median(ends[2:]), rel=1e-12)


def test_a_method_that_diverges_is_told_with_its_step_and_the_others_go_on(tmp_path):
    wild = {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0}, "lr": 1e30, "label": "wild"}
    result = compare(bowl(methods=[wild, *bowl().methods], networks=["wan"], steps=120), tmp_path / "out", jobs=1)
    lost, *others = json.loads(json.dumps(json_value(result["rows"]), allow_nan=False))
    # x grows by 1e31 per step and fp32 ends at 3e38: the square of the third position is lost in step 1 already.
    assert (lost["diverged_at"], lost["diverged_seeds"], lost["steps"]) == (1, 2, 50)
    assert lost["loss"] is None and lost["time_to_target_s"] is None
    for row in others:
        assert row["diverged_at"] is None and row["steps"] == 120 and math.isfinite(row["loss"])
        assert row["time_to_target_s"] > 0 and row["time_to_target_speedup"] is None
    assert (tmp_path / "out" / "figures" / "loss_against_clock.png").stat().st_size > 0


def test_an_input_error_of_a_training_in_another_process_arrives_as_it_is(tmp_path):
    with pytest.raises(SpecError, match=r"^workers: got 2000; expected at most 1438 workers, one per training image$"):
        compare(digits("workers=2000", "methods=[ddp-adam, local-adam]"), tmp_path / "out", jobs=2)
    assert not list(tmp_path.iterdir())


def test_processes_take_the_methods_first_that_do_most_beside_the_gradients():
    spec = digits("methods=[local-adam, ddp-muon, ddp-adam, demo, curvadion, lion-cub]", "seeds=3")
    turns = [spec.methods[i].name for i in longest_first(spec)]
    assert turns == ["curvadion", "demo", "lion-cub", "ddp-muon", "local-adam", "ddp-adam"]


def test_a_landscape_without_a_time_per_step_is_refused_before_it_is_trained(tmp_path):
    with pytest.raises(SpecError, match=r"compute\.seconds: .* quadratic has no FLOPs"):
        compare(bowl(compute={}, steps=10**9), tmp_path / "out", jobs=1)
    assert not list(tmp_path.iterdir())


def test_after_a_stop_there_are_rows_of_what_had_begun(tmp_path, monkeypatch):
    told = SharedProgress.report

    def report(self, training, done):
        if training == 1 and done:
            self.stop()
        told(self, training, done)

    monkeypatch.setattr(SharedProgress, "report", report)
    three = [*bowl().methods, {"kind": "diloco", "lr": 0.1}]
    result = compare(bowl(methods=three, steps=500), tmp_path / "out", jobs=1)
    first, second = [row for row in result["rows"] if row["network"] == "wan"]
    assert result["interrupted"]
    assert (first["method"], first["steps"], first["interrupted"]) == ("ddp-sgdm", 500, False)
    assert (second["method"], second["interrupted"]) == ("local-adam", True)
    assert 0 < second["steps"] < 500
    metrics = pq.read_table(tmp_path / "out" / "metrics.parquet").to_pydict()
    assert (
        max(s for m, s in zip(metrics["method"], metrics["step"], strict=True) if m == "local-adam") == second["steps"]
    )
    assert json.loads((tmp_path / "out" / "run.json").read_text())["interrupted"] == ["local-adam"]


def test_a_run_leaves_a_row_per_seed_and_the_same_numbers_again(tmp_path):
    one = run(bowl_run(), tmp_path / "one")
    other = run(load_spec(tmp_path / "one" / "spec.yaml", (), RunSpec), tmp_path / "other")
    assert one["rows"] == other["rows"] and [row["seed"] for row in one["rows"]] == [0, 1]
    first, second = tables(tmp_path / "one"), tables(tmp_path / "other")
    assert all(first[name].equals(second[name]) for name in TABLES)
    figures = {path.stem for path in (tmp_path / "one" / "figures").iterdir()}
    assert figures == {"loss_against_clock", "timeline", "distance"}
    assert {"loss", "distance", "train_loss", "distance_mean", "step_time_s"} <= one["rows"][0].keys()


def test_a_run_tells_how_far_it_is_and_stops_when_asked(tmp_path):
    def on_progress(done):
        told.append(done)
        if done:
            raise KeyboardInterrupt

    told: list[int] = []
    result = run(bowl_run(steps=100_000), tmp_path / "out", on_progress=on_progress)
    assert result["interrupted"] and result["rows"][0]["steps"] == told[-1] < 100_000
    assert "step_time_s" in result["rows"][0]


def test_a_disturbed_machine_changes_the_clock_and_not_the_loss(tmp_path):
    slow = {"seconds": "1 ms", "slow_workers": [{"worker": 1, "factor": 3}], "start_offsets": [0, 0, 0.5]}
    instant = {"latency": 0, "bandwidth": 1e15}
    calm, disturbed = (
        run(bowl_run(compute=compute, network=instant), tmp_path / "out")["rows"][0]
        for compute in ({"seconds": "1 ms"}, slow)
    )
    assert disturbed["loss"] == calm["loss"]
    assert disturbed["bytes_per_worker"] == calm["bytes_per_worker"]
    # An average every eighth of 40 steps: all wait for the late worker at the first, for the slow one at the others.
    assert calm["wall_clock_s"] == pytest.approx(40e-3, abs=1e-9)
    assert disturbed["wall_clock_s"] == pytest.approx(0.5 + 8e-3 + 32 * 3e-3, abs=1e-9)
