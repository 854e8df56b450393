"""The messages of a direct exchange: i to i + 1 + k in round k, first each owner's part, then its sum.

All rounds of the first half leave at once, and all of the second half once the first half has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.algorithms.pairwise import pairwise_rounds
from syncline.costmodel.network.hivemind_costs import HivemindCosts
from syncline.costmodel.network.topology import Network, Topology


def direct_rounds(workers: int, nbytes: float) -> Sequence[Round]:
    """Return the rounds of an all-reduce of n bytes by direct exchange."""
    return 2 * tuple(pairwise_rounds(workers, nbytes))


def direct_rounds_ahead(workers: int) -> list[int]:
    """Return how many rounds a rank may be ahead of its arrived messages, for each round of a direct exchange."""
    return 2 * list(range(1, workers))


def software_s(network: Network | Topology, workers: int, nbytes: float) -> float:
    """Return the seconds of hivemind's software before the messages of an averaging; 0 on a network without them."""
    costs: HivemindCosts | None = getattr(network, "hivemind", None)
    return 0.0 if costs is None else costs.before_s(workers, nbytes)
