"""The replay of a record on a network, as a simulated timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from syncline.allocator import paused_garbage_collection
from syncline.costmodel import Hardware, Link, Network, chosen_algorithm
from syncline.costmodel.collectives.hierarchical import first_group_like
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.collectives.table import OF_GLOO, default_algorithm
from syncline.costmodel.collectives.vectorised import collective_prices, group_algorithm
from syncline.costmodel.network.topology import among, topology
from syncline.errors import SpecError
from syncline.measure.recording.record import RankRecord, Started
from syncline.measure.replaying.programs import MeasuredComputing, known_host, programs_of
from syncline.sim import Timeline, collective_finish_s, run_events
from syncline.sim.clocks.simulated import simulated_s

MOST_PLAYED = 32
"""Largest number of ranks whose collectives are simulated message by message, before closed forms replace it."""


def algorithms_on(network: Network, workers: int, policy: str | None) -> Callable[[Started], str | None]:
    """Return a function that gives the algorithm of each collective.

    It returns None, so that the simulator uses its default, if no algorithm is set, or if a part of the workers
    takes part for which no closed form tells the fastest.
    """

    @cache
    def chosen(kind: str, ranks: tuple[int, ...], nbytes: float) -> str | None:
        if policy is None:
            return None
        if len(ranks) < workers and not isinstance(network, Link):
            return group_algorithm(kind, ranks, workers, max(nbytes, 1.0), network, policy, simulated_s)
        if policy == "auto":
            return group_algorithm(kind, range(workers), workers, max(nbytes, 1.0), network, policy, simulated_s)
        return chosen_algorithm(policy, kind, len(ranks), max(nbytes, 1.0), network)

    return lambda event: chosen(event.kind, event.ranks, event.payload_bytes)


def streams_on(network: Network, algorithm: Callable[[Started], str | None]) -> Callable[[Started], str]:
    """Return a function that gives the stream on which a collective runs.

    Each group has one stream; with gloo it has two, because torch starts two threads for each group of gloo.
    """

    def stream(event: Started) -> str:
        name = f"group {event.key[0]}"
        algorithm_name = algorithm(event) or default_algorithm(event.kind, network)
        return f"{name}, {event.key[1] % GLOO_THREADS + 1}" if algorithm_name in OF_GLOO[event.kind] else name

    return stream


GLOO_THREADS = 2
"""Number of threads that torch starts for each group of gloo: collectives of one group run two at a time."""


@dataclass(frozen=True)
class Replayed:
    """A record on a network.

    Args:
        timeline: the simulated spans.
        step_end_s: the seconds at which each step ended on the last rank that had it, ``(T,)``.
    """

    timeline: Timeline
    step_end_s: np.ndarray


def replay(
    ranks: Sequence[RankRecord],
    network: Network,
    hardware: Hardware | MeasuredComputing,
    algorithm: str | None = None,
    host: str | None = None,
) -> Replayed:
    """Simulate a record on a network, and return its timeline.

    Args:
        algorithm: algorithm of all collectives; None: ``auto``, or that of the network's library.
        host: ``ahead`` or ``waits``; None: as hosts of the hardware do.

    Raises:
        SpecError: the network cannot join the ranks, or the ranks neither compute nor communicate.
    """
    policy = algorithm_or_auto(algorithm, network)
    price = group_price(network, len(ranks), policy) if len(ranks) > MOST_PLAYED else None
    with paused_garbage_collection():
        algorithm_of = algorithms_on(network, len(ranks), policy)
        stream_of = streams_on(network, algorithm_of)
        programs = programs_of(ranks, hardware, algorithm_of, stream_of, known_host(host, hardware), price)
        timeline = run_events(programs, network)
    steps = max((rank.steps for rank in ranks), default=0)
    if not len(timeline.end_s):
        raise SpecError("script", "no computing and no communication", "one that computes or communicates")
    ends = np.zeros(steps + 1)
    np.maximum.at(ends, np.minimum(timeline.step, steps), timeline.end_s * timeline.on_compute)
    step_end_s = np.maximum.accumulate(ends)[:steps]
    return Replayed(timeline, step_end_s)


def group_price(network: Network, workers: int, policy: str | None) -> Callable[[Started], float]:
    """Return a function that gives the seconds of a collective of any group, without simulating each message.

    The price is that of projections (`collective_prices`): all groups like this one call the collective at the same
    time, and share cards and uplinks. A group that no others are like is simulated by itself.

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
