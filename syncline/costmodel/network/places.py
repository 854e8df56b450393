"""Places of workers, in the order of a ring, and the worker with the best lines, for collectives by places."""

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
        server: rank of the worker with the widest narrowest line to and from the others, then with the shortest delay.
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


def place_of(network: Network | Topology | Any, workers: int) -> Ints | None:
    """Return the number of each worker's place, ``(P,)``, or None if the network has no places.

    The workers of a `Matrix` are in its places; every host of a `Graph` is a place of its own.
    """
    if isinstance(network, MemberTopology):
        numbers = place_of(network.whole, network.whole.workers)
        return None if numbers is None else numbers[network.members]
    if isinstance(network, Matrix):
        return np.array(network.ranks[:workers])
    if isinstance(network, Graph):
        return np.arange(workers)
    base = getattr(network, "network", getattr(network, "whole", None))
    return None if base is None else place_of(base, workers)


def places_on(network: Network | Topology, workers: int) -> Places:
    """Return the places of workers; without places each worker is a place, in the order of the ranks.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    worker_topology = topology(network, workers)
    return (_cached_places if is_hashed_by_value(worker_topology) else _places)(worker_topology)


def places_in_order(workers: int) -> Places:
    """Return a place for each worker, in the order of the ranks."""
    return Places(tuple((rank,) for rank in range(workers)), 0)


NAMED_PLACES = 8
"""Number of places that a description names."""


def ring_text(network: Network, workers: int) -> str:
    """Return the names of the places in the order of the ring; empty on a network with fewer than two places."""
    numbers = place_of(network, workers)
    first_ranks = [] if numbers is None else [place[0] for place in places_on(network, workers).ranks]
    if numbers is None or len(first_ranks) < 2:
        return ""
    places = network.places if isinstance(network, Matrix) else getattr(network, "hosts", ())
    text = ", ".join(str(places[numbers[rank]]) for rank in first_ranks[:NAMED_PLACES])
    return text + (f" and {len(first_ranks) - NAMED_PLACES} more" if len(first_ranks) > NAMED_PLACES else "")


def _places(network: Topology) -> Places:
    """Return the places of a topology's workers; the first worker of a place stands for the place's lines."""
    numbers = place_of(network, network.workers)
    if numbers is None or network.workers < 2:
        return places_in_order(network.workers)
    first_ranks = np.sort(np.unique(numbers, return_index=True)[1])
    rate, delay_s = _lines(network, first_ranks)
    ranks = [np.flatnonzero(numbers == numbers[rank]).tolist() for rank in first_ranks]
    in_order = tuple(tuple(ranks[place]) for place in ring_order(rate, delay_s).tolist())
    return Places(in_order, int(first_ranks[_best_server(rate, delay_s)]))


_cached_places: Callable[[Topology], Places] = lru_cache(maxsize=64)(_places)  # type: ignore[assignment]


def _lines(network: Topology, ranks: Ints) -> tuple[Floats, Floats]:
    """Return the bytes per second and the delay of a message from each of S workers to each, ``(S, S)``."""
    count = len(ranks)
    senders, receivers = np.nonzero(~np.eye(count, dtype=bool))
    rate, delay_s = np.zeros((count, count)), np.zeros((count, count))
    if count > 1:
        paths = network.paths(ranks[senders], ranks[receivers])
        rate[senders, receivers] = narrowest(paths, np.append(network.bandwidth_bytes_per_s, np.inf))
        delay_s[senders, receivers] = paths.latency_s + paths.overhead_s
    return rate, delay_s


def _best_server(rate: Floats, delay_s: Floats) -> int:
    """Return the place with the widest narrowest line to and from the others, then the shortest longest delay."""
    diagonal = np.eye(len(rate), dtype=bool)
    narrowest_rate = np.where(diagonal, np.inf, np.minimum(rate, rate.T)).min(axis=1)
    longest_s = np.maximum(delay_s, delay_s.T).max(axis=1)
    return int(np.lexsort((longest_s, -narrowest_rate))[0])
