"""The cheapest of several links that meets a target."""

from __future__ import annotations

from typing import Any

import pytest

import syncline as sl
from syncline.planner.solving.answers import MONTH_S

ASKED: dict[str, Any] = {"model": "gpt-160m", "hardware": "h100", "workers": 8, "methods": ["ddp-adam", "diloco"]}
AMONG = ["infiniband", "1gbe", "10gbe", "wan"]


def met_by(method: str, step_s: float) -> list[str]:
    rows = sl.project(**ASKED, networks=AMONG, thresholds=False).rows
    return [row["network"] for row in rows if row["method"] == method and row["step_time_s"] <= step_s]


@pytest.mark.parametrize("step_s", [0.05, 0.3, 0.5, 1.0, 3.0, 30.0])
def test_without_prices_it_is_the_least_bandwidth_that_meets_the_target(step_s: float) -> None:
    order = ["1gbe", "wan", "10gbe", "infiniband"]  # the first two have the same, and come as they were given
    for row in sl.solve("network", **ASKED, networks="wan", among=AMONG, step_time=step_s).rows:
        good = met_by(row["method"], step_s)
        cheapest = next((one for one in order if one in good), None)
        assert row["value"] == cheapest and row["by"] == "bandwidth"
        assert sorted(one for one, _ in row["spans"]) == sorted(good)
        assert row["now_holds"] == ("wan" in good)
        assert (row["holds"], row["why"] is None) == (
            ("never", False) if not good else ("always" if len(good) == 4 else "in parts", True)
        )


def test_with_prices_it_is_the_one_that_costs_least_with_the_training() -> None:
    beside = {"tokens": "20B", "prices": {"accelerator_hour": 2.0}}
    among = {"1gbe": 10, "10gbe": 100, "infiniband": 1e6}
    for row in sl.solve("network", **ASKED, **beside, networks="wan", among=among, deadline="300d").rows:
        told = sl.project(**ASKED, **beside, networks=list(among), thresholds=False).rows
        money = {
            one["network"]: one["cost"] + among[one["network"]] * one["training_s"] / MONTH_S
            for one in told
            if one["method"] == row["method"]
        }
        assert row["value"] == min(money, key=lambda name: money[name]) and row["by"] == "money"
        assert row["money"] == pytest.approx(money[row["value"]], rel=1e-12)


def test_money_of_one_method_is_not_compared_with_the_bandwidth_of_another() -> None:
    methods = ["ddp-adam", "demo", "diloco"]  # no fit gives the tokens of demo to a loss, and so no duration to pay for
    beside = {"methods": methods, "target_loss": 2.994, "speedup": 1.2, "among": {"1gbe": 1e18, "10gbe": 2e18}}
    rows = sl.solve("network", **ASKED | beside, networks="wan").rows
    assert [(row["method"], row["by"], row["rank"], row["tie"]) for row in rows] == [
        ("diloco", "money", 1, False), ("demo", "bandwidth", 2, False)
    ]  # fmt: skip
    assert rows[0]["money"] > 1.25e8  # the number of bytes per second of 1gbe


def test_a_level_gets_another_link_and_keeps_the_others() -> None:
    asked = {"model": "gpt-160m", "cluster": "two-sites-a100", "methods": "ddp-adam", "tokens_per_worker": 32768}
    (row,) = sl.solve("network", **asked, among="1gbe,10gbe,100gbe", exposed=0.3).rows
    assert row["level"] == "both" and row["network"] == "two-sites-a100"
    levels = [{"units": 8, "link": "nvlink3"}, {"units": 4, "link": "ib-hdr"},
              {"units": 2, "link": row["value"], "rails": 1}]  # fmt: skip
    (same,) = sl.project(
        model="gpt-160m",
        methods="ddp-adam",
        hardware="a100",
        workers=64,
        tokens_per_worker=32768,
        networks=[{"levels": levels, "name": "n"}],
    ).rows
    assert same["step_time_s"] == row["step_time_s"]
