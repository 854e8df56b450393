"""The clock of a training with faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from syncline.costmodel.network.topology import Network, Topology
from syncline.sim import Call, Clock, clock, phased_clock
from syncline.specs import Training


def faulty_clock(
    spec: Training,
    calls: Iterable[Call],
    compute_s: np.ndarray,
    network: Network | Topology,
    present: np.ndarray | None = None,
    **options: Any,
) -> Clock:
    """Return the clock with the slow links, late messages and absences of a spec.

    Args:
        spec: spec of the training, whose first seed draws the faults.
        calls: the collectives of the training.
        compute_s: seconds of each worker in each step, ``(T, P)``.
        network: network that joins the workers without faults.
        present: whether a worker takes part in each step, ``(T, P)``; by default from the spec's absences.
        options: further options of `syncline.sim.clocks.training`.
    """
    workers, steps = spec.workers, len(compute_s)
    faulty_network = spec.faults.network(network, workers)
    delay = spec.faults.delay(faulty_network, workers, spec.seeds[0])
    membership = spec.faults.membership(workers)
    if present is None and membership is not None:
        present = membership.table(steps)
    if present is None or present.all():
        return clock(calls, compute_s, faulty_network, workers, steps, delay=delay, **options)
    return phased_clock(present, calls, compute_s, faulty_network, delay=delay, **options)
