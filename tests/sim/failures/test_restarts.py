"""Restarts from checkpoints: as told step by step, and Daly's exact formula."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.failures import FailureRate, best_interval_s, expected_wall_s
from syncline.sim.failures.costs import (
    CheckpointTimes,
    FailureCosts,
    SavedSteps,
    checkpoint_steps,
    equal_step_ends,
)
from syncline.sim.failures.outages import FailingGroup, Outage, all_outages
from syncline.sim.failures.trainings import RestartedTraining
from tests.sim.failures import literal


def adds_up(told: FailureCosts) -> bool:
    parts = told.useful_s + told.lost_s + told.checkpoint_s + told.restart_s + told.down_s
    return parts == pytest.approx(told.wall_s * told.workers, rel=1e-9, abs=1e-6)


def spent(stop_s: float, mtbf_s: float, interval_s: float, restart_s: float, down_s: float, cycles: int) -> float:
    """Seconds of a training with exponential failures; spares enough."""
    steps = 20
    work = SavedSteps(
        cycles * steps, equal_step_ends(interval_s / steps), CheckpointTimes(steps, stop_s, load_s=restart_s / 2)
    )
    group = FailingGroup(4, spares=10**9, timeout_s=down_s, restart_s=restart_s / 2)
    told = RestartedTraining(group, work, all_outages([FailureRate(4 * mtbf_s)], [], 4, 1, 1, seed=1)).simulate()
    assert adds_up(told) and told.steps == cycles * steps
    return told.wall_s


@pytest.mark.parametrize(
    ("mtbf_s", "restart_s", "stop_s", "interval_s", "down_s"),
    [(3600, 300, 60, 600, 0), (3600, 300, 60, 600, 120), (3600, 0, 60, 2000, 0), (1000, 200, 50, 300, 0)],
)
def test_simulated_times_are_those_of_dalys_exact_formula(
    mtbf_s: float, restart_s: float, stop_s: float, interval_s: float, down_s: float
) -> None:
    cycles = 15_000
    expected_s = expected_wall_s(cycles * interval_s, interval_s, stop_s, restart_s, mtbf_s, down_s)
    assert spent(stop_s, mtbf_s, interval_s, restart_s, down_s, cycles) == pytest.approx(expected_s, rel=0.01)


@pytest.mark.parametrize(("mtbf_s", "stop_s"), [(3600, 60), (1000, 100)])
def test_no_simulated_interval_is_one_percent_better_than_the_chosen_one(mtbf_s: float, stop_s: float) -> None:
    chosen_s, work_s = best_interval_s(stop_s, mtbf_s), 1200 * mtbf_s

    def cost(interval_s: float) -> float:
        cycles = round(work_s / interval_s)
        return spent(stop_s, mtbf_s, interval_s, 100, 0, cycles) / (cycles * interval_s)

    costs = {factor: cost(factor * chosen_s) for factor in (0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.5)}
    assert costs[1.0] <= 1.01 * min(costs.values())
    assert min(costs[0.4], costs[2.5]) > 1.01 * costs[1.0]


@given(
    steps=st.integers(1, 12),
    every=st.integers(1, 5),
    stop_s=st.sampled_from([0.0, 0.3, 1.7]),
    times=st.lists(st.tuples(st.floats(0.01, 40), st.floats(0, 9)), max_size=6),
    timeout_s=st.sampled_from([0.0, 1.1]),
)
def test_closed_forms_between_failures_are_what_happens_step_by_step(steps, every, stop_s, times, timeout_s):
    failures = sorted((at, at + away) for at, away in times)
    work = SavedSteps(steps, equal_step_ends(1.0), CheckpointTimes(every, stop_s, load_s=0.4))
    group = FailingGroup(8, timeout_s=timeout_s, restart_s=0.5)
    # each hits a place of its own, so that none finds its place empty
    told = RestartedTraining(
        group, work, [Outage(at, i, i + 1, back) for i, (at, back) in enumerate(failures)]
    ).simulate()
    wanted = literal.restarts(steps, 1.0, every, stop_s, 0.9, timeout_s, failures)
    found = (told.wall_s, told.steps, told.lost_s / 8, told.down_s / 8, told.restart_s / 8)
    assert found == pytest.approx(tuple(wanted), abs=1e-9)
    assert adds_up(told)


def test_a_late_copy_is_returned_to_only_when_it_is_written() -> None:
    work = SavedSteps(100, equal_step_ends(1.0), CheckpointTimes(10, 0.5, lag_s=4.0))
    outage = [Outage(13.0, 0, 1, 13.0)]  # the copy of step 10 was begun at 10.5 s, and would be there at 14.5 s
    assert RestartedTraining(FailingGroup(1), work, outage).simulate().lost_steps == 12
    assert RestartedTraining(FailingGroup(1), work, [Outage(15.0, 0, 1, 15.0)]).simulate().lost_steps == 4
    assert checkpoint_steps(2.0, 1.0, lag_s=4.0) == 4 and checkpoint_steps(math.inf, 1.0) is None


def test_copies_at_peers_are_lost_where_both_fail() -> None:
    work = SavedSteps(100, equal_step_ends(1.0), CheckpointTimes(10, peers=True))
    one = RestartedTraining(FailingGroup(4), work, [Outage(55.0, 0, 1, 55.0)]).simulate()
    neighbours = RestartedTraining(FailingGroup(4), work, [Outage(55.0, 0, 2, 55.0)]).simulate()
    both = RestartedTraining(FailingGroup(4), work, [Outage(55.0, 0, 3, 55.0)]).simulate()
    assert (one.lost_steps, neighbours.lost_steps, both.lost_steps) == (5, 5, 55)
    assert all(adds_up(told) for told in (one, neighbours, both))
    assert both.useful_s == 4 * 100


def test_who_joins_late_is_waited_for() -> None:
    told = RestartedTraining(
        FailingGroup(2, restart_s=3.0),
        SavedSteps(10, equal_step_ends(1.0), CheckpointTimes()),
        [Outage(0.0, 1, 2, 20.0)],
    ).simulate()
    assert told.wall_s == 33 and told.stuck is None


def test_a_training_that_cannot_go_on_ends_and_says_since_when() -> None:
    never = RestartedTraining(
        FailingGroup(4), SavedSteps(10, equal_step_ends(1.0), CheckpointTimes()), [Outage(0.0, 2, 4)]
    ).simulate()
    assert never.stuck == "no progress possible since 0 s: 2 of 4 places stay empty, without a spare"
    assert never.goodput == 0
    rate = FailureRate(10.0)
    faster = RestartedTraining(
        FailingGroup(4, restart_s=600),
        SavedSteps(10, equal_step_ends(1.0), CheckpointTimes(5)),
        all_outages([rate], [], 4, 1, 1, 0),
    ).simulate()
    assert faster.stuck is not None and faster.stuck.startswith("no progress possible since ")
    assert "1,000 failures in a row" in faster.stuck and math.isfinite(faster.wall_s) and adds_up(faster)


def test_machines_that_are_never_all_there_end_a_simulation_soon() -> None:
    """The mean time between failures is 40 ms, and a repair takes an hour: a day has two million failures."""
    outages = all_outages([FailureRate(3600.0, repair_s=3600.0)], [], 100_000, 1, 1, 0)
    work = SavedSteps(10**9, equal_step_ends(1.0), CheckpointTimes(5))
    told = RestartedTraining(FailingGroup(100_000), work, outages, until_s=86400.0).simulate()
    assert told.interruptions == 1000 and told.wall_s < 60 and adds_up(told)
    assert told.stuck is not None and "1,000 failures in a row" in told.stuck


def test_what_is_looked_at_for_a_while_counts_what_was_done_by_then() -> None:
    told = RestartedTraining(
        FailingGroup(2), SavedSteps(1000, equal_step_ends(1.0), CheckpointTimes(10, 1.0)), [], until_s=35.0
    ).simulate()
    assert (told.wall_s, told.steps, told.lost_s) == (35, 32, 0)
