"""The style file and the styles of methods."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.style import (
    CYCLE,
    METHOD_FAMILIES,
    family_of,
    figure_style,
    method_styles,
)

MAIN = [label for family in METHOD_FAMILIES.values() for label in family.first]

# What is seen without the cones for long, middle or short waves: linear RGB to linear RGB.
# Source: Machado et al. (2009), severity 1.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color: str, seen_by: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as somebody sees it, under the white of sRGB."""
    srgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(seen_by @ linear, 0, 1) / (XYZ @ np.ones(3))
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_main_methods_look_the_same_in_every_figure():
    together = method_styles(MAIN)
    for label, style in together.items():
        assert method_styles(["something", label, "else"])[label] == style
    assert len({style.color for style in together.values()}) == len(MAIN)


@given(st.lists(st.text(max_size=8) | st.sampled_from(sorted(MAIN)), unique=True, max_size=30))
def test_styles_are_different_and_in_the_given_order(labels):
    styles = method_styles(labels)
    assert list(styles) == labels
    assert len(set(styles.values())) == len(labels)
    assert styles == method_styles(labels)


@pytest.mark.parametrize("family", METHOD_FAMILIES)
def test_sixteen_of_a_family_are_told_apart_and_their_hue_is_the_familys(family):
    labels = [f"{METHOD_FAMILIES[family].prefixes[0]}-{number}" for number in range(16)]
    styles = method_styles(labels)
    assert {family_of(label) for label in labels} == {family}
    assert len(set(styles.values())) == 16
    assert {style.color for style in styles.values()} == set(METHOD_FAMILIES[family].shades)
    assert method_styles(["x", "y"], {"x": family}).keys() == {"x", "y"}
    assert method_styles(["x"], {"x": family})["x"].color in METHOD_FAMILIES[family].shades


def test_eleven_methods_differ_in_their_marker_and_by_colour_or_dashes_whoever_looks():
    styles = list(method_styles(MAIN[:11]).values())
    assert len({style.marker for style in styles}) == 11
    for one, other in combinations(styles, 2):
        apart = min(np.linalg.norm(lab(one.color, eye) - lab(other.color, eye)) for eye in BLINDNESS.values())
        assert apart > 10
        assert apart > 15 or one.linestyle != other.linestyle


def test_every_colour_is_seen_on_white():
    for color in {shade for family in METHOD_FAMILIES.values() for shade in family.shades}:
        assert lab(color, np.eye(3))[0] < 76


def test_the_longest_beginning_of_a_name_tells_its_family():
    assert [family_of(label) for label in ("ddp-muon", "streaming-diloco", "lion-cub-1bit", "curvadion", "soap")] == [
        "data parallel", "periodic", "compressed", "triggered", "rotated",
    ]  # fmt: skip
    assert family_of("ring") is None


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
