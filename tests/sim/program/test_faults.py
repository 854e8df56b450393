"""Slow links and late messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Star
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError
from syncline.seeds import generator
from syncline.sim import Call, LatencyJitter, Recv, Send, SlowLink, clock, run_events, with_slow_links

LINK = Link(1e-3, 1e6, overhead_s=1e-4)
CALLS = [Call(step, "all_reduce", 10_000.0) for step in range(3)]


def step_ends(network, workers=4, **options):
    return clock(CALLS, 0.01, network, workers, 3, **options).step_end_s


@dataclass(frozen=True)
class NoStar:
    """A star that does not say so: it is what any other topology is."""

    star: Star

    def __getattr__(self, name: str) -> Any:
        return getattr(self.star, name)


def test_a_slow_link_is_a_link_of_its_own():
    slowed = with_slow_links(topology(LINK, 4), [SlowLink(2, 5.0, 3.0), SlowLink(0, 2.0)])
    links = [Link(1e-3, 5e5, overhead_s=1e-4), LINK, Link(3e-3, 2e5, overhead_s=1e-4), LINK]
    np.testing.assert_allclose(step_ends(slowed), step_ends(links), rtol=1e-12)
    np.testing.assert_allclose(step_ends(slowed, evaluator="events"), step_ends(links), rtol=1e-12)


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_any_topology_is_slowed_as_a_star_is(duplex):
    star = topology(Link(1e-3, 1e6, overhead_s=1e-4, duplex=duplex), 4)
    slow = [SlowLink(2, 5.0, 3.0), SlowLink(2, 2.0)]
    one, other = with_slow_links(star, slow), with_slow_links(NoStar(star), slow)  # type: ignore[arg-type]
    pairs = np.array([(i, j) for i in range(4) for j in range(4) if i != j]).T
    np.testing.assert_array_equal(one.paths(*pairs).latency_s, other.paths(*pairs).latency_s)
    used = np.unique(one.paths(*pairs).channels)
    np.testing.assert_array_equal(one.bandwidth_bytes_per_s[used], other.bandwidth_bytes_per_s[used])
    np.testing.assert_allclose(step_ends(one), step_ends(other), rtol=1e-12)


def test_behind_a_shared_card_the_others_share_what_is_left():
    """Nodes of two behind one card: worker 0's slow link is its inner one and the card."""
    nodes = TwoLevel(2, Link(0.0, 1e9), Link(0.0, 1e6), nics_per_node=1).among(4)
    slowed = with_slow_links(nodes, [SlowLink(0, 10.0)])

    def takes_s(sender, receiver):
        programs = [[] for _ in range(4)]
        programs[sender], programs[receiver] = [Send(receiver, 1e6)], [Recv(sender)]
        return run_events(programs, slowed).makespan_s

    assert takes_s(0, 1) == pytest.approx(1e-2)  # inner links: 1e6 B at 1e8 B/s
    assert takes_s(0, 2) == takes_s(1, 2) == takes_s(3, 1) == pytest.approx(10.0)
    assert takes_s(2, 3) == pytest.approx(1e-3)


def test_nodes_stay_nodes():
    nodes = TwoLevel(2, Link(1e-6, 1e9), LINK)
    slowed = with_slow_links(nodes.among(4), [SlowLink(0, 10.0)])
    plain_s, slowed_s = (step_ends(over, algorithm="hierarchical") for over in (nodes, slowed))
    assert np.all(plain_s < slowed_s)
    np.testing.assert_allclose(step_ends(slowed, algorithm="hierarchical", evaluator="events"), slowed_s, rtol=1e-9)


@given(st.integers(0, 3), st.floats(1.0, 50.0), st.floats(1.0, 50.0))
def test_a_slower_link_is_never_faster(worker, factor, more):
    ends = [step_ends(with_slow_links(topology(LINK, 4), [SlowLink(worker, f, f)])) for f in (1, factor, factor * more)]
    assert np.all(ends[0] <= ends[1] * (1 + 1e-12)) and np.all(ends[1] <= ends[2] * (1 + 1e-12))


def test_no_slow_links_is_the_same_topology():
    star = topology(LINK, 4)
    assert with_slow_links(star, []) is star


def test_a_delay_that_is_always_the_same_is_latency():
    later = Link(LINK.latency_s + 0.5, LINK.bandwidth_bytes_per_s, overhead_s=LINK.overhead_s)
    timed = clock(CALLS, 0.01, LINK, 4, 3, delay=lambda sender, receiver: 0.5)
    np.testing.assert_allclose(timed.step_end_s, step_ends(later), rtol=1e-12)
    assert timed.evaluator == "events"


@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
def test_jitter_of_nothing_is_no_jitter(rule):
    delay = LatencyJitter().delay(topology(LINK, 4), generator(0, "latency jitter"))
    np.testing.assert_allclose(step_ends(LINK, delay=delay, rule=rule), step_ends(LINK, rule=rule), rtol=1e-12)


def test_the_latency_has_the_mean_and_the_spread_that_are_asked_for():
    draws = 50_000
    delay = LatencyJitter(0.5, 2e-3).delay(topology(LINK, 4), generator(0, "latency jitter"))
    latency = LINK.latency_s + np.array([delay(0, 1) for _ in range(draws)])
    variance = (LINK.latency_s**2) * np.expm1(0.5**2) + 2e-3**2
    assert latency.min() >= 0
    assert abs(latency.mean() - (LINK.latency_s + 2e-3)) < 5 * np.sqrt(variance / draws)
    assert latency.std() == pytest.approx(np.sqrt(variance), rel=0.05)


def test_the_seed_decides_and_jitter_with_mean_one_costs_time():
    """A collective waits for the latest of its messages."""

    def mean_s(seed, sigma):
        delay = LatencyJitter(sigma).delay(topology(LINK, 4), generator(seed, "latency jitter"))
        calls = [Call(step, "all_reduce", 10_000.0) for step in range(40)]
        return clock(calls, 0.01, LINK, 4, 40, delay=delay).step_time_s

    assert mean_s(0, 0.5) == mean_s(0, 0.5) != mean_s(1, 0.5)
    assert mean_s(0, 0.0) < mean_s(0, 0.5) < mean_s(0, 1.5)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: SlowLink(-1), "slow_link.worker: got -1"),
        (lambda: SlowLink(0, 0.0), "slow_link.bandwidth_divisor: got 0.0"),
        (lambda: SlowLink(0, 1.0, -1.0), "slow_link.latency_factor: got -1.0"),
        (lambda: with_slow_links(topology(LINK, 4), [SlowLink(4)]), "a worker from 0 to 3"),
        (lambda: LatencyJitter(-1.0), "latency_jitter.sigma: got -1.0"),
        (lambda: LatencyJitter(0.0, float("inf")), "latency_jitter.mean_delay_s: got inf"),
        (lambda: step_ends(LINK, delay=lambda s, r: 0.0, evaluator="lockstep"), "clock.evaluator: got 'lockstep'"),
    ],
)
def test_what_cannot_be(make, line):
    with pytest.raises(SpecError, match=line):
        make()
