from __future__ import annotations

import math

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import SpecError
from syncline.sim.events.flows import Channels, Flow, Route, max_min_rates


@pytest.mark.parametrize(
    ("routes", "bandwidth", "rates"),
    [
        ([[0]], [8.0], [8.0]),
        ([[0], [0]], [8.0], [4.0, 4.0]),
        ([[0], [0, 1], [1]], [10.0, 4.0], [8.0, 2.0, 2.0]),
        ([[0, 1], [0], [1]], [6.0, 6.0], [3.0, 3.0, 3.0]),
        ([[0, 2], [1, 2], [1]], [1.0, 6.0, 6.0], [1.0, 3.0, 3.0]),  # the first leaves channel 2 to the second
        ([[]], [], [math.inf]),
        ([], [1.0], []),
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


class Timed(Flow):
    """A flow that notes when it is over."""

    __slots__ = ("env", "over_s")

    def __init__(self, env, route, nbytes):
        super().__init__(route, nbytes)
        self.env, self.over_s = env, None

    def drained(self):
        assert self.over_s is None
        self.over_s = self.env.now


def finish(bandwidth, flows):
    """When each flow is over: of (start in seconds, channels, bytes) each."""
    env = simpy.Environment()
    channels = Channels(env, bandwidth)
    timed = []
    for start_s, route, nbytes in flows:
        rate = min((bandwidth[channel] for channel in route), default=math.inf)
        flow = Timed(env, Route(tuple(route), rate, 0.0, 0.0), nbytes)
        timed.append(flow)
        env.timeout(start_s).callbacks.append(lambda _, flow=flow: channels.carry(flow))
    env.run()
    return [flow.over_s for flow in timed]


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
        ([], [(2, [], 6.0)], [2.0]),
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
        Channels(simpy.Environment(), [1.0, bandwidth])
