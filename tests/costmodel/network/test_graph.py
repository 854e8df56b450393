from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Edge, Graph, Link, Sites
from syncline.costmodel.collectives.algorithms import Round
from syncline.errors import SpecError
from syncline.sim.clocks.single_collective import rounds_finish_s
from syncline.specs import from_networkx
from syncline.specs.cluster.networks import network, network_fields
from tests.costmodel.network.topologies import all_paths, assert_same, channels

FAST, SLOW = Link(1e-6, 1e9), Link(5e-6, 1e8)


def star_graph(link: Link, workers: int) -> Graph:
    """A star, where half of a worker's latency is its own link's."""
    half = Link(
        link.latency_s / 2,
        link.bandwidth_bytes_per_s,
        overhead_s=link.overhead_s,
        efficiency=link.efficiency,
        upload_bytes_per_s=link.upload_bytes_per_s,
        duplex=link.duplex,
    )
    hosts = tuple(f"h{i}" for i in range(workers))
    return Graph(hosts, tuple(Edge(host, "switch", half) for host in hosts))


@pytest.mark.parametrize(
    "link",
    [
        Link(50e-6, 1.25e9, overhead_s=3e-6, efficiency=0.94),
        Link(15e-3, 12.5e6, upload_bytes_per_s=2.5e6),
        Link(1e-3, 1e6, duplex="half"),
    ],
)
def test_a_star_as_a_graph_is_a_star(link: Link) -> None:
    assert_same(star_graph(link, 5).among(5), link.among(5))


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_two_sites_as_a_graph_are_two_sites(duplex: str) -> None:
    lan, uplink = Link(50e-6, 1.25e9, overhead_s=1e-6), Link(12.5e-3, 125e6, duplex=duplex)  # type: ignore[arg-type]
    half = Link(25e-6, 1.25e9, overhead_s=1e-6)
    hosts = tuple("abcdefg")
    edges = [Edge(host, "east" if host in "abcd" else "west", half) for host in hosts]
    edges += [Edge(switch, "core", uplink) for switch in ("east", "west")]
    assert_same(Graph(hosts, tuple(edges)).among(7), Sites(2, lan, uplink).among(7))


def fat_tree(spines: int) -> Graph:
    """Two leaves of four hosts; each leaf has a link of a host's bandwidth to each spine."""
    hosts = tuple(f"h{i}" for i in range(8))
    edges = [Edge(host, f"leaf{i // 4}", FAST) for i, host in enumerate(hosts)]
    edges += [Edge(f"leaf{leaf}", f"spine{spine}", FAST) for leaf in range(2) for spine in range(spines)]
    # what adaptive routing would do: host i crosses by spine i mod S
    routes = [
        (hosts[a], f"leaf{a // 4}", f"spine{a % spines}", f"leaf{b // 4}", hosts[b])
        for a, b in itertools.permutations(range(8), 2)
        if a // 4 != b // 4
    ]
    return Graph(hosts, tuple(edges), tuple(routes))


@pytest.mark.parametrize(("spines", "sharing"), [(4, 1), (2, 2), (1, 4)])
def test_an_oversubscribed_fat_tree_shares_its_spines(spines: int, sharing: int) -> None:
    tree = fat_tree(spines).among(8)
    ways = tree.paths(np.arange(4), np.arange(4, 8))
    assert ways.channels.shape == (4, 4)
    np.testing.assert_allclose(ways.latency_s, 4e-6)
    used = np.unique(ways.channels, return_counts=True)[1]
    assert used.max() == sharing
    assert channels(tree, 0, 1) == channels(tree, 0, 3)[:1] + channels(tree, 2, 1)[1:]  # inside a leaf: no spine


def test_without_routes_the_way_has_the_least_latency_then_the_fewest_links_then_the_first_names() -> None:
    def middle(*edges: tuple[str, str, float]) -> int:
        graph = Graph(("a", "z"), tuple(Edge(s, t, Link(latency, 1.0)) for s, t, latency in edges))
        return channels(graph.among(2), 0, 1)[0] // 2  # the first edge of the way

    assert middle(("a", "z", 3.0), ("a", "m", 1.0), ("m", "z", 1.0)) == 1
    assert middle(("a", "m", 1.0), ("m", "z", 1.0), ("a", "z", 2.0)) == 2
    assert middle(("a", "n", 1.0), ("n", "z", 1.0), ("a", "m", 1.0), ("m", "z", 1.0)) == 2
    # .1 + .2 + .3 is not .3 + .2 + .1 in floats, but as long
    assert (
        middle(("a", "n", 0.1), ("n", "o", 0.2), ("o", "z", 0.3), ("a", "l", 0.3), ("l", "m", 0.2), ("m", "z", 0.1))
        == 3
    )


@given(st.integers(2, 7), st.data())
def test_the_ways_are_networkx_s_shortest(nodes: int, data: st.DataObject) -> None:
    graph = nx.DiGraph()
    for a, b in itertools.permutations(range(nodes), 2):
        if b == (a + 1) % nodes or data.draw(st.booleans()):
            graph.add_edge(f"n{a}", f"n{b}", latency=data.draw(st.integers(0, 50)) * 1e-3, bandwidth=1e6)
    names = [f"n{i}" for i in range(nodes)]
    ways = all_paths(from_networkx(graph, hosts=names, forwards=names).among(nodes))
    least = [nx.dijkstra_path_length(graph, a, b, weight="latency") for a, b in itertools.permutations(names, 2)]
    np.testing.assert_allclose(ways.latency_s, least, atol=1e-12)


def test_a_networkx_graph_has_its_fields_in_text_or_numbers() -> None:
    graph = nx.Graph(name="lab")
    graph.add_node("b", host=True)
    graph.add_node("a", host=True)
    graph.add_node("s")
    graph.add_edge("a", "s", latency="25 us", bandwidth="10 Gbit/s", duplex="half")
    graph.add_edge("b", "s", latency=25e-6, bandwidth=1.25e9, overhead="1 us", efficiency=0.5)
    made = from_networkx(graph)
    assert (made.name, made.hosts, made.describe()) == ("lab", ("b", "a"), "2 hosts, 1 switches, 2 links")
    ways = made.among(2).paths(np.array([0, 1]), np.array([1, 0]))
    np.testing.assert_allclose(ways.latency_s, 50e-6)
    np.testing.assert_allclose(ways.overhead_s, [1e-6, 0])
    graph.edges["a", "s"]["tcp"] = {"window": "32 KiB"}  # it limits the rate; slow start is of networks of one link
    (link,) = (edge.link for edge in from_networkx(graph).edges if "a" in (edge.source, edge.target))
    assert link.tcp is None and link.bandwidth_bytes_per_s == 2**15 / 50e-6
    with pytest.raises(SpecError, match=r"network\.edges\.a-s\.bandwidth"):
        graph.edges["a", "s"]["bandwidth"] = "fast"
        from_networkx(graph)
    with pytest.raises(SpecError, match="at most one edge between two nodes"):
        from_networkx(nx.MultiGraph())


def test_a_directed_edge_leads_one_way() -> None:
    ring = Graph(
        ("a", "b", "c"), tuple(Edge(s, t, FAST, directed=True) for s, t in ("ab", "bc", "ca")), forwards=tuple("abc")
    )
    made = ring.among(3)
    assert len(made.bandwidth_bytes_per_s) == 3
    assert (channels(made, 0, 1), channels(made, 1, 0)) == ([0], [1, 2])


def test_hosts_of_one_link_or_several_find_each_other() -> None:
    # a hangs on b alone, which is a host and a switch; c reaches b by d, or directly but slower
    graph = Graph(
        tuple("abcd"),
        (Edge("a", "b", FAST), Edge("b", "d", FAST), Edge("d", "c", FAST), Edge("c", "b", SLOW)),
        forwards=tuple("bd"),
    )
    ways = all_paths(graph.among(4)).latency_s * 1e6
    np.testing.assert_allclose(ways, [1, 3, 2, 1, 2, 1, 3, 2, 1, 2, 1, 1])


def test_a_host_does_not_forward_unless_it_is_told_to() -> None:
    """A gigabyte takes the direct line of 1 Gbit/s, not the way of less latency through a host at .5 Gbit/s."""
    edges = (Edge("a", "b", Link(1e-3, 62.5e6)), Edge("b", "c", Link(1e-3, 62.5e6)), Edge("a", "c", Link(9e-3, 125e6)))
    for forwards, route, seconds in (((), [4], 8 + 9e-3), (("b",), [0, 2], 16 + 2e-3)):
        graph = Graph(tuple("abc"), edges, forwards=forwards)
        assert channels(graph.among(3), 0, 2) == route
        done_s = rounds_finish_s([Round(np.array([0]), np.array([2]), 1e9)], 3, graph)
        assert done_s[2] == pytest.approx(seconds)
    named = Graph(tuple("abc"), edges, (("a", "b", "c"),))
    assert channels(named.among(3), 0, 2) == [0, 2]


def test_two_hosts_that_only_a_host_joins_need_it_to_forward() -> None:
    line = (Edge("a", "b", FAST), Edge("b", "c", FAST))
    with pytest.raises(
        SpecError, match="\"'a' to 'c'\"; expected a path between these hosts that passes only through hosts of"
    ):
        Graph(tuple("abc"), line).among(3)
    assert Graph(tuple("abc"), line).among(2).workers == 2
    dual = (Edge("a", "s", FAST), Edge("b", "s", FAST), Edge("b", "t", FAST), Edge("c", "t", FAST))
    with pytest.raises(SpecError, match="'a' to 'c'"):
        Graph(tuple("bac"), dual).among(3)
    made = network(
        {
            "hosts": list("abc"),
            "edges": [{"from": s, "to": t, "latency": 1, "bandwidth": 1} for s, t in ("ab", "bc")],
            "forwards": True,
        }
    )
    assert made.forwards == tuple("abc") and network(network_fields(made)) == made


def test_the_first_hosts_are_the_workers() -> None:
    assert_same(star_graph(FAST, 5).among(3), FAST.among(3))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Graph((), ()), r"network\.hosts: got \[\]"),
        (lambda: Graph(("a", "a"), (Edge("a", "b", FAST),)), r"network\.hosts\.1: got 'a'"),
        (lambda: Graph(("a", "x"), (Edge("a", "b", FAST),)), r"network\.hosts\.1: got 'x'.*'a', 'b'"),
        (lambda: Graph(("a", "b"), (Edge("a", "a", FAST),)), r"network\.edges\.0: got 'a'"),
        (lambda: Graph(("a", "b"), (Edge("a", "b", FAST), Edge("b", "a", SLOW))), r"network\.edges\.1: got 'b to a'"),
        (lambda: Graph(("a", "b"), (Edge("a", "b", FAST),), (("a",),)), r"network\.routes\.0: got \['a'\]"),
        (lambda: Graph(("a", "b"), (Edge("a", "b", FAST, True),), (("b", "a"),)), "expected an edge from 'b' to 'a'"),
        (lambda: Graph(("a", "b"), (Edge("a", "b", FAST, True),)).among(2), "got \"'b' to 'a'\"; expected a path"),
    ],
)
def test_what_is_no_graph_is_refused(make: object, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        make()  # type: ignore[operator]
