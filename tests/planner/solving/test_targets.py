"""Targets, the links of networks, and questions as users ask them: what is refused, in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import syncline as sl
from syncline.costmodel import NETWORKS, Link
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.link_selection import link_place, link_places
from syncline.planner.solving.question import offered_links
from syncline.planner.solving.targets import SolveTargets, margins
from syncline.specs import named_cluster

ASKED: dict[str, Any] = {"model": "gpt-160m", "hardware": "h100", "workers": 8, "networks": "wan", "methods": "diloco"}


def test_margins_are_of_the_target_that_is_met_least() -> None:
    both = SolveTargets(step_time_s=2.0, utilisation=0.5)
    told = {"step_time_s": (1.0, 0.5, 4.0), "utilisation": (0.4, 0.8, 0.1)}
    over, decides = margins(both, told)
    assert over == pytest.approx(np.log([0.8, 1.6, 0.2])) and decides == "utilisation"
    over, decides = margins(both, told | {"step_time_s": (None, None, None)})
    assert np.isnan(over).all() and decides == "step_time_s"
    share, _ = margins(SolveTargets(exposed=0.1), {"exposed": (0.25, 0.0, 1.0)})
    assert share == pytest.approx([-0.15, 0.1, -0.9])


def test_a_target_is_said_in_words() -> None:
    asked = SolveTargets(deadline_s=30 * 86400.0, exposed=0.05)
    assert asked.describe(WholeTraining(tokens=140e9)) == (
        "140 B tokens within 30 d, at most 5% of a step waiting for the network"
    )


def test_a_link_may_be_in_the_place_of_another() -> None:
    link = Link(0.01, 1e6, "slow")
    for name, outermost in (("wan", ""), ("dgx-h100", "between"), ("two-sites", "uplink")):
        network = NETWORKS[name].network
        place = link_place(network)
        assert place.name == outermost and place.with_link(place.link) == network
        assert link_place(place.with_link(link)).link == link
    network = named_cluster("two-sites-a100").network
    assert [one.name for one in link_places(network)] == ["node", "site", "both"]
    assert link_place(network, 1).link.name == link_place(network, "site").link.name == "ib-hdr"
    # Half of the way to another site is an uplink's.
    assert link_place(NETWORKS["two-sites"].network).link.latency_s == 25e-3


def test_links_to_choose_from_are_names_or_numbers_with_a_price_or_without() -> None:
    told = offered_links("1gbe=400, 10gbe=1.5k")
    assert [(one.link.name, one.month_price) for one in told] == [("1gbe", 400.0), ("10gbe", 1500.0)]
    told = offered_links(["wan,10gbe", "20ms,2Gbit/s"])
    assert [one.link.bandwidth_bytes_per_s for one in told] == [125e6, 1.25e9, 2.5e8]
    assert offered_links({"wan": 3})[0].month_price == 3.0 and offered_links(None) == []


@pytest.mark.parametrize(
    ("variable", "more", "line"),
    [
        ("bandwith", {"step_time": "1s"}, r"variable: got 'bandwith'; .*\(did you mean 'bandwidth'\?\)"),
        ("bandwidth", {}, "target: got None; expected a target"),
        ("bandwidth", {"deadline": "30d"}, "deadline: got '30 d'; expected the training's tokens as well"),
        ("bandwidth", {"deadline": "30"}, "deadline: got '30'; expected a time with its unit"),
        ("bandwidth", {"budget": "5k", "tokens": "1B"}, r"budget: got 5000\.0; expected prices as well"),
        ("bandwidth", {"utilisation": 1.5}, r"utilisation: got 1\.5; expected a part of 1 above 0"),
        ("bandwidth", {"exposed": "much"}, "exposed: got 'much'; expected a part of one"),
        ("bandwidth", {"speedup": 0}, "speedup: got 0; expected a positive number"),
        ("bandwidth", {"speedup": 2, "over": "dpd"}, "over: got 'dpd'; expected one of"),
        ("bandwidth", {"speedup": 2, "over": "diloco"}, "methods: got 'diloco'; expected a method other than diloco"),
        ("bandwidth", {"step_time": "1s", "over": "ddp-adam"}, "over: got 'ddp-adam'; expected none, unless a speedup"),
        ("bandwidth", {"step_time": "1s", "level": "site"}, "level: got 'site'; expected none, as this network has"),
        ("bandwidth", {"step_time": "1s", "most": 8}, "most: got 8; expected none, unless workers is sought"),
        ("bandwidth", {"step_time": "1s", "among": "wan"}, r"among: got \['wan'\]; expected none, unless network"),
        ("period", {"step_time": "1s", "level": "site"}, "level: got 'site'; expected none, as a period has no level"),
        ("network", {"step_time": "1s"}, "among: got None; expected the networks to choose from"),
        ("network", {"step_time": "1s", "among": "10gbee"}, r"among: got '10gbee'; .*\(did you mean '10gbe'\?\)"),
        ("network", {"step_time": "1s", "among": "wan,wan"}, "among: got 'wan'; expected different networks"),
        ("network", {"step_time": "1s", "among": "wan=1,1gbe"}, "expected a price for each network, or for none"),
        ("network", {"step_time": "1s", "among": "wan=x"}, r"among\.wan: got 'x'; expected a positive number"),
        ("workers", {"step_time": "1s", "most": 0}, "most: got 0; expected a number of workers, at least 1"),
        ("workers", {"step_time": "1s", "layout": "tensor=3", "most": 2}, "workers: got 8; expected"),
        ("latency", {"step_time": "1s", "batch_tokens": -1}, "batch_tokens: got -1; expected a positive number"),
        ("bandwidth", {"step_time": "1s", "spec": "demo-table1"}, "spec: got 'demo-table1'|expected .*project"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_that_names_the_field(variable: str, more: dict[str, Any], line: str) -> None:
    with pytest.raises(sl.SynclineError, match=line) as caught:
        sl.solve(variable, **ASKED | more)
    assert "\n" not in str(caught.value)
