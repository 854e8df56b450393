"""Landscape figures, by what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.analysis import SeedSeries, Surface, distance_over_steps, landscape_convergence
from syncline.errors import SpecError

ROSENBROCK = Surface(lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2, start=(-1.2, 1.0), optimum=(1.0, 1.0))
STEPS = np.arange(1, 20_001)
SERIES = [
    SeedSeries(label, STEPS, np.exp(-STEPS / time) * np.linspace(0.8, 1.2, 5)[:, None])
    for label, time in {"local-adam": 20_000, "mt-dao": 4000}.items()
]
WAYS = {
    "local-adam": np.column_stack([np.linspace(-1.2, 0.5, 500), np.linspace(-1.2, 0.5, 500) ** 2]),
    "mt-dao": np.column_stack([np.linspace(-1.2, 1.0, 500), np.linspace(-1.2, 1.0, 500) ** 2]),
}


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def trajectories(landscape, ways):
    """The panel of trajectories."""
    return landscape_convergence([SeedSeries(way, [1], [[1.0]]) for way in ways], landscape, ways).axes[1]


def test_distance_shows_median_and_range_on_a_logarithmic_axis():
    (ax,) = distance_over_steps(SERIES).axes
    assert ax.get_yscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "distance to the optimum")
    assert ax.get_title(loc="left") == "Median and range of 5 seeds"
    x, y = line(ax, "mt-dao").get_data()
    np.testing.assert_allclose(y, np.exp(-x / 4000))
    assert (x[0], x[-1]) == (1, 20_000)
    band = ax.collections[1].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1.2 * np.exp(-1 / 4000))
    assert band[:, 1].min() == pytest.approx(0.8 * np.exp(-5))
    assert {text.get_text() for text in ax.texts} == {"local-adam", "mt-dao"}


def test_distances_that_are_zero_or_lost_are_left_out():
    values = np.array([[1.0, 0.0, 0.5, np.nan], [2.0, 0.0, 0.5, np.nan], [3.0, 0.0, 0.7, np.nan]])
    fig = distance_over_steps([SeedSeries("a", [0, 1, 2, 3], values), SeedSeries("b", [0, 3], [np.nan, np.nan])])
    fig.draw_without_rendering()
    np.testing.assert_array_equal(line(fig.axes[0], "a").get_xdata(), [0, 2])
    assert line(fig.axes[0], "b").get_xdata().size == 0


def test_trajectories_run_from_the_start_to_a_marker():
    ax = trajectories(ROSENBROCK, WAYS)
    x, y = line(ax, "local-adam").get_data()
    assert (x[0], y[0]) == ROSENBROCK.start
    assert (x[-1], y[-1]) == (0.5, 0.25)
    assert {text.get_text() for text in ax.texts} == {"start", "optimum"}
    assert line(ax, "_optimum").get_data() == ([1.0], [1.0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x$", "$y$")
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == list(WAYS)


def test_contours_are_lowest_at_the_optimum_and_rise():
    ax = trajectories(ROSENBROCK, WAYS)
    levels = ax.collections[0].levels
    assert levels[0] == 0
    assert (np.diff(levels) > 0).all()


def test_limits_hold_every_trajectory_or_are_the_given_ones():
    far = WAYS | {"diloco": np.array([[3.0, 9.0]])}
    ax = trajectories(ROSENBROCK, far)
    assert ax.get_xlim()[1] > 3
    assert ax.get_ylim()[1] > 9
    given = Surface(ROSENBROCK.f, ROSENBROCK.start, ROSENBROCK.optimum, limits=(-2, 2, -1, 3))
    ax = trajectories(given, far)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-2, 2), (-1, 3))


def test_a_diverged_trajectory_ends_where_it_is_lost():
    lost = np.array([[0.0, 0.0], [0.5, 0.5], [np.inf, 0.0], [0.1, 0.1]])
    ax = trajectories(ROSENBROCK, {"a": lost, "b": np.full((2, 2), np.nan)})
    np.testing.assert_array_equal(line(ax, "a").get_xdata(), [-1.2, 0.0, 0.5])
    np.testing.assert_array_equal(line(ax, "b").get_xdata(), [-1.2])


def test_both_panels_share_one_legend():
    fig = landscape_convergence(SERIES, ROSENBROCK, WAYS)
    distance, landscape = fig.axes
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["local-adam", "mt-dao"]
    assert line(distance, "mt-dao").get_color() == line(landscape, "mt-dao").get_color()


def test_what_does_not_fit_is_refused():
    with pytest.raises(SpecError, match=r"trajectories\.mt-dao: got \(3,\); expected shape \(n, 2\)"):
        trajectories(ROSENBROCK, {"mt-dao": [1.0, 2.0, 3.0]})
    with pytest.raises(SpecError, match="at least one series"):
        distance_over_steps([])
