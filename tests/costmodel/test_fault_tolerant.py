"""The closed form of copies that go on without those that fail, held against the events."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from syncline.costmodel.failures import FailureRate, FaultTolerantGroup
from syncline.errors import SpecError
from syncline.sim.failures.costs import CheckpointTimes, SavedSteps, equal_step_ends
from syncline.sim.failures.outages import FailingGroup, all_outages
from syncline.sim.failures.trainings import ElasticTraining


@pytest.mark.parametrize(
    ("copies", "mtbf_s", "repair_s", "period"), [(8, 1e5, 0.0, 1), (8, 1e5, 3600.0, 30), (3, 1e5, 3600.0, 100)]
)
def test_events_agree(copies: int, mtbf_s: float, repair_s: float, period: int) -> None:
    group = FailingGroup(copies, timeout_s=60.0, restart_s=300.0, reform_s=30.0)
    endless = SavedSteps(10**9, equal_step_ends(10.0), CheckpointTimes(100))
    rate = FailureRate(mtbf_s, repair_s=repair_s)
    told = []
    for seed in range(6):
        outages = all_outages([rate], [], copies, 1, 1, seed)
        told.append(ElasticTraining(group, 10**9, lambda _: endless, outages, 3e6, period=period).simulate().goodput)
    on = FaultTolerantGroup(
        copies, mtbf_s, mtbf_s / copies, math.inf, 10.0, 60 + 2 * 30, 300.0, max(60.0, repair_s), period
    )
    assert np.mean(told) == pytest.approx(on.useful_share, abs=0.003) and on.useful_share < 0.99


def test_how_often_nobody_is_there() -> None:
    """Two machines, each 1000 s at work and 100 s away in the mean, drawn."""
    rng = np.random.default_rng(1)
    ends = []
    for _ in range(2):
        spells = rng.exponential(1000, 50_000).tolist()
        at, away = 0.0, []
        for spell in spells:
            away.append((at + spell, at + spell + 100))
            at += spell + 100
        ends.append(away)
    both = sum(1 for one, other in overlapping(*ends) if max(one[0], other[0]) < min(one[1], other[1]))
    on = FaultTolerantGroup(2, 1000.0, 500.0, math.inf, 0.0, 0.0, 0.0, 100.0)
    assert on.total_loss_mtbf_s == pytest.approx(50_000 * 1100 / both, rel=0.07)


def overlapping(ours, theirs):
    rest = itertools.chain(theirs)
    other = next(rest)
    for one in ours:
        while other is not None and other[1] <= one[0]:
            other = next(rest, None)
        if other is None:
            return
        yield one, other


def test_limits() -> None:
    never = FaultTolerantGroup(4, math.inf, math.inf, math.inf, 1.0, 10.0, 100.0, 10.0, 30)
    assert (never.useful_share, never.availability, never.total_loss_mtbf_s) == (1.0, 1.0, math.inf)
    at_once = FaultTolerantGroup(4, math.inf, 100.0, 100.0, 1.0, 0.0, 0.0, 0.0)
    assert at_once.total_loss_mtbf_s == 100.0
    assert FaultTolerantGroup(4, 1.0, 1.0, 1.0, 1e6, 1.0, 1.0, 1.0).useful_share == 0.0
    with pytest.raises(SpecError, match="copy_mtbf: got 0"):
        FaultTolerantGroup(4, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
