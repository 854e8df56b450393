"""Trainings on machines that fail: what the math sees, what the clock tells, what is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import syncline as sl
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError, SynclineError
from syncline.problems import Rows
from syncline.runs.training.limits import check_training
from syncline.runs.training.train_and_time import time_method
from syncline.runs.training.trained import build_task
from syncline.training import parameter_groups
from tests.runs.training.elastic.late import ADAM, DDP, DILOCO, gradient_of, loss_at, spec_of, trained

NOBODY: dict[str, Any] = {"rates": []}


@pytest.mark.parametrize(("method", "how"), [(DILOCO, None), (DDP, {"buffer_size": 2}), (DILOCO, {"buffer_size": 2})])
def test_where_nothing_fails_every_bit_is_the_same(method, how):
    one, other = trained(method, how), trained(method, how, failures=NOBODY)
    assert np.array_equal(one.history.loss, other.history.loss)
    assert all(np.array_equal(v, other.history.evaluation[k]) for k, v in one.history.evaluation.items())
    spec, failing = spec_of(method, how), spec_of(method, how, failures=NOBODY)
    clocks = [time_method(spec, one, spec.network), time_method(failing, other, failing.network)]
    assert clocks[0] and clocks[1] and np.array_equal(clocks[0].step_end_s, clocks[1].step_end_s)
    assert clocks[0].failed is None and clocks[1].failed is not None and clocks[1].failed.goodput == 1


def test_what_a_lost_worker_had_not_sent_is_nobodys_and_its_steps_are_made_by_others() -> None:
    """Plain asynchronous SGD of two workers, literally: worker 1 fails in its third step and does not come back."""
    plain = DDP | {"rule": {"kind": "sgdm", "momentum": 0.0}}
    link = "0 s,1 Tbit/s"
    fields = {"workers": 2, "steps": 6, "seeds": [0], "eval_every": 0, "network": link, "speeds": [1.0, 0.8]}
    failures = {"outages": [{"worker": 1, "start": "3 s"}]}
    late = trained(plain, {}, failures=failures, **fields)
    # worker 0 steps at 1, 2, ...; worker 1 at 1.25 and 2.5 s
    spec = spec_of(plain, {}, **fields)
    task = spec.problem.build(Rows((0,), (0,), 2), dtype=torch.float64)
    x = task.params["x"][0].detach().clone()
    model = [x.clone(), x.clone()]
    numbers = [0, 0]
    for worker in [0, 1, 0, 1, *[0] * 8]:
        x = x - 0.05 * gradient_of(spec, worker, numbers[worker], model[worker])
        numbers[worker] += 1
        model[worker] = x.clone()
    assert late.asynchronous is not None
    assert late.asynchronous.record()["steps_by_worker"] == [10, 2]
    assert late.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-6)


def test_a_machine_that_comes_back_has_nothing_in_its_optimizers_memory() -> None:
    from syncline.runs.training.async_training import AsyncWorkers
    from syncline.training import Recorder

    spec = spec_of(DILOCO, {})
    build = lambda rows, problem: build_task(problem, rows, torch.device("cpu"), "float64")  # noqa: E731
    math = AsyncWorkers(spec, spec.method, build, Recorder(), lambda done: None)
    math.step(1, 0)
    assert any(len(state) for state in math.optimizers[1].optimizer.state.values())
    math.fail(1)
    assert not any(len(state) for state in math.optimizers[1].optimizer.state.values())
    math.step(1, 0)


@pytest.mark.parametrize("method", [ADAM, DILOCO])
def test_steps_that_are_done_again_from_a_checkpoint_have_the_same_bits(method: dict[str, Any]) -> None:
    """Why a restart costs the clock alone: seven steps, three of them lost, are seven steps."""
    spec = spec_of(method)

    def steps(numbers: list[int], back_to: int) -> torch.Tensor:
        comm = SimulatedCommunicator(4, 2)
        task = build_task(spec.problem, Rows((0, 1), (0, 1, 2, 3), 4), torch.device("cpu"), "float64")
        optimizer = spec.method.build(parameter_groups(task), comm)
        kept: Any = None
        for at, number in enumerate(numbers):
            if at == back_to:
                kept = [p.detach().clone() for p in task.params.values()], json_like(optimizer.state_dict())
            if at and number < numbers[at - 1]:
                with torch.no_grad():
                    for p, old in zip(task.params.values(), kept[0], strict=True):
                        p.copy_(old)
                optimizer.load_state_dict(kept[1])
            task.step_gradients(number)
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in task.params.values()])

    assert torch.equal(steps([0, 1, 2, 3, 4, 5, 6], 99), steps([0, 1, 2, 3, 4, 5, 3, 4, 5, 6], 3))


def json_like(state: Any) -> Any:
    import copy

    return copy.deepcopy(state)


FAILING: dict[str, Any] = {
    "rates": "60 s", "restart_time": "5 s", "detection_timeout": "2 s", "repair_time": "10 s",
    "checkpoint": {"write_time": 1},
}  # fmt: skip


def compared(tmp_path: Any, **failures: Any) -> sl.Result:
    return sl.compare(
        problem={"kind": "quadratic", "spectrum": [1.0, 0.3], "noise_std": 0.1}, workers=4, steps=40, eval_every=10,
        compute="1 s", failures=FAILING | failures, networks=["wan"], jobs=1, out=tmp_path / "out", exact=True,
        methods=[DDP, DILOCO, DILOCO | {"asynchronous": {"buffer_size": 2}}],
    )  # fmt: skip


def test_rows_curves_and_timeline_tell_it(tmp_path) -> None:
    result = compared(tmp_path)
    for row in result.rows:
        shares = [row[name] for name in ("goodput", "lost_share", "checkpoint_share", "restart_share", "down_share")]
        assert sum(shares) == pytest.approx(1) and row["interruptions"] > 0 and row["goodput"] < 1
    ddp, diloco, late = result.rows
    assert max(ddp["goodput"], diloco["goodput"]) < late["goodput"]
    assert late["wall_clock_s"] < min(ddp["wall_clock_s"], diloco["wall_clock_s"])
    curves = result.curves
    for method in ("ddp-sgdm", "diloco"):
        seconds = curves[curves.method == method].seconds.to_numpy()
        assert (np.diff(seconds) > 0).all() and seconds.max() > 40 / result.rows[0]["goodput"] * 0.5
    import pyarrow.parquet as pq

    timeline = pq.read_table(tmp_path / "out" / "timeline.parquet").to_pandas()
    assert {"lost", "down", "restart"} <= set(timeline[timeline.method == "ddp-sgdm"].what)
    assert {"lost", "away"} <= set(timeline[timeline.method == "async-diloco"].what)
    trace = json.loads((tmp_path / "out" / "trace.json").read_text(encoding="utf-8"))
    assert any(event.get("name") == "restart" for event in trace["traceEvents"])


def test_no_progress_is_told_in_one_line(tmp_path) -> None:
    """Bursts of failures, of which nobody knows before that nothing will come of it."""
    with pytest.raises(SynclineError, match="failures: no progress possible since"):
        compared(tmp_path, rates={"mtbf": "4 s", "shape": 0.9}, restart_time="4 s")


ASYNCHRONOUS = DILOCO | {"asynchronous": {"buffer_size": 2}}
WAITING = DILOCO | {"asynchronous": {"buffer_size": 3, "synchronous": True}}


@pytest.mark.parametrize(
    ("method", "failures", "said"),
    [
        (
            DDP,
            {"rates": "1 s"},
            "failures.rates: .* no progress is possible, as a restart and the steps to a checkpoint take",
        ),
        (ASYNCHRONOUS, {"rates": "0.1 s"}, "failures.rates: got 'a worker of async-diloco fails every 100 ms'"),
        (DDP, {"outages": [{"site": 1}], "sites": 2}, "failures.outages: got '2 of 4 lost for good'.* since 0 s: 2"),
        (DDP, {"outages": [{"worker": 1, "start": "20 s"}]}, "failures.outages: .* since 20 s: 3 workers are left"),
        (WAITING, {"outages": [{"site": 0}]}, "0 workers are left, and 1 are needed for async-diloco"),
    ],
)
def test_it_is_told_before_anything_is_trained(method, failures, said) -> None:
    fields = {"compute": "1 s", "failures": FAILING | {"rates": []} | failures}
    with pytest.raises(SpecError, match=said):
        check_training(spec_of(method, **fields), spec_of(method, **fields).method)


def test_what_may_go_on_is_not_refused() -> None:
    for method, failures in (
        (DDP, {"outages": [{"worker": 1, "start": "20 s"}], "spares": 1}),
        (DDP, {"outages": [{"worker": 1, "start": "2 h"}]}),
        (DDP, {"outages": [{"worker": 1, "start": "20 s", "end": "30 s"}]}),
        (ASYNCHRONOUS, {"outages": [{"site": 1}], "sites": 2}),
        (WAITING, {"outages": [{"site": 1}], "sites": 2}),
    ):
        spec = spec_of(method, compute="1 s", failures=FAILING | {"rates": []} | failures)
        check_training(spec, spec.method)


def test_asynchronous_trainings_that_nobody_is_left_for_say_so_in_their_rows(tmp_path) -> None:
    result = sl.compare(
        problem={"kind": "quadratic", "spectrum": [1.0, 0.3], "noise_std": 0.1}, workers=4, steps=40, compute="1 s",
        failures={"outages": [{"site": 0, "start": "10.5 s"}]}, networks=["wan"], jobs=1, out=tmp_path / "out",
        exact=True, methods=[ASYNCHRONOUS],
    )  # fmt: skip
    (row,) = result.rows
    assert row["stuck"] == "no progress possible since 10.5 s: nobody comes back" and 0 < row["steps"] <= 10
    assert row["wall_clock_s"] < 11 and not row["interrupted"]
    console = Console(file=io.StringIO(), width=80)
    for one in result.tables:
        console.print(one)
    assert "async-diloco on wan: no progress possible since 10.5 s" in " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_the_state_of_a_training_over_the_bandwidth_is_what_a_checkpoint_takes() -> None:
    late = trained(ADAM, steps=4)
    assert late.state_bytes == 4 * (3 + 2 * 3)  # three numbers, and two of each that Adam keeps
    spec = spec_of(ADAM, steps=4, failures={"checkpoint": {"bandwidth": "36 B/s", "interval": "1 s"}})
    timed = time_method(spec, late, spec.network)
    assert timed is not None and timed.failed is not None
    assert timed.failed.checkpoint_s == pytest.approx(4 * 4 * 1.0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"failures": "lama-3"}, "failures.rates: got 'lama-3'; expected one of"),
        ({"failures": {"workers_per_node": 8}}, "failures.workers_per_node: got 8; expected at most 4, the workers"),
        ({"failures": {"outages": [{"worker": 4}]}}, "failures.outages.0: got"),
        ({"failures": {}, "faults": {"absences": [{"worker": 1}]}}, "faults.absences: got .* expected none with"),
    ],
)
def test_refusals(fields, said):
    with pytest.raises(SpecError, match=said):
        spec_of(DILOCO, **fields)
