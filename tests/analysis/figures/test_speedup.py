from __future__ import annotations

import numpy as np
import pytest

from replication.figures.votes import votes_over_workers
from replication.figures.wall_clock import time_over_bandwidth
from syncline.analysis.costs import SpeedupPanel, speedup_over_bandwidth
from syncline.errors import SpecError


def test_speedups_have_a_curve_per_method_points_and_named_marks():
    bandwidths = np.geomspace(1e6, 1e11, 9)
    panel = SpeedupPanel("8 workers", {"diloco": np.linspace(10, 1, 9)}, {"diloco": [(1e9, 30.0)]})
    marks = {"asked": 1.25e9, "hidden": 1.26e9, "far": 1e13}
    fig = speedup_over_bandwidth(bandwidths, [panel] * 4, marks, label="speedup over ddp", title="50 us")
    assert len([ax for ax in fig.axes if ax.get_visible()]) == 4
    first = fig.axes[0]
    assert (first.get_xscale(), first.get_yscale(), first.get_ylabel()) == ("log", "log", "speedup over ddp")
    assert [text.get_text() for text in first.texts] == ["asked"]  # what would cover it or lies outside is left out
    assert first.get_ylim()[1] > 30  # points are on the axes too
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["diloco"]
    with pytest.raises(SpecError, match="panels"):
        speedup_over_bandwidth(bandwidths, [], {}, label="")


def test_methods_that_take_the_same_time_are_drawn_once_under_both_names():
    slow = {"equation": [4.0, 2.0], "events": [4.0, 2.0], "overlap": [3.0, 0.0]}
    fast = {"equation": [2.0, 1.0], "events": [2.0, 1.0], "overlap": [1.0, 0.0]}
    panels = {"Adam": {"Local Adam": slow, "MT-DAO (unified)": slow, "DES-LOC": fast}, "ADOPT": {"Local ADOPT": slow}}
    fig = time_over_bandwidth([1e8, 1e9], panels, time_label="time", title="40 steps")
    first, second = fig.axes
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    assert names == ["Local, MT-DAO (unified)", "DES-LOC", "Local"]  # what a panel is of is not said twice
    alone = time_over_bandwidth([1e8, 1e9], {"Adam": panels["Adam"]}, time_label="time")
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["Local Adam, MT-DAO (unified)", "DES-LOC"]
    assert (first.get_title("left"), second.get_title("left")) == ("Adam", "ADOPT")
    lowest, _ = first.get_ylim()
    assert 0 < lowest < 1  # what overlap hides altogether is below the axis, and not in the way of it
    with pytest.raises(SpecError, match="panels"):
        time_over_bandwidth([1.0, 2.0], {}, time_label="time")


def test_votes_have_a_panel_per_ratio_and_one_of_crossovers_with_its_marks():
    rows = [
        {"ratio": ratio, "workers": workers, "naive_over_alpha": 9.0 * workers, "one_bit_over_alpha": 1.0 * workers,
         "crossover_ratio": workers / 10}
        for ratio in (0.1, 10) for workers in (2, 8, 32)
    ]  # fmt: skip
    fig = votes_over_workers(rows, {"a model, a network": 5.0})
    assert [ax.get_title("left") for ax in fig.axes] == ["Nβ/α = 0.1", "Nβ/α = 10", "where direct and one-bit meet"]
    assert {"one-bit cheaper", "direct cheaper", "a model, a network"} <= {
        text.get_text() for text in fig.axes[2].texts
    }
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["naive", "one-bit"]
    with pytest.raises(SpecError, match="rows"):
        votes_over_workers([])
