"""Places of workers, in the order of a ring, and the worker with the best lines; what collectives by places need."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Floats, Ints, narrowest
from syncline.costmodel.network.ring_order import ring_order
from syncline.costmodel.network.topology import MemberTopology, Network, Topology, topology
from syncline.costmodel.numerics.bounded_cache import is_hashed_by_value


class Places(NamedTuple):
    """The workers of each place, and the worker that serves all others best.

    Attributes:
        ranks: ranks of the workers of each place; the places follow the order of `ring_order`.
        server: rank of the worker whose narrowest line, to and from all others, is widest; then of the shortest delay.
    """

    ranks: tuple[tuple[int, ...], ...]
    server: int

    @property
    def order(self) -> tuple[int, ...]:
        """Return all ranks in the order of the ring: place after place."""
        return tuple(rank for place in self.ranks for rank in place)

    @property
    def owners(self) -> tuple[int, ...]:
        """Return the first worker of each place, in the order of the ranks."""
        return tuple(sorted(place[0] for place in self.ranks))


def place_of(on: Network | Topology | Any, workers: int) -> Ints | None:
    """Return the number of the place of each of P workers, or None if the network has none.

    The workers of a `Matrix` are in its places; every host of a `Graph` is a place of its own.
    """
    if isinstance(on, MemberTopology):
        numbers = place_of(on.whole, on.whole.workers)
        return None if numbers is None else numbers[on.members]
    network = getattr(on, "network", getattr(on, "whole", on))
    if isinstance(network, Matrix):
        return np.array(network.ranks[:workers])
    if isinstance(network, Graph):
        return np.arange(workers)
    return None if network is on else place_of(network, workers)


def places_on(on: Network | Topology, workers: int) -> Places:
    """Return the places of P workers; without places each worker is one, in the order of the ranks.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    joined = topology(on, workers)
    return _cached(joined) if is_hashed_by_value(joined) else _places(joined)


def places_in_order(workers: int) -> Places:
    """Return a place for each worker, in the order of the ranks."""
    return Places(tuple((rank,) for rank in range(workers)), 0)


SHOWN = 8
"""Number of places that a description names."""


def ring_text(network: Network, workers: int) -> str:
    """Return the names of the places in the order of the ring; empty on a network without places, or with one."""
    numbers = place_of(network, workers)
    ranks = [] if numbers is None else [place[0] for place in places_on(network, workers).ranks]
    if numbers is None or len(ranks) < 2:
        return ""
    places = network.places if isinstance(network, Matrix) else getattr(network, "hosts", ())
    names = [str(places[numbers[rank]]) for rank in ranks[:SHOWN]]
    return ", ".join(names) + (f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else "")


def _places(joined: Topology) -> Places:
    numbers = place_of(joined, joined.workers)
    if numbers is None or joined.workers < 2:
        return places_in_order(joined.workers)
    first = np.unique(numbers, return_index=True)[1]
    first = np.sort(first)  # a place counts from its first worker
    rate, delay = _lines(joined, first)
    ranks = [np.flatnonzero(numbers == numbers[rank]).tolist() for rank in first]
    in_order = tuple(tuple(ranks[place]) for place in ring_order(rate, delay).tolist())
    return Places(in_order, int(first[_best_server(rate, delay)]))


_cached: Callable[[Topology], Places] = lru_cache(maxsize=64)(_places)  # type: ignore[assignment]


def _lines(joined: Topology, ranks: Ints) -> tuple[Floats, Floats]:
    """Return the bytes per second and the delay of one message from each of these workers to each, ``(S, S)``."""
    count = len(ranks)
    senders, receivers = np.nonzero(~np.eye(count, dtype=bool))
    rate, delay = np.zeros((count, count)), np.zeros((count, count))
    if count > 1:
        paths = joined.paths(ranks[senders], ranks[receivers])
        rate[senders, receivers] = narrowest(paths, np.append(joined.bandwidth_bytes_per_s, np.inf))
        delay[senders, receivers] = paths.latency_s + paths.overhead_s
    return rate, delay


def _best_server(rate: Floats, delay: Floats) -> int:
    """Return the place with the widest narrowest line to and from the others, then the shortest longest delay."""
    diagonal = np.eye(len(rate), dtype=bool)
    widest = np.where(diagonal, np.inf, np.minimum(rate, rate.T)).min(axis=1)
    return int(np.lexsort((np.maximum(delay, delay.T).max(axis=1), -widest))[0])
