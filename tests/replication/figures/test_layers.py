"""Measures by layer: what is on the axes."""

from __future__ import annotations

import pytest

from replication.figures.layers import measures_by_layer
from syncline.errors import SpecError


def test_a_line_per_layer_and_a_panel_per_measure() -> None:
    spread = {"cub": {"token": [3.0, 1.0, 2.0], "up": [0.01]}}
    figure = measures_by_layer({"largest_spread": spread, "kurtosis": {"cub": {"up": [6.0]}}, "match": {"cub": {}}})
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["token", "up"]
    assert first.get_xscale() == "log" and second.get_xscale() == "linear"
    (marks,) = (line for line in first.lines if line.get_marker() not in ("None", None, ""))
    assert list(marks.get_xdata()) == [2.0, 0.01] and first.get_xlabel() == "largest spread"


def test_nothing_by_layer_is_refused() -> None:
    with pytest.raises(SpecError, match="at least one layer"):
        measures_by_layer({"match": {"cub": {}}})
