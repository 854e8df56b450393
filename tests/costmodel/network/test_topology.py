from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Graph, Link, Sites, TwoLevel, topology
from syncline.costmodel.network.paths import Network
from syncline.errors import SpecError
from tests.costmodel.network.topologies import all_paths, assert_same, channels

INNER, OUTER = Link(1e-6, 450e9, overhead_s=3e-7), Link(2e-6, 50e9, overhead_s=5e-7, efficiency=0.9)
LAN, UPLINK = Link(50e-6, 1.25e9, overhead_s=1e-6), Link(12.5e-3, 125e6)
PAIR = (np.array([0]), np.array([1]))

links = st.builds(
    Link,
    st.floats(0, 0.1),
    st.floats(1e3, 1e12),
    overhead_s=st.floats(0, 1e-3),
    efficiency=st.floats(0.1, 1),
    upload_bytes_per_s=st.floats(1e3, 1e12),
)


def test_a_star_has_a_channel_up_and_one_down_per_worker() -> None:
    star = Link(0.25, 100.0, upload_bytes_per_s=20.0, overhead_s=0.5, efficiency=0.5).among(3)
    np.testing.assert_array_equal(star.bandwidth_bytes_per_s, [10, 10, 10, 50, 50, 50])
    assert [channels(star, *pair) for pair in [(0, 1), (1, 0), (2, 1)]] == [[0, 4], [1, 3], [2, 4]]
    ways = star.paths(*PAIR)
    assert (ways.latency_s[0], ways.overhead_s[0]) == (0.25, 0.5)


def test_links_of_two_latencies_give_half_of_each() -> None:
    mixed = topology([Link(0.2, 1.0, overhead_s=1.0), Link(0.4, 1.0, overhead_s=2.0)], 2)
    ways = all_paths(mixed)
    np.testing.assert_allclose(ways.latency_s, 0.3)
    np.testing.assert_array_equal(ways.overhead_s, [1, 2])  # the sender's


def test_half_duplex_links_have_one_channel() -> None:
    half = Link(0.0, 1.0, duplex="half")
    star = half.among(2)
    assert channels(star, 0, 1) == channels(star, 1, 0)[::-1] == [0, 1]
    nodes = TwoLevel(2, half, half).among(4)
    assert channels(nodes, 0, 1) == [0, 1]
    assert channels(nodes, 1, 2) == channels(nodes, 2, 1)[::-1]
    sites = Sites(2, half, half).among(4)
    assert channels(sites, 1, 2) == channels(sites, 2, 1)[::-1]


def test_workers_of_a_node_use_their_own_cards() -> None:
    nodes = TwoLevel(8, INNER, OUTER, nics_per_node=2).among(24)
    first = 2 * 24  # after the inner links up and down; 6 cards up, then 6 down
    assert channels(nodes, 0, 7) == [0, 24 + 7]
    assert [channels(nodes, local, 8)[0] for local in range(8)] == [first + card for card in (0, 0, 0, 0, 1, 1, 1, 1)]
    assert channels(nodes, 3, 20) == [first, first + 6 + 5]
    inside, between = nodes.paths(np.array([0, 0]), np.array([1, 8])), nodes.bandwidth_bytes_per_s
    np.testing.assert_array_equal(inside.latency_s, [1e-6, 2e-6])
    np.testing.assert_array_equal(inside.overhead_s, [3e-7, 5e-7])
    np.testing.assert_allclose(between, [450e9] * 48 + [45e9] * 12)


def test_cards_that_do_not_divide_a_node_take_nearly_equally_many() -> None:
    nodes = TwoLevel(8, INNER, OUTER, nics_per_node=3).among(16)
    workers = np.arange(16)
    cards = nodes.paths(workers, (workers + 8) % 16).channels[:, 0] - 2 * 16  # after the inner links up and down
    np.testing.assert_array_equal(cards, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5])


def test_a_message_across_passes_both_uplinks() -> None:
    sites = Sites(2, LAN, (UPLINK, Link(1e-3, 2e6, upload_bytes_per_s=1e6, overhead_s=1e-4))).among(4)
    np.testing.assert_array_equal(sites.bandwidth_bytes_per_s, [1.25e9] * 8 + [125e6, 1e6, 125e6, 2e6])
    assert channels(sites, 0, 1) == [0, 5]
    assert channels(sites, 1, 2) == [1, 8, 11, 6]
    assert channels(sites, 3, 0) == [3, 9, 10, 4]
    ways = sites.paths(np.array([0, 1, 2]), np.array([1, 2, 1]))
    np.testing.assert_allclose(ways.latency_s, [50e-6, 13.55e-3, 13.55e-3])
    np.testing.assert_allclose(ways.overhead_s, [1e-6, 1e-6, 1.01e-4])  # and the sender's uplink's


def test_the_reference_s_two_sites_are_25_ms_apart() -> None:
    sites = Sites(2, LAN, UPLINK).among(8)
    assert sites.paths(np.array([0]), np.array([4])).latency_s[0] == pytest.approx(25e-3 + 50e-6, rel=1e-12)


def test_workers_left_over_go_to_the_first_sites() -> None:
    assert Sites(3, LAN, UPLINK).sizes(8) == (3, 3, 2)
    assert Sites((1, 5), LAN, UPLINK).sizes(6) == (1, 5)
    np.testing.assert_array_equal(Sites((1, 3), LAN, UPLINK).among(4).site_by_worker, [0, 1, 1, 1])


@pytest.mark.parametrize(("nics", "flows", "share"), [(8, 8, 1), (4, 8, 2), (3, 8, 3), (1, 8, 8), (1, 1, 1), (4, 1, 1)])
def test_what_crosses_at_once_shares_the_cards(nics: int, flows: int, share: int) -> None:
    across = TwoLevel(8, INNER, OUTER, nics).levels().link_across(1, 16, all_send=flows == 8)
    assert across.goodput_bytes_per_s == pytest.approx(OUTER.goodput_bytes_per_s / share)
    assert across.latency_s == OUTER.latency_s


def test_what_crosses_at_once_shares_the_uplinks() -> None:
    across = Sites(2, LAN, UPLINK).link_across(4)
    assert across.transfer_s(125e6) == pytest.approx(50e-6 + 25e-3 + 1e-6 + 4)
    both_ways = Sites(2, LAN, Link(12.5e-3, 125e6, duplex="half")).link_across(4)
    assert both_ways.transfer_s(125e6) == pytest.approx(50e-6 + 25e-3 + 1e-6 + 8)


@given(links, links, st.integers(1, 9), st.integers(1, 4), st.data())
def test_a_way_between_nodes_exists_and_is_no_faster_than_its_links(
    inner: Link, outer: Link, per_node: int, nodes: int, data: st.DataObject
) -> None:
    network = TwoLevel(per_node, inner, outer, data.draw(st.integers(1, per_node)))
    made = network.among(per_node * nodes)
    if made.workers == 1:
        return
    ways, senders = all_paths(made), np.repeat(np.arange(made.workers), made.workers - 1)
    assert ways.channels.min() >= 0
    rates = made.bandwidth_bytes_per_s[ways.channels].min(axis=1)
    within = ways.channels[:, 0] == senders
    np.testing.assert_allclose(rates, np.where(within, inner.goodput_bytes_per_s, outer.goodput_bytes_per_s))
    # as many senders on a card as the shares say
    users = np.unique(np.stack([senders, ways.channels[:, 0]], axis=1)[~within], axis=0)[:, 1]
    if len(users):
        busiest = np.unique(users, return_counts=True)[1].max()
        across = network.levels().link_across(1, made.workers)
        assert across.bandwidth_bytes_per_s == pytest.approx(outer.bandwidth_bytes_per_s / busiest)


@given(links, links, st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_a_way_between_sites_has_their_latencies_both_ways(lan: Link, uplink: Link, sizes: list[int]) -> None:
    made = Sites(tuple(sizes), lan, uplink).among(sum(sizes))
    site = np.repeat(np.arange(len(sizes)), sizes)
    senders, receivers = map(np.ravel, np.nonzero(~np.eye(made.workers, dtype=bool)))
    there, back = made.paths(senders, receivers), made.paths(receivers, senders)
    np.testing.assert_array_equal(there.latency_s, back.latency_s)
    across = site[senders] != site[receivers]
    np.testing.assert_allclose(there.latency_s, lan.latency_s + 2 * uplink.latency_s * across)
    assert np.all((there.channels >= 0).sum(axis=1) == np.where(across, 4, 2))


def test_one_worker_per_node_is_a_star_of_the_outer_link() -> None:
    assert_same(TwoLevel(1, INNER, OUTER).among(5), OUTER.among(5))


def test_one_node_is_a_star_of_the_inner_link() -> None:
    assert_same(TwoLevel(8, INNER, OUTER).among(5), INNER.among(5))


def test_one_site_is_a_star_of_the_local_link() -> None:
    assert_same(Sites(1, LAN, UPLINK).among(5), LAN.among(5))


def test_topologies_of_100_000_workers_are_quick() -> None:
    workers = np.arange(100_000)
    for network in (INNER, TwoLevel(8, INNER, OUTER), Sites(10, LAN, UPLINK)):
        ways = network.among(100_000).paths(workers, np.roll(workers, -1))
        assert len(ways.channels) == 100_000


REFUSED: list[tuple[Network, int, str]] = [
    (TwoLevel(8, INNER, OUTER), 12, "workers: got 12; expected a multiple of 8, the workers of a node"),
    (Sites(3, LAN, UPLINK), 2, "workers: got 2; expected at least one for each of the 3 sites"),
    (Sites((4, 4), LAN, UPLINK), 7, "workers: got 7; expected 8, the workers of all sites"),
    (Graph(("a",), ()), 2, "workers: got 2; expected at most 1, the hosts of the network"),
]


@pytest.mark.parametrize(("network", "workers", "complaint"), REFUSED)
def test_workers_that_a_network_cannot_join_are_refused(network: Network, workers: int, complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        network.among(workers)
    assert str(caught.value) == complaint


def test_a_topology_is_for_its_own_number_of_workers() -> None:
    with pytest.raises(SpecError, match="workers: got 4; expected 3, as the topology has"):
        topology(INNER.among(3), 4)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: TwoLevel(0, INNER, OUTER), r"network\.per_node: got 0; expected a number of workers, at least 1"),
        (lambda: TwoLevel(4, INNER, OUTER, 5), r"network\.nics: got 5; .* from 1 to per_node \(4\)"),
        (lambda: TwoLevel(4, INNER, OUTER, 0), r"network\.nics: got 0"),
        (lambda: Sites(0, LAN, UPLINK), r"network\.sites: got 0; expected a number of sites"),
        (lambda: Sites((), LAN, UPLINK), r"network\.sites: got \(\)"),
        (lambda: Sites((2, 0), LAN, UPLINK), r"network\.sites: got \(2, 0\)"),
        (lambda: Sites(2, LAN, (UPLINK,) * 3), r"network\.uplink: got 3; expected one link, or one for each of the 2"),
    ],
)
def test_what_is_no_network_is_refused(make: object, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        make()  # type: ignore[operator]
