"""Regions by name: what was measured between two of them is what a message across pays."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.regions import PAIRS, REGIONS, regions
from syncline.costmodel.network.sites import Sites
from syncline.errors import SpecError
from syncline.specs.cluster.networks import network, network_fields

LAN = Link(50e-6, 1.25e9, "10gbe")


def test_every_two_regions_were_measured():
    assert len(REGIONS) == 10 and set(PAIRS) == {frozenset(pair) for pair in combinations(REGIONS, 2)}
    link = PAIRS[frozenset(("oregon", "virginia"))]
    assert link.latency_s == pytest.approx(0.0335) and link.bandwidth_bytes_per_s == pytest.approx(98.75e6)


@pytest.mark.parametrize("names", [("oregon", "frankfurt"), ("oregon", "frankfurt", "tokyo")])
def test_a_message_across_pays_the_pair_and_one_inside_the_lan(names):
    made = regions(dict.fromkeys(names, 2), LAN).among(2 * len(names))
    across = made.paths(np.array([0, 3]), np.array([2, 1]))
    np.testing.assert_allclose(across.latency_s, PAIRS[frozenset(names[:2])].latency_s + LAN.latency_s)
    inside = made.paths(np.array([0]), np.array([1]))
    np.testing.assert_allclose(inside.latency_s, LAN.latency_s)
    rate = made.bandwidth_bytes_per_s[across.channels[0][across.channels[0] >= 0]].min()
    assert rate == PAIRS[frozenset(names[:2])].bandwidth_bytes_per_s


def test_traffic_takes_no_third_region():
    """Ohio by way of Virginia to Ireland would be sooner than measured, were it forwarded."""
    made = regions({"seoul": 1, "oregon": 1, "sydney": 1, "ohio": 1}, LAN).among(4)
    for i, j in combinations(range(4), 2):
        names = ("seoul", "oregon", "sydney", "ohio")
        path = made.paths(np.array([i]), np.array([j]))
        assert path.latency_s[0] == pytest.approx(PAIRS[frozenset((names[i], names[j]))].latency_s + LAN.latency_s)


def test_as_users_write_them():
    two = network({"sites": {"Oregon": 4, "frankfurt": 4}})
    assert isinstance(two, Sites) and two.sites == (4, 4) and two.lan == NETWORKS["10gbe"].network
    three = network("{sites: {oregon: 2, ohio: 1, tokyo: 1}, lan: 1gbe, name: mine}")
    assert isinstance(three, Graph) and three.name == "mine" and len(three.hosts) == 4
    for made in (two, three):
        assert network(network_fields(made)) == made
    nodes = network({"per_node": 8, "inside": "nvlink3", "between": "ib-hdr", "name": "dgx-a100"})
    assert nodes == NETWORKS["dgx-a100"].network


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({"oregno": 4, "ohio": 4}, "network.sites: got 'oregno'; expected one of .*did you mean 'oregon'"),
        ({"oregon": 0, "ohio": 4}, "network.sites.oregon: got 0"),
        ({"oregon": "x", "ohio": 4}, "network.sites.oregon: got 'x'"),
        ({"oregon": 4}, "expected two regions or more"),
    ],
)
def test_what_is_no_region_is_refused(sites, message):
    with pytest.raises(SpecError, match=message):
        network({"sites": sites})
