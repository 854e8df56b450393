"""Groups that form anew, with math: who is there makes the step, the mean is over them, who is back has their model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import syncline as sl
from syncline.comm import Absence, Membership
from syncline.errors import SpecError, SynclineError
from syncline.problems import Rows
from syncline.runs.training.train_and_time import time_method
from syncline.runs.training.trained import Trained
from tests.runs.training.elastic.late import ADAM, DDP, DILOCO, LOCAL_SGD, gradient_of, loss_at, spec_of, trained

AT_ONCE: dict[str, Any] = {"network": "0 s,1 Tbit/s", "seeds": [0]}


def reformed(method: dict[str, Any], outages: Any, **fields: Any) -> tuple[Any, Trained, Any]:
    failures = {"recovery": "elastic", "outages": outages} | fields
    spec, late = spec_of(method, failures=failures, **AT_ONCE), trained(method, failures=failures, **AT_ONCE)
    return spec, late, time_method(spec, late, spec.network)


def by_hand(spec: Any, away: dict[int, range], adopts: int) -> torch.Tensor:
    """Local SGD of four workers, whose means are over those who are there."""
    start = spec.problem.build(Rows((0,), (0,), 4), dtype=torch.float64).params["x"][0].detach()
    x = [start.clone() for _ in range(4)]
    for step in range(spec.steps):
        if step == adopts:
            x[2] = x[0].clone()
        here = [worker for worker in range(4) if step not in away.get(worker, ())]
        for worker in here:
            x[worker] = x[worker] - 0.05 * gradient_of(spec, worker, step, x[worker])
        if (step + 1) % 6 == 0:
            mean = torch.stack([x[worker] for worker in here]).mean(0)
            for worker in here:
                x[worker] = mean.clone()
    return torch.stack([x[worker] for worker in here]).mean(0)


def test_a_worker_that_fails_and_comes_back_literally() -> None:
    """At 8.5 s one of four fails: its step is lost, three go on at once; it is back at 11.2 s, joins after a step."""
    spec, late, clock = reformed(LOCAL_SGD, [{"worker": 2, "start": "8.5 s", "end": "11.2 s"}])
    x = by_hand(spec, {2: range(8, 11)}, adopts=11)
    assert late.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-12)
    assert clock.wall_s == pytest.approx(24.5) and clock.step_end_s[7] == pytest.approx(8.0)
    assert clock.failed.interruptions == 1 and clock.failed.goodput < 1
    groups = {call.step: call.group for call in late.ledger}
    assert set(groups) == {5, 11, 17, 23} and all(len(group) == 4 for group in groups.values())


def test_a_worker_that_misses_an_average_is_not_in_it() -> None:
    spec, late, _ = reformed(LOCAL_SGD, [{"worker": 2, "start": "10.5 s", "end": "15.2 s"}])
    x = by_hand(spec, {2: range(10, 15)}, adopts=15)
    assert late.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-12)
    assert {call.step: len(call.group) for call in late.ledger} == {5: 4, 11: 3, 17: 4, 23: 4}


def test_who_is_back_before_the_next_step_has_lost_what_it_knew_all_the_same() -> None:
    spec, late, clock = reformed(
        LOCAL_SGD, [{"worker": 2, "start": "8.5 s", "end": "8.9 s"}], detection_timeout="1 s", rejoin_time=0
    )
    x = by_hand(spec, {}, adopts=8)
    assert late.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-12)
    assert clock.wall_s == pytest.approx(25.5)


@pytest.mark.parametrize("method", [DDP, ADAM, DILOCO])
def test_where_nothing_fails_every_bit_is_the_same(method: dict[str, Any]) -> None:
    spec, late, clock = reformed(method, [])
    plain = trained(method, **AT_ONCE)
    assert np.array_equal(plain.history.loss, late.history.loss)
    whole = time_method(spec_of(method, **AT_ONCE), plain, spec.network)
    assert whole is not None and np.allclose(clock.step_end_s, whole.step_end_s, rtol=1e-12, atol=0)
    assert clock.failed.goodput == pytest.approx(1)


def test_where_all_fail_at_once_all_go_back_to_the_checkpoint() -> None:
    outages = [{"site": 0, "start": "8.5 s", "end": "10 s"}]
    _, late, clock = reformed(DDP, outages, checkpoint={"interval": "3 s"})
    plain = trained(DDP, **AT_ONCE)
    assert late.history.last_evaluation()["loss"][0] == plain.history.last_evaluation()["loss"][0]
    assert clock.wall_s == pytest.approx(10 + 18) and clock.failed.lost_steps == pytest.approx(2)


def test_a_comparison_trains_such_a_method_on_each_network(tmp_path) -> None:
    result = sl.compare(
        problem={"kind": "quadratic", "spectrum": [1.0, 0.3], "noise_std": 0.1}, workers=4, steps=20, compute="1 s",
        failures={
            "rates": "20 s", "recovery": "elastic",
            "restart_time": "3 s", "detection_timeout": "1 s", "regroup_time": "1 s",
        },
        networks=["wan", "10gbe"], jobs=1, out=tmp_path / "out", exact=True,
        methods=[DILOCO, DILOCO | {"label": "late", "asynchronous": {}}],
    )  # fmt: skip
    names = ["diloco on wan", "late on wan", "diloco on 10gbe", "late on 10gbe"]
    assert [row["method"] for row in result.rows] == names
    for row in result.rows:
        shares = [row[name] for name in ("goodput", "lost_share", "checkpoint_share", "restart_share", "down_share")]
        assert sum(shares) == pytest.approx(1) and 0.2 < row["goodput"] < 1 and row["interruptions"] > 0


def test_what_cannot_form_anew_is_refused_and_no_progress_told() -> None:
    with pytest.raises(SpecError, match=r"failures.recovery: got 'elastic, of method lion-cub'; expected restart"):
        spec_of({"kind": "lion-cub", "lr": 0.01}, failures={"recovery": "elastic"})
    with pytest.raises(SynclineError, match=r"no progress possible since 8.5 s: 2 workers are left, and 3 are needed"):
        reformed(DDP, [{"site": 0, "start": "8.5 s"}], sites=2, min_workers=3)
    assert reformed(DDP, [{"site": 0, "start": "8.5 s"}], sites=2)[2].wall_s == pytest.approx(24.5)


def test_who_joins_without_having_missed_a_step() -> None:
    membership = Membership(3, [Absence(2, 4, 6)], {3: [1], 6: [0]})
    assert [membership.joining(step) for step in (2, 3, 4, 6)] == [(), (1,), (), (0, 2)]


def test_a_worker_is_back_when_its_state_has_come_over_its_link() -> None:
    """Three more seconds for the state are three more seconds away, whether the spec says so or the network."""
    outage = {"worker": 2, "start": "8.5 s", "end": "11.2 s"}
    _, longer, clock = reformed(LOCAL_SGD, [outage | {"end": "14.2 s"}])
    _, fetched, of_spec = reformed(LOCAL_SGD, [outage], rejoin_time="3 s")
    assert np.array_equal(fetched.history.loss, longer.history.loss)
    assert of_spec.wall_s == pytest.approx(clock.wall_s, rel=1e-9)
    slow = {"seeds": [0], "network": f"0 s,{fetched.state_bytes / 3} B/s"}

    def clock_on_slow_line(**fields: Any) -> Any:
        changed = slow | {"failures": {"recovery": "elastic", "outages": [outage]} | fields}
        spec, late = spec_of(LOCAL_SGD, **changed), trained(LOCAL_SGD, **changed)
        return time_method(spec, late, spec.network)

    of_network, said, at_once = (
        clock_on_slow_line(),
        clock_on_slow_line(rejoin_time="3 s"),
        clock_on_slow_line(rejoin_time=0),
    )
    assert np.array_equal(of_network.step_end_s, said.step_end_s)
    assert of_network.failed.goodput < at_once.failed.goodput


def test_a_restart_waits_for_the_state_of_the_replaced_worker() -> None:
    outages = [{"worker": 2, "start": "8.5 s", "end": "9 s"}]

    def clock(**fields: Any) -> Any:
        changed: dict[str, Any] = AT_ONCE | {"failures": {"outages": outages} | fields}
        spec, late = spec_of(DDP, **changed), trained(DDP, **changed)
        return time_method(spec, late, spec.network)

    loaded = {"checkpoint": {"write_time": 0, "restore_time": "2 s"}}
    assert clock(rejoin_time="5 s").wall_s == pytest.approx(clock().wall_s + 5, rel=1e-9)
    assert clock(rejoin_time="5 s", **loaded).wall_s == pytest.approx(clock(**loaded).wall_s + 3, rel=1e-9)
