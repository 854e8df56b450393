from __future__ import annotations

import numpy as np
import pytest

from syncline.analysis import SizePanel, cost_against_size
from syncline.errors import SpecError


def test_the_figure_shows_every_algorithm_and_marks_the_crossovers_and_the_size():
    sizes = np.geomspace(1e2, 1e10, 9)
    panels = [
        SizePanel("all_reduce", sizes, {"ring": 1 + sizes, "tree": 0.1 + 2 * sizes}, [(1e3, 1e3), (1e11, 1e11)]),
        SizePanel("all_to_all", sizes, {"pairwise": sizes}),
    ]
    fig = cost_against_size(panels, at_nbytes=1e6, title="8 workers")
    first, second = fig.axes
    told = [text.get_text() for text in fig.legends[0].get_texts()]
    assert told == ["ring", "tree", "pairwise", "the fastest changes", "1 MB"]
    assert {text.get_text() for text in first.texts} == {"1 kB"}  # what is beyond the axis is not marked
    assert not second.texts
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
    with pytest.raises(SpecError, match="panels"):
        cost_against_size([])
