"""Regions by name: what was measured between two of them is what a message between two workers there pays."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.regions import LAN, LINES, REGIONS, regions
from syncline.errors import SpecError
from syncline.sim import collective_finish_s
from syncline.specs.cluster.networks import network, network_fields


@pytest.mark.parametrize("cloud", ["aws", "gc"])
def test_every_two_regions_of_a_cloud_were_measured(cloud):
    names = [name for name in REGIONS if name.startswith("gc-") == (cloud == "gc")]
    assert len(names) == {"aws": 10, "gc": 4}[cloud]
    assert all(ends in LINES for ends in permutations(names, 2))


def test_a_direction_that_was_measured_is_its_own():
    """NCCL from London to Virginia got 1.16 Gbit/s, from Virginia to London .761; of Ohio and Virginia one is known."""
    assert LINES["london", "virginia"].bandwidth_bytes_per_s == pytest.approx(145e6)
    assert LINES["virginia", "london"].bandwidth_bytes_per_s == pytest.approx(95.125e6)
    assert LINES["ohio", "virginia"] == Link(5.5e-3, 140e6, "ohio-virginia")
    assert LINES["virginia", "ohio"] == Link(5.5e-3, 140e6, "virginia-ohio")


@pytest.mark.parametrize("names", [("oregon", "frankfurt"), ("oregon", "frankfurt", "tokyo")])
def test_each_two_workers_have_the_measured_line(names):
    """Eight workers of each region send to eight of the next at once, and each gets what one gets by itself."""
    made = regions(dict.fromkeys(names, 8), LAN["aws"])
    topology, line = made.among(8 * len(names)), LINES[names[:2]]
    across = topology.paths(np.arange(8), np.arange(8, 16))
    np.testing.assert_allclose(across.latency_s, line.latency_s)
    assert len(np.unique(across.channels)) == across.channels.size
    np.testing.assert_allclose(topology.bandwidth_bytes_per_s[across.channels].min(axis=1), line.bandwidth_bytes_per_s)
    inside = topology.paths(np.array([0]), np.array([1]))
    assert inside.latency_s == LAN["aws"].latency_s


def test_a_worker_sends_no_more_than_its_card_carries():
    """To 1,000 others in Virginia, Ohio's worker could send 140 MB/s each; its card carries 1.25 GB/s of them."""
    made = regions({"ohio": 1, "virginia": 20})
    seconds = float(collective_finish_s("gather", 21, 1e9, made, "gloo-posted").max())
    assert seconds == pytest.approx(20 * 1e9 / 1.25e9, rel=0.01)


def test_as_users_write_them():
    two = network({"sites": {"Oregon": 4, "frankfurt": 4}})
    assert two.sizes(8) == (4, 4) and two.name == "oregon-frankfurt"
    three = network("{sites: {oregon: 2, ohio: 1, tokyo: 1}, lan: 1gbe, name: mine}")
    assert three.name == "mine" and three.workers == 4 and three.card.bandwidth_bytes_per_s == 125e6
    google = network({"sites": {"gc-us": 4, "gc-eu": 2}, "hivemind": True})
    for made in (two, three, google):
        assert network(network_fields(made)) == made


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({"oregno": 4, "ohio": 4}, "network.sites: got 'oregno'; expected one of .*did you mean 'oregon'"),
        ({"oregon": 0, "ohio": 4}, "network.sites.oregon: got 0"),
        ({"oregon": "x", "ohio": 4}, "network.sites.oregon: got 'x'"),
        ({"oregon": 4, "gc-us": 4}, "expected regions of one cloud"),
        ({}, "expected at least one region"),
    ],
)
def test_what_is_no_region_is_refused(sites, message):
    with pytest.raises(SpecError, match=message):
        network({"sites": sites})
