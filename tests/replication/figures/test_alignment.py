"""Figures of how curvature lies to the coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from replication.figures.alignment import (
    LATE,
    ON_TIME,
    Panel,
    Plot,
    Scatter,
    measured_over,
    swings,
    trajectory_grid,
)
from syncline.errors import SpecError

STYLES = {"on time": ON_TIME, "late": LATE}


def bowl(x):
    return (x**2).sum(-1)


def panel(scale=1.0):
    way = scale * np.array([[3.0, 1.0], [2.0, 0.5], [0.0, 0.0]])
    return Panel(bowl, {"on time": way, "late": -way}, np.array([1.0, 0.0]), 4.0, "2 steps")


def test_every_panel_has_its_ways_on_one_scale():
    fig = trajectory_grid([[panel(), panel(2.0)]], ["Adam"], ["0°", "45°"], STYLES)
    for ax, scale in zip(fig.axes, (1.0, 2.0), strict=True):
        drawn = {line.get_label(): line.get_xydata() for line in ax.lines if not line.get_label().startswith("_")}
        assert list(drawn) == ["on time", "late"]
        assert np.allclose(drawn["late"], -drawn["on time"]) and drawn["on time"][0, 0] == 3 * scale
        assert ax.get_xlim() == pytest.approx((-6.48, 6.48)) and ax.get_ylim() == ax.get_xlim()
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["0°", "45°"]


def test_shades_alone_for_what_has_many_valleys():
    fig = trajectory_grid([[panel()]], ["a"], ["b"], STYLES, reach=5.0, smooth=False)
    assert len(fig.axes[0].images) == 1 and fig.axes[0].get_xlim() == (-5, 5)


def test_points_and_medians_on_a_fitting_scale():
    near = Scatter([1, 1, 2], [3.0, 4.0, np.nan], ([1, 2], [3.5, np.nan]))
    far = Scatter([1, 2], [1.0, 100.0], ([1, 2], [1.0, 100.0]))
    fig = measured_over([Plot({"a": near}, "x", "y", (1.5,), (1.2, "here")), Plot({"b": far}, "x", "z")])
    one, two = fig.axes
    assert (one.get_yscale(), two.get_yscale()) == ("linear", "log")
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b"]
    assert "here" in [text.get_text() for text in one.texts]


def test_more_than_three_panels_are_two_across():
    fig = measured_over([Plot({"a": Scatter([1], [1.0], ([1], [1.0]))}, "x", "y")] * 5)
    assert len(fig.axes) == 6 and not fig.axes[5].get_visible()


def test_swings_show_the_first_steps():
    fig = swings({"Adam": {"on time": np.ones(100), "late": -np.ones(10)}}, STYLES, label="step", num_steps=60)
    lengths = [len(line.get_ydata()) for line in fig.axes[0].lines if not line.get_label().startswith("_")]
    assert lengths == [60, 10]


def test_no_panel_is_an_error():
    with pytest.raises(SpecError, match="panels: got"):
        trajectory_grid([], [], [], STYLES)
    with pytest.raises(SpecError, match="panels: got"):
        trajectory_grid([[panel()]], ["a"], ["b", "c"], STYLES)
    with pytest.raises(SpecError, match="plots: got"):
        measured_over([])
    with pytest.raises(SpecError, match="panels: got"):
        swings({}, STYLES, label="")
