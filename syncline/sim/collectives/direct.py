"""The messages of a direct exchange: worker i to worker i + 1 + r in round r, first each owner's part, then its sum.

A worker's messages of the first half leave at once. An owner's messages of the second half leave once the owner has
received all messages of the first half.
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
    """Return the rounds of an all-reduce by direct exchange.

    Args:
        workers: number of workers.
        nbytes: bytes of the tensor.
        owners: the workers that sum one part of the tensor each: all, one of each place, or the server.
        places: places of the workers; if None, every worker is a place, and the first worker is the server.
    """
    ranks: Sequence[int] = range(workers)
    if owners == "server":
        ranks = (0 if places is None else places.server,)
    elif owners == "places" and places is not None:
        ranks = places.owners
    worker, is_owner = np.arange(workers), np.zeros(workers, dtype=bool)
    is_owner[list(ranks)] = True
    first_half, second_half = [], []
    for round_number in range(workers - 1):
        receiver = (worker + 1 + round_number) % workers
        to_owner = is_owner[receiver]
        first_half.append(Round(worker[to_owner], receiver[to_owner], nbytes / len(ranks)))
        second_half.append(Round(worker[is_owner], receiver[is_owner], nbytes / len(ranks)))
    return *first_half, *second_half


def direct_rounds_ahead(workers: int) -> list[int]:
    """Return, for each round of a direct exchange, how many rounds a rank may be ahead of the messages it received."""
    return 2 * list(range(1, workers))


def software_s(network: Network | Topology, workers: int, nbytes: float) -> float:
    """Return the seconds of hivemind's software before the messages of an averaging; 0 if the network has no costs."""
    costs: HivemindCosts | None = getattr(network, "hivemind", None)
    return 0.0 if costs is None else costs.before_s(workers, nbytes)
