"""The time at which each worker finishes one collective that runs alone on the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Network, Topology, topology
from syncline.errors import SpecError, one_of
from syncline.sim.collectives.rounds import rounds_on
from syncline.sim.events.run import events_finish_s
from syncline.sim.lockstep.maps import run_collective
from syncline.sim.lockstep.recurrences import Ports, Rule
from syncline.sim.lockstep.routed import Contention, Key, RoutedRounds, routed_rounds
from syncline.sim.program.instructions import Collective, start_times

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
        evaluator: ``lockstep``, ``events``, or ``auto``.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Returns:
        ``(P,)`` seconds; a worker without messages is done when it enters.

    Raises:
        SpecError: an argument that cannot be used.
        Contention: with lockstep, transfers share a channel in a way that only the events can follow.
    """
    sizes = [round_.nbytes for round_ in rounds]
    nbytes = sum(size if isinstance(size, float) else float(np.sum(size)) for size in sizes)
    join = Collective("rounds", nbytes, key="", rounds=tuple(rounds))
    joined = topology(network, workers)
    routed = partial(RoutedRounds.from_rounds, rounds, joined)
    return _finish_s(join, joined, start_times(starts_s, workers), evaluator, rule, routed)


def _finish_s(
    join: Collective, joined: Topology, starts_s: Floats, evaluator: str, rule: Rule, routed: Callable[[], RoutedRounds]
) -> Floats:
    """Return the time at which each worker is done with a collective, ``(P,)`` seconds, from the evaluator."""
    if evaluator not in EVALUATORS:
        raise SpecError("evaluator", evaluator, one_of(EVALUATORS, evaluator))
    if evaluator != "events":
        try:
            ports = Ports.at_entry(starts_s, len(joined.bandwidth_bytes_per_s))
            key = Key(join.kind, join.nbytes, join.algorithm)
            run_collective(key, join.rounds or (), routed, joined, ports, rule)
            return ports.done_s
        except Contention:
            if evaluator == "lockstep":
                raise
    return events_finish_s(join, joined, starts_s, rule)
