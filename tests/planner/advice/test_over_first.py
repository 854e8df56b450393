"""How many times as long as the first plan others take, at the bounds of the links' speed."""

from __future__ import annotations

from typing import Any

import pytest

import syncline as sl
from syncline.costmodel import Link
from syncline.costmodel.network.network_links import scaled
from syncline.specs import network


def test_plans_are_compared_with_the_first_on_the_same_slower_links() -> None:
    """Step times of plans by layouts and of plans on links are kept apart, although some of their costs are equal."""
    asked: dict[str, Any] = {"model": "gpt-160m", "hardware": "h100", "workers": 4}
    wan = network("wan")
    assert isinstance(wan, Link)
    advice = sl.advise(**asked, network=wan)
    (batch,) = (line["value"] for line in advice.json()["assumptions"] if line["name"] == "batch")
    plans = [advice.rows[0], *(row for row in advice.rows if row["layout"] in ("pipeline 2", "tensor 2"))]
    times = []  # of each plan as predicted, and with communication that takes three times as long
    for plan in plans:
        seconds = []
        for links in (wan, scaled(wan, bandwidth=1 / 3, latency=3.0)):
            *_, row = sl.project(
                **asked, networks=[links], tokens_per_worker=batch // 4, thresholds=False, **plan["fields"]
            ).rows
            seconds.append(plan["steps"] * row["step_time_s"])
        times.append(seconds)
    for plan, seconds in list(zip(plans, times, strict=True))[1:]:
        predicted, slow = (own_s / first_s for own_s, first_s in zip(seconds, times[0], strict=True))
        assert predicted == pytest.approx(plan["time_s"] / plans[0]["time_s"])
        assert plan["over_first_low"] < predicted < slow < plan["over_first_high"]
