"""Those who go on without the others: in a group that forms anew, and each alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.failures import FailureRate
from syncline.sim.failures.costs import CheckpointTimes, FailureCosts, SavedSteps, equal_step_ends
from syncline.sim.failures.outages import Absences, FailingGroup, Outage, all_outages
from syncline.sim.failures.trainings import ElasticTraining, RestartedTraining, simulate_independent_workers
from tests.sim.failures import literal
from tests.sim.failures.test_restarts import adds_up


def reform(
    group: FailingGroup, steps: int, saving: CheckpointTimes, outages: list[Outage], until_s: float = math.inf
) -> FailureCosts:
    endless = SavedSteps(10**9, equal_step_ends(1.0), saving)
    told = ElasticTraining(group, steps, lambda _: endless, outages, until_s).simulate()
    assert adds_up(told)
    return told


def test_without_failures_all_three_are_the_same() -> None:
    saving = CheckpointTimes(10, 0.5)
    told = reform(FailingGroup(3), 25, saving, [])
    restarted = RestartedTraining(FailingGroup(3), SavedSteps(25, equal_step_ends(1.0), saving), []).simulate()
    assert told.wall_s == restarted.wall_s == 26.5  # two checkpoints, and the end is saved
    assert told.checkpoint_s == restarted.checkpoint_s == 4.5
    assert simulate_independent_workers(FailingGroup(3), 25, 1.0, 5, 0.0, []).wall_s == 25


@pytest.mark.parametrize(("steps", "end_s"), [(12, 14), (13, 16)])
def test_a_failure_in_the_last_checkpoint_repeats_only_the_checkpoint(steps: int, end_s: int) -> None:
    """The steps end at ``end_s``; 0.5 s later a machine fails; 3.5 s later the other three save."""
    group = FailingGroup(4, timeout_s=2.0, reform_s=1.5)
    told = reform(group, steps, CheckpointTimes(4, 1.0), [Outage(end_s + 0.5, 2, 3, math.inf)])
    assert told.wall_s == end_s + 0.5 + 3.5 + 1.0
    assert told.steps == steps and told.useful_s == 4 * steps


def test_by_hand() -> None:
    """4 workers, steps of 1 s. At 10.4 s one fails: noticed at 12.4 s, formed at 15.4 s, three go on; the machine is

    back at 20 s, its processes have started at 24 s; the step under way ends at 24.4 s, the group is formed at 27.4 s.
    """
    group = FailingGroup(4, timeout_s=2.0, restart_s=4.0, reform_s=3.0)
    told = reform(group, 30, CheckpointTimes(), [Outage(10.4, 2, 3, 20.0)])
    # 10 steps of 4, 9 of 3, and what is left of 30 steps of 4: 30 - 10 - 27 / 4 = 13.25, so 14
    assert told.steps == 10 + 9 * 3 / 4 + 14
    assert told.wall_s == pytest.approx(27.4 + 14)
    assert told.lost_s == pytest.approx(4 * 0.4) or told.lost_s == pytest.approx(3 * 0.4 + 0.4)
    assert told.interruptions == 1


def test_a_worker_that_returns_when_another_fails_joins_the_new_group() -> None:
    """At 4.5 s worker 0 returns and worker 1 fails: worker 0 copies the state before step 4."""
    joined: dict[int, list[int]] = {}
    endless = SavedSteps(10**9, equal_step_ends(1.0), CheckpointTimes())
    outages = [Outage(2.5, 0, 1, 4.5), Outage(4.5, 1, 2, 9.0)]
    ElasticTraining(
        FailingGroup(4), 10, lambda _: endless, outages, whole_steps=True,
        on_steps=lambda start_s, first, stop, present, workers: joined.update({first: workers}),
    ).simulate()  # fmt: skip
    assert joined == {0: [], 2: [], 4: [0], 9: [1]}


def test_a_machine_that_is_repaired_and_fails_at_one_instant() -> None:
    """Worker 0 is away from 2 to 6 s, by two outages of 2 s."""
    outages = [Outage(2.0, 0, 1, 4.0), Outage(4.0, 0, 1, 6.0)]
    absences = Absences(FailingGroup(2), outages)
    assert absences.next_absence(0, 0.0, 3.0) == (2.0, 4.0) and absences.next_absence(0, 4.0, 5.0) == (4.0, 6.0)
    assert absences.next_absence(0, 6.0, 100.0) is None
    told = simulate_independent_workers(FailingGroup(2), 10, 1.0, 1, 0.0, outages)
    assert told.down_s == 4 and told.lost_s == 0 and told.wall_s == 12


def test_workers_alone_lose_whole_steps() -> None:
    """Worker 0 fails 2.5 steps after its first update, and goes on at once: two steps of one of the two are lost."""
    told = simulate_independent_workers(FailingGroup(2), 10, 1.0, 5, 0.0, [Outage(7.5, 0, 1, 7.5)])
    assert (told.lost_s, told.lost_steps, told.interruptions) == (2.5, 2 / 2, 1)


def test_where_all_fail_the_state_is_that_of_the_last_checkpoint() -> None:
    told = reform(FailingGroup(4, restart_s=1.0), 30, CheckpointTimes(5), [Outage(13.5, 0, 4, 20.0)])
    assert told.lost_steps == 3 and told.steps == 30
    assert told.wall_s == pytest.approx(21 + 20)


def test_too_few_wait_for_others_or_say_so() -> None:
    waits = reform(FailingGroup(4, min_workers=3), 30, CheckpointTimes(), [Outage(10.0, 0, 2, 50.0)])
    assert waits.stuck is None and waits.wall_s == pytest.approx(70)
    ends = reform(FailingGroup(4, min_workers=3), 30, CheckpointTimes(), [Outage(10.0, 0, 2)])
    assert ends.stuck == "no progress possible since 10 s: 2 workers are left, and 3 are needed"
    assert reform(FailingGroup(4), 30, CheckpointTimes(), [Outage(10.0, 0, 2)]).wall_s == pytest.approx(50)


@given(
    times=st.lists(st.tuples(st.floats(0.01, 30), st.integers(0, 2), st.floats(0, 9)), max_size=6),
    period=st.integers(1, 4),
)
def test_workers_alone_are_what_happens_step_by_step(times, period):
    failures = sorted((at, who, at + away) for at, who, away in times)
    # a failure of a place without a machine hits nobody
    kept, back_s = [], [0.0] * 3
    for at, who, back in failures:
        if at >= back_s[who]:
            kept.append((at, who, back))
            back_s[who] = back
    outages = [Outage(at, who, who + 1, back) for at, who, back in kept]
    told = simulate_independent_workers(FailingGroup(3, restart_s=0.3), 10**6, 1.0, period, 0.2, outages, until_s=40.0)
    wanted = literal.alone(3, 1.0, period, 0.5, 40.0, kept)
    assert adds_up(told)
    assert told.useful_s == pytest.approx(sum(wanted), abs=3)  # of each, the step under way is counted in part
    assert told.useful_s >= sum(wanted) - 1e-9


def test_a_month_of_ten_thousand_workers_costs_a_failure_each() -> None:
    rate = FailureRate(54 * 86400 * 16384 / 419, repair_s=3600.0)
    group, month_s = FailingGroup(10_000, restart_s=300.0, timeout_s=60.0, reform_s=30.0), 30 * 86400.0
    told = reform(group, 10**9, CheckpointTimes(), list_of(rate, month_s), month_s)
    expected = month_s / (rate.mtbf_s / 10_000)
    assert told.interruptions == pytest.approx(expected, abs=4 * math.sqrt(expected))
    assert told.goodput > 0.99


def list_of(rate: FailureRate, until_s: float) -> list[Outage]:
    found = []
    for one in all_outages([rate], [], 10_000, 1, 1, 0):
        if one.at_s > until_s:
            return found
        found.append(one)
    raise AssertionError


def test_who_waits_for_the_end_of_a_step_counts_once_also_if_it_or_another_fails_meanwhile() -> None:
    """Machine 0 is back at 15.6 s and waits until 16.5 s; before that it, another, or nobody fails, or time is up."""
    group, back = FailingGroup(4), Outage(10.5, 0, 1, 15.6)
    for after in ([], [Outage(15.7, 0, 1, 30.0)], [Outage(15.7, 1, 2, 30.0)]):
        told = reform(group, 30, CheckpointTimes(), [back, *after])  # adds up
        assert told.lost_s == pytest.approx(4 * 0.5 + (3 * 0.2 if after else 0))
    stopped = reform(group, 30, CheckpointTimes(), [back], until_s=15.7)
    assert stopped.wall_s == 15.7 and stopped.steps == 10 + 5 * 3 / 4


def test_nobody_waits_for_ever_for_who_never_comes_back() -> None:
    def outages() -> Iterator[Outage]:
        return all_outages([FailureRate(50.0, repair_s=1.0)], [Outage(5.0, 0, 2)], 2, 1, 1, 0)

    assert simulate_independent_workers(FailingGroup(2), 1000, 1.0, 1, 0.0, outages()).stuck is not None
    endless = SavedSteps(10**9, equal_step_ends(1.0), CheckpointTimes())
    assert ElasticTraining(FailingGroup(2), 1000, lambda _: endless, outages()).simulate().stuck is not None
    away = Absences(FailingGroup(2), outages()).next_absence(1, 4.0, 6.0)
    assert away is not None and away.back_s == math.inf
