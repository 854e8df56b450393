"""What figures share: ticks, labels that keep apart, thinning, saving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncline.analysis.axes import (
    TICK_GAP,
    draw_line,
    new_figure,
    save,
    spread_positions,
    thinned_indices,
    time_ticks,
    time_unit,
)
from syncline.analysis.style import method_styles
from syncline.errors import SpecError

HEIGHTS = hnp.arrays(float, st.integers(1, 8), elements=st.floats(0, 1))


@given(HEIGHTS, st.floats(0.01, 0.1))
def test_spread_keeps_neighbours_apart_in_their_order_and_inside(wanted, gap):
    moved = spread_positions(wanted, gap, lowest=0.0, highest=1.0)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-12).all()
    assert moved.min() >= -1e-12
    assert moved.max() <= 1 + 1e-12


@given(HEIGHTS)
def test_spread_leaves_alone_what_is_far_enough_apart(wanted):
    apart = np.sort(wanted) + np.arange(wanted.size)
    np.testing.assert_allclose(spread_positions(apart, 0.5), apart)


def test_spread_moves_a_cluster_about_its_mean():
    np.testing.assert_allclose(spread_positions([0.5, 0.5, 0.5], 0.1), [0.4, 0.5, 0.6])
    np.testing.assert_allclose(spread_positions([0.9, 0.1], 0.1), [0.9, 0.1])


@given(st.floats(1e-8, 1e7), st.floats(3.0, 1e7))
def test_time_ticks_are_inside_apart_and_at_least_two(first_s, ratio):
    last_s = first_s * ratio
    ticks = [seconds for seconds, _ in time_ticks(first_s, last_s)]
    assert len(ticks) >= 2
    assert first_s <= ticks[0]
    assert ticks[-1] <= last_s
    assert (np.diff(np.log(ticks)) >= TICK_GAP * np.log(ratio) - 1e-9).all()


def test_time_ticks_are_times_that_people_use():
    assert [text for _, text in time_ticks(0.5, 40000)] == ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h"]
    assert [text for _, text in time_ticks(14, 1300)] == ["30 s", "1 min", "3 min", "10 min"]
    assert [text for _, text in time_ticks(2e-6, 5e-3)] == ["10 µs", "100 µs", "1 ms"]
    assert dict(time_ticks(1e5, 1e9))[86400.0 * 100] == "100 d"


@pytest.mark.parametrize(
    ("longest_s", "unit"), [(1e-9, "ns"), (5e-6, "µs"), (0.4, "ms"), (119, "s"), (120, "min"), (7200, "h"), (1e6, "d")]
)
def test_time_unit(longest_s, unit):
    assert time_unit(longest_s)[0] == unit


def test_thinning_keeps_both_ends_and_short_rows_whole():
    np.testing.assert_array_equal(thinned_indices(5, 10), np.arange(5))
    kept = thinned_indices(20_000, 100)
    assert (kept[0], kept[-1], kept.size) == (0, 19_999, 100)
    assert thinned_indices(0).size == 0


def test_markers_of_lines_are_evenly_spaced_and_apart():
    ax = new_figure(4, 3).add_subplot()
    ax.set_xlim(0, 1000)
    steps = np.arange(1001)
    for label, style in method_styles(["a", "b", "c"]).items():
        draw_line(ax, steps, steps, style, label)
    marks = [line.get_markevery() for line in ax.lines]
    assert all(np.ptp(np.diff(each)) <= 1 for each in marks)
    assert np.diff(np.sort(np.concatenate(marks))).min() > 10


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_figure_saves_as_the_same_bytes(tmp_path, suffix):
    def figure_bytes(name: str) -> bytes:
        fig = new_figure(2, 2)
        fig.add_subplot().plot([0, 1], [1, 0])
        return save(fig, tmp_path / "new" / (name + suffix)).read_bytes()

    assert figure_bytes("one") == figure_bytes("two")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"expected a name that ends in \.pdf, \.svg or \.png"):
        save(new_figure(1, 1), tmp_path / "figure.docx")
