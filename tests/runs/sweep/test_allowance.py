"""What an allowance grants."""

from __future__ import annotations

import pytest

from syncline.errors import SpecError
from syncline.runs.sweep.jobs import Allowance


def test_without_a_limit_all_is_granted():
    allowance = Allowance()
    assert [allowance.grant(n, 2) for n in (7, 0, 3)] == [7, 0, 3] and not allowance.spent


def test_so_many_trainings():
    allowance = Allowance(max_trainings=5)
    assert [allowance.grant(n, 2) for n in (3, 4, 4)] == [3, 2, 0] and allowance.spent


def test_none_is_begun_that_would_end_after_the_time():
    clock = iter([0.0, 0.0, 30.0, 65.0])  # made, then asked: the longest took 35 s, and 65 + 35 is not within 90
    allowance = Allowance(time_s=90.0, now=lambda: next(clock))
    assert [allowance.grant(9, 2) for _ in range(3)] == [2, 2, 0] and allowance.spent


def test_the_first_is_always_begun():
    clock = iter([0.0, 5.0, 6.0])
    allowance = Allowance(time_s=1.0, now=lambda: next(clock))
    assert [allowance.grant(9, 1) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    ("given", "told"), [({"max_trainings": 0}, "--most: got 0"), ({"time_s": 0.0}, "--for: got 0")]
)
def test_nothing_is_refused(given, told):
    with pytest.raises(SpecError, match=told):
        Allowance(**given)
