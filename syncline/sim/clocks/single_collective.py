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
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm
from syncline.costmodel.collectives.volumes import most_messages, repeats_rounds
from syncline.costmodel.layouts.groups import copies_of_groups, different_groups
from syncline.costmodel.network.link import Link, MemberTopology, among, on_channels_of, topology
from syncline.costmodel.network.paths import Floats, Ints, Network, Topology
from syncline.costmodel.traffic.call import Call
from syncline.errors import require_one_of
from syncline.sim.clocks.overlap import StepTimes, data_parallel, lockstep_spans
from syncline.sim.events.run import events_finish_s, run_events
from syncline.sim.lockstep.collectives import run_collective
from syncline.sim.lockstep.recurrences import Ports
from syncline.sim.lockstep.routed import CollectiveKey, Contention, RoutedRounds, routed_rounds, shared_channels
from syncline.sim.program.instructions import Collective, start_times
from syncline.sim.program.rounds import in_groups, rounds, rounds_on

EVALUATORS = ("auto", "lockstep", "events")
"""Ways to compute the times of a collective; ``auto`` is lockstep where it can follow the messages, else the events."""


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
        nbytes: n, bytes with the meaning that the collective's closed form gives them.
        network: the link that every worker has, one link per worker, or a larger network.
        algorithm: one of ``ALGORITHMS[kind]`` in `syncline.costmodel.collectives.table`; on a network of nodes or sites
            also one of ``HIERARCHICAL[kind]``; or one of ``OF_GLOO[kind]`` or ``OF_NCCL[kind]``, which ignore ``rule``.
            None: the ``default_algorithm`` of that module.
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
    worker_topology = topology(network, workers)
    algorithm = default_algorithm(kind, worker_topology) if algorithm is None else algorithm
    if algorithm in TIMED_AS_A_WHOLE:
        seconds = float(collective_s(kind, workers, nbytes, worker_topology, algorithm))
        return np.full(workers, start_times(starts_s, workers).max() + seconds)
    collective_rounds = rounds_on(kind, workers, nbytes, worker_topology, algorithm)
    collective = Collective(kind, nbytes, key="", algorithm=algorithm, rounds=collective_rounds)
    routed = partial(routed_rounds, CollectiveKey(kind, nbytes, algorithm), worker_topology)
    return _finish_s(collective, worker_topology, start_times(starts_s, workers), evaluator, rule, routed)


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
        starts_s: time at which each worker enters, ``(P,)`` seconds; 0 by default.
        evaluator: as in `collective_finish_s`.
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        copies: number of equal workers that each worker stands for, ``(P,)``, in lockstep only; see
            `syncline.costmodel.layouts.groups.copies_of_groups`.

    Returns:
        ``(P,)`` seconds; a worker without messages is done when it enters.
    """
    sizes = [round_.nbytes for round_ in rounds]
    nbytes = sum(size if isinstance(size, float) else float(np.sum(size)) for size in sizes)
    collective = Collective("rounds", nbytes, key="", rounds=tuple(rounds))
    worker_topology = topology(network, workers)
    routed = partial(RoutedRounds.from_rounds, rounds, worker_topology, copies=copies)
    return _finish_s(collective, worker_topology, start_times(starts_s, workers), evaluator, rule, routed)


def _finish_s(
    collective: Collective, worker_topology: Topology, starts_s: Floats, evaluator: str, rule: Rule,
    routed: Callable[[], RoutedRounds],
) -> Floats:  # fmt: skip
    """Return the time at which each worker is done with a collective on a topology, ``(P,)`` seconds.

    ``evaluator`` is as in `collective_finish_s`; ``routed`` is a function that returns the rounds on the topology.
    """
    require_one_of("evaluator", evaluator, EVALUATORS)
    if evaluator != "events":
        try:
            ports = Ports.at_entry(starts_s, len(worker_topology.bandwidth_bytes_per_s))
            key = CollectiveKey(collective.kind, collective.nbytes, collective.algorithm)
            run_collective(key, collective.rounds or (), routed, worker_topology, ports, rule)
            return ports.done_s
        except Contention:
            if evaluator == "lockstep":
                raise
    return events_finish_s(collective, worker_topology, starts_s, rule)


MAX_MESSAGES = {"lockstep": 12_000_000, "events": 1_000_000}
"""Largest number of messages of a collective that each evaluator plays for a projection: so many take about 1 s."""

MAX_REPEATED_MESSAGES = {"lockstep": 2_000_000_000, "events": 4_000_000}
"""The same for algorithms with equal rounds that share no channels, such as a ring: so many also take about 1 s."""

MAX_GROUP_MESSAGES = 300_000
"""Largest number of messages of all groups that are played, because `advise` asks for hundreds of such collectives.

In lockstep, so many take 0.03 s in a ring and 0.3 s if all rounds differ; events take 0.2 to 0.7 s."""

MAX_REPEATED_GROUP_MESSAGES = 10_000_000
"""The same in lockstep for groups whose rounds are equal and share no channels: so many take 0.02 s."""


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

    Groups with equal, separate channels are simulated once, see `syncline.costmodel.layouts.groups.different_groups`.

    Args:
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        group: the first of several groups that each run the collective at the same time, see
            `syncline.costmodel.traffic.call.groups_like`; if None, all workers run one collective.
    """
    if group is not None:
        return _groups_s(kind, workers, nbytes, cast(Network, network), algorithm, rule, group)
    worker_topology = topology(network, workers)
    messages, limits = most_messages(kind, algorithm, workers, network, nbytes), MAX_MESSAGES  # limits by evaluator
    if repeats_rounds(kind, algorithm) and messages > min(limits.values()):
        all_rounds = rounds_on(kind, workers, nbytes, worker_topology, algorithm)
        if not shared_channels([all_rounds], worker_topology).any():
            limits = MAX_REPEATED_MESSAGES
    for evaluator, limit in limits.items():  # lockstep first, because it is faster
        if messages > limit:
            return math.nan, _too_many_messages(kind, algorithm, f"{workers:,}", messages, evaluator, limit)
        with contextlib.suppress(Contention):  # what lockstep cannot follow, the events simulate
            seconds = collective_finish_s(kind, workers, nbytes, network, algorithm, evaluator=evaluator, rule=rule)
            return float(seconds.max()), evaluator
    raise AssertionError("the events simulate every collective")


def _too_many_messages(kind: str, algorithm: str, participants: str, messages: int, evaluator: str, limit: int) -> str:
    """Return the reason why a collective among some workers or groups has no time: it has too many messages."""
    reason = f"{messages:,} messages are too many for {evaluator}, which simulates at most {limit:,}"
    return f"{kind} by {algorithm} among {participants} has no closed form here: {reason}"


def _groups_s(
    kind: str, workers: int, nbytes: float, network: Network, algorithm: str, rule: Rule, group: range
) -> tuple[float, str]:
    """Return the seconds of a collective that all groups run at once, and the evaluator; or nan, and the reason.

    Arguments are as in `simulated_s`. If the algorithm's rounds do not depend on places, in lockstep one group stands
    for all equal groups on its channels.
    """
    groups = different_groups(group, workers, network)
    worker_topology = topology(network, workers)
    participants = f"{len(groups):,} groups of {len(group):,}"
    messages_of_group = most_messages(kind, algorithm, len(group), network, nbytes)
    is_flat = algorithm in FLAT[kind]  # its rounds do not depend on the places of the workers
    for evaluator in ("lockstep", "events"):  # the faster one first
        simulated_groups, copies = groups, np.ones(len(groups), dtype=np.int64)
        may_copy = is_flat and evaluator == "lockstep"
        if may_copy:
            simulated_groups, copies = copies_of_groups(group, workers, network)
        messages, limit = len(simulated_groups) * messages_of_group, MAX_GROUP_MESSAGES
        members = among(worker_topology, simulated_groups.ravel())
        if messages > limit and may_copy and repeats_rounds(kind, algorithm):
            # Equal rounds are one object, and cost little if no two groups share a channel.
            different_rounds = {id(round_): round_ for round_ in rounds(kind, len(group), nbytes, algorithm)}
            first_ranks = len(group) * np.arange(len(simulated_groups))
            group_rounds = tuple(in_groups(different_rounds.values(), first_ranks, stride=1))
            if not shared_channels([group_rounds], members).any():
                limit = MAX_REPEATED_GROUP_MESSAGES
        if messages > limit:
            return math.nan, _too_many_messages(kind, algorithm, participants, messages, evaluator, limit)
        with contextlib.suppress(Contention):  # what lockstep cannot follow, the events simulate
            if is_flat:
                seconds = _flat_groups_finish_s(kind, nbytes, members, copies, algorithm, rule, evaluator)
            else:
                seconds = _groups_finish_s(kind, len(groups), nbytes, members, algorithm, rule, evaluator)
            return float(seconds.max()), evaluator
    raise AssertionError("the events simulate every collective")


def _flat_groups_finish_s(
    kind: str, nbytes: float, members: Topology, copies: Ints, algorithm: str, rule: Rule, evaluator: str
) -> Floats:
    """Return the time at which each worker is done with a collective that all groups run at once, ``(P,)`` seconds.

    All groups run the same rounds. The workers of ``members`` are in the order of the groups; group g stands for
    ``copies[g]`` equal groups.
    """
    group_size = members.workers // len(copies)
    group_rounds = rounds(kind, group_size, nbytes, algorithm)
    all_rounds = tuple(in_groups(group_rounds, first_ranks=group_size * np.arange(len(copies)), stride=1))
    distinct_rounds = {id(round_): round_ for round_ in all_rounds}.values()
    topology = members
    if distinct_rounds and isinstance(members, MemberTopology):  # a part of a larger network
        senders = np.concatenate([round_.senders for round_ in distinct_rounds])
        receivers = np.concatenate([round_.receivers for round_ in distinct_rounds])
        topology = on_channels_of(members, senders, receivers)  # fewer channels take less time to simulate
    worker_copies = None if (copies == 1).all() else np.repeat(copies, group_size)
    return rounds_finish_s(all_rounds, members.workers, topology, evaluator=evaluator, rule=rule, copies=worker_copies)


def _groups_finish_s(
    kind: str, groups: int, nbytes: float, members: Topology, algorithm: str, rule: Rule, evaluator: str
) -> Floats:
    """Return seconds, the latest of which is the end of a collective that all groups run at once.

    The workers of ``members`` are in the order of the groups, which have equal sizes.
    """
    group_size = members.workers // groups
    times = StepTimes.checked(np.zeros((1, members.workers)))  # one step, without computing
    calls = []
    for first in range(0, members.workers, group_size):
        group = range(first, first + group_size)
        calls.append(Call(step=0, collective=kind, payload_bytes=nbytes, group=group, algorithm=algorithm))
    if evaluator == "lockstep":
        return np.array([float(spans.end_s.max()) for spans in lockstep_spans(times, calls, members, rule=rule)])
    return run_events(data_parallel(times, calls), members, rule=rule).end_s
