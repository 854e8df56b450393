"""Outages of workers, drawn from failure rates or given."""

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
        at_s: time of the failure.
        first: the first worker.
        stop: the worker after the last.
        back_s: time at which their machines can be used again; infinite if never.
    """

    at_s: float
    first: int
    stop: int
    back_s: float = math.inf


def drawn_outages(rate: FailureRate, workers: int, node: int, sites: int, rng: np.random.Generator) -> Iterator[Outage]:
    """Yield failures of one kind in the order of time, without end.

    Each worker, node or site is new at 0, and its next failure counts from its last one, whatever the training does
    about it: so all training methods meet the same failures.

    Args:
        rate: failure rate of one worker, node or site.
        workers: P, number of workers.
        node: number of workers of a node.
        sites: number of equal groups of the workers.
        rng: random generator of the draws.
    """
    width, units = rate.width(workers, node, sites), rate.units(workers, node, sites)
    queue = [(at_s, unit) for unit, at_s in enumerate((rate.scale_s * rng.weibull(rate.shape, units)).tolist())]
    heapq.heapify(queue)
    while True:
        at_s, unit = queue[0]
        yield Outage(at_s, unit * width, min((unit + 1) * width, workers), at_s + rate.repair_s)
        heapq.heapreplace(queue, (at_s + rate.scale_s * float(rng.weibull(rate.shape)), unit))


def all_outages(
    rates: Sequence[FailureRate], scheduled: Iterable[Outage], workers: int, node: int, sites: int, seed: int
) -> Iterator[Outage]:
    """Return all outages in the order of time; the outages of each rate are a random stream of their own."""
    streams = [
        drawn_outages(rate, workers, node, sites, generator(seed, "failures", number))
        for number, rate in enumerate(rates)
    ]
    return heapq.merge(sorted(scheduled), *streams)
