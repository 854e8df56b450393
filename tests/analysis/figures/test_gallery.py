"""Every figure as a page: no text over another or off the page, no legend over data, a name at every axis."""

from __future__ import annotations

import pytest

from tests.analysis.figures.gallery import GALLERY
from tests.analysis.figures.legible import defects


@pytest.mark.parametrize("name", GALLERY)
def test_a_figure_is_legible(name):
    assert defects(GALLERY[name]()) == []
