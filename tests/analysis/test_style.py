"""The style file and the styles of methods."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.style import CYCLE, PLACES, figure_style, method_styles


def test_the_main_methods_look_the_same_in_every_figure():
    together = method_styles(PLACES)
    for label, style in together.items():
        assert method_styles(["something", label, "else"])[label] == style
    assert len({style.color for style in together.values()}) == len(PLACES)


@given(st.lists(st.text(max_size=8) | st.sampled_from(sorted(PLACES)), unique=True, max_size=49 - len(PLACES)))
def test_styles_are_different_and_in_the_given_order(labels):
    styles = method_styles(labels)
    assert list(styles) == labels
    assert len(set(styles.values())) == len(labels)
    assert styles == method_styles(labels)


def test_one_lap_of_the_cycle_differs_in_colour_and_in_marker():
    assert len({style.color for style in CYCLE}) == len({style.marker for style in CYCLE}) == len(CYCLE)


def test_dashes_are_the_same_only_where_lightness_is_far_apart():
    def lightness(color: str) -> float:
        red, green, blue = matplotlib.colors.to_rgb(color)
        return 0.299 * red + 0.587 * green + 0.114 * blue  # ITU-R BT.601, what a grey printer does

    pairs = [(a, b) for i, a in enumerate(CYCLE) for b in CYCLE[i + 1 :] if a.linestyle == b.linestyle]
    assert all(abs(lightness(a.color) - lightness(b.color)) > 0.3 for a, b in pairs)


def test_the_users_settings_return_and_have_no_say_inside():
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "text.color": "red"}):
        with figure_style():
            assert matplotlib.rcParams["font.size"] == 8
            assert matplotlib.rcParams["text.color"] == "black"
        assert matplotlib.rcParams["lines.linewidth"] == 9
        assert matplotlib.rcParams["text.color"] == "red"


def test_the_style_file_and_the_cycle_have_the_same_colours():
    with figure_style():
        colors = matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]
    assert [f"#{color.lstrip('#')}" for color in colors] == [style.color for style in CYCLE]


def test_pyplot_and_torch_stay_out():
    code = "import sys, syncline.analysis; print([m for m in ('torch', 'matplotlib.pyplot') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
