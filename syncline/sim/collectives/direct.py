"""The messages of a direct exchange: i to i + 1 + r in round r, first each owner's part, then its sum.

All rounds of the first half leave at once, and an owner's of the second half once the first half has come to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.direct import Owners
from syncline.costmodel.network.hivemind_costs import HivemindCosts
from syncline.costmodel.network.places import Places
from syncline.costmodel.network.topology import Network, Topology


def direct_rounds(workers: int, nbytes: float, owners: Owners, places: Places | None = None) -> Sequence[Round]:
    """Return the rounds of an all-reduce of n bytes by direct exchange.

    Args:
        workers: P.
        nbytes: n.
        owners: the workers that sum a part each.
        places: places of the workers; without them every worker is one, and the first is the server.
    """
    ranks: Sequence[int] = range(workers)
    if owners == "server":
        ranks = (0 if places is None else places.server,)
    elif owners == "places" and places is not None:
        ranks = places.owners
    worker, is_owner = np.arange(workers), np.zeros(workers, dtype=bool)
    is_owner[list(ranks)] = True
    first_half, second_half = [], []
    for number in range(workers - 1):
        others = (worker + 1 + number) % workers
        first_half.append(Round(worker[is_owner[others]], others[is_owner[others]], nbytes / len(ranks)))
        second_half.append(Round(worker[is_owner], others[is_owner], nbytes / len(ranks)))
    return *first_half, *second_half


def direct_rounds_ahead(workers: int) -> list[int]:
    """Return how many rounds a rank may be ahead of its arrived messages, for each round of a direct exchange."""
    return 2 * list(range(1, workers))


def software_s(network: Network | Topology, workers: int, nbytes: float) -> float:
    """Return the seconds of hivemind's software before the messages of an averaging; 0 on a network without them."""
    costs: HivemindCosts | None = getattr(network, "hivemind", None)
    return 0.0 if costs is None else costs.before_s(workers, nbytes)
