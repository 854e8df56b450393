"""Lockstep: the same times as the event simulation, by recurrences over all workers at once.

If every message has its route for itself, all times follow from maxima and sums: in the max-plus algebra a collective
is a linear map from the times at which workers enter to the times at which they are done. There are three equivalent
ways to apply the map:

- round by round, as the algorithm runs (a ring's rounds many at once, `syncline.sim.lockstep.rings`);
- as a matrix, ``done_i = max_j (entry_j + A_ji)``, with A the map of the unit vectors, computed once;
- as a vector, if all workers enter together: adding a constant commutes with the map.

If transfers share a channel, lockstep follows transfers that begin and end together (`recurrences`),
which is no linear map; for all other transfers lockstep raises `Contention`.

Source: F. Baccelli, G. Cohen, G. J. Olsder, J.-P. Quadrat, "Synchronization and Linearity" (1992), chapter 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, is_direct, is_gloo, is_nccl
from syncline.costmodel.collectives.tcp_slow_start import Opening, collective_opening
from syncline.costmodel.network.link import among
from syncline.costmodel.network.paths import Floats, Star, Topology
from syncline.costmodel.traffic.call import Call, group_ranks
from syncline.sim.lockstep.libraries import run_direct, run_gloo, run_nccl
from syncline.sim.lockstep.recurrences import Ports, run_routed
from syncline.sim.lockstep.routed import CollectiveKey, Contention, RoutedRounds, routed_rounds, shared_channels
from syncline.sim.program.library_rounds import nccl_limits
from syncline.sim.program.rounds import rounds_on, sent_bytes
from syncline.sim.program.timeline import Timeline, Words


class Spans(NamedTuple):
    """The spans of one piece of work on the timelines of P workers, a span for each worker.

    Args:
        start_s: begin for each worker, ``(P,)`` seconds.
        end_s: end for each worker, ``(P,)`` seconds.
        nbytes: bytes that each worker sends.
        members: workers that do the work, with unused values for the others; None for all.
    """

    stream: str
    what: str
    label: str
    start_s: Floats
    end_s: Floats
    nbytes: Floats
    step: int
    members: frozenset[int] | None = None


def timeline_of(all_spans: Iterable[Spans], workers: int) -> Timeline:
    """Return the timeline of these spans of ``workers`` workers."""
    spans_list, all_workers = list(all_spans), np.arange(workers)
    columns: dict[str, Any] = {name: [] for name in ("worker", "start_s", "end_s", "nbytes", "step")}
    for spans in spans_list:
        members = all_workers if spans.members is None else np.array(sorted(spans.members))
        columns["worker"].append(members)
        for name in ("start_s", "end_s", "nbytes", "step"):
            columns[name].append(np.broadcast_to(getattr(spans, name), workers)[members])
    counts = [len(members) for members in columns["worker"]]
    for name, arrays in columns.items():
        columns[name] = np.concatenate(arrays) if arrays else []
    for name in ("stream", "what", "label"):
        columns[name] = Words.repeated([getattr(spans, name) for spans in spans_list], counts)
    return Timeline.from_columns(columns, workers)


def run_collective(
    key: CollectiveKey, rounds: Sequence[Round], routed: Callable[[], RoutedRounds], topology: Topology, ports: Ports,
    rule: Rule,
) -> None:  # fmt: skip
    """Run a collective on ports: change each worker's times to those at which the collective has ended.

    Args:
        routed: function that returns the same rounds on the topology; not called for gloo and direct exchanges, which
            look up the routes themselves.
        ports: ports of the workers that enter, see `Ports.at_entry`; changed in place.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Raises:
        SpecError: an unknown rule.
        Contention: transfers share a channel but do not begin and end together.
    """
    kind, nbytes, algorithm = key
    if is_direct(kind, algorithm):
        run_direct(nbytes, rounds, topology, ports)
    elif is_gloo(kind, algorithm):
        run_gloo(kind, nbytes, rounds, topology, ports)
    elif is_nccl(kind, algorithm):
        rounds_ahead, call_s = nccl_limits(topology, str(algorithm))
        run_nccl(routed(), ports, rounds_ahead, call_s)
    else:
        run_routed(routed(), ports, rule)


def _key_of(call: Call) -> CollectiveKey:
    """Return the key of a call's collective."""
    return CollectiveKey(call.collective, call.payload_bytes, call.algorithm)


def _has_connections(key: CollectiveKey) -> bool:
    """Return whether a worker's messages in a collective share its link, instead of taking turns on it."""
    return is_gloo(key.kind, key.algorithm) or is_direct(key.kind, key.algorithm)


class GroupCollectives:
    """The collectives of a group of P workers in lockstep, one after another on the same ports.

    A worker that is done early sends its first message of the next collective as soon as the receiver's incoming port
    is free, even if the receiver still takes part in the last collective.

    Args:
        topology: the network of the P workers.
        uses: number of times that the training runs each collective. If this is more than P, the collective is
            computed as a max-plus matrix (see the module), which costs as much as P runs.

    Attributes:
        ports: times of the ports after the last collective; minus infinity before the first.
    """

    def __init__(self, topology: Topology, uses: Mapping[CollectiveKey, int], rule: Rule = "eager") -> None:
        """Make the rounds of each collective; refuse collectives that lockstep cannot time."""
        self._topology, self._uses, self._rule = topology, uses, rule
        if any(key.algorithm in TIMED_AS_A_WHOLE for key in uses):
            raise Contention("collectives that are timed as a whole, which only the events can follow")
        self._rounds = {key: rounds_on(key.kind, topology.workers, key.nbytes, topology, key.algorithm) for key in uses}
        self._shared = shared_channels(self._rounds.values(), topology)
        self._routed = cache(partial(routed_rounds, topology=topology, shared=self._shared))  # by collective
        self._ports_after: dict[CollectiveKey, Ports] = {}  # ports after a collective that all workers enter at time 0
        self._port_matrices: dict[CollectiveKey, Ports] = {}  # row j: ports if worker j alone enters, at time 0
        self._sent_bytes: dict[CollectiveKey, Floats] = {}
        self._openings: dict[CollectiveKey, Opening | None] = {}
        self.ports = Ports.at_entry(np.full(topology.workers, -np.inf), len(self._shared))

    def done_s(self, key: CollectiveKey, entry_s: Floats) -> Floats:
        """Run the next collective; return the time at which each worker is done with it, ``(P,)`` seconds.

        Raises:
            Contention: transfers share a channel but do not begin and end together.
        """
        before, workers = self.ports, self._topology.workers
        is_idle = bool(max(before.in_s.max(), before.busy_s.max()) <= entry_s.min())
        if is_idle and np.all(entry_s == entry_s[0]):
            if key not in self._ports_after:
                self._ports_after[key] = self._run(key, np.zeros(workers))
            self.ports = self._ports_after[key].copy()
            self.ports.shift(entry_s[0])  # a later common entry shifts all times equally
        elif is_idle and self._has_matrix(key):
            if key not in self._port_matrices:
                only_worker_enters_s = np.where(np.eye(workers, dtype=bool), 0.0, -np.inf)  # worker j in row j
                self._port_matrices[key] = self._run(key, only_worker_enters_s)
            matrix = self._port_matrices[key]
            # Row j has the times due to worker j's entry. No channel is shared, so none becomes busy.
            received_s, out_s, in_s = ((entry_s[:, None] + times_s).max(axis=0) for times_s in matrix.times_s[:3])
            self.ports = Ports(received_s, out_s, in_s, before.busy_s)
        else:
            self.ports = self._run(key, entry_s, before)
        return self.ports.done_s

    def _has_matrix(self, key: CollectiveKey) -> bool:
        """Return whether a matrix gives a collective's ports: the collective is frequent and shares no channels."""
        is_frequent = self._uses[key] > self._topology.workers
        return is_frequent and not _has_connections(key) and not self._routed(key).shares_channels

    def opening_s(self, key: CollectiveKey, idle_s: Floats) -> Floats | float:
        """Return the seconds by which TCP windows that shrank while idle delay P workers' next collective, ``(P,)``."""
        if key not in self._openings:
            kind, nbytes, algorithm = key
            self._openings[key] = collective_opening(kind, self._topology.workers, nbytes, self._topology, algorithm)
        opening = self._openings[key]
        return 0.0 if opening is None else opening.after_s(idle_s)

    def sent_bytes(self, key: CollectiveKey) -> Floats:
        """Return the bytes that each worker sends in a collective, ``(P,)``."""
        if key not in self._sent_bytes:
            self._sent_bytes[key] = sent_bytes(self._rounds[key], self._topology.workers)
        return self._sent_bytes[key]

    def _run(self, key: CollectiveKey, entry_s: Floats, before: Ports | None = None) -> Ports:
        """Return the ports' times after the rounds of a collective that workers enter at ``entry_s``, ``(..., P)``."""
        ports = Ports.at_entry(entry_s, len(self._shared), before)
        run_collective(key, self._rounds[key], partial(self._routed, key), self._topology, ports, self._rule)
        return ports


class TrainingCollectives:
    """The collectives of a training in lockstep, each among a group of workers.

    A worker has the same ports in all its groups, so its collectives in different groups wait for each other.

    Raises:
        SpecError: an unknown collective or algorithm.
        Contention: some collective is among a part of the workers, and either channels are shared, or the messages of
            a worker share its link.
    """

    def __init__(self, topology: Topology, calls: Iterable[Call], rule: Rule = "eager") -> None:
        """Make the collectives of each group; refuse groups that would disturb each other."""
        uses: dict[tuple[int, ...] | None, Counter[CollectiveKey]] = {}
        for call in calls:
            group_uses = uses.setdefault(group_ranks(call.group, topology.workers), Counter())
            group_uses[_key_of(call)] += 1
        has_own_links = isinstance(topology, Star) and not topology.half_duplex.any()
        has_connections = any(_has_connections(key) for counts in uses.values() for key in counts)
        has_groups = bool(set(uses) - {None})  # the group None has all workers
        if has_groups and (not has_own_links or has_connections):
            raise Contention("collectives of parts of the workers meet on shared channels, or on connections")
        self._workers, self._in_s = topology.workers, np.full(topology.workers, -np.inf)  # incoming ports are free
        self._of_group = {
            group: GroupCollectives(topology if group is None else among(topology, group), counts, rule)
            for group, counts in uses.items()
        }

    def opening_s(self, call: Call, idle_s: Floats) -> Floats | float:
        """Return `GroupCollectives.opening_s` for the call's workers; 0 for workers that take no part."""
        group, key = group_ranks(call.group, self._workers), _key_of(call)
        if group is None:
            return self._of_group[None].opening_s(key, idle_s)
        opening_s, members = np.zeros(self._workers), list(group)
        opening_s[members] = self._of_group[group].opening_s(key, idle_s[members])
        return opening_s

    def done_s(self, call: Call, entry_s: Floats) -> tuple[Floats, Floats]:
        """Run the next call; return the time at which each worker is done, and the bytes that it sent, both ``(P,)``.

        A worker that takes no part is done when it enters.

        Raises:
            Contention: transfers share a channel but do not begin and end together.
        """
        group, key = group_ranks(call.group, self._workers), _key_of(call)
        collectives = self._of_group[group]
        if len(self._of_group) == 1 and group is None:  # no other group uses the ports
            return collectives.done_s(key, entry_s), collectives.sent_bytes(key)
        members = list(range(self._workers) if group is None else group)
        done_s, sent_bytes = entry_s.copy(), np.zeros(self._workers)
        collectives.ports.in_s = self._in_s[members]  # other groups may have used the ports since
        done_s[members], sent_bytes[members] = collectives.done_s(key, entry_s[members]), collectives.sent_bytes(key)
        # A port that received nothing in this collective stays busy as long as before.
        self._in_s[members] = np.maximum(self._in_s[members], collectives.ports.in_s)
        return done_s, sent_bytes
