"""Kinds of collectives in a simulation: the fields on which participants must agree, and their plans.

A kind's plan is made when its first collective begins, from the plan of the collective's rounds. The latter is cached
between simulations (`syncline.sim.events.plans`); workers and routes are new in each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.table import is_direct, is_gloo, is_nccl, nccl_on
from syncline.costmodel.collectives.tcp_slow_start import collective_opening
from syncline.costmodel.network.link import among
from syncline.costmodel.network.paths import Topology
from syncline.costmodel.network.places import Places
from syncline.costmodel.network.software_costs import FREE
from syncline.costmodel.network.tcp import TIMEOUT_TOLERANCE
from syncline.errors import SynclineError
from syncline.sim.events.plans import Plan, Routes, plan_of
from syncline.sim.events.state import CoreState, copy_records
from syncline.sim.program.instructions import Collective
from syncline.sim.program.library_rounds import POSTING_FIRST, RINGS_OF_GLOO, gloo_rounds_ahead, nccl_limits
from syncline.sim.program.rounds import direct_rounds_ahead, places_for, rounds, software_s

POSTS_FIRST, ISSUES_FIRST, PUSHES = 1, 2, 3
"""Order of clears-to-send and messages of gloo's collectives; a direct exchange pushes, without clears-to-send."""


class CollectiveKind(NamedTuple):
    """A kind of collective: the fields on which all workers that join a collective must agree.

    Attributes:
        collective: the first collective of this kind, whose rounds make the plan.
        group: the workers of the collective; all if None.
        places: place of each worker in the group.
    """

    collective: Collective
    group: NDArray[np.int64] | None
    places: dict[int, int]


class CollectiveKinds:
    """The kinds of collectives of a simulation, and the plan of each kind in the core's tables."""

    def __init__(self, state: CoreState, topology: Topology, routes: Routes, workers: int) -> None:
        self._state, self._topology, self._routes, self._workers = state, topology, routes, workers
        self._inner_sizes: dict[tuple[int, ...] | None, tuple[int, ...] | None] = {}  # of nodes, by group
        self._places: dict[Hashable, Places | None] = {}
        self._number_of_fields: dict[Hashable, int] = {}  # of the kind with these agreed fields
        self._kinds: list[CollectiveKind] = []
        # By the id of a collective, which is stored with the value so that no other object gets this id.
        self._number_of_id: dict[int, tuple[Collective, int]] = {}
        self._receives: dict[int, tuple[Collective, list[bool]]] = {}  # whether each rank receives messages

    def __getitem__(self, kind_number: int) -> CollectiveKind:
        return self._kinds[kind_number]

    def number_of(self, collective: Collective) -> int:
        """Return the number of a collective's kind, a new one for a new kind."""
        if id(collective) in self._number_of_id:
            _, number = self._number_of_id[id(collective)]
            return number
        agreed = attrgetter("kind", "nbytes", "algorithm", "group", "stream", "takes_s")(collective)
        fields = agreed, id(collective.rounds)  # not their values, whose comparison takes long
        if fields not in self._number_of_fields:
            self._number_of_fields[fields] = len(self._kinds)
            self._kinds.append(self._kind(collective))
            _, plan_record = self._state.take("plans", 1)
            plan_record["free_instance"] = -1  # no record of an ended collective yet
        number = self._number_of_fields[fields]
        self._number_of_id[id(collective)] = collective, number
        return number

    def _kind(self, collective: Collective) -> CollectiveKind:
        """Return the kind of a collective: its checked group, and each worker's place in the group."""
        group = collective.group
        if group is None:
            return CollectiveKind(collective, None, {})
        if len(set(group)) < len(group) or not all(0 <= worker < self._workers for worker in group):
            expected = f"distinct workers of 0 to {self._workers - 1}"
            raise SynclineError(f"{collective} has the group {group}; expected {expected}")
        places = {worker: place for place, worker in enumerate(group)}
        return CollectiveKind(collective, np.array(group, dtype=np.int64), places)

    def place(self, kind_number: int, worker: int) -> int:
        """Return the index of a worker in the group of a kind of collective, -1 if it is not in the group."""
        kind = self._kinds[kind_number]
        return worker if kind.group is None else kind.places.get(worker, -1)

    def takes_turn(self, collective: Collective, place: int) -> bool:
        """Return whether a worker's incoming port serves the collective before the worker's next collectives.

        The port serves all collectives of all workers, and those of some workers in which this worker receives a
        message or is no participant; it serves none of a fixed duration.
        """
        if collective.takes_s is not None:
            return False
        if collective.group is None or place < 0:
            return True
        if id(collective) not in self._receives:
            plan = plan_of(self._rounds(collective), len(collective.group))
            self._receives[id(collective)] = collective, (plan.places["receives"] > 0).tolist()
        _, receives = self._receives[id(collective)]
        return receives[place]

    def _rounds(self, collective: Collective) -> Sequence[Round]:
        """Return the rounds of a collective, from its own field or from its algorithm on this topology."""
        if collective.rounds is not None:
            return collective.rounds
        kind, algorithm, group = collective.kind, collective.algorithm, collective.group
        ranks = self._workers if group is None else len(group)
        key = kind, algorithm, group
        if key not in self._places:
            group_topology = self._topology if group is None else among(self._topology, group)
            self._inner_sizes[group] = inner_sizes(group_topology, ranks)
            self._places[key] = places_for(kind, algorithm, group_topology, ranks)
        nccl_costs = nccl_on(self._topology) if is_nccl(kind, algorithm) else None
        return rounds(
            kind, ranks, collective.nbytes, algorithm, group=self._inner_sizes[group], nccl=nccl_costs,
            places=self._places[key],
        )  # fmt: skip

    def write_plan(self, kind_number: int) -> None:
        """Write the plan of a kind of collectives into the core's tables, if there is none yet."""
        state = self._state
        if state["plans"][kind_number]["workers"]:  # which is 0 before the plan is written
            return
        collective, group, _ = self._kinds[kind_number]
        ranks = self._workers if group is None else len(group)
        if collective.takes_s is not None:
            self._write_fixed_duration(kind_number, collective, ranks)
            return
        if collective.rounds is None:
            self._write_openings(kind_number, collective, ranks)
        rounds_of_kind = self._rounds(collective)
        plan = plan_of(rounds_of_kind, ranks)
        is_direct_exchange = is_direct(collective.kind, collective.algorithm)
        if is_direct_exchange or is_gloo(collective.kind, collective.algorithm):
            plan_one_by_one = plan_of(rounds_of_kind, ranks, one_by_one=True)
            self._write_connections(kind_number, collective, plan_one_by_one, group, len(rounds_of_kind))
            rank0 = int(state["plans"][kind_number]["rank0"])
            # The bytes of each rank, summed in runs as for other algorithms.
            state["places"]["nbytes"][rank0 : rank0 + ranks] = plan.places["nbytes"]
            return
        senders, receivers = plan.senders, plan.receivers  # ranks, which are workers if all take part
        if group is not None:
            senders, receivers = group[senders], group[receivers]
        by_nccl = is_nccl(collective.kind, collective.algorithm)
        self._append_plan(kind_number, plan, route0=self._routes.add(senders, receivers, eager=by_nccl))
        if by_nccl and rounds_of_kind:
            record = state["plans"][kind_number]
            rounds_ahead, record["call_s"] = nccl_limits(self._topology, str(collective.algorithm))
            record["nccl"] = True
            # In messages: a rank has one in each round. Without a limit, all messages of the collective.
            record["ahead"] = record["num_messages"] if rounds_ahead is None else rounds_ahead - 1

    def _write_fixed_duration(self, kind: int, collective: Collective, ranks: int) -> None:
        """Write the plan of a collective that takes a fixed time and sends no messages into the core's tables."""
        rank0, places = self._state.take("places", ranks)
        places.view(np.uint8)[:] = 0  # all bytes, because new records of this table are not zero
        places["nbytes"] = collective.nbytes
        record = self._state["plans"][kind]
        record["workers"], record["rank0"] = ranks, rank0
        record["message_records"] = ranks  # every rank has one, here unused
        record["has_fixed_duration"], record["duration_s"] = 1, collective.takes_s

    def _append_plan(
        self, kind: int, plan: Plan, route0: int, source0: int = 0, route_index: NDArray[np.int64] | None = None
    ) -> None:
        """Append the plan of a collective, the messages of each rank, to the core's tables.

        Args:
            route0: index of the first route of the plan in the table ``routes``.
            source0: index in the table ``sources`` of the first message's connection, for collectives of gloo.
            route_index: index of each route of the plan, counted from ``route0``; by default in their order.
        """
        state, ranks = self._state, len(plan.places)
        sending0, entry0 = state.used["sendings"], state.used["entries"]
        sendings, entries = plan.sendings, plan.entries
        rank0, places = state.take("places", ranks)
        copy_records(places, plan.places)
        # Indices within the plan become indices in the tables. Changed records are copies, because plans are cached.
        if route0 or route_index is not None:
            sendings = sendings.copy()
            if route_index is not None:
                sendings["route"][:-1] = route_index[plan.sendings["route"][:-1]]
            sendings["route"] += route0
        if sending0 or route_index is not None:
            entries = entries.copy()
            entries["send0"] += sending0
            places["send0"] += sending0
        state.append("sendings", sendings)
        state.append("entries", entries)
        if entry0:
            places["entry0"] += entry0
            places["entry1"] += entry0
        places["source0"] = source0 + places["slot0"]
        record = state["plans"][kind]
        record["workers"], record["rank0"], record["message_records"] = ranks, rank0, ranks
        record["num_messages"] = plan.places["receives"].sum()  # messages of all rounds

    def _write_openings(self, kind: int, collective: Collective, ranks: int) -> None:
        """Write the seconds that TCP connections take to open their windows after idling, if the network has TCP's."""
        topology = self._topology if collective.group is None else among(self._topology, collective.group)
        opening = collective_opening(collective.kind, ranks, collective.nbytes, topology, collective.algorithm)
        if opening is not None:
            record = self._state["plans"][kind]
            record["opening0"] = self._state.append("openings", opening.seconds)
            record["openings"], record["timeout_s"] = len(opening.seconds), opening.timeout_s
            # As data, because a constant from this file could change without compiling the core again.
            record["timeout_tolerance"] = TIMEOUT_TOLERANCE

    def _write_connections(
        self, kind: int, collective: Collective, plan: Plan, group: NDArray[np.int64] | None, num_rounds: int
    ) -> None:
        """Write the plan of a collective of gloo or a direct exchange: two ranks have one connection in each direction.

        Args:
            collective: the first collective of the kind.
            plan: plan of the collective, in which each round is a run of its own.
            group: the workers of the collective; all if None.
        """
        state, ranks = self._state, len(plan.places)
        direct = is_direct(collective.kind, collective.algorithm)
        costs = FREE if direct else self._topology.gloo or FREE
        # Each message has a connection, and its clear-to-send has the one in the other direction.
        forward_pairs, backward_pairs = plan.senders * ranks + plan.receivers, plan.receivers * ranks + plan.senders
        pairs, pair_index = np.unique(np.concatenate([forward_pairs, backward_pairs]), return_inverse=True)
        num_messages = len(plan.senders)
        connection_of_message, connection_of_clear_to_send = np.split(pair_index.ravel(), [num_messages])
        senders, receivers = np.divmod(pairs, ranks)
        if group is not None:
            senders, receivers = group[senders], group[receivers]
        added_s, latency_factor = float(costs.message_s), 1 + float(costs.latency_part)
        route0 = self._routes.add(
            senders, receivers, added_s=added_s, latency_factor=latency_factor, flow_bytes_per_s=costs.flow_bytes_per_s
        )

        # The table ``sources`` has the connection of each clear-to-send, by receiving rank.
        sources, turns = np.empty(num_messages, dtype=np.int32), plan.sendings["turn"][:num_messages]
        sources[plan.places["slot0"][plan.receivers] + turns] = connection_of_clear_to_send
        source0 = state.append("sources", sources)
        entry0 = state.used["entries"]
        self._append_plan(kind, plan, route0, source0, route_index=connection_of_message)
        entries, record = state["entries"][entry0 : entry0 + len(plan.entries)], state["plans"][kind]
        if direct:
            ahead = direct_rounds_ahead(ranks)
            self._write_conditions(entries, plan, ahead, waits_for_sends=False)
            record["gloo"] = PUSHES
            record["call_s"] = software_s(self._topology, ranks, collective.nbytes)
        else:
            ahead = gloo_rounds_ahead(collective.kind, num_rounds, ranks)
            self._write_conditions(entries, plan, ahead, waits_for_sends=collective.kind in RINGS_OF_GLOO)
            record["gloo"] = POSTS_FIRST if collective.kind in POSTING_FIRST else ISSUES_FIRST
            record["call_s"] = float(costs.software_s(collective.kind, ranks, collective.nbytes)) if ranks > 1 else 0.0
        record["message_records"], record["connections"], record["route0"] = 2 * num_messages, len(pairs), route0

    def _write_conditions(
        self, entries: NDArray[np.void], plan: Plan, ahead_by_round: Sequence[int], waits_for_sends: bool
    ) -> None:
        """Write the numbers of messages that must have arrived at a rank, and have left it, before each of its entries.

        Args:
            entries: the plan's entries in the core's tables, which are written.
            plan: plan of the collective, in which each round is a run of its own.
            ahead_by_round: for each round, how many rounds a rank may be ahead of the messages it received.
            waits_for_sends: whether a rank also waits for its own messages of these rounds to leave.
        """
        ahead = np.array(ahead_by_round, dtype=np.int64)
        entries_of_rank = (plan.places["entry1"] - plan.places["entry0"]).astype(np.int64)
        rank = np.repeat(np.arange(len(entries_of_rank)), entries_of_rank)  # of each entry
        round_number = plan.entries["round"].astype(np.int64)
        # Rounds before this one must be complete.
        first_pending_round = np.maximum(round_number + 1 - ahead[round_number], 0)
        # Entries are sorted by rank, then by round; one key of both finds the rank's first entry from that round on.
        sort_key = rank * (len(ahead) + 1)
        first_pending_entry = np.searchsorted(sort_key + round_number, sort_key + first_pending_round)
        first_entry = plan.places["entry0"].astype(np.int64)[rank]
        received_before = np.append(0, np.cumsum(plan.entries["receives"], dtype=np.int64))  # before each entry
        sent_before = np.append(0, np.cumsum(plan.entries["sends"], dtype=np.int64))
        entries["needs_received"] = received_before[first_pending_entry] - received_before[first_entry]
        entries["needs_departed"] = 0
        if waits_for_sends:
            entries["needs_departed"] = sent_before[first_pending_entry] - sent_before[first_entry]
