"""Collectives on networks whose lines between places differ: in the order of places, and by direct exchange.

**In the order of places**

| collective       | algorithm      | messages                                                            |
|------------------|----------------|---------------------------------------------------------------------|
| `all_reduce`     | `ordered-ring` | those of the ring, with the workers in the order of their places    |
| `all_gather`     | `ordered-ring` | the same                                                            |
| `reduce_scatter` | `ordered-ring` | the same                                                            |
| `all_reduce`     | `by-places`    | inside each place, across the places, inside again                  |

The order of the places is that of `syncline.costmodel.network.places`: the narrowest line is as wide as possible.
Workers of a place follow each other.

``by-places`` cuts the n bytes into k parts, where k is the number of workers of the smallest place. The first k workers
of each place own a part each: first every worker sends n/k bytes to each owner of its place, one after another; then
the owners of a part in all S places all-reduce it by an ordered ring, in 2 (S - 1) messages of n / (k S) bytes, all k
rings at once; then each owner sends the sum to every worker of its place. So k connections carry each line between
places, and each byte crosses it about as often as in a ring of places.

Every worker sends 2 n (P - 1) / P bytes on average, as in a ring. Where lines differ, lockstep or events tell the time.

**By direct exchange** every worker sends n/k bytes to each of the k owners of a part at the same time, over a
connection to each; once the others' bytes of its own part have arrived, an owner sends the sum to each of them. The
connections share links by max-min fairness.

| algorithm        | owners                                                                                   |
|------------------|------------------------------------------------------------------------------------------|
| `direct`         | all P workers                                                                            |
| `server-sharded` | a parameter server in each place: its first worker; without places, all workers          |
| `server-at-once` | one parameter server: the worker with the best lines, `syncline.costmodel.network.places` |

On equal links of latency alpha, overhead o and R bytes per second, an all-reduce of n bytes takes

    2 (alpha + o) + 2 n (P - 1) / (k R).

The many messages cost their sender nothing beside o, which counts once, so that this form would be the fastest of all:
on equal links no policy chooses ``direct``, and none chooses a server. On a network with the costs of hivemind
(`HivemindCosts`) ``direct`` is the default, and contains them.

Source: M. Ryabinin et al., "Moshpit SGD" (2021), the butterfly of hivemind; ASTRA-sim's ``direct``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


class PlacedAlgorithm(NamedTuple):
    """An algorithm for workers in several places: a ring in the order of places, or the all-reduce ``by-places``."""

    is_ring: bool


ORDERED_RING, BY_PLACES = "ordered-ring", "by-places"

PLACED: dict[str, dict[str, PlacedAlgorithm]] = {
    "all_reduce": {ORDERED_RING: PlacedAlgorithm(is_ring=True), BY_PLACES: PlacedAlgorithm(is_ring=False)},
    "all_gather": {ORDERED_RING: PlacedAlgorithm(is_ring=True)},
    "reduce_scatter": {ORDERED_RING: PlacedAlgorithm(is_ring=True)},
}
"""The algorithms by collective and name."""

Owners: TypeAlias = Literal["workers", "places", "server"]
"""Owners of the parts of a direct exchange: all workers, a worker in each place, or one worker."""


class DirectAlgorithm(NamedTuple):
    """An all-reduce by direct exchange: each worker sends each owner the part that it sums, all at once."""

    owners: Owners = "workers"


DIRECT = "direct"
"""The name of the all-reduce by direct exchange."""

DIRECT_ALGORITHMS = {
    DIRECT: DirectAlgorithm(),
    "server-sharded": DirectAlgorithm("places"),
    "server-at-once": DirectAlgorithm("server"),
}
"""The direct exchanges by name."""


def direct_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, owners: Owners = "workers") -> FloatOrArray:
    """Return the seconds of an all-reduce by direct exchange on equal links; as owners, ``places`` are all workers.

    The module's docstring has the formula and the owners. One worker takes no time.

    >>> f"{direct_s(4, 1e9, Link(10e-3, 125e6)):.2f}, {direct_s(4, 1e9, Link(10e-3, 125e6), 'server'):.2f}"
    '12.02, 48.02'
    """
    owner_count = 1 if owners == "server" else workers
    # Several owners send while they receive, which takes twice the time on half duplex; a server sends afterwards.
    half_duplex_factor = 2 if link.duplex == "half" and owners != "server" else 1
    transfer_s = half_duplex_factor * nbytes * (2 * (np.subtract(workers, 1)) / owner_count) / link.goodput_bytes_per_s
    return np.where(np.greater(workers, 1), 2 * (link.latency_s + link.overhead_s) + transfer_s, 0.0)[()]
