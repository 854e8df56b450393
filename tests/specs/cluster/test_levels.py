"""Levels as users write them: what they mean, written again, and refusals that name the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.costmodel import NETWORKS, Level, MultiLevel, TwoLevel, collective_s
from syncline.errors import SpecError
from syncline.specs import network, network_fields

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_sites.yaml"
NVLINK, NDR, WAN = (NETWORKS[name].network for name in ("nvlink4", "ib-ndr", "wan"))


def test_links_by_name_at_every_level() -> None:
    given = {"levels": [{"units": 8, "link": "nvlink4"}, {"units": 4, "link": "ib-ndr"}, {"link": "wan", "rails": 1}]}
    assert network(given) == MultiLevel((Level(8, NVLINK), Level(4, NDR), Level(None, WAN, 1)))


def test_the_example_is_a_cluster_of_two_sites() -> None:
    on = network(EXAMPLE)
    assert (on.name, on.sizes(64)) == ("two-sites-64", (8, 2, 2, 2))
    latency_s = on.among(64).paths([0] * 4, [7, 15, 31, 63]).latency_s
    assert latency_s == pytest.approx([0.6e-6, 2e-6, 3e-6, 25.003e-3])


def test_a_preset_of_nodes_begins_the_levels() -> None:
    nodes = NETWORKS["dgx-a100"].network
    assert isinstance(nodes, TwoLevel)
    inner, outer = Level(8, nodes.inner), Level(None, nodes.outer, shares_lower_links=False)
    assert network({"levels": ["dgx-a100"]}) == MultiLevel((inner, outer))
    two_sites = network({"levels": [{"preset": "dgx-a100", "units": 4, "name": "rack"}, {"link": "wan", "rails": 1}]})
    racks = Level(4, nodes.outer, shares_lower_links=False, name="rack")
    assert two_sites == MultiLevel((inner, racks, Level(None, WAN, 1)))
    for workers in (8, 64):
        for algorithm in ("hierarchical", "leader"):
            told = [
                collective_s("all_reduce", workers, 1e8, network(on), algorithm)
                for on in ("dgx-a100", {"levels": ["dgx-a100"]})
            ]
            assert told[0] == told[1]


def test_nodes_take_links_by_name() -> None:
    on = network({"per_node": 8, "inside": "nvlink3", "between": "ib-hdr"})
    assert (on.inner, on.outer) == (NETWORKS["nvlink3"].network, NETWORKS["ib-hdr"].network)


@pytest.mark.parametrize(
    "given",
    [
        {"levels": ["dgx-a100", {"units": 2, "link": "wan", "rails": 1, "shares_lower_links": True, "name": "sites"}]},
        {"levels": ["p4d.24xlarge"], "name": "mine"},
        {
            "levels": [
                {"units": 8, "link": "nvlink4", "name": "node"},
                {"units": 4, "link": "ib-ndr", "cross_rail": "spine"},
                {"link": {"latency": "1us", "bandwidth": "400 Gbit/s"}, "oversubscription": 1.5},
            ]
        },
    ],
)
def test_written_and_read_again_it_is_the_same(given: dict[str, object]) -> None:
    on = network(given)
    assert network(json.loads(json.dumps(network_fields(on)))) == on


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        (3, "network.levels: got 3; expected a list from the inside out: {units: 8, link: nvlink4} each"),
        ([7], "network.levels.0: got 7; expected a level's fields"),
        ([{"units": 8}], "network.levels.0.link: got None; expected a value: a level has a 'link'"),
        ([{"units": 0, "link": "wan"}], "network.levels.0.units: got 0; expected a number of units of the level below"),
        ([{"unit": 8, "link": "wan"}], "network.levels.0.unit: got 8; expected no such field here"),
        ([{"units": 8, "link": "wam"}], "network.levels.0.link: got 'wam'; expected one of"),
        ([{"units": 8, "link": "dgx-a100"}], "network.levels.0.link: got 'dgx-a100'; expected a link"),
        (["dgx"], "network.levels.0.preset: got 'dgx'; expected one of"),
        ([{"preset": "dgx-a100", "link": "wan"}], "network.levels.0.link: got 'wan'; expected none with a preset"),
        ([{"units": 2, "link": "wan"}, "dgx-a100"], "network.levels.1.preset: got 'dgx-a100'; expected a link"),
        ([{"units": 2, "link": "wan"}, "wan"], "network.levels.1.rails: got None; expected the uplinks of a unit"),
        ([{"link": "wan"}, {"link": "wan", "rails": 1}], "network.levels.1.units: got None; expected a number"),
        (
            [{"units": 2, "link": "wan"}, {"link": "wan", "oversubscription": 0.5}],
            "network.levels.1.oversubscription: got 0.5; expected a number, at least 1: 2 is 2:1",
        ),
        (
            [{"units": 2, "link": "wan", "shares_lower_links": "yes"}],
            "network.levels.0.shares_lower_links: got 'yes'; expected",
        ),
        ([], "network.levels: got []; expected at least one level: {units, link}"),
    ],
)
def test_refusals_name_the_field_in_a_line(levels: object, line: str) -> None:
    with pytest.raises(SpecError) as refused:
        network({"levels": levels})
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)
