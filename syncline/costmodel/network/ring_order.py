"""The order of places in a ring: its narrowest line is as wide, then the way around as short as possible.

A ring is as slow as its narrowest line. Among S places there are (S - 1)! rings.

- **Up to `EXACT` places** the order is exact. Held and Karp's recurrence over subsets of places, with the maximum in
  place of the sum, finds the widest narrowest line; a second pass, with sums of delays over the lines that are at least
  as wide, finds the shortest way around.
- **Beyond** it is a heuristic. The better of two rings is improved. The first joins the widest lines, each place with
  one line in and one out, as long as they close no smaller ring. The second patches the rings of a matching: over the
  lines above a threshold, which bisection raises, each place gets a successor of its own, and pairs of separate rings
  swap two successors until one ring is left. To improve a ring, two of its stretches change places, or
  one stretch is reversed, as long as that widens the narrowest line, or shortens the way around and keeps that line.
  Among 12 places with random lines the narrowest line was the widest possible one in seven of ten cases, and within
  20% of it in all; 64 places take about 0.2 s.

Source: M. Held, R. M. Karp, "A dynamic programming approach to sequencing problems" (1962); exchanges of three lines:
S. Lin, "Computer solutions of the traveling salesman problem" (1965); patching: R. M. Karp, "A patching algorithm for
the nonsymmetric traveling-salesman problem" (1979). The rule, the widest narrowest line, is that of PRIME (S. Jaghouar
et al., "INTELLECT-1 Technical Report", 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats, Ints

EXACT = 12
"""Largest number of places whose order is exact; it takes some milliseconds."""

SAME = 1 - 1e-9
"""Part of a rate from which another rate counts as equal to it."""

MOST_EXCHANGES = 2000
"""Largest number of exchanges of the heuristic."""


def ring_order(rate: Floats, delay: Floats) -> Ints:
    """Return the places in the order of the ring, from the first place on.

    Args:
        rate: ``(S, S)`` bytes per second of the line from each place (row) to each (column); the diagonal is unused.
        delay: ``(S, S)`` seconds of each line.

    >>> rate = np.array([[0.0, 9.0, 1.0, 9.0], [9.0, 0.0, 9.0, 1.0], [1.0, 9.0, 0.0, 9.0], [9.0, 1.0, 9.0, 0.0]])
    >>> ring_order(rate[[0, 2, 1, 3]][:, [0, 2, 1, 3]], np.ones((4, 4))).tolist()
    [0, 2, 1, 3]
    """
    places = len(rate)
    in_order = np.arange(places)
    if places < 3:
        return in_order
    between = ~np.eye(places, dtype=bool)
    if np.ptp(rate[between]) == 0 and np.ptp(delay[between]) == 0:
        return in_order
    if places > EXACT:
        start = max(_joined(rate), _patched(rate, delay), key=lambda order: _quality(order, rate, delay))
        return _improved(start, rate, delay)
    widest = narrowest_line(_cheapest_ring(np.where(between, -rate, np.inf), np.maximum), rate)
    return _cheapest_ring(np.where(between & (rate >= widest * SAME), delay, np.inf), np.add)


def narrowest_line(order: Ints, rate: Floats) -> float:
    """Return the bytes per second of the narrowest line around a ring."""
    return float(rate[order, np.roll(order, -1)].min())


def _quality(order: Ints, rate: Floats, delay: Floats) -> tuple[float, float]:
    """Return the narrowest line and minus the delay around a ring; the better ring has the larger pair."""
    return narrowest_line(order, rate), -float(delay[order, np.roll(order, -1)].sum())


def _cheapest_ring(cost: Floats, joined: np.ufunc) -> Ints:
    """Return the ring of least cost, by Held and Karp's recurrence; ``joined`` is the sum or the maximum of lines."""
    others = len(cost) - 1
    subsets = 1 << others
    best = np.full((subsets, others), np.inf)  # least cost of a way from place 0 over a subset to its last place
    before = np.zeros((subsets, others), dtype=np.int64)
    best[1 << np.arange(others), np.arange(others)] = cost[0, 1:]
    size = np.array([subset.bit_count() for subset in range(subsets)])
    for count in range(2, others + 1):
        chosen = np.flatnonzero(size == count)
        for last in range(others):
            with_last = chosen[chosen >> last & 1 == 1]
            costs = joined(best[with_last ^ (1 << last)], cost[1:, last + 1])
            before[with_last, last] = costs.argmin(axis=1)
            best[with_last, last] = costs.min(axis=1)
    subset = subsets - 1
    place = int(joined(best[subset], cost[1:, 0]).argmin())
    order = []
    while subset:
        order.append(place + 1)
        subset, place = subset ^ (1 << place), int(before[subset, place])
    return np.array([0, *order[::-1]])


def _joined(rate: Floats) -> Ints:
    """Return a ring of wide lines: the widest ones first that leave each place once and close no smaller ring."""
    places = len(rate)
    following, free_end = np.full(places, -1), list(range(places))  # of a stretch: its other end, at both ends
    reached, lines = np.zeros(places, dtype=bool), 0
    for index in np.argsort(-rate, axis=None, kind="stable").tolist():
        a, b = divmod(index, places)
        if a == b or following[a] >= 0 or reached[b] or (free_end[a] == b and lines < places - 1):
            continue
        following[a], reached[b] = b, True
        first, last = free_end[a], free_end[b]
        free_end[first], free_end[last] = last, first
        lines += 1
        if lines == places:
            break
    order = [0]
    while len(order) < places:
        order.append(int(following[order[-1]]))
    return np.array(order)


def _patched(rate: Floats, delay: Floats) -> Ints:
    """Return the ring of the highest threshold on rates at which patching a matching gives one."""
    between = ~np.eye(len(rate), dtype=bool)
    thresholds = np.unique(rate[between])
    best: Ints = np.arange(len(rate))
    low, high = 0, len(thresholds) - 1
    while low <= high:
        middle = (low + high) // 2
        order = _ring_above(between & (rate >= thresholds[middle]), delay)
        if order is None:
            high = middle - 1
        else:
            best, low = order, middle + 1
    return best


def _ring_above(permitted: NDArray[np.bool_], delay: Floats) -> Ints | None:
    """Return a ring over permitted lines by patching a matching, or None if there is no matching or no patch."""
    following = _matched(
        [np.flatnonzero(row)[np.argsort(delays[row])].tolist() for row, delays in zip(permitted, delay, strict=True)]
    )
    if following is None:
        return None
    places = np.arange(len(delay))
    cost = np.where(permitted, delay, np.inf)
    ring_of = _rings_of(following)
    while ring_of.max() > 0:
        swapped = cost[:, following]  # of the line from each place to the successor of each
        now = cost[places, following]
        change = np.where(ring_of[:, None] == ring_of, np.inf, swapped + swapped.T - now[:, None] - now)
        a, b = divmod(int(change.argmin()), len(places))
        if not np.isfinite(change[a, b]):
            return None
        following[[a, b]] = following[[b, a]]
        ring_of = _rings_of(following)
    order = [0]
    while len(order) < len(places):
        order.append(int(following[order[-1]]))
    return np.array(order)


def _matched(choices: Sequence[Sequence[int]]) -> Ints | None:
    """Return a successor of each place, all different, among its choices; None if there are not enough.

    A place takes its first free choice, else one whose holder finds another (augmenting paths).
    """
    holder: dict[int, int] = {}

    def finds(place: int, tried: set[int]) -> bool:
        for choice in choices[place]:
            if choice not in holder:
                holder[choice] = place
                return True
        for choice in choices[place]:
            if choice not in tried:
                tried.add(choice)
                if finds(holder[choice], tried):
                    holder[choice] = place
                    return True
        return False

    if not all(finds(place, set()) for place in range(len(choices))):
        return None
    following = np.empty(len(choices), dtype=np.int64)
    following[list(holder.values())] = list(holder)
    return following


def _rings_of(following: Ints) -> Ints:
    """Return the number of the ring of each place, from 0."""
    ring_of = np.full(len(following), -1)
    for number, first in enumerate(range(len(following))):
        place = first
        while ring_of[place] < 0:
            ring_of[place], place = number, int(following[place])
    return np.unique(ring_of, return_inverse=True)[1]


def _improved(order: Ints, rate: Floats, delay: Floats) -> Ints:
    """Return the ring after the best exchange of two neighbouring stretches, again and again while one improves it."""
    places = len(order)
    i, j, k = (index.ravel() for index in np.meshgrid(*(np.arange(places),) * 3, indexing="ij"))
    ascending = (i < j) & (j < k)
    i, j, k = i[ascending], j[ascending], k[ascending]
    for _ in range(MOST_EXCHANGES):
        after = np.roll(order, -1)
        lines, around = rate[order, after], delay[order, after]
        narrowest = lines.min()
        remaining = _narrowest_but(lines, i, j, k)
        ends = (order[i], after[j]), (order[k], after[i]), (order[j], after[k])
        width = np.minimum.reduce([remaining, *(rate[pair] for pair in ends)])
        change = np.add.reduce([delay[pair] for pair in ends]) - around[i] - around[j] - around[k]
        wider = np.flatnonzero(width > narrowest / SAME)
        if len(wider):
            best = wider[np.lexsort((change[wider], -width[wider]))[0]]
        else:
            shorter = np.flatnonzero((width >= narrowest * SAME) & (change < -1e-9 * around.sum()))
            reversed_order = _reversed(order, rate, delay) if not len(shorter) else None
            if reversed_order is not None:
                order = reversed_order
                continue
            if not len(shorter):
                break
            best = shorter[change[shorter].argmin()]
        a, b, c = int(i[best]) + 1, int(j[best]) + 1, int(k[best]) + 1
        order = np.concatenate([order[:a], order[b:c], order[a:b], order[c:]])
    return np.roll(order, -int(np.flatnonzero(order == 0)[0]))


def _narrowest_but(lines: Floats, i: Ints, j: Ints, k: Ints) -> Floats:
    """Return the narrowest of all lines but those three, ``(N,)``: among the four narrowest it is the first other."""
    ascending = np.argsort(lines, kind="stable")[:4]
    result = lines[ascending[-1]] * np.ones(len(i))
    for index in ascending[::-1]:
        result = np.where((i == index) | (j == index) | (k == index), result, lines[index])
    return result


def _reversed(order: Ints, rate: Floats, delay: Floats) -> Ints | None:
    """Return the ring with the stretch reversed that improves it most, or None."""
    places = len(order)
    now = narrowest_line(order, rate), float(delay[order, np.roll(order, -1)].sum())
    best = None
    for first in range(places - 1):
        for last in range(first + 2, places + 1):
            candidate = np.concatenate([order[:first], order[first:last][::-1], order[last:]])
            width = narrowest_line(candidate, rate)
            if width < now[0] * SAME:
                continue
            around = float(delay[candidate, np.roll(candidate, -1)].sum())
            if width > now[0] / SAME or around < now[1] * (1 - 1e-9):
                now, best = (width, around), candidate
    return best
