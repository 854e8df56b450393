"""The clock of a training in which things go wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from syncline.costmodel.collectives.gloo.costs import GlooCosts, costs_on
from syncline.costmodel.network.topology import Network, Topology
from syncline.costmodel.traffic.exchanges import Algorithms, carried_by
from syncline.sim import Call, Clock, clock, phased_clock
from syncline.specs import Training


def faulty_clock(
    spec: Training,
    calls: Iterable[Call],
    compute_s: np.ndarray,
    network: Network | Topology,
    *,
    algorithm: Algorithms = None,
    costs: GlooCosts | None = None,
    **options: Any,
) -> Clock:
    """The clock with the slow links, late messages and absences of a spec.

    Args:
        spec: whose first seed draws.
        calls: the collectives of the training.
        compute_s: seconds of each worker in each step, ``(T, P)``.
        network: what joins the workers when nothing is wrong.
        algorithm: what carries the collectives.
        costs: of gloo's software; those of the network unless given.
        options: others of `syncline.sim.clocks.training`.
    """
    # Before slow links make it a topology, which knows nothing of gloo.
    options |= {"algorithm": carried_by(algorithm, network), "costs": costs_on(network, costs)}
    workers, steps = spec.workers, len(compute_s)
    over = spec.faults.network(network, workers)
    delay = spec.faults.delay(over, workers, spec.seeds[0])
    presence = spec.faults.presence(workers)
    if presence is None:
        return clock(calls, compute_s, over, workers, steps, delay=delay, **options)
    return phased_clock(presence.table(steps), calls, compute_s, over, delay=delay, **options)
