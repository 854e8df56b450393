"""Collectives in the order of places, on networks whose lines between places differ.

| collective       | algorithm      | messages                                                            |
|------------------|----------------|---------------------------------------------------------------------|
| `all_reduce`     | `ordered-ring` | those of the ring, with the workers in the order of their places    |
| `all_gather`     | `ordered-ring` | the same                                                            |
| `reduce_scatter` | `ordered-ring` | the same                                                            |
| `all_reduce`     | `by-places`    | inside each place, across the places, inside again                  |

The order of the places is that of `syncline.costmodel.network.ring_order`: the narrowest line is as wide as possible.
Workers of a place follow each other.

``by-places`` cuts the n bytes into k parts, where k is the number of workers of the smallest place. The first k workers
of each place own a part each: first every worker sends n/k bytes to each owner of its place, one after another; then
the owners of a part in all S places all-reduce it by an ordered ring, in 2 (S - 1) messages of n / (k S) bytes, all k
rings at once; then each owner sends the sum to every worker of its place. So k connections carry each line between
places, and each byte crosses it about as often as in a ring of places.

Every worker sends 2 n (P - 1) / P bytes on average, as in a ring. Where lines differ, lockstep or events tell the time.
"""

from __future__ import annotations

from typing import NamedTuple


class PlacedAlgorithm(NamedTuple):
    """An algorithm whose messages follow the places of the workers; ``is_ring`` of `ordered-ring`."""

    is_ring: bool


ORDERED_RING, BY_PLACES = "ordered-ring", "by-places"

PLACED: dict[str, dict[str, PlacedAlgorithm]] = {
    "all_reduce": {ORDERED_RING: PlacedAlgorithm(is_ring=True), BY_PLACES: PlacedAlgorithm(is_ring=False)},
    "all_gather": {ORDERED_RING: PlacedAlgorithm(is_ring=True)},
    "reduce_scatter": {ORDERED_RING: PlacedAlgorithm(is_ring=True)},
}
"""The algorithms by collective and name."""
