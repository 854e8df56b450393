"""What failures leave of a training that is planned: as ``syncline goodput`` says, and as events do."""

from __future__ import annotations

from typing import Any

import pytest

import syncline as sl
from syncline.methods import method_of
from syncline.planner.goodput.goodput import FailingTraining, Goodput, kept_state, with_failures
from syncline.planner.goodput.planned import estimate_goodput, simulated_goodput
from syncline.specs.failures import parse_failures

MACHINES: dict[str, Any] = {
    "rates": "2000 h", "repair_time": 0, "restart_time": "10 min", "detection_timeout": "1 min",
    "checkpoint": {"bandwidth": "10 GB/s"},
}  # fmt: skip
SYNCHRONOUS = FailingTraining(64, 1, 1, 84e9, 10.0, 30_000.0)
REPLICAS = FailingTraining(64, 8, 30, 84e9, 10.0, 30_000.0)


def left(of: FailingTraining, **more: Any) -> Goodput:
    return estimate_goodput(parse_failures(MACHINES | more), of)


def test_all_who_need_all_have_the_goodput_of_the_same_machines() -> None:
    told = left(SYNCHRONOUS)
    fields = MACHINES | {"checkpoint": {"bandwidth": "10 GB/s", "size": 84e9}}
    (row,) = sl.goodput(fields, 64, "10 s", duration="1 d").rows
    interval_and_goodput = row["interval_s"], row["expected_goodput"]
    assert (told.recovery, told.checkpoint_interval_s, told.goodput) == ("restart", *interval_and_goodput)
    assert told.goodput < 0.99


def test_copies_of_one_worker_that_go_on_have_the_goodput_of_the_same_machines() -> None:
    told = left(SYNCHRONOUS._replace(copies=64), recovery="elastic", checkpoint={"write_time": 0, "interval": "never"})
    fields = MACHINES | {"checkpoint": {"write_time": 0, "interval": "never"}, "recovery": "elastic"}
    (row,) = sl.goodput(fields, 64, "10 s", duration="1 d").rows
    assert told.recovery == "elastic" and told.goodput == pytest.approx(row["expected_goodput"], rel=1e-6)


@pytest.mark.parametrize("of", [SYNCHRONOUS, REPLICAS], ids=["all", "replicas"])
def test_events_agree(of: FailingTraining) -> None:
    told = left(of, rates="500 h")
    failures = parse_failures(MACHINES | {"rates": "500 h", "recovery": told.recovery})
    played, stuck = simulated_goodput(failures, of, 12)
    assert stuck is None and played == pytest.approx(told.goodput, rel=0.01)


def test_who_can_go_on_does_unless_it_is_told_otherwise() -> None:
    assert [left(of).recovery for of in (SYNCHRONOUS, REPLICAS)] == ["restart", "elastic"]
    assert left(REPLICAS, recovery="restart").recovery == "restart"
    each_step = SYNCHRONOUS._replace(copies=8)
    assert [left(each_step).recovery, left(each_step, recovery="elastic").recovery] == ["restart", "elastic"]
    assert left(SYNCHRONOUS, recovery="elastic").recovery == "restart"
    assert left(REPLICAS).goodput > left(REPLICAS, recovery="restart").goodput


def test_where_nothing_fails_nothing_is_lost() -> None:
    for of in (SYNCHRONOUS, REPLICAS):
        assert left(of, rates=[]).goodput == 1.0


def test_what_is_saved() -> None:
    """Three numbers of a parameter by Adam; of replicas each its own, an anchor and an outer momentum beside."""
    ddp, diloco = method_of("ddp-adam"), method_of({"kind": "diloco", "lr": 0.003, "period": 30})
    assert kept_state(ddp, 1000, 4) == (4 * 3 * 1000, 4 * 3 * 1000, 1)
    assert kept_state(diloco, 1000, 4) == (4 * 4 * 5 * 1000, 4 * 5 * 1000, 30)
    assert kept_state(diloco, 1000, 1).exchanges_every == 1


def test_failures_faster_than_restarts_are_told() -> None:
    told = left(SYNCHRONOUS, rates="1 h")
    assert told.goodput == 0 and told.stuck is not None
    assert told.stuck.startswith("no progress possible: a restart and the steps to a checkpoint take")
    assert with_failures((1.0, 0.5, 2.0), told) is None
    on = left(REPLICAS._replace(step_s=7200.0), rates="10 h")
    assert on.stuck is not None and "forming a group and a step" in on.stuck
    assert left(REPLICAS, rates="10 h").stuck is None


def test_where_no_formula_holds_it_is_played() -> None:
    bursts = left(SYNCHRONOUS, rates={"mtbf": "500 h", "shape": 0.7})
    assert bursts.stuck is None and 0.9 < bursts.goodput < 1
    gone = left(SYNCHRONOUS, rates=[], outages=[{"worker": 3, "start": "1 h"}])
    assert (
        gone.goodput == 0 and gone.stuck == "no progress possible since 1 h: 1 of 64 places stay empty, without a spare"
    )
    waits = left(SYNCHRONOUS, rates="500 h", repair_time="10 h", spares=1)
    assert waits.goodput < left(SYNCHRONOUS, rates="500 h", spares=1).goodput - 0.1
    on = left(REPLICAS, rates=[], outages=[{"worker": 3, "start": "0 s"}])
    assert on.stuck is None and on.goodput == pytest.approx(7 / 8, rel=0.01)


def test_a_time_is_with_what_failures_cost() -> None:
    half = Goodput("restart", 60.0, 0.5, 0.0, 0, 0.0)
    assert with_failures((10.0, 8.0, None), half) == (20.0, 16.0, None)
    assert with_failures(None, half) is None and with_failures((1.0, 1.0, 1.0), None) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("recovery", ["restart", "elastic"])
def test_a_state_on_the_link_costs_what_loading_as_long_costs_and_events_agree(recovery: str) -> None:
    """27 to 81 GB at 1 Gbit/s take 216 to 648 s; with no time on the link, only the checkpoint is read."""
    training = SYNCHRONOUS._replace(copies=64, exchanges_every=30)
    fields = {"rates": "500 h", "recovery": recovery, "checkpoint": {"write_time": 30, "restore_time": 648}}
    link, loaded = left(training._replace(rejoin_s=648.0), **fields), left(training, **fields)
    assert link == loaded and link.rejoin_s == 648
    without = left(training._replace(rejoin_s=0.0), **fields | {"checkpoint": {"write_time": 30, "restore_time": 0}})
    assert without == left(training, **fields | {"checkpoint": {"write_time": 30, "restore_time": 0}})
    slow = left(training._replace(rejoin_s=648.0), **fields | {"checkpoint": {"write_time": 30, "restore_time": 0}})
    assert slow.goodput == link.goodput < without.goodput
    explicit = left(training._replace(rejoin_s=1.0), **fields | {"rejoin_time": 648})
    assert explicit == link
    failures = parse_failures(MACHINES | fields)
    played, stuck = simulated_goodput(failures, training._replace(rejoin_s=648.0), 12)
    assert stuck is None and played == pytest.approx(link.goodput, rel=0.01)


def test_repairs_overlap_as_events_say() -> None:
    """A failure in 7.8 h on average and repairs of 4 h: others fail while a machine is repaired."""
    training = SYNCHRONOUS._replace(steps=300_000.0)
    told = left(training, rates="500 h", repair_time="4 h")
    played, stuck = simulated_goodput(parse_failures(MACHINES | {"rates": "500 h", "repair_time": "4 h"}), training, 10)
    assert stuck is None and played == pytest.approx(told.goodput, rel=0.03)
    assert told.goodput < 1 / (1 + 4 / 7.8) < left(training, rates="500 h", repair_time="1 h").goodput


def test_a_repair_that_nobody_sets_is_published_and_told() -> None:
    assumed = parse_failures({"rates": "500 h"})
    assert assumed.repair_s() == 342 * 60
    assert assumed.assumptions() == [
        "A failed machine is repaired in 5.7 h (assumed: the mean after hardware failures at LANL, Schroeder and "
        "Gibson (2006), Table 2)."
    ]
    assert parse_failures({"rates": "500 h", "repair_time": 0}).assumptions() == [
        "A failed machine is repaired in 0 s."
    ]
    assert "8,192 spare machines replace failed ones at once (assumed: " in parse_failures("llama-3").assumptions()[0]
    assert parse_failures({"rates": "llama-3", "spares": 0}).spares == 0
