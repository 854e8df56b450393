"""What the picture of a search shows."""

from __future__ import annotations

import math

import pytest

from replication.figures.trials import TriedTrial, trials_over_knob
from syncline.errors import SpecError


def test_what_diverged_is_left_out_and_the_best_has_a_ring():
    trials = {
        "a": [TriedTrial(1e-3, 0.9, 2.5), TriedTrial(3e-3, 0.99, 2.0), TriedTrial(1e-2, 0.95, math.inf)],
        "lost": [TriedTrial(1.0, 0.0, math.inf)],
    }
    (ax,) = trials_over_knob(trials, {"a": ("lr", "beta"), "lost": ("lr", "")}).axes
    assert ax.collections[0].get_offsets().tolist() == [[1e-3, 2.5], [3e-3, 2.0]]
    (ring,) = ax.lines
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (3e-3, 2.0) and "high beta" in ax.get_title(loc="left")
    low, high = (sum(colour[:3]) for colour in ax.collections[0].get_facecolor())
    assert high < low  # darker


def test_nothing_but_divergence_is_no_picture():
    with pytest.raises(SpecError, match=r"^trials"):
        trials_over_knob({"a": [TriedTrial(1.0, 0.0, math.inf)]}, {"a": ("lr", "")})
