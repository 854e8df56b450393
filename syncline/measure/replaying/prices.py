"""Seconds of a collective of any group, for records with too many ranks to simulate each message.

The price is that of projections (`syncline.costmodel.collectives.vectorised.collective_prices`): all groups like this
one call the collective at the same time, and share cards and uplinks. A group that no others are like is simulated by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from syncline.costmodel import Network, chosen_algorithm
from syncline.costmodel.collectives.hierarchical import first_group_like
from syncline.costmodel.collectives.vectorised import collective_prices
from syncline.costmodel.network.topology import among, topology
from syncline.measure.recording.record import Started
from syncline.sim import collective_finish_s
from syncline.sim.clocks.simulated import simulated_s


def group_price(network: Network, workers: int, policy: str | None) -> Callable[[Started], float]:
    """Return a function that gives the seconds of a collective of any group.

    Args:
        workers: number of workers P.
        policy: algorithm or policy; None: that of the network's library.
    """

    @cache
    def of_groups_s(kind: str, nbytes: float, group: range) -> float:
        among_all = np.array([workers])
        priced = collective_prices(kind, among_all, nbytes, network, policy, timer=simulated_s, groups=[group])
        return np.asarray(priced.seconds).item()

    @cache
    def alone_s(kind: str, nbytes: float, ranks: tuple[int, ...]) -> float:
        on = among(topology(network, workers), ranks)
        name = chosen_algorithm(policy, kind, len(ranks), max(nbytes, 1.0), on)
        return float(collective_finish_s(kind, len(ranks), nbytes, on, name).max())

    def price_s(event: Started) -> float:
        group = first_group_like(event.ranks, workers)
        seconds = math.nan if group is None else of_groups_s(event.kind, event.payload_bytes, group)
        return alone_s(event.kind, event.payload_bytes, event.ranks) if math.isnan(seconds) else seconds

    return price_s
