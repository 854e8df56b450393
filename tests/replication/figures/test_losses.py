"""Losses of replications over bytes: what is on the axes, what is left out."""

from __future__ import annotations

import math

import pytest

from replication.figures.losses import last_losses_over_bytes
from syncline.errors import SpecError


def test_points_are_medians_over_bytes_with_their_range() -> None:
    settings = {
        "": {"demo": (4e3, [2.0, 2.4, 2.2]), "alone": (0.0, [1.0])},
        "k-4": {"demo": (1e3, [2.5, math.inf, 2.6])},
    }
    (ax,) = last_losses_over_bytes(settings).axes
    points = [line for line in ax.lines if line.get_marker() not in ("None", None, "")]
    assert [(list(one.get_xdata()), list(one.get_ydata())) for one in points] == [([1e3, 4e3], [2.6, 2.2])]
    ranges = [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()]
    assert ranges == [[2.5, 2.6], [2.0, 2.4]] and ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["k-4"]


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(SpecError, match="sends something"):
        last_losses_over_bytes({"": {"alone": (0.0, [1.0]), "lost": (8.0, [math.inf])}})
