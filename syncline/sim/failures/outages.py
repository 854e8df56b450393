"""Outages of workers, drawn from failure rates or listed in a spec."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.reliability.rates import FailureRate
from syncline.seeds import generator


class Outage(NamedTuple):
    """A simultaneous failure of the machines of neighbouring workers.

    Attributes:
        at_s: time of the failure, in seconds from the beginning of the training.
        first: the first worker whose machine fails.
        stop: the worker after the last such worker.
        back_s: time at which the machines can be used again, in seconds; infinite if never.
    """

    at_s: float
    first: int
    stop: int
    back_s: float = math.inf


def drawn_outages(rate: FailureRate, workers: int, node: int, sites: int, rng: np.random.Generator) -> Iterator[Outage]:
    """Yield failures of one kind in the order of time, without end.

    Each worker, node or site is new at 0, and the seconds to its next failure count from its last failure, whatever the
    training does: so all training methods meet the same failures.

    Args:
        rate: failure rate of one unit: a worker, node or site.
        workers: number of workers.
        node: number of workers of a node.
        sites: number of equal groups of the workers.
        rng: random generator of the draws.
    """
    unit_workers, units = rate.width(workers, node, sites), rate.units(workers, node, sites)
    queue = [(at_s, unit) for unit, at_s in enumerate((rate.scale_s * rng.weibull(rate.shape, units)).tolist())]
    heapq.heapify(queue)
    while True:
        at_s, unit = queue[0]
        first = unit * unit_workers
        yield Outage(at_s, first, min(first + unit_workers, workers), at_s + rate.repair_s)
        heapq.heapreplace(queue, (at_s + rate.scale_s * float(rng.weibull(rate.shape)), unit))


def all_outages(
    rates: Sequence[FailureRate], scheduled: Iterable[Outage], workers: int, node: int, sites: int, seed: int
) -> Iterator[Outage]:
    """Return the drawn and scheduled outages in the order of time; each rate has a random stream of its own."""
    streams = [
        drawn_outages(rate, workers, node, sites, generator(seed, "failures", number))
        for number, rate in enumerate(rates)
    ]
    return heapq.merge(sorted(scheduled), *streams)
