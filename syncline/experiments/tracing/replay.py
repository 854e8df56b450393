"""What a record takes on a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from syncline.allocator import no_collection
from syncline.backend.tracing.record import RankRecord, Started
from syncline.costmodel import Hardware, Link, Network, chosen_algorithm
from syncline.costmodel.collectives.policies import unless_named
from syncline.costmodel.collectives.table import OF_GLOO, first_on
from syncline.errors import SpecError
from syncline.experiments.tracing.computing import MeasuredComputing
from syncline.experiments.tracing.prices import group_price
from syncline.experiments.tracing.programs import known_host, programs_of
from syncline.sim import Timeline, run_events

MOST_PLAYED = 32
"""Ranks whose collectives are played message by message; of more, each takes what its closed form says."""


def carrier(network: Network, workers: int, wanted: str | None) -> Callable[[Started], str | None]:
    """Which algorithm carries each collective; of ``auto`` the fastest where all take part, or links are alike."""

    @cache
    def chosen(kind: str, size: int, nbytes: float) -> str | None:
        if wanted is None or (size < workers and not isinstance(network, Link)):
            return None
        return chosen_algorithm(wanted, kind, size, max(nbytes, 1.0), network)

    return lambda event: chosen(event.kind, len(event.ranks), event.payload_bytes)


def lanes(network: Network, algorithm: Callable[[Started], str | None]) -> Callable[[Started], str]:
    """The stream that a collective runs on: one of its group's, of which gloo has two, as it has two threads."""

    def stream(event: Started) -> str:
        name = f"group {event.key[0]}"
        by = algorithm(event) or first_on(event.kind, network)
        return f"{name}, {event.key[1] % GLOO_THREADS + 1}" if by in OF_GLOO[event.kind] else name

    return stream


GLOO_THREADS = 2
"""Of each group, which torch starts: collectives of one group run two at a time."""


@dataclass(frozen=True)
class Replayed:
    """A record on a network.

    Args:
        timeline: what happened.
        step_end_s: when each step ended on the last rank that had it.
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
    """What a record takes on a network.

    Args:
        ranks: the record.
        network: that joins them.
        hardware: that computes.
        algorithm: of all collectives; none: ``auto``, or what the network's library runs.
        host: ``ahead`` or ``waits``; none: as hosts of the hardware do.

    Raises:
        SpecError: ranks that the network cannot join, or that have nothing in common.
    """
    wanted = unless_named(algorithm, network)
    price = group_price(network, len(ranks), wanted) if len(ranks) > MOST_PLAYED else None
    with no_collection():
        carried = carrier(network, len(ranks), wanted)
        programs = programs_of(ranks, hardware, carried, lanes(network, carried), known_host(host, hardware), price)
        timeline = run_events(programs, network)
    steps = max((rank.steps for rank in ranks), default=0)
    if not len(timeline.end_s):
        raise SpecError("script", "no computing and no communication", "one that computes or communicates")
    ends = np.zeros(steps + 1)
    np.maximum.at(ends, np.minimum(timeline.step, steps), timeline.end_s * timeline.on_compute)
    step_end_s = np.maximum.accumulate(ends)[:steps]
    return Replayed(timeline, step_end_s)
