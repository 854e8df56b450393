"""What the page tells is what ``syncline project`` tells, and what curves and words say follows from it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import syncline as sl
from syncline.columns import share_text
from syncline.errors import SpecError
from syncline.planner.explore import markup
from syncline.planner.explore.answers import (
    caveat,
    computing_shares,
    crossing_bandwidth,
    curves,
    headline,
    leading_methods,
    ranking_of,
    round_of,
    shown_method,
    threshold_rows,
    ties,
)
from syncline.planner.explore.pictures import (
    RoundRow,
    interval_picture,
    round_picture,
    standalone_svg,
    style_of,
    utilisation_picture,
)
from syncline.planner.explore.settings import BASELINE, explored_spec
from syncline.questions.explore import OFFERED, PageSettings

SMALL = PageSettings(model="gpt-160m", workers=1, sites=4, replica="worker", bandwidth=1.25e9, latency=50e-6)
SITES = PageSettings(model="gpt-160m", workers=8, sites=2, replica="site", batch=4096)
LARGE = PageSettings(replica="worker", methods=("diloco", "demo"))


def test_rows_are_ranked_by_time_and_what_does_not_fit_comes_after():
    rows = ranking_of(LARGE).rows
    assert [(row["method"], row["fits"]) for row in rows] == [("ddp-adam", True), ("diloco", False), ("demo", False)]
    times = [row["wall_clock_s"] for row in ranking_of(SITES).rows]
    assert times == sorted(times)


@pytest.mark.parametrize("settings", [SMALL, SITES])
def test_curves_are_what_is_projected_at_each_bandwidth(settings):
    over = curves(settings)
    for bandwidth in (2e6, 1.25e8, 3.3e9, 1e11):
        rows = sl.project(explored_spec(replace(settings, bandwidth=bandwidth)).fields, thresholds=False).rows
        for row in rows:
            told = np.interp(-1 / bandwidth, -1 / over.bandwidths, over.step_s[row["method"]])
            # Between bandwidths that are priced a corner may be cut: no more than can be seen.
            assert told == pytest.approx(row["step_time_s"], rel=0.02)
            assert over.compute_s[row["method"]] == row["compute_s"]
    assert over.num_priced == (101 if settings is SMALL else 11)


def test_the_curves_are_known_at_any_bandwidth_when_they_are_at_one():
    assert curves(SITES) is curves(replace(SITES, bandwidth=3e7, shown="diloco"))


def test_crossings_are_those_of_a_line_in_the_inverse():
    bandwidths = np.geomspace(1, 1e4, 9)
    assert crossing_bandwidth(bandwidths, 1 + 50 / bandwidths, 2.0) == pytest.approx(50.0)
    assert crossing_bandwidth(bandwidths, np.ones(9), 2.0) is None


def test_on_one_link_thresholds_are_the_rows():
    found = ranking_of(SMALL)
    told = {name: faster for name, faster, _ in threshold_rows(found, curves(SMALL))}
    rows = {row["method"]: row for row in found.rows}
    assert rows["diloco"]["faster_by_5_percent"] == "below" and told["diloco"].startswith("below ")
    assert sl.project(explored_spec(SMALL).fields).rows[1][
        "faster_by_5_percent_bandwidth_bytes_per_s"
    ] == pytest.approx(rows["diloco"]["faster_by_5_percent_bandwidth_bytes_per_s"])


def test_thresholds_of_sites_are_where_projections_cross():
    settings = replace(SITES, methods=("diloco",), latency=1e-6, workers=2, batch=65536)
    over = curves(settings)
    at = crossing_bandwidth(over.bandwidths, over.step_s[BASELINE] / over.step_s["diloco"], 1.05)
    assert at is not None
    rows = [
        sl.project(explored_spec(replace(settings, bandwidth=at * k)).fields).rows[1]["speedup"] for k in (0.8, 1.25)
    ]
    assert rows[0] > 1.05 > rows[1]


def test_words_say_who_is_first_and_what_is_not_known():
    found = ranking_of(SITES)
    assert headline(found).startswith(f"{found.rows[0]['method']} is first: ") or " tie: " in headline(found)
    assert "not at equal loss" in caveat(found)
    assert leading_methods(found, curves(SITES)).startswith("First is ")
    alone = replace(SITES, sites=1)
    assert leading_methods(ranking_of(alone), curves(alone)).startswith("One site: ")
    assert threshold_rows(ranking_of(alone), curves(alone)) == []
    none = ranking_of(replace(LARGE, model="llama-3.1-405b", methods=("diloco",), workers=8))
    assert headline(none).startswith("None of these methods fits") or none.rows[0]["fits"]


def test_a_method_without_a_time_is_told_apart_and_in_no_curve():
    """Gathering the parts of 8,192 workers fits into no GPU's memory."""
    settings = PageSettings(model="gpt-160m", sites=16, workers=512, replica="worker", methods=("demo",))
    found, over = ranking_of(settings), curves(settings)
    times = {row["method"]: row["wall_clock_s"] for row in found.rows}
    assert times["demo"] is None and times["ddp-adam"] and list(over.step_s) == ["ddp-adam"]
    assert "does not fit" in next(row["not_timed"] for row in found.rows if row["method"] == "demo")
    assert list(computing_shares(found)) == ["ddp-adam"] and shown_method(found) == "ddp-adam"
    assert headline(found) and leading_methods(found, over)


def test_ties_are_told():
    rows = [{"method": name, "wall_clock_s": seconds, "fits": fits} for name, seconds, fits in
            [("a", 100.0, True), ("b", 104.0, True), ("c", 106.0, True), ("d", 90.0, False)]]  # fmt: skip
    assert ties(rows) == ["a", "b"] and ties(rows[1:2]) == []


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0%"), (1e-4, "<0.1%"), (0.001, "0.1%"), (0.5, "50%"), (0.999, "99.9%"), (0.9999, ">99.9%"), (1, "100%")],
)
def test_shares_are_not_rounded_to_nothing_or_all(part, text):
    assert share_text(part) == text


def test_the_round_is_of_the_first_or_of_what_is_asked_for():
    found = ranking_of(SITES)
    assert shown_method(found) == next(row["method"] for row in found.rows if row["method"] != BASELINE)
    assert shown_method(ranking_of(replace(SITES, shown="demo"))) == "demo"
    assert shown_method(ranking_of(replace(SITES, shown="soap"))) == shown_method(found)
    with pytest.raises(SpecError):
        round_of(SITES, "soap")


@pytest.mark.parametrize("width", [940, 330])
def test_pictures_are_whole_and_have_their_axes(width):
    found, over = ranking_of(SITES), curves(SITES)
    now = computing_shares(found)
    used = utilisation_picture(over, SITES.bandwidth, now, width)
    strip = round_picture([RoundRow(name, round_of(SITES, name)) for name in ("streaming-diloco", BASELINE)], width)
    for picture in (used, strip, standalone_svg([("One", used), ("Two", strip)], "A <title> & more", ["line"], True)):
        root = ET.fromstring(picture)
        assert root.attrib["viewBox"]
        ends = [float(one.attrib["x"]) for one in root.iter() if one.tag.endswith("}text")]
        assert all(0 <= end <= max(width, 760) for end in ends)
    assert "bandwidth of a site's line" in used and used.count("<polyline") == len(now)


def test_every_method_on_the_page_is_drawn_in_its_own_way():
    styles = [style_of(name) for name in (BASELINE, *OFFERED)]
    assert len(set(styles)) == len(styles)
    assert style_of("diloco-l1") == style_of("diloco")


def test_text_of_others_is_escaped():
    row = dict(ranking_of(SITES).rows[0]) | {"method": "<script>x</script>"}
    found = replace(ranking_of(SITES), rows=(row,))
    assert "<script>" not in markup.ranking_table(found) and "&lt;script&gt;" in markup.ranking_table(found)
    assert "<b>" not in markup.render("bulleted", ["<b>"], "problems") + markup.paragraph("<b>")
    assert "<script" not in interval_picture(1.0, 2.0, 3.0, (1.0, 3.0), "<script>")
