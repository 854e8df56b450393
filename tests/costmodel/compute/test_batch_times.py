from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import BatchTimes
from syncline.errors import SpecError

TABLE = BatchTimes({32: 0.210, 1: 0.012, 8: 0.060})


@pytest.mark.parametrize(
    ("batch", "seconds"),
    [(1, 0.012), (8, 0.060), (32, 0.210), (4.5, 0.036), (20, 0.135)],  # halfway between what was measured
)
def test_what_was_measured_and_lines_between(batch: float, seconds: float) -> None:
    assert TABLE.seconds(batch) == pytest.approx(seconds, rel=1e-15)


def test_outside_is_refused_or_continues_the_nearest_line() -> None:
    for batch in (0.5, 33):
        with pytest.raises(SpecError, match=rf"got '1 to 32'; expected batch sizes below and above .* {batch:g}"):
            TABLE.seconds(batch)
    # 48 ms for 7 more, and 150 ms for 24 more.
    assert TABLE.seconds(0.5, extrapolate=True) == pytest.approx(0.012 - 0.5 * 0.048 / 7, rel=1e-12)
    assert TABLE.seconds(64, extrapolate=True) == pytest.approx(0.210 + 32 * 0.150 / 24, rel=1e-12)


def test_what_cannot_be_continued_is_refused() -> None:
    with pytest.raises(SpecError, match="got '8'; expected batch sizes below and above a worker's 9"):
        BatchTimes({8: 0.06}).seconds(9, extrapolate=True)
    with pytest.raises(SpecError, match="not negative"):
        BatchTimes({8: 0.01, 16: 0.06}).seconds(1, extrapolate=True)


@pytest.mark.parametrize("times_s", [{}, {0: 1.0}, {-1: 1.0}, {float("inf"): 1.0}, {1: -1.0}, {1: float("nan")}])
def test_sizes_and_times_that_are_none_are_refused(times_s: dict[float, float]) -> None:
    with pytest.raises(SpecError, match="batch_times"):
        BatchTimes(times_s)


def test_a_larger_batch_that_takes_less_time_is_found() -> None:
    assert TABLE.decreasing_pairs == []
    assert BatchTimes({1: 0.02, 4: 0.01, 8: 0.03, 16: 0.025}).decreasing_pairs == [(1, 4), (8, 16)]


@given(st.dictionaries(st.integers(1, 1000), st.floats(0, 1e3), min_size=1), st.data())
def test_a_time_lies_between_its_neighbours(times_s: dict[int, float], data: st.DataObject) -> None:
    table = BatchTimes(times_s)
    batch = data.draw(st.floats(table.sizes[0], table.sizes[-1]))
    around = [max(s for s in times_s if s <= batch), min(s for s in times_s if s >= batch)]
    low, high = sorted(times_s[size] for size in around)
    assert low * (1 - 1e-12) <= table.seconds(batch) <= high * (1 + 1e-12)
