"""Lines between places: who shares a rate, against closed forms and against graphs that are written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from syncline.costmodel import Edge, Graph, HivemindCosts, Link, Matrix, Sites
from syncline.costmodel.collectives.volumes import channel_links
from syncline.costmodel.network.link import among, topology
from syncline.costmodel.network.network_links import slow_down
from syncline.errors import SpecError
from syncline.sim import collective_finish_s

FAR, NEAR = Link(50e-3, 25e6), Link(0.5e-3, 500e6)


def places(per="connection", sizes=(2, 2), **fields):
    lines = tuple(tuple(NEAR if i == j else FAR for j in range(len(sizes))) for i in range(len(sizes)))
    names = tuple("abcdefgh"[: len(sizes)])
    ranks = tuple(place for place, count in enumerate(sizes) for _ in range(count))
    return Matrix(names, lines, ranks, per, **fields)


def rates(network, pairs):
    """Return the max-min shares of equal messages that flow at once between pairs, where one channel limits each."""
    made = network.among(network.workers)
    channels = made.paths(*np.array(pairs).T).channels
    load = np.bincount(channels[channels >= 0], minlength=len(made.bandwidth_bytes_per_s))
    share = np.append(made.bandwidth_bytes_per_s / np.maximum(load, 1), np.inf)
    return share[channels].min(axis=1)


ACROSS = [(0, 2), (0, 3), (1, 2), (1, 3)]
INSIDE = [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("per", "share"), [("connection", 25e6), ("pair", 6.25e6), ("host", 12.5e6), ("place", 6.25e6)]
)
def test_who_shares_a_rate(per, share):
    """Two workers of a place send to two of another: four connections, two hosts, one pair of places."""
    np.testing.assert_allclose(rates(places(per), ACROSS), share)
    np.testing.assert_allclose(rates(places(per), INSIDE), 500e6)


def test_destinations_of_one_class_share_the_rate_of_a_host_or_a_place():
    """`tc` has a class for each delay and rate on a host: two far places share it, a third does not."""
    other = replace(FAR, latency_s=60e-3)
    lines = ((NEAR, FAR, FAR, other), (FAR, NEAR, FAR, FAR), (FAR, FAR, NEAR, FAR), (other, FAR, FAR, NEAR))
    for per in ("host", "place"):
        network = Matrix(tuple("abcd"), lines, (0, 1, 2, 3), per)
        np.testing.assert_allclose(rates(network, [(0, 1), (0, 2), (0, 3)]), [12.5e6, 12.5e6, 25e6])
    pair = Matrix(tuple("abcd"), lines, (0, 1, 2, 3), "pair")
    np.testing.assert_allclose(rates(pair, [(0, 1), (0, 2), (0, 3)]), 25e6)


@pytest.mark.parametrize("per", ["connection", "pair", "host", "place"])
def test_cards_and_uplinks_limit_what_is_sent_and_received(per):
    card = Link(0.0, 20e6, upload_bytes_per_s=10e6)
    np.testing.assert_allclose(
        rates(places(per, card=card), [(0, 2), (1, 3)]), min(10e6, 25e6 / (1 + (per in ("pair", "place"))))
    )
    np.testing.assert_allclose(rates(places(per, card=card), [(0, 2), (1, 2)]), 10e6)  # 20 MB/s down, 10 up each
    uplinks = (Link(1e-3, 8e6), Link(2e-3, 6e6))
    network = places(per, uplinks=uplinks)
    np.testing.assert_allclose(rates(network, ACROSS), 6e6 / 4)
    np.testing.assert_allclose(rates(network, [(2, 0)]), 6e6)
    np.testing.assert_allclose(rates(network, INSIDE), 500e6)
    paths = network.among(4).paths(np.array([0, 0]), np.array([2, 1]))
    np.testing.assert_allclose(paths.latency_s, [53e-3, 0.5e-3])
    half = places(per, card=Link(1e-3, 20e6, duplex="half"))
    np.testing.assert_allclose(rates(half, INSIDE), 10e6)
    np.testing.assert_allclose(half.among(4).paths(np.array([0]), np.array([2])).latency_s, 52e-3)


@pytest.mark.parametrize("algorithm", ["ring", "rabenseifner", "tree", "gloo-ring"])
def test_as_a_graph_of_routes_written_by_hand(algorithm):
    """A line per pair of places and a card per worker are a graph of switches, with a route for every two workers."""
    network = places("pair", sizes=(3, 2, 1), card=Link(0.0, 40e6))
    of, names = network.ranks, network.places
    edges = [Edge(f"{rank}", f"{rank}'", Link(0.0, 40e6)) for rank in range(6)]
    edges += [Edge(f"{rank}'", f"in {names[place]}", replace(NEAR, latency_s=0.25e-3)) for rank, place in enumerate(of)]
    edges += [Edge(f"{rank}'", f"out {names[place]}", Link(0.0, 1e12)) for rank, place in enumerate(of)]
    edges += [Edge(f"out {a}", f"out {b}", FAR) for a, b in (("a", "b"), ("a", "c"), ("b", "c"))]
    routes = []
    for i, j in permutations(range(6), 2):
        a, b = names[of[i]], names[of[j]]
        between = [f"in {a}"] if a == b else [f"out {a}", f"out {b}"]
        routes.append((f"{i}", f"{i}'", *between, f"{j}'", f"{j}"))
    graph = Graph(tuple(map(str, range(6))), tuple(edges), tuple(routes))
    seconds = [collective_finish_s("all_reduce", 6, 1e7, made, algorithm) for made in (network, graph)]
    np.testing.assert_allclose(*seconds, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "gloo-ring"])
def test_equal_lines_per_pair_are_two_sites_with_an_uplink(algorithm):
    network = places("pair", sizes=(4, 4), card=Link(0.0, 500e6))
    sites = Sites(2, replace(NEAR, latency_s=0.0), replace(FAR, latency_s=25e-3))
    inside = replace(NEAR, latency_s=0.0)
    lines = tuple(tuple(inside if link is NEAR else link for link in row) for row in network.lines)
    still = Matrix(network.places, lines, network.ranks, "pair")
    seconds = [collective_finish_s("all_reduce", 8, 1e7, made, algorithm) for made in (still, sites)]
    np.testing.assert_allclose(*seconds, rtol=1e-9)


@pytest.mark.parametrize("per", ["connection", "pair", "host", "place"])
def test_names_groups_and_slower_lines(per):
    network = places(per, sizes=(2, 3), card=NEAR, uplinks=FAR, hivemind=HivemindCosts())
    made = topology(network, 5)
    assert len(channel_links(made)) == len(made.bandwidth_bytes_per_s)
    assert made == topology(network, 5) and hash(made) == hash(network.among(5)) and made != topology(network, 4)
    some = among(made, [4, 1])
    assert some.hivemind == HivemindCosts()
    np.testing.assert_array_equal(
        some.paths(np.array([0]), np.array([1])).channels, made.paths(np.array([4]), np.array([1])).channels
    )
    for algorithm in ("direct", "ring"):
        plain, slower = (
            float(collective_finish_s("all_reduce", 5, 1e8, each, algorithm).max())
            for each in (network, slow_down(network, 3.0))
        )
        assert slower == pytest.approx(3 * plain)


def test_ranks_lie_where_they_are_said_to():
    network = places("pair", sizes=(2, 2))
    mixed = replace(network, ranks=(0, 1, 0, 1))
    times = (float(collective_finish_s("all_reduce", 4, 1e6, made, "ring").max()) for made in (mixed, network))
    every_round_across_s, along_s = times
    assert every_round_across_s == pytest.approx(6 * (50e-3 + 0.25e6 / 12.5e6))
    assert along_s < every_round_across_s / 2
    assert mixed.sizes(3) == (2, 1)


def test_what_is_no_matrix_is_refused():
    network = places()
    for changes, message in (
        ({"places": ("a", "a")}, "different names"),
        ({"lines": ((NEAR, FAR),)}, "2 rows of 2"),
        ({"lines": ((NEAR, None), (FAR, NEAR))}, r"network.lines.a.b: got None"),
        ({"lines": ((None, FAR), (FAR, NEAR))}, r"network.lines.a.a: got None"),
        ({"lines": ((NEAR, replace(FAR, duplex="half")), (FAR, NEAR))}, "a line for each direction"),
        ({"per": "flow"}, "network.per: got 'flow'"),
        ({"ranks": (0, 2)}, "network.ranks"),
        ({"uplinks": (FAR,)}, "network.uplinks: got 1"),
        ({"uplinks": replace(FAR, duplex="half")}, "full-duplex uplinks"),
    ):
        with pytest.raises(SpecError, match=message):
            replace(network, **changes)
    with pytest.raises(SpecError, match="at most 4, the workers of all places"):
        network.among(5)
