"""One collective that runs alone on the network: the time at which each worker finishes, and its cost by simulation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import FLAT, Round
from syncline.costmodel.collectives.cost import Rule, collective_s
from syncline.costmodel.collectives.placed import ORDERED_RING
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm
from syncline.costmodel.collectives.volumes import most_messages
from syncline.costmodel.layouts.groups import copies_of_groups, different_groups
from syncline.costmodel.network.link import Link, MemberTopology, among, on_channels_of, topology
from syncline.costmodel.network.paths import Floats, Ints, Network, Topology
from syncline.costmodel.traffic.call import Call
from syncline.errors import SpecError, one_of
from syncline.sim.clocks.overlap import StepTimes, data_parallel, lockstep_spans
from syncline.sim.events.run import events_finish_s, run_events
from syncline.sim.lockstep.maps import run_collective
from syncline.sim.lockstep.recurrences import Ports
from syncline.sim.lockstep.routed import Contention, Key, RoutedRounds, routed_rounds, shared_channels
from syncline.sim.program.instructions import Collective, start_times
from syncline.sim.program.rounds import in_groups, rounds, rounds_on

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
    copies: Ints | None = None,
) -> Floats:
    """Return the time at which each worker is done with a collective that consists of these rounds.

    Args:
        rounds: rounds, with the senders and receivers of each.
        workers: P, number of workers, at least 1.
        network: the network of the workers.
        starts_s: time at which each worker enters, ``(P,)`` seconds; 0 by default.
        evaluator: as in `collective_finish_s`.
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        copies: number of workers for which each stands, ``(P,)``, in lockstep only, see
            `syncline.costmodel.layouts.groups.copies_of_groups`.

    Returns:
        ``(P,)`` seconds; a worker without messages is done when it enters.
    """
    sizes = [round_.nbytes for round_ in rounds]
    nbytes = sum(size if isinstance(size, float) else float(np.sum(size)) for size in sizes)
    join = Collective("rounds", nbytes, key="", rounds=tuple(rounds))
    joined = topology(network, workers)
    routed = partial(RoutedRounds.from_rounds, rounds, joined, copies=copies)
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


MAX_MESSAGES = {"lockstep": 4_000_000, "events": 1_000_000}
"""Largest number of messages of a collective that each evaluator plays for a projection: so many take 0.2 to 2 s."""

MAX_RING_MESSAGES = {"lockstep": 2_000_000_000, "events": 4_000_000}
"""Largest number of messages of a ring without shared channels: all of its rounds are equal, and so many take 1 s."""

MAX_GROUP_MESSAGES = 300_000
"""Largest number of messages of all groups that are played: they take up to 0.6 s, and `advise` asks for hundreds."""


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

    Groups that do the same over channels of their own are simulated once, see
    `syncline.costmodel.layouts.groups.different_groups`.

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
        return _groups_s(kind, workers, nbytes, cast(Network, network), algorithm, rule, group)
    joined = topology(network, workers)
    messages, limits = most_messages(kind, algorithm, workers, network, nbytes), MAX_MESSAGES
    if algorithm in ("ring", ORDERED_RING) and messages > min(limits.values()):
        ring = rounds_on(kind, workers, nbytes, joined, algorithm)[:1]
        limits = limits if shared_channels([ring], joined).any() else MAX_RING_MESSAGES
    for evaluator, limit in limits.items():
        if messages > limit:
            return math.nan, _too_many(kind, algorithm, f"{workers:,}", messages, evaluator, limit)
        with contextlib.suppress(Contention):
            seconds = collective_finish_s(kind, workers, nbytes, network, algorithm, evaluator=evaluator, rule=rule)
            return float(seconds.max()), evaluator
    raise AssertionError("the events simulate every collective")


def _too_many(kind: str, algorithm: str, parts: str, messages: int, evaluator: str, limit: int) -> str:
    """Return why a collective among some workers or groups has no time."""
    reason = f"{messages:,} messages are too many to play by {evaluator}, which plays at most {limit:,}"
    return f"{kind} by {algorithm} among {parts} has no closed form here: {reason}"


def _groups_s(
    kind: str, workers: int, nbytes: float, network: Network, algorithm: str, rule: Rule, group: range
) -> tuple[float, str]:
    """Return what `simulated_s` returns for a collective that all groups run at once.

    Lockstep plays groups that stand for equal ones on shared channels, too, the events all that meet.
    """
    met = different_groups(group, workers, network)
    joined, parts = topology(network, workers), f"{len(met):,} groups of {len(group):,}"
    messages = len(met) * most_messages(kind, algorithm, len(group), network, nbytes)
    for evaluator in MAX_MESSAGES:
        if messages > MAX_GROUP_MESSAGES:
            return math.nan, _too_many(kind, algorithm, parts, messages, evaluator, MAX_GROUP_MESSAGES)
        with contextlib.suppress(Contention):
            if algorithm not in FLAT[kind]:
                members = among(joined, met.ravel())
                seconds = _groups_finish_s(kind, len(met), nbytes, members, algorithm, rule, evaluator)
            elif evaluator == "lockstep":
                groups, copies = copies_of_groups(group, workers, network)
                members = among(joined, groups.ravel())
                seconds = _flat_groups_finish_s(kind, nbytes, members, copies, algorithm, rule, evaluator)
            else:
                one_each, members = np.ones(len(met), dtype=np.int64), among(joined, met.ravel())
                seconds = _flat_groups_finish_s(kind, nbytes, members, one_each, algorithm, rule, evaluator)
            return float(seconds.max()), evaluator
    raise AssertionError("the events simulate every collective")


def _flat_groups_finish_s(
    kind: str, nbytes: float, joined: Topology, copies: Ints, algorithm: str, rule: Rule, evaluator: str
) -> Floats:
    """Return the time at which each worker is done with rounds that all groups run, whatever their places.

    Each group stands for ``copies`` groups, and has as many workers of the topology ``joined`` as the others, one group
    after another.
    """
    size = joined.workers // len(copies)
    all_rounds = tuple(in_groups(rounds(kind, size, nbytes, algorithm), size * np.arange(len(copies)), 1))
    part, different = joined, {id(round_): round_ for round_ in all_rounds}.values()
    if different and isinstance(joined, MemberTopology):
        senders, receivers = (np.concatenate([round_[end] for round_ in different]) for end in (0, 1))
        part = on_channels_of(joined, senders, receivers)
    workers_alike = None if (copies == 1).all() else np.repeat(copies, size)
    return rounds_finish_s(all_rounds, part.workers, part, evaluator=evaluator, rule=rule, copies=workers_alike)


def _groups_finish_s(
    kind: str, groups: int, nbytes: float, joined: Topology, algorithm: str, rule: Rule, evaluator: str
) -> Floats:
    """Return the time at which each worker is done with a collective that all groups run at once, ``(P,)`` seconds.

    Each of the ``groups`` has as many workers of the topology ``joined``, one group after another.
    """
    size = joined.workers // groups
    times = StepTimes.checked(np.zeros((1, joined.workers)))
    firsts = range(0, joined.workers, size)
    calls = [Call(0, kind, nbytes, range(first, first + size), algorithm) for first in firsts]
    if evaluator == "lockstep":
        return np.array([float(spans.end_s.max()) for spans in lockstep_spans(times, calls, joined, None, rule)])
    return run_events(data_parallel(times, calls), joined, None, rule).end_s
