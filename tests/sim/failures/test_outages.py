"""Outages: their law, their order, their streams."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from syncline.costmodel.failures import FailureRate
from syncline.sim.failures.outages import FilledPlaces, Outage, all_outages


@pytest.mark.parametrize("shape", [0.7, 1.0, 3.0])
def test_times_between_failures_of_one_are_weibull_of_the_mean_asked_for(shape: float) -> None:
    rate = FailureRate(50.0, shape=shape)
    times = np.array([one.at_s for one in itertools.islice(all_outages([rate], [], 1, 1, 1, 3), 4000)])
    between = np.diff(times, prepend=0.0)
    assert between.mean() == pytest.approx(50, rel=0.06)
    assert stats.kstest(between, stats.weibull_min(shape, scale=rate.scale_s).cdf).pvalue > 0.01


def test_failures_of_many_come_as_often_as_all_together() -> None:
    rates = [FailureRate(100.0), FailureRate(300.0, "node"), FailureRate(500.0, "site", repair_s=7.0)]
    found = list(itertools.takewhile(lambda one: one.at_s < 2000, all_outages(rates, [], 10, 4, 2, 0)))
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    widths = {width: [one for one in found if one.stop - one.first == width] for width in (1, 2, 4, 5)}
    assert len(widths[1]) == pytest.approx(2000 * 10 / 100, rel=0.2)
    assert {(one.first, one.stop) for one in (*widths[2], *widths[4])} == {(0, 4), (4, 8), (8, 10)}
    assert {(one.first, one.stop) for one in widths[5]} == {(0, 5), (5, 10)}
    assert all(one.back_s == one.at_s + 7 for one in widths[5])


def test_a_rate_more_moves_no_other_failure() -> None:
    def first(rates: list[FailureRate]) -> list[Outage]:
        found = all_outages(rates, [], 5, 1, 1, 9)
        return [one for one in itertools.islice(found, 50) if one.back_s == one.at_s][:10]

    alone = first([FailureRate(10.0)])
    assert first([FailureRate(10.0), FailureRate(20.0, repair_s=1.0)]) == alone


def test_spares_take_places_and_the_repaired_stand_by() -> None:
    places = FilledPlaces(4, spares=1)
    assert places.fail(Outage(1.0, 0, 2, 10.0)) == [0, 1]
    assert places.filled.tolist() == [True, False, True, True] and places.spares == 0
    assert places.when_filled_s(4) == 10.0 and places.when_filled_s(3) == -math.inf
    assert places.fail(Outage(2.0, 1, 2)) == []  # an empty place has no machine that could fail
    assert places.repair(10.0) == [1] and places.spares == 1 and places.filled.all()
    assert places.fail(Outage(11.0, 3, 4)) == [3] and places.filled.all()
    assert places.fail(Outage(12.0, 3, 4)) == [3] and places.when_filled_s(4) == math.inf
