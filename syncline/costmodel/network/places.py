"""Places of workers in the order of a ring: with the widest narrowest line, then the least sum of delays.

A ring is as slow as its narrowest line. Among S places there are (S - 1)! rings.

- **Up to `MOST_EXACT_PLACES`** the order is exact. Held and Karp's recurrence over subsets of places, with the maximum
  in place of the sum, finds the widest narrowest line; a second pass, with sums of delays over the lines that are at
  least as wide, finds the ring of least delay.
- **Beyond** the order is a heuristic. It takes the better of two rings, the ring of the widest lines and the patched
  ring. It improves this ring as long as a swap or a reversal of stretches widens the narrowest line, or reduces the
  delay and keeps the narrowest line. Among 12 places with random lines the narrowest line was the widest possible one
  in seven of ten cases, and within 20% of it in all; 64 places take about 0.2 s.

Source: M. Held, R. M. Karp, "A dynamic programming approach to sequencing problems" (1962); exchanges of three lines:
S. Lin, "Computer solutions of the traveling salesman problem" (1965); patching: R. M. Karp, "A patching algorithm for
the nonsymmetric traveling-salesman problem" (1979). PRIME also seeks the widest narrowest line (S. Jaghouar et al.,
"INTELLECT-1 Technical Report", 2024).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.link import MemberTopology, topology
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Floats, Ints, Network, Topology, narrowest
from syncline.costmodel.numerics.arrays import is_hashed_by_value


class Places(NamedTuple):
    """The workers of each place of a network, and the worker that has the best lines to all others.

    Attributes:
        ranks: ranks of the workers of each place; the places follow the order of `ring_order`.
        server: rank of the first worker of the place with the widest narrowest line to and from the others; of equally
            wide ones, the place with the shortest longest delay.
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
        return tuple(sorted(first_rank for first_rank, *_ in self.ranks))


def place_of(network: Network | Topology | Any, workers: int) -> Ints | None:
    """Return the place in which each worker of a network is, as numbers ``(P,)``; None if the network has no places.

    The workers of a `Matrix` are in its places; every host of a `Graph` is a place of its own.
    """
    if isinstance(network, MemberTopology):
        place_by_worker = place_of(network.whole, network.whole.workers)
        return None if place_by_worker is None else place_by_worker[network.members]
    if isinstance(network, Matrix):
        return np.array(network.ranks[:workers])
    if isinstance(network, Graph):
        return np.arange(workers)
    # A topology knows its network, or the topology that it is made from; other networks have no places.
    base = getattr(network, "network", getattr(network, "whole", None))
    return None if base is None else place_of(base, workers)


def places_on(network: Network | Topology, workers: int) -> Places:
    """Return the places of a network's workers; without places each worker is a place, in the order of the ranks."""
    worker_topology = topology(network, workers)
    if is_hashed_by_value(worker_topology):  # the cache would not find other topologies again
        return _cached_places(worker_topology)
    return _places(worker_topology)


def places_in_order(workers: int) -> Places:
    """Return places of a single worker each, in the order of the ranks; rank 0 is the server."""
    return Places(tuple((rank,) for rank in range(workers)), server=0)


NAMED_PLACES = 8
"""Number of places that a description names."""


def ring_text(network: Network, workers: int) -> str:
    """Return the names of the places in the order of the ring; empty on a network with fewer than two places."""
    place_by_worker = place_of(network, workers)
    if place_by_worker is None:
        return ""
    ring = [place_by_worker[first_rank] for first_rank, *_ in places_on(network, workers).ranks]
    if len(ring) < 2:
        return ""
    place_names = network.places if isinstance(network, Matrix) else getattr(network, "hosts", ())
    text = ", ".join(str(place_names[place]) for place in ring[:NAMED_PLACES])
    return text if len(ring) <= NAMED_PLACES else f"{text} and {len(ring) - NAMED_PLACES} more"


def _places(network: Topology) -> Places:
    """Return the places of a topology's workers, by the lines between the first workers of the places."""
    place_by_worker = place_of(network, network.workers)
    if place_by_worker is None or network.workers < 2:
        return places_in_order(network.workers)
    _, first_ranks = np.unique(place_by_worker, return_index=True)
    first_ranks = np.sort(first_ranks)
    rates, delays_s = _lines(network, first_ranks)
    ranks_by_place = [tuple(np.flatnonzero(place_by_worker == place_by_worker[rank]).tolist()) for rank in first_ranks]
    in_ring_order = tuple(ranks_by_place[place] for place in ring_order(rates, delays_s).tolist())

    is_inside = np.eye(len(rates), dtype=bool)
    narrowest_rates = np.where(is_inside, np.inf, np.minimum(rates, rates.T)).min(axis=1)
    longest_s = np.maximum(delays_s, delays_s.T).max(axis=1)
    best_server, *_ = np.lexsort((longest_s, -narrowest_rates))
    return Places(in_ring_order, server=int(first_ranks[best_server]))


_cached_places: Callable[[Topology], Places] = lru_cache(maxsize=64)(_places)  # type: ignore[assignment]


def _lines(network: Topology, ranks: Ints) -> tuple[Floats, Floats]:
    """Return the bytes per second and the delay of a message from each worker (row) to each (column), ``(S, S)``."""
    count = len(ranks)
    senders, receivers = np.nonzero(~np.eye(count, dtype=bool))
    rates, delays_s = np.zeros((count, count)), np.zeros((count, count))
    if count > 1:
        paths = network.paths(ranks[senders], ranks[receivers])
        # Short paths end with the channel number -1, the index of the infinity.
        rates[senders, receivers] = narrowest(paths, np.append(network.bandwidth_bytes_per_s, np.inf))
        delays_s[senders, receivers] = paths.latency_s + paths.overhead_s
    return rates, delays_s


MOST_EXACT_PLACES = 12
"""Largest number of places whose order is exact; it takes some milliseconds."""

SAME_RATE = 1 - 1e-9
"""Smallest ratio of two rates that count as equal, so that rounding errors decide nothing."""

MOST_SWAPS = 2000
"""Largest number of swaps and reversals of the heuristic."""


def ring_order(rates: Floats, delays_s: Floats) -> Ints:
    """Return the places in the order of a ring whose narrowest line is as wide as possible, from place 0.

    Args:
        rates: ``(S, S)`` bytes per second of the line from each place (row) to each (column); the diagonal is unused.
        delays_s: ``(S, S)`` seconds of each line.

    >>> rates = np.array([[0.0, 9.0, 1.0, 9.0], [9.0, 0.0, 9.0, 1.0], [1.0, 9.0, 0.0, 9.0], [9.0, 1.0, 9.0, 0.0]])
    >>> ring_order(rates[[0, 2, 1, 3]][:, [0, 2, 1, 3]], np.ones((4, 4))).tolist()
    [0, 3, 1, 2]
    """
    places = len(rates)
    is_line = ~np.eye(places, dtype=bool)
    if places < 3 or (np.ptp(rates[is_line]) == 0 and np.ptp(delays_s[is_line]) == 0):  # all rings are equal
        return np.arange(places)
    if places > MOST_EXACT_PLACES:
        widest_lines_ring, patched_ring = _widest_lines_ring(rates), _patched_ring(rates, delays_s)
        better_ring = max(widest_lines_ring, patched_ring, key=lambda ring: _quality(ring, rates, delays_s))
        return _improved_ring(better_ring, rates, delays_s)
    # The least maximum of minus the rates is minus the widest narrowest line.
    widest_ring = _cheapest_ring(np.where(is_line, -rates, np.inf), combine=np.maximum)
    is_wide_line = is_line & (rates >= narrowest_line(widest_ring, rates) * SAME_RATE)
    return _cheapest_ring(np.where(is_wide_line, delays_s, np.inf), combine=np.add)


def narrowest_line(order: Ints, rates: Floats) -> float:
    """Return the bytes per second of the narrowest line around a ring of places, from the ``(S, S)`` rates of lines."""
    return float(rates[order, np.roll(order, -1)].min())


def _quality(order: Ints, rates: Floats, delays_s: Floats) -> tuple[float, float]:
    """Return the rate of a ring's narrowest line, and minus the ring's delay; the better ring has the larger pair."""
    return narrowest_line(order, rates), -float(delays_s[order, np.roll(order, -1)].sum())


def _cheapest_ring(cost: Floats, combine: np.ufunc) -> Ints:
    """Return the ring of least cost, by Held and Karp's recurrence over subsets of places.

    Args:
        cost: cost of the line from each of S places (row) to each (column), ``(S, S)``.
        combine: ``np.add``: a ring costs the sum of its lines; ``np.maximum``: its most expensive line.
    """
    # Every ring begins at place 0. Place i + 1 has the index i, and is bit i of the numbers of subsets that contain it.
    num_others = len(cost) - 1
    num_subsets = 1 << num_others
    least_cost = np.full((num_subsets, num_others), np.inf)  # of a way from place 0, by its places and the last of them
    predecessor = np.zeros((num_subsets, num_others), dtype=np.int64)
    # To a single place there is one way: the line from place 0.
    least_cost[1 << np.arange(num_others), np.arange(num_others)] = cost[0, 1:]
    sizes = np.array([subset.bit_count() for subset in range(num_subsets)])
    for size in range(2, num_others + 1):
        subsets = np.flatnonzero(sizes == size)
        for last in range(num_others):
            with_last = subsets[subsets >> last & 1 == 1]
            without_last = with_last ^ (1 << last)
            costs = combine(least_cost[without_last], cost[1:, last + 1])  # by subset and by the place before the last
            predecessor[with_last, last] = costs.argmin(axis=1)
            least_cost[with_last, last] = costs.min(axis=1)

    # Go back from the last place of the best ring.
    subset = num_subsets - 1
    last = int(combine(least_cost[subset], cost[1:, 0]).argmin())
    reversed_order = []
    while subset:
        reversed_order.append(last + 1)
        previous = int(predecessor[subset, last])
        subset ^= 1 << last
        last = previous
    return np.array([0, *reversed_order[::-1]])


def _widest_lines_ring(rates: Floats) -> Ints:
    """Return a ring of the widest lines: try the lines from the widest on, and take each that still fits into a ring.

    A line fits if its source has no line out, its target no line in, and it closes no ring of fewer than all places.
    """
    places = len(rates)
    successor, has_predecessor = np.full(places, -1), np.zeros(places, dtype=bool)
    other_end = list(range(places))  # by place at an end of a chain of lines: the place at the chain's other end
    num_lines = 0
    for index in np.argsort(-rates, axis=None, kind="stable").tolist():
        source, target = divmod(index, places)
        closes_smaller_ring = other_end[source] == target and num_lines < places - 1
        if source == target or successor[source] >= 0 or has_predecessor[target] or closes_smaller_ring:
            continue
        successor[source], has_predecessor[target] = target, True
        first, last = other_end[source], other_end[target]  # the ends of the joined chain
        other_end[first], other_end[last] = last, first
        num_lines += 1
        if num_lines == places:
            break
    return _order_of(successor)


def _order_of(successor: Ints) -> Ints:
    """Return the places of a ring in order from place 0 on, from the successor of each place."""
    order = [0]
    while len(order) < len(successor):
        order.append(int(successor[order[-1]]))
    return np.array(order)


def _patched_ring(rates: Floats, delays_s: Floats) -> Ints:
    """Return a ring whose narrowest line is as wide as a bisection over the rates of lines finds.

    For each tried rate, `_ring_over` looks for a ring of lines that are at least as wide.
    """
    is_line = ~np.eye(len(rates), dtype=bool)
    thresholds = np.unique(rates[is_line])
    ring: Ints = np.arange(len(rates))  # the fallback
    low, high = 0, len(thresholds) - 1
    while low <= high:
        middle = (low + high) // 2
        wider_ring = _ring_over(is_line & (rates >= thresholds[middle]), delays_s)
        if wider_ring is None:
            high = middle - 1
        else:
            ring, low = wider_ring, middle + 1
    return ring


def _ring_over(permitted: NDArray[np.bool_], delays_s: Floats) -> Ints | None:
    """Return a ring over permitted lines with little delay, or None if the heuristic finds none.

    A matching gives each place a successor; the places then form one or several rings. Two places of different rings
    exchange their successors, so that their rings become one; the pair that adds the least delay comes first.
    """
    choices = []  # the permitted successors of each place, by rising delay
    for is_permitted, place_delays_s in zip(permitted, delays_s, strict=True):
        choices.append(np.flatnonzero(is_permitted)[np.argsort(place_delays_s[is_permitted])].tolist())
    successor = _matching(choices)
    if successor is None:
        return None
    places = np.arange(len(delays_s))
    cost_s = np.where(permitted, delays_s, np.inf)
    ring_number = _ring_numbers(successor)
    while ring_number.max() > 0:
        # Entry (i, j) of `change_s` is the delay that is added if places i and j exchange their successors.
        to_other_successor_s = cost_s[:, successor]  # from each place (row) to the successor of each other (column)
        to_own_successor_s = cost_s[places, successor]
        change_s = to_other_successor_s + to_other_successor_s.T - to_own_successor_s[:, None] - to_own_successor_s
        change_s = np.where(ring_number[:, None] == ring_number, np.inf, change_s)
        first, second = divmod(int(change_s.argmin()), len(places))
        if not np.isfinite(change_s[first, second]):  # no permitted lines join two rings
            return None
        successor[first], successor[second] = successor[second], successor[first]
        ring_number = _ring_numbers(successor)
    return _order_of(successor)


def _matching(choices: Sequence[Sequence[int]]) -> Ints | None:
    """Return a different successor for each place, one of the place's choices, or None if that is impossible.

    A place takes its first free choice. If none is free, the predecessor of a choice takes another (augmenting paths).
    """
    predecessor: dict[int, int] = {}  # by successor

    def give_successor(place: int, visited: set[int]) -> bool:
        """Give the place a successor and return True, or return False if there is none."""
        for choice in choices[place]:
            if choice not in predecessor:
                predecessor[choice] = place
                return True
        for choice in choices[place]:
            if choice not in visited:
                visited.add(choice)
                if give_successor(predecessor[choice], visited):
                    predecessor[choice] = place
                    return True
        return False

    for place in range(len(choices)):
        if not give_successor(place, visited=set()):
            return None
    successor = np.empty(len(choices), dtype=np.int64)
    for choice, place in predecessor.items():
        successor[place] = choice
    return successor


def _ring_numbers(successor: Ints) -> Ints:
    """Return the number, from 0, of the ring that contains each place; ``successor`` has the next place of each."""
    first_place = np.full(len(successor), -1)  # the lowest place of each place's ring
    for first in range(len(successor)):
        place = first
        while first_place[place] < 0:
            first_place[place] = first
            place = int(successor[place])
    _, ring_number = np.unique(first_place, return_inverse=True)
    return ring_number


def _improved_ring(order: Ints, rates: Floats, delays_s: Floats) -> Ints:
    """Return the ring after swaps of neighbouring stretches: the best swap each time, until no swap improves the ring.

    A swap cuts the lines after positions i < j < k of the ring: the stretches i + 1 to j and j + 1 to k change places.
    """
    i, j, k = np.array(list(itertools.combinations(range(len(order)), 3))).T
    for _ in range(MOST_SWAPS):
        successor = np.roll(order, -1)
        ring_rates, ring_delays_s = rates[order, successor], delays_s[order, successor]
        narrowest_rate = ring_rates.min()
        new_lines = (order[i], successor[j]), (order[k], successor[i]), (order[j], successor[k])
        new_rates = [_narrowest_other(ring_rates, i, j, k), *(rates[line] for line in new_lines)]
        new_narrowest_rate = np.minimum.reduce(new_rates)  # by swap
        new_delays_s = np.add.reduce([delays_s[line] for line in new_lines])
        change_s = new_delays_s - ring_delays_s[i] - ring_delays_s[j] - ring_delays_s[k]

        # A wider narrowest line is better; at an equal one, a shorter delay around the ring, beyond rounding errors.
        wider = np.flatnonzero(new_narrowest_rate > narrowest_rate / SAME_RATE)
        if len(wider):
            best_of_wider, *_ = np.lexsort((change_s[wider], -new_narrowest_rate[wider]))
            best = wider[best_of_wider]
        else:
            is_shorter = change_s < -1e-9 * ring_delays_s.sum()
            shorter = np.flatnonzero((new_narrowest_rate >= narrowest_rate * SAME_RATE) & is_shorter)
            if not len(shorter):
                # A reversal also changes the direction of lines, which no swap of stretches does.
                reversed_order = _best_reversal(order, rates, delays_s)
                if reversed_order is None:
                    break
                order = reversed_order
                continue
            best = shorter[change_s[shorter].argmin()]
        first, middle, end = int(i[best]) + 1, int(j[best]) + 1, int(k[best]) + 1
        order = np.concatenate([order[:first], order[middle:end], order[first:middle], order[end:]])
    position_of_first = int(np.flatnonzero(order == 0)[0])
    return np.roll(order, -position_of_first)


def _narrowest_other(ring_rates: Floats, i: Ints, j: Ints, k: Ints) -> Floats:
    """Return the rate of the narrowest line of a ring except lines i, j and k, for each of N triples, ``(N,)``."""
    *narrowest_three, fourth = np.argsort(ring_rates, kind="stable")[:4]
    narrowest_rate = np.full(len(i), ring_rates[fourth])  # remains if all three are lines i, j and k
    for line in reversed(narrowest_three):
        is_in_triple = (i == line) | (j == line) | (k == line)
        narrowest_rate = np.where(is_in_triple, narrowest_rate, ring_rates[line])
    return narrowest_rate


def _best_reversal(order: Ints, rates: Floats, delays_s: Floats) -> Ints | None:
    """Return the best ring that a reversal of one stretch of a ring makes, or None if no reversal improves the ring."""
    best = None
    best_rate, best_minus_delay_s = _quality(order, rates, delays_s)
    for first in range(len(order) - 1):
        for end in range(first + 2, len(order) + 1):
            candidate = np.concatenate([order[:first], order[first:end][::-1], order[end:]])
            if narrowest_line(candidate, rates) < best_rate * SAME_RATE:  # narrower than the best ring so far
                continue
            narrowest_rate, minus_delay_s = _quality(candidate, rates, delays_s)
            is_shorter = minus_delay_s > best_minus_delay_s * (1 - 1e-9)  # beyond rounding errors
            if narrowest_rate > best_rate / SAME_RATE or is_shorter:
                best, best_rate, best_minus_delay_s = candidate, narrowest_rate, minus_delay_s
    return best
