"""The best of all plans for a deadline: a projection of it meets the deadline, and advice of that network has it."""

from __future__ import annotations

from typing import Any

import pytest

import syncline as sl
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.solving.link_selection import link_place
from syncline.specs import named_cluster

ASKED: dict[str, Any] = {"model": "gpt-160m", "cluster": "two-sites-a100", "tokens": "3.2B"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    told = sl.solve("bandwidth", **ASKED, methods=["ddp-adam", "diloco"], deadline="2h", best=True)
    assert "plans of" in str(told)
    return told.rows


def on(bytes_per_s: float) -> Any:
    place = link_place(named_cluster("two-sites-a100").network)
    return place.with_link(at_bandwidth(place.link, bytes_per_s))


def test_each_plan_meets_the_deadline_as_it_is_projected_and_not_on_less(rows: list[dict[str, Any]]) -> None:
    assert {row["method"] for row in rows} == {"ddp-adam", "diloco"}
    for row in rows:
        assert row["holds"] == "from" and row["fits"]
        for bandwidth, meets in ((row["value"], True), (row["value"] * 0.99999, False)):
            (same,) = sl.project(
                model="gpt-160m", hardware="a100", workers=64, networks=[on(bandwidth)], **row["fields"]
            ).rows
            assert (same["training_s"] <= 7200) == meets
            if meets:
                assert same["training_s"] == pytest.approx(row["training_s"], rel=1e-12)


def test_advice_on_that_network_has_a_plan_that_meets_the_deadline_and_on_less_none(rows: list[dict[str, Any]]) -> None:
    best = min(row["value"] for row in rows)
    for bandwidth, meets in ((best, True), (best / 1.02, False)):
        asked = {"network": on(bandwidth), "hardware": "a100", "workers": 64, "methods": ["ddp-adam", "diloco"]}
        told = sl.advise("gpt-160m", tokens="3.2B", **asked).rows
        times = [row["time_s"] for row in told if row["list"] != "infeasible" and row["time_s"] is not None]
        assert (min(times) <= 7200 * (1 + 1e-9)) == meets


def test_a_batch_is_rounded_to_whole_sequences_as_in_advice() -> None:
    asked = {"methods": ["diloco"], "deadline": "10h", "batch_tokens": 500_000}
    (batch,) = (
        line
        for line in sl.solve("bandwidth", **ASKED, **asked, best=True).json()["assumptions"]
        if line["name"] == "batch"
    )
    assert (batch["value"], batch["origin"]) == (2**19, "the nearest to 500,000 in whole sequences")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"variable": "workers", "deadline": "2h"}, "best: got True; expected bandwidth or latency as the variable"),
        ({"variable": "bandwidth", "step_time": "2s"}, "best: got True; expected a deadline as well"),
    ],
)
def test_what_plans_cannot_tell_is_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(sl.SpecError, match=line):
        sl.solve(**ASKED, **more, best=True)
