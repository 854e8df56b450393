"""What a page makes of measures along trainings, from rows by hand."""

from __future__ import annotations

from replication.replications.measured import measured_layers, measured_lines, measured_page


def row(method: str, step: int, measure: str, value: float, layer: str = "") -> dict[str, object]:
    return {"method": method, "seed": 0, "step": step, "measure": measure, "layer": layer, "value": value}


VOTES = [row("cub", t, f"{rate}: {vote}", value) for t in (2, 4) for rate, vote, value in (
    ("match", "one bit", 0.9), ("match", "signs", 0.8 - t / 10), ("flip", "one bit", 0.1), ("flip", "signs", 0.0),
)]  # fmt: skip
SPREAD = [
    row("cub", t, "largest_spread", t * size, layer)
    for t in (1, 2, 3, 4)
    for layer, size in (("token", 2.0), ("up", 0.5))
]


def test_what_stands_before_a_colon_is_a_panel_and_the_rest_a_line() -> None:
    lines = measured_lines(VOTES)
    assert list(lines) == ["match", "flip"] and list(lines["match"]) == ["one bit", "signs"]
    assert lines["match"]["signs"] == {2: [0.6000000000000001], 4: [0.4]}
    two = measured_lines([*VOTES, row("other", 2, "match: one bit", 0.5)])
    assert set(two["match"]) == {"cub, one bit", "cub, signs", "other, one bit"}
    assert measured_lines(SPREAD) == {"largest_spread": {"cub": {t: [2.0 * t, 0.5 * t] for t in (1, 2, 3, 4)}}}


def test_layers_are_of_the_later_half() -> None:
    assert measured_layers([*VOTES, *SPREAD]) == {
        "largest_spread": {"cub": {"token": [4.0, 6.0, 8.0], "up": [1.0, 1.5, 2.0]}}
    }
    assert measured_layers(VOTES) == {}


def test_a_page_has_a_table_per_set_of_lines_and_the_layers_at_both_ends() -> None:
    page = "\n".join(measured_page("votes", [*VOTES, *SPREAD], "measured-votes.png"))
    assert "| measure | one bit | signs |" in page and "| measure | cub |" in page
    assert "largest_spread by layer, cub: from 1.500 (up) to 6.000 (token)." in page
    assert "![votes by layer](measured-votes-layers.png)" in page
    assert "Nothing was found" in "\n".join(measured_page("votes", [], "measured-votes.png"))
