"""Colours can be told from both grounds, and are those of the figures where these can be."""

from __future__ import annotations

import pytest

from syncline.analysis.style import CYCLE, METHOD_FAMILIES
from syncline.runs.report.page import DARK, LIGHT, MIN_CONTRAST, contrast, legible, styles_of


def test_contrast_is_that_of_the_standard():
    # WebAIM's contrast checker gives 4.48 for #777777 on white.
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#ffffff", "#ffffff") == 1


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_what_is_drawn_can_be_told_from_the_ground(theme):
    for name in ("ink", "quiet", "link", "bad"):
        assert contrast(theme[name], theme["ground"]) >= 4.5 and contrast(theme[name], theme["page"]) >= 4.5
    colors = [style.color for style in CYCLE] + [one for family in METHOD_FAMILIES.values() for one in family.shades]
    for color in colors:
        assert contrast(legible(color, theme["ground"]), theme["ground"]) >= MIN_CONTRAST


def test_methods_are_told_apart_in_both_themes():
    methods = [name for family in METHOD_FAMILIES.values() for name in family.first]
    styles = styles_of(methods)
    for theme in ("light", "dark"):
        assert len({one[theme] for one in styles.values()}) == len(methods)
