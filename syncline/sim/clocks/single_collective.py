"""One collective that runs alone on the network: the time at which each worker finishes, and its cost by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.placed import ORDERED_RING
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm
from syncline.costmodel.collectives.volumes import most_messages
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.costmodel.traffic.call import Call, groups_like
from syncline.errors import SpecError, one_of
from syncline.sim.clocks.overlap import StepTimes, data_parallel, lockstep_spans
from syncline.sim.events.run import events_finish_s, run_events
from syncline.sim.lockstep.maps import run_collective
from syncline.sim.lockstep.recurrences import Ports, Rule
from syncline.sim.lockstep.routed import Contention, Key, RoutedRounds, routed_rounds
from syncline.sim.program.instructions import Collective, start_times
from syncline.sim.program.rounds import rounds_on

EVALUATORS = ("auto", "lockstep", "events")


def collective_finish_s(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network | Topology | Sequence[Link],
    algorithm: str | None = None,
    starts_s: ArrayLike | None = None,
    evaluator: str = "auto",
    rule: Rule = "eager",
) -> Floats:
    """Return the time at which each worker has received and sent its last message of a collective.

    Args:
        kind: the collective, one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        workers: P, number of workers, at least 1.
        nbytes: n, bytes with the meaning that the collective's closed form gives them.
        network: the link that every worker has, one link per worker, or a larger network.
        algorithm: one of ``ALGORITHMS[kind]`` in `syncline.costmodel.collectives.table`; on a network of nodes or sites
            also one of ``HIERARCHICAL[kind]``; or an algorithm of gloo or NCCL, ``OF_GLOO[kind]`` or
            ``OF_NCCL[kind]``, to which no rule applies. For None see ``default_algorithm`` in the same module.
        starts_s: time at which each worker enters, ``(P,)`` seconds; 0 by default.
        evaluator: ``events``, the event simulation; ``lockstep``, recurrences over rounds; or ``auto``, lockstep if it
            supports the collective, else the events.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Returns:
        ``(P,)`` seconds; the largest is the end of the collective.

    Raises:
        SpecError: an argument that cannot be used.
        Contention: with lockstep, transfers share a channel in a way that only the events can follow.

    >>> collective_finish_s("all_gather", 3, 4.0, Link(10.0, 1.0), starts_s=[100.0, 0.0, 0.0]).tolist()
    [108.0, 118.0, 128.0]
    """
    joined = topology(network, workers)
    algorithm = default_algorithm(kind, joined) if algorithm is None else algorithm
    if algorithm in TIMED_AS_A_WHOLE:
        seconds = float(collective_s(kind, workers, nbytes, joined, algorithm))
        return np.full(workers, start_times(starts_s, workers).max() + seconds)
    collective_rounds = rounds_on(kind, workers, nbytes, joined, algorithm)
    join = Collective(kind, nbytes, key="", algorithm=algorithm, rounds=collective_rounds)
    routed = partial(routed_rounds, Key(kind, nbytes, algorithm), joined)
    return _finish_s(join, joined, start_times(starts_s, workers), evaluator, rule, routed)


def rounds_finish_s(
    rounds: Sequence[Round],
    workers: int,
    network: Network | Topology | Sequence[Link],
    starts_s: ArrayLike | None = None,
    evaluator: str = "auto",
    rule: Rule = "eager",
) -> Floats:
    """Return the time at which each worker is done with a collective that consists of these rounds.

    Args:
        rounds: rounds, with the senders and receivers of each.
        workers: P, number of workers, at least 1.
        network: the network of the workers.
        starts_s: time at which each worker enters, ``(P,)`` seconds; 0 by default.
        evaluator: as in `collective_finish_s`.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Returns:
        ``(P,)`` seconds; a worker without messages is done when it enters.
    """
    sizes = [round_.nbytes for round_ in rounds]
    nbytes = sum(size if isinstance(size, float) else float(np.sum(size)) for size in sizes)
    join = Collective("rounds", nbytes, key="", rounds=tuple(rounds))
    joined = topology(network, workers)
    routed = partial(RoutedRounds.from_rounds, rounds, joined)
    return _finish_s(join, joined, start_times(starts_s, workers), evaluator, rule, routed)


def _finish_s(
    join: Collective,
    worker_topology: Topology,
    starts_s: Floats,
    evaluator: str,
    rule: Rule,
    routed: Callable[[], RoutedRounds],
) -> Floats:
    """Return the time at which each worker is done with a collective, ``(P,)`` seconds, from the evaluator."""
    if evaluator not in EVALUATORS:
        raise SpecError("evaluator", evaluator, one_of(EVALUATORS, evaluator))
    if evaluator != "events":
        try:
            ports = Ports.at_entry(starts_s, len(worker_topology.bandwidth_bytes_per_s))
            key = Key(join.kind, join.nbytes, join.algorithm)
            run_collective(key, join.rounds or (), routed, worker_topology, ports, rule)
            return ports.done_s
        except Contention:
            if evaluator == "lockstep":
                raise
    return events_finish_s(join, worker_topology, starts_s, rule)


MAX_MESSAGES = {"lockstep": 4_000_000, "events": 300_000}
"""Limit on the messages of one collective that each evaluator simulates: so many take a second or two."""

MAX_RING_MESSAGES = 64_000_000
"""Limit on the messages of a ring in lockstep, which is higher because all rounds of a ring are the same."""


@lru_cache(maxsize=4096)
def simulated_s(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network | Topology,
    algorithm: str,
    rule: Rule = "eager",
    group: range | None = None,
) -> tuple[float, str]:
    """Return the seconds of a collective whose workers start together, and the evaluator; or nan, and the reason.

    Args:
        kind: the collective, one of `syncline.costmodel.COLLECTIVES`.
        workers: number of workers.
        nbytes: bytes of the collective.
        network: network that joins the workers.
        algorithm: algorithm of the collective.
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        group: the first of several groups that each run the collective at the same time, see
            `syncline.costmodel.traffic.call.groups_like`; if None, all workers run one collective.
    """
    if group is not None:
        return _groups_s(kind, group, workers, nbytes, network, algorithm, rule)
    description = f"{kind} by {algorithm} among {workers:,}"
    messages = most_messages(kind, algorithm, workers, network, nbytes)
    limits = MAX_MESSAGES | ({"lockstep": MAX_RING_MESSAGES} if algorithm in ("ring", ORDERED_RING) else {})
    if messages > max(limits.values()):
        return math.nan, f"{description} has no closed form here, and {messages:,} messages are too many to play"
    for evaluator, limit in limits.items():
        if messages > limit:
            reason = f"{description} has no closed form here; {messages:,} messages that meet are too many for events"
            return math.nan, reason
        try:
            finish_s = collective_finish_s(kind, workers, nbytes, network, algorithm, evaluator=evaluator, rule=rule)
            return float(finish_s.max()), evaluator
        except Contention:
            continue
    raise AssertionError("the events simulate every collective")


def _groups_s(
    kind: str, group: range, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule
) -> tuple[float, str]:
    """Return the seconds of a collective in all groups like ``group`` at once, and the evaluator; or nan, and why."""
    groups = groups_like(group, workers)
    messages = len(groups) * most_messages(kind, algorithm, len(group), network, nbytes)
    if messages > MAX_MESSAGES["events"]:
        return (
            math.nan,
            f"{kind} by {algorithm} among {len(groups):,} parts: {messages:,} messages are too many to play",
        )
    joined = topology(network, workers)
    times = StepTimes.checked(np.zeros((1, workers)))
    calls = [Call(0, kind, nbytes, members, algorithm) for members in groups]
    try:
        return max(float(spans.end_s.max()) for spans in lockstep_spans(times, calls, joined, None, rule)), "lockstep"
    except Contention:
        timeline = run_events(data_parallel(times, calls), joined, None, rule)
        return float(timeline.end_s.max(initial=0.0)), "events"
