"""The messages of collectives in the order of places: an ordered ring, and inside, across and inside again.

Source: `syncline.costmodel.collectives.by_places`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import RankArray, Round
from syncline.costmodel.network.places import Places


def ordered_ring_rounds(kind: str, nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of a collective around the ring of all workers, place after place."""
    order = np.array(places.order)
    workers = len(order)
    block = nbytes if kind == "all_gather" else nbytes / workers
    laps = 2 if kind == "all_reduce" else 1
    return _ring(order[None], block, laps) if workers > 1 else ()


def by_places_rounds(nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of an all-reduce inside the places, across them, and inside again."""
    parts = min(map(len, places.ranks))
    owners = np.array([place[:parts] for place in places.ranks]).T  # (k, S)
    inside = list(_to_owners(places, parts, nbytes / parts))
    across = _ring(owners, nbytes / (parts * len(places.ranks)), 2) if len(places.ranks) > 1 else ()
    return *inside, *across, *(Round(receivers, senders, size) for senders, receivers, size in inside)


def _ring(orders: RankArray, block: float, laps: int) -> Sequence[Round]:
    """Return the rounds of rings side by side, ``(rings, workers of each)``; all rounds are one object."""
    senders, receivers = orders.ravel(), np.roll(orders, -1, axis=1).ravel()
    ascending = np.argsort(senders)
    return (Round(senders[ascending], receivers[ascending], float(block)),) * (laps * (orders.shape[1] - 1))


def _to_owners(places: Places, parts: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds in which every worker sends a part to each owner of its place: i to i + 1 + r in round r."""
    for number in range(max(map(len, places.ranks)) - 1):
        pairs = [
            (sender, place[to])
            for place in places.ranks
            if number < len(place) - 1
            for index, sender in enumerate(place)
            if (to := (index + 1 + number) % len(place)) < parts
        ]
        senders, receivers = np.array(sorted(pairs)).T
        yield Round(senders, receivers, float(nbytes))
