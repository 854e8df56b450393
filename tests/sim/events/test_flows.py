"""How flows share channels: messages of one worker each to another, on channels that are said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.network.paths import Paths
from syncline.errors import SpecError
from syncline.sim import Recv, Send, run_events
from syncline.sim.events.simulation import Simulation


@dataclass
class Channels:
    """Workers 2 i and 2 i + 1 are joined by the channels of the i-th route."""

    routes: list[list[int]]
    bandwidth_bytes_per_s: Any
    name = ""
    gloo = None

    @property
    def workers(self):
        return 2 * len(self.routes)

    def paths(self, senders, receivers):
        ways = [self.routes[sender // 2] for sender in senders]
        width = max(map(len, ways))
        channels = np.array([[*way, *[-1] * (width - len(way))] for way in ways], dtype=np.int64)
        return Paths(channels.reshape(len(ways), width), np.zeros(len(ways)), np.zeros(len(ways)))


def programs_of(sizes):
    pairs = [([Send(2 * i + 1, size)], [Recv(2 * i)]) for i, size in enumerate(sizes)]
    return [program for pair in pairs for program in pair]


def max_min_rates(routes, bandwidth):
    """The rates of flows that begin together, while all of them are under way."""
    over = Channels(routes, np.array(bandwidth))
    run = Simulation(programs_of([1e300] * len(routes)), over, None, True, None)
    run.advance(0.0)
    return run.state["messages"]["rate"][: len(routes)].tolist()


@pytest.mark.parametrize(
    ("routes", "bandwidth", "rates"),
    [
        ([[0]], [8.0], [8.0]),
        ([[0], [0]], [8.0], [4.0, 4.0]),
        ([[0], [0, 1], [1]], [10.0, 4.0], [8.0, 2.0, 2.0]),
        ([[0, 1], [0], [1]], [6.0, 6.0], [3.0, 3.0, 3.0]),
        ([[0, 2], [1, 2], [1]], [1.0, 6.0, 6.0], [1.0, 3.0, 3.0]),  # the first leaves channel 2 to the second
        ([[]], [1.0], [math.inf]),
    ],
)
def test_rates_by_hand(routes, bandwidth, rates):
    assert max_min_rates(routes, bandwidth) == rates


@st.composite
def shared(draw):
    """Flows with one or more channels each, and the channels."""
    channels = draw(st.integers(1, 6))
    route = st.lists(st.integers(0, channels - 1), min_size=1, unique=True)
    bandwidth = st.one_of(st.sampled_from([1.0, 2.0, 3.0]), st.floats(1e-3, 1e12))
    return (
        draw(st.lists(route, min_size=1, max_size=12)),
        draw(st.lists(bandwidth, min_size=channels, max_size=channels)),
    )


@given(shared())
def test_rates_are_max_min_fair(network):
    """The definition: no channel carries more than it can, and each flow has a full one with none faster on it."""
    routes, bandwidth = network
    rates = max_min_rates(routes, bandwidth)
    load, fastest = np.zeros(len(bandwidth)), np.zeros(len(bandwidth))
    for route, rate in zip(routes, rates, strict=True):
        load[route] += rate
        fastest[route] = np.maximum(fastest[route], rate)
    assert np.all(load <= np.array(bandwidth) * (1 + 1e-9))
    full = load >= np.array(bandwidth) * (1 - 1e-9)
    for route, rate in zip(routes, rates, strict=True):
        assert any(full[channel] and rate >= fastest[channel] * (1 - 1e-9) for channel in route)


@given(shared())
def test_flows_of_one_route_have_one_rate(network):
    routes, bandwidth = network
    rates = max_min_rates(routes + routes, bandwidth)
    assert rates[: len(routes)] == rates[len(routes) :]


def finish(bandwidth, flows):
    """When each flow is over: of (start in seconds, channels, bytes) each."""
    over = Channels([route for _, route, _ in flows], np.array(bandwidth))
    starts_s = [start_s for start_s, *_ in flows for _ in range(2)]
    timeline = run_events(programs_of([nbytes for *_, nbytes in flows]), over, starts_s)
    return timeline.end_s[timeline.what == "send"].tolist()


@pytest.mark.parametrize(
    ("bandwidth", "flows", "over_s"),
    [
        ([2.0], [(0, [0], 6.0)], [3.0]),
        ([2.0], [(0, [0], 6.0), (0, [0], 6.0)], [6.0, 6.0]),
        # Alone until 1, by halves until the first is over, then the second alone.
        ([2.0], [(0, [0], 6.0), (1, [0], 6.0)], [5.0, 6.0]),
        # The short one leaves at 4; 2 bytes of the long one have flowed by then and 4 more take 2 seconds.
        ([2.0], [(0, [0], 8.0), (0, [0], 4.0)], [6.0, 4.0]),
        # What happens on channel 2 does not touch the others.
        ([2.0, 1.0, 3.0], [(0, [0], 6.0), (0, [1], 6.0), (1, [2], 6.0)], [3.0, 6.0, 3.0]),
        # Held to 1 by channel 1 at first, the second leaves 3 of channel 0's 4 to the first.
        ([4.0, 2.0], [(0, [0], 9.0), (0, [0, 1], 3.0), (0, [1], 3.0)], [3.0, 3.0, 3.0]),
        ([2.0], [(0, [0], 6.0), (1, [0], 0.0)], [3.0, 1.0]),
        ([1.0], [(2, [], 6.0)], [2.0]),
        # One ends as another begins: they do not share.
        ([2.0], [(0, [0], 6.0), (3, [0], 6.0)], [3.0, 6.0]),
    ],
)
def test_flows_by_hand(bandwidth, flows, over_s):
    assert finish(bandwidth, flows) == over_s


traffic = st.lists(
    st.tuples(st.floats(0.0, 10.0), st.lists(st.integers(0, 3), min_size=1, unique=True), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=10,
)


@given(traffic, st.lists(st.floats(1.0, 1e6), min_size=4, max_size=4))
def test_no_flow_is_faster_than_alone_and_all_bytes_pass(flows, bandwidth):
    over_s = np.array(finish(bandwidth, flows))
    start_s, nbytes = np.array([flow[0] for flow in flows]), np.array([flow[2] for flow in flows])
    alone_s = nbytes / [min(bandwidth[channel] for channel in route) for _, route, _ in flows]
    assert np.all(over_s >= (start_s + alone_s) * (1 - 1e-9))
    for channel, rate in enumerate(bandwidth):
        on = [channel in route for _, route, _ in flows]
        if any(on):  # it cannot have carried them all sooner
            assert over_s[on].max() >= start_s[on].min() + nbytes[on].sum() / rate * (1 - 1e-9)


@given(traffic, st.lists(st.floats(1.0, 1e6), min_size=4, max_size=4), st.floats(1e-3, 1e3))
def test_larger_and_faster_by_as_much_is_the_same(flows, bandwidth, factor):
    scaled = [(start_s, route, nbytes * factor) for start_s, route, nbytes in flows]
    over_s = finish([rate * factor for rate in bandwidth], scaled)
    np.testing.assert_allclose(over_s, finish(bandwidth, flows), rtol=1e-9)


@given(st.integers(1, 20), st.floats(1.0, 1e9), st.floats(1.0, 1e9), st.floats(0.0, 1e6))
def test_equal_flows_are_over_at_the_same_instant(number, nbytes, rate, start_s):
    over_s = finish([rate], [(start_s, [0], nbytes)] * number)
    assert len(set(over_s)) == 1
    np.testing.assert_allclose(over_s[0], start_s + number * nbytes / rate, rtol=1e-9)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan, math.inf])
def test_a_bandwidth_that_cannot_be(bandwidth):
    with pytest.raises(SpecError, match=r"bandwidth_bytes_per_s\[1\]"):
        run_events([], Channels([], np.array([1.0, bandwidth])))
