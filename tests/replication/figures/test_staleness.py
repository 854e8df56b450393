from __future__ import annotations

import math

import pytest

from replication.figures.staleness import over_stages
from syncline.errors import SpecError

LOSSES = {
    "plain": {1: (2.0, 1.9, 2.2), 8: (3.0, 2.5, 3.5)},
    "lost": {1: (2.1, 2.0, 2.2), 8: (math.inf, math.inf, math.inf)},
}


def at(ax, label):
    """Where the points with this label are."""
    return [tuple(point) for line in ax.lines if line.get_label() == label for point in line.get_xydata()]


def test_each_depth_has_its_place_and_what_is_not_finite_its_mark():
    losses, slowdowns = over_stages(LOSSES, {"plain": {1: 1.0, 8: 2.5}, "lost": {1: 1.0, 8: math.nan}}).axes
    assert [y for _, y in at(losses, "plain")] == [2.0, 3.0] and [y for _, y in at(losses, "lost")] == [2.1]
    assert [round(x) for x, _ in at(losses, "plain")] == [0, 1]
    assert [text.get_text() for text in losses.get_xticklabels()] == ["1", "8"]
    ((x, _),) = at(losses, "_diverged")
    assert round(x) == 1
    assert [y for _, y in at(slowdowns, "plain")] == [1.0, 2.5]
    ((x, _),) = at(slowdowns, "_never")
    assert round(x) == 1 and slowdowns.get_ylim()[1] > 2.5


def test_without_slowdowns_there_is_no_such_panel():
    assert len(over_stages(LOSSES, {"plain": {1: 1.0}}).axes) == 1


def test_no_method_is_an_error():
    with pytest.raises(SpecError, match="at least one method"):
        over_stages({}, {})
