"""Any network: hosts and switches, the links between them, and the routes of messages."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.network_links import CostsOfLinks, NetworkTopology
from syncline.costmodel.network.paths import Floats, Ints, Paths
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class Edge:
    """A link between two named nodes of a network graph.

    Args:
        source: name of a node. It sends at the link's upload bandwidth, if the link has one.
        target: name of a node.
        link: link of the edge, with the one-way latency of this edge only.
        directed: whether messages pass the edge only from source to target.
    """

    source: str
    target: str
    link: Link
    directed: bool = False


@dataclass(frozen=True)
class Graph(CostsOfLinks):
    """Hosts and switches. A message passes the links of its route, and pays the sum of their latencies.

    The overhead of a message is that of the sender's link, the first. The route is the one in ``routes``, else the
    route of least latency; of several, that of fewest links, then the first by the names of its nodes. Nodes forward at
    once (cut-through) and are never the bottleneck. A route not in ``routes`` passes only hosts of ``forwards``.

    Args:
        hosts: nodes of the workers, in the order of the ranks.
        edges: edges, at most one from a node to another.
        routes: routes as the names of their nodes, from a host to a host; each for its direction only.
        forwards: hosts that forward the messages of others, as switches do.
        name: display name.
    """

    hosts: tuple[str, ...]
    edges: tuple[Edge, ...]
    routes: tuple[tuple[str, ...], ...] = ()
    forwards: tuple[str, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        """Raise ``SpecError`` for hosts and routes that the edges do not have, and for hosts that appear twice."""
        if not self.hosts:
            raise SpecError("network.hosts", [], "at least one host")
        if not self.edges and len(self.hosts) > 1:  # a lone host needs no edge
            raise SpecError("network.edges", [], "edges between the hosts")
        joined_nodes = self._joined_nodes()
        nodes = {node for pair in joined_nodes for node in pair}
        for i, host in enumerate(self.hosts):
            if host in self.hosts[:i]:
                raise SpecError(f"network.hosts.{i}", host, "a host that is not in the graph yet")
            if host not in nodes and len(self.hosts) > 1:
                raise SpecError(f"network.hosts.{i}", host, f"the end of an edge: {one_of(nodes, host)}")
        for i, host in enumerate(self.forwards):
            if host not in self.hosts:
                raise SpecError(f"network.forwards.{i}", host, one_of(self.hosts, host))
        for i, route in enumerate(self.routes):
            if len(route) < 2 or not {route[0], route[-1]} <= set(self.hosts):
                raise SpecError(f"network.routes.{i}", list(route), "nodes from a host to another one")
            for source, target in itertools.pairwise(route):
                if (source, target) not in joined_nodes:
                    raise SpecError(f"network.routes.{i}", list(route), f"an edge from {source!r} to {target!r}")

    def _joined_nodes(self) -> set[tuple[str, str]]:
        """Return the pairs (from, to) of nodes that an edge joins; raise ``SpecError`` for two edges between nodes."""
        joined: set[tuple[str, str]] = set()
        for i, edge in enumerate(self.edges):
            ends = edge.source, edge.target
            directions = {ends} if edge.directed else {ends, ends[::-1]}
            if edge.source == edge.target:
                raise SpecError(f"network.edges.{i}", edge.source, "an edge between two different nodes")
            if joined & directions:
                raise SpecError(f"network.edges.{i}", f"{edge.source} to {edge.target}", "one edge between two nodes")
            joined |= directions
        return joined

    def among(self, workers: int) -> Routed:
        """Return the topology of the first ``workers`` hosts; raise ``SpecError`` for hosts that no route connects."""
        if workers > len(self.hosts):
            raise SpecError("workers", workers, f"at most {len(self.hosts)}, the hosts of the network")
        routed = Routed(self, workers)
        hosts = self.hosts[:workers]
        unreachable_by_start: dict[str, list[str]] = {}  # unreachable hosts by `Routed.start_of`
        for source in hosts:
            start = routed.start_of(source)
            if start not in unreachable_by_start:
                reachable = routed.reachable_nodes(start)
                unreachable_by_start[start] = [host for host in hosts if host not in reachable]
            for target in unreachable_by_start[start]:
                if not routed.has_route(source, target):
                    expected = "a path between these hosts that passes only through hosts of 'forwards'"
                    raise SpecError("network.edges", f"{source!r} to {target!r}", expected)
        return routed

    @cached_property
    def ends(self) -> frozenset[str]:
        """Return the hosts that forward no messages of others; routes end there."""
        return frozenset(self.hosts) - frozenset(self.forwards)

    def describe(self) -> str:
        """Return a short text for tables: the numbers of hosts, switches and links."""
        switches = {node for edge in self.edges for node in (edge.source, edge.target)} - set(self.hosts)
        return f"{len(self.hosts)} hosts, {len(switches)} switches, {len(self.edges)} links"


class _Step(NamedTuple):
    """A step of a route through a network graph, from a node to the next.

    Attributes:
        channel: number of the channel that the step passes.
        femtoseconds: the link's latency as a whole number, so that sums are exact: routes of equal latency are equal.
    """

    channel: int
    link: Link
    femtoseconds: int


@dataclass(frozen=True, eq=False)
class Routed(NetworkTopology):
    """The topology of the first hosts of a graph, in which each message follows a route of edges.

    A full-duplex edge has two channels, there and back; others have one. The channels follow the order of the edges.

    Args:
        workers: number of workers; they are the first hosts.
    """

    network: Graph
    workers: int
    bandwidth_bytes_per_s: Floats = field(init=False, repr=False)
    _steps: dict[str, dict[str, _Step]] = field(init=False, repr=False)
    _predecessors: dict[str, dict[str, str]] = field(init=False, repr=False, default_factory=dict)
    _routes: dict[tuple[str, str], list[_Step]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Give numbers to the channels of the edges, and find the steps between neighbouring nodes."""
        steps: dict[str, dict[str, _Step]] = {}  # by source and target
        rates: list[Any] = []  # by channel
        for edge in self.network.edges:
            is_half_duplex = edge.link.duplex == "half"
            femtoseconds = round(float(edge.link.latency_s) * 1e15)
            channel = len(rates)
            steps.setdefault(edge.source, {})[edge.target] = _Step(channel, edge.link, femtoseconds)
            rates.append(edge.link.up_bytes_per_s)
            if not edge.directed:
                channel_back = channel if is_half_duplex else channel + 1
                steps.setdefault(edge.target, {})[edge.source] = _Step(channel_back, edge.link, femtoseconds)
                if not is_half_duplex:
                    rates.append(edge.link.down_bytes_per_s)
        # The class is frozen, so that attributes cannot be assigned.
        object.__setattr__(self, "_steps", steps)
        object.__setattr__(self, "bandwidth_bytes_per_s", np.array(rates, dtype=np.float64))
        for route in self.network.routes:  # other routes are found when they are needed
            source, *_, target = route
            self._routes[source, target] = self._steps_along(route)

    def channel_names(self) -> list[str]:
        """Return the names of the two ends of each channel's edge."""
        names: list[str] = []
        for edge in self.network.edges:
            names.append(f"{edge.source}-{edge.target}")
            if not edge.directed and edge.link.duplex == "full":
                names.append(f"{edge.target}-{edge.source}")
        return names

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the channels, latency and overhead of each message's route."""
        # Each pair of a sender and a receiver has one number, so that its route is looked up once.
        pairs, pair_index = np.unique(np.asarray(senders) * self.workers + receivers, return_inverse=True)
        routes = [self._route(*divmod(pair, self.workers)) for pair in pairs.tolist()]
        channels = np.full((len(routes), max(map(len, routes), default=0)), -1, dtype=np.int64)
        latency_s, overhead_s = np.zeros(len(routes)), np.zeros(len(routes))
        for index, route in enumerate(routes):
            channels[index, : len(route)] = [step.channel for step in route]
            latency_s[index] = sum(float(step.link.latency_s) for step in route)
            overhead_s[index] = float(route[0].link.overhead_s)  # switches forward without overhead
        return Paths(channels[pair_index], latency_s[pair_index], overhead_s[pair_index])

    def _route(self, sender: int, receiver: int) -> list[_Step]:
        """Return the steps of a message's route from a worker to another, from the cache if possible."""
        source, target = self.network.hosts[sender], self.network.hosts[receiver]
        if (source, target) not in self._routes:
            start = self.start_of(source)
            if start not in self._predecessors:
                self._predecessors[start] = _least_latency_predecessors(start, self._steps, self.network.ends)
            nodes = [target]  # from the end to the start
            while nodes[-1] != start:
                nodes.append(self._predecessors[start][nodes[-1]])
            if start != source:
                nodes.append(source)
            self._routes[source, target] = self._steps_along(nodes[::-1])
        return self._routes[source, target]

    def has_route(self, source: str, target: str) -> bool:
        """Return whether a route from a host to another is known; routes of `Graph.routes` always are."""
        return (source, target) in self._routes or source == target

    def start_of(self, source: str) -> str:
        """Return the node from which the routes of a host are searched: the switch at its single link, else the host.

        So the hosts of a switch share a search.
        """
        neighbours = list(self._steps.get(source, ()))
        has_switch = len(neighbours) == 1 and neighbours[0] not in self.network.ends
        return neighbours[0] if has_switch else source

    def _steps_along(self, nodes: Sequence[str]) -> list[_Step]:
        """Return the steps of a route (link and direction), given the names of the nodes along the route."""
        return [self._steps[source][target] for source, target in itertools.pairwise(nodes)]

    def reachable_nodes(self, start: str) -> set[str]:
        """Return the nodes that messages from a node reach; the nodes of `Graph.ends` do not forward messages."""
        reachable, unvisited = {start}, [start]
        while unvisited:
            for neighbour in self._steps.get(unvisited.pop(), {}):
                if neighbour not in reachable:
                    reachable.add(neighbour)
                    if neighbour not in self.network.ends:
                        unvisited.append(neighbour)
        return reachable


def _least_latency_predecessors(
    source: str, steps: Mapping[str, Mapping[str, _Step]], ends: Container[str]
) -> dict[str, str]:
    """Return the predecessor of each node on the route of least latency from the source (Dijkstra's algorithm).

    Routes end at the nodes of ``ends``, which do not forward.
    """
    best: dict[str, tuple[int, int, str]] = {source: (0, 0, "")}  # by node: femtoseconds, links, predecessor
    heap, finished = [(0, 0, source)], set()
    while heap:
        latency, hops, node = heapq.heappop(heap)
        if node in finished:  # an entry of a longer route that was found before
            continue
        finished.add(node)
        if node != source and node in ends:
            continue
        for target, step in steps.get(node, {}).items():
            target_latency, target_hops = latency + step.femtoseconds, hops + 1
            candidate = (target_latency, target_hops, node)  # the first name breaks ties
            if target not in finished and (target not in best or candidate < best[target]):
                best[target] = candidate
                heapq.heappush(heap, (target_latency, target_hops, target))
    return {node: predecessor for node, (_, _, predecessor) in best.items()}
