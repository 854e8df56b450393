"""Workers at their own pace: the synchronous method where nobody is late, and the papers' loops where somebody is."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import syncline as sl
from syncline.errors import SpecError
from syncline.methods import DiLoCo
from syncline.runs.training.async_clock import SampledPace
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.runs.training.trained import Trained
from syncline.specs import RunSpec, validate
from tests.runs.training.elastic.late import (
    ADAM,
    DDP,
    DILOCO,
    LOCAL_SGD,
    SHARED,
    gradient_of,
    loss_at,
    spec_of,
    trained,
)

ROOT = Path(__file__).resolve().parents[4]


def check_same_math(one: Trained, other: Trained, *, ends_alone: bool = False) -> None:
    """Of the same losses to 1e-6; in the end, which is after the last update has arrived, of the same model."""
    assert one.history.steps == other.history.steps
    if not ends_alone:
        np.testing.assert_allclose(one.history.loss, other.history.loss, rtol=1e-6)
    last = [each.history.last_evaluation() for each in (one, other)]
    np.testing.assert_allclose(last[0]["loss"], last[1]["loss"], rtol=1e-6)
    np.testing.assert_allclose(last[0]["distance"], last[1]["distance"], rtol=1e-6)


SCHEDULE = {"warmup_steps": 4, "cooldown_steps": 8}


@pytest.mark.parametrize("method", [DDP, ADAM, DILOCO, LOCAL_SGD])
@pytest.mark.parametrize("schedule", [{}, SCHEDULE])
def test_where_nobody_is_late_it_is_the_synchronous_method(method: dict[str, Any], schedule: dict[str, Any]) -> None:
    """Equal workers, on links that are alike, and a version of all their updates."""
    late = trained(method, {"buffer_size": 4}, schedule=schedule)
    check_same_math(late, trained(method, schedule=schedule))
    assert late.asynchronous and late.asynchronous.result.ages().tolist() == [
        4 * (24 if method["kind"] == "ddp" else 4)
    ]


@pytest.mark.parametrize("method", [DDP, DILOCO])
def test_who_waits_for_all_is_synchronous_at_any_pace(method: dict[str, Any]) -> None:
    """Only the order of steps differs, so only the last model is compared."""
    own = {"speeds": [1.0, 0.4, 2.0, 0.7], "compute": {"seconds": 1.0, "jitter": 0.3}}
    late = trained(method, {"buffer_size": 4, "synchronous": True}, **own)
    check_same_math(late, trained(method), ends_alone=True)


def test_delayed_momentum_is_dilocos_where_nobody_is_late() -> None:
    check_same_math(trained(DILOCO, {"buffer_size": 4, "momentum": "delayed"}), trained(DILOCO))


def test_one_worker_alone_is_the_serial_method() -> None:
    check_same_math(trained(ADAM, {}, workers=1), trained(ADAM, workers=1))


@pytest.mark.parametrize("staleness_exponent", [0.0, 0.5])
def test_fedbuff_with_sgd_is_its_loop(staleness_exponent: float) -> None:
    """The order is that of SECONDS; each of K = 3 updates is weighted by ``1 / (1 + age)^a``, and divided by K."""
    seconds, steps, k, lr = [1.0, 1.7, 2.9], 5, 3, 0.05
    spec = spec_of(
        LOCAL_SGD | {"period": 2, "lr": lr, "outer_lr": 0.8},
        {"buffer_size": k, "staleness_exponent": staleness_exponent},
        workers=3, steps=steps * 2, seeds=[0], speeds=[1 / s for s in seconds],
        network={"latency": 0, "bandwidth": "100 Gbit/s"}, eval_every=0,
    )  # fmt: skip
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None
    x = spec.problem.start_of(0).to(torch.float64)
    begins, made = [x.clone() for _ in seconds], [0] * 3
    took, version, buffer = [0] * 3, 0, []
    ready, handed = [2 * s for s in seconds], 3 * 2
    for one in out.asynchronous.result.contributions:
        worker = min(range(3), key=lambda m: (ready[m], m))
        assert worker == one.worker
        local = begins[worker].clone()
        for _ in range(2):
            local = local - lr * gradient_of(spec, worker, made[worker], local)
            made[worker] += 1
        buffer.append((1 + version - took[worker]) ** -staleness_exponent * (begins[worker] - local))
        if len(buffer) == k:
            x, version, buffer = x - 0.8 * sum(buffer) / k, version + 1, []
        begins[worker], took[worker] = x.clone(), version
        ready[worker] += 2 * seconds[worker] if handed < 3 * 2 * steps else math.inf
        handed += 2
    assert out.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-6)


def test_asynchronous_sgd_by_hand() -> None:
    """f(x) = x^2 / 2, lr 1/2, workers of 1 s and 2.5 s: 1 - 1/2, - 1/4, then - 1/2 of the first x (docs: effect.py)."""
    spec = spec_of(
        {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0.0}, "lr": 0.5}, {},
        problem={"kind": "quadratic", "spectrum": [1.0]}, workers=2, steps=2, seeds=[0], speeds=[1.0, 0.4],
        network={"latency": 0, "bandwidth": "100 Tbit/s"}, eval_every=1,
    )  # fmt: skip
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None
    assert out.history.evaluation["loss"][-1, 0] == pytest.approx(0.5 * 0.375**2)
    assert [one.age for one in out.asynchronous.result.contributions] == [0, 0, 2, 1]
    clock = time_method(spec, out, spec.network)
    assert clock is not None and clock.step_end_s.tolist() == pytest.approx([2.0, 3.0])


def test_slower_workers_make_fewer_local_steps_if_they_adapt() -> None:
    out = trained(DILOCO, {"dynamic_local_updates": True}, speeds=[1.0, 0.5, 0.5, 0.2])
    assert out.asynchronous is not None
    columns = out.asynchronous.result.columns()
    first = {m: int(columns["steps"][columns["worker"] == m][0]) for m in range(4)}
    assert first == {0: 6, 1: 3, 2: 3, 3: 1}
    assert out.asynchronous.result.ages().argmax() <= 3 < trained(
        DILOCO, {}, speeds=[1.0, 0.5, 0.5, 0.2]
    ).asynchronous.result.columns()["age"].max()  # type: ignore[union-attr]  # fmt: skip


def test_a_run_is_the_same_again_and_its_parts_say_who_came_when(tmp_path: Any) -> None:
    method = DILOCO | {"asynchronous": {"buffer_size": 2, "staleness_exponent": 0.5}}
    fields = {name: value for name, value in SHARED.items() if name not in ("kind", "name")}
    fields |= {"method": method, "speeds": [1.0, 0.5, 0.5, 0.2], "faults": {"latency_jitter": 0.2}}
    fields["compute"] = {"seconds": 1.0, "jitter": 0.1}
    one, other = (sl.run(**fields, out=tmp_path / name) for name in ("one", "other"))
    assert repr(one.rows) == repr(other.rows)
    row = one.rows[0]
    assert sum(row["steps_by_worker"]) == 4 * 24 and sum(row["contributions"]) == sum(row["ages"])
    assert row["age_max"] == len(row["ages"]) - 1 and len(row["waited_s"]) == 4
    assert row["step_time_low_s"] <= row["step_time_s"] <= row["step_time_high_s"]
    table = pq.read_table(tmp_path / "one" / "contributions.parquet").to_pydict()
    assert sum(table["steps"]) == 4 * 24 and set(table["method"]) == {"async-diloco"}
    assert np.bincount(table["age"]).tolist() == row["ages"]
    trace = json.loads((tmp_path / "one" / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in trace if event["name"] == "process_name"} >= {"server", "worker 3"}
    curves = pq.read_table(tmp_path / "one" / "curves.parquet").to_pydict()
    assert max(curves["seconds"]) == pytest.approx(row["wall_clock_s"])
    assert max(curves["bytes"]) == pytest.approx(row["bytes_per_worker"] * 24)
    assert "versions of the model" in str(one)
    told = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    rows, contributions = (
        told.partition(title)[2].partition("\n## ")[0]
        for title in ("## Rows of asynchronous methods", "## contributions.parquet")
    )
    assert set(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)) == set(out_of(one.rows[0]))
    assert set(re.findall(r"^\| `(\w+)`", contributions, re.MULTILINE)) == set(table)


def out_of(row: dict[str, Any]) -> list[str]:
    """What only asynchronous methods tell."""
    plain = sl.run(**{name: value for name, value in SHARED.items() if name not in ("kind", "name")}, method=DDP)
    return [name for name in row if name not in plain.rows[0]]


def test_a_comparison_trains_once_on_each_network() -> None:
    result = sl.compare(
        problem=SHARED["problem"], workers=4, steps=12, jobs=1, compute={"seconds": "20 ms"},
        methods=[DILOCO, DILOCO | {"asynchronous": {"buffer_size": 2}}], networks=["10gbe", "wan"],
        speeds=[1, 1, 1, 0.25],
    )  # fmt: skip
    assert [(row["method"], row["network"]) for row in result.rows] == [
        ("diloco", "10gbe"), ("async-diloco on 10gbe", "10gbe"), ("diloco", "wan"), ("async-diloco on wan", "wan"),
    ]  # fmt: skip
    sync, late = result.rows[2:]
    assert sync["step_time_s"] > 0.08 > late["step_time_s"] and late["speedup"] > 1
    assert "ages" in late and "ages" not in sync


def test_steps_of_synchronous_workers_take_as_long_as_the_slowest() -> None:
    spec = spec_of(DDP, speeds=[1.0, 2.0, 0.25, 1.0], network={"latency": 0, "bandwidth": "100 Tbit/s"})
    clock = time_method(spec, train_method(spec, spec.method), spec.network)
    assert clock is not None and clock.step_time_s == pytest.approx(4.0)


def test_a_fast_workers_later_steps_are_drawn_as_more_of_the_same() -> None:
    spec = spec_of(DDP, compute={"seconds": 1.0, "jitter": 0.3}, steps=5)
    pace = SampledPace(spec, 1.0)
    first = [pace(1, t) for t in range(5)]
    assert pace(1, 17) > 0 and [pace(1, t) for t in range(5)] == first
    assert first == spec.step_times(1.0, 5)[:, 1].tolist()


def test_a_training_that_is_stopped_has_what_was_until_then() -> None:
    def stop(done: int) -> None:
        if done >= 7:
            raise KeyboardInterrupt

    spec = spec_of(DDP, {"buffer_size": 2}, steps=500)
    out = train_method(spec, spec.method, stop)
    assert out.history.interrupted and 0 < out.history.steps < 500
    clock = time_method(spec, out, spec.network)
    assert clock is not None and len(clock.step_end_s) == out.history.steps


def test_a_training_that_diverges_ends() -> None:
    out = trained(DDP | {"lr": 1e3}, {}, steps=400, dtype="float32", seeds=[0])
    assert out.history.steps < 400 and out.history.diverged_at[0] is not None


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"method": DDP | {"asynchronous": {"buffer_size": 0}}}, "method.asynchronous.buffer_size: got 0"),
        (
            {"method": DDP | {"asynchronous": {"buffer_size": 9, "synchronous": True}}},
            "buffer_size: got 9; expected at most 4",
        ),
        ({"method": DDP | {"asynchronous": {"momentum": "delayed"}}}, "momentum: got 'delayed'"),
        (
            {"method": DDP | {"asynchronous": {"dynamic_local_updates": True}}},
            "dynamic_local_updates: got True; expected batch or no",
        ),
        (
            {"method": DILOCO | {"asynchronous": {"momentum_activation": 0.1}}},
            "momentum_activation: got 0.1; expected 0",
        ),
        (
            {
                "method": DILOCO
                | {"asynchronous": {"momentum": "delayed", "buffer_size": 4, "momentum_activation": 0.5}}
            },
            "momentum_activation: got 0.5; expected at most 1 / buffer_size",
        ),
        (
            {"method": DILOCO | {"asynchronous": {"momentum": "delayed", "synchronous": True}}},
            "synchronous: got True; expected no",
        ),
        ({"method": DDP | {"asynchronous": {}, "compressor": "top-k"}}, "method.compressor: got 'top-k'"),
        ({"method": DILOCO | {"asynchronous": {}, "in_backward": True}}, "method.in_backward: got True"),
        ({"method": DDP, "speeds": [1.0]}, r"speeds: got \(1.0,\); expected one speed per worker \(4\)"),
        (
            {"method": DDP, "speeds": [1.0, 1.0, 1.0, 0.0]},
            "speeds.3: got 0.0; expected a speed from 1e-06",
        ),
        (
            {"method": DDP | {"asynchronous": {}}, "faults": {"absences": [{"worker": 0, "first_step": 2}]}},
            "faults.absences",
        ),
        ({"method": {"kind": "local", "lr": 0.1, "asynchronous": {}}}, "method.asynchronous"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as told:
        validate(RunSpec, SHARED | fields)
    assert "\n" not in str(told.value)


def test_only_what_plays_who_comes_when_takes_it() -> None:
    with pytest.raises(SpecError, match=r"methods.0.asynchronous: got 'async-diloco'"):
        sl.project(
            model="gpt-1.3b",
            methods=[DILOCO | {"asynchronous": {}}],
            networks=["wan"],
            workers=4,
            tokens_per_worker=2048,
        )
    with pytest.raises(SpecError, match=r"asynchronous: got 'async-diloco'"):
        DiLoCo([torch.nn.Parameter(torch.zeros(2))], lr=0.1, asynchronous={})
    spec = spec_of(DILOCO, {})
    with pytest.raises(SpecError, match=r"arrivals depend on a network"):
        train_method(spec.model_copy(update={"network": None}), spec.method)
