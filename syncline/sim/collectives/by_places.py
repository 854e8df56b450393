"""The messages of collectives that follow the workers' places: an ordered ring; inside, across and inside again.

Source: `syncline.costmodel.collectives.by_places`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import RankArray, Round
from syncline.costmodel.network.places import Places


def ordered_ring_rounds(kind: str, nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of a collective of ``nbytes`` bytes around the ring of all workers, place after place."""
    order = np.array(places.order)
    workers = len(order)
    block = nbytes if kind == "all_gather" else nbytes / workers
    laps = 2 if kind == "all_reduce" else 1
    return _ring(order[None], block, laps) if workers > 1 else ()


def by_places_rounds(nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of an all-reduce inside the places, across them, and inside again.

    The tensor of ``nbytes`` bytes has as many parts as the smallest place has workers. In each place, a worker owns
    each part: it collects the part, reduces it in a ring with the part's owners elsewhere, and returns it.
    """
    parts = min(map(len, places.ranks))
    owners = np.array([place[:parts] for place in places.ranks]).T  # (parts, places)
    inside = list(_to_owners(places, parts, nbytes / parts))
    across = _ring(owners, nbytes / (parts * len(places.ranks)), 2) if len(places.ranks) > 1 else ()
    return *inside, *across, *(Round(receivers, senders, size) for senders, receivers, size in inside)


def _ring(orders: RankArray, block: float, laps: int) -> Sequence[Round]:
    """Return the rounds of rings that run at once: in each, every worker sends ``block`` bytes to the next in its ring.

    Args:
        orders: ranks of each ring in order, ``(rings, workers of a ring)``.
        block: bytes of a message.
        laps: how often a block goes around the ring.
    """
    senders, receivers = orders.ravel(), np.roll(orders, -1, axis=1).ravel()
    ascending = np.argsort(senders)
    return (Round(senders[ascending], receivers[ascending], float(block)),) * (laps * (orders.shape[1] - 1))


def _to_owners(places: Places, parts: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds in which every worker sends a part of ``nbytes`` bytes to each other owner of its place.

    In round r the i-th worker of a place sends to the worker i + 1 + r; the first ``parts`` workers are the owners.
    """
    for round_number in range(max(map(len, places.ranks)) - 1):
        pairs = []
        for place in places.ranks:
            for index, sender in enumerate(place if round_number < len(place) - 1 else ()):
                receiver = (index + 1 + round_number) % len(place)
                pairs += [(sender, place[receiver])] if receiver < parts else []
        senders, receivers = np.array(sorted(pairs)).T
        yield Round(senders, receivers, float(nbytes))
