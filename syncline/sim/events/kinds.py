"""Kinds of collectives in a simulation: what all who join one must agree on, and its plan in the core's tables.

A plan is made when the first collective of its kind begins, of that of its rounds, which is kept from one simulation to
the next (`syncline.sim.events.plans`): what is new in each are the workers and the routes between them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.gloo.costs import FREE
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.nccl.costs import DEFAULT
from syncline.costmodel.collectives.opening import opening_of
from syncline.costmodel.collectives.table import is_gloo, is_nccl, nccl_on
from syncline.costmodel.network.tcp import TOGETHER
from syncline.costmodel.network.topology import Topology, among
from syncline.errors import SynclineError
from syncline.sim.collectives.gloo import posts_first, rounds_ahead, waits_for_sends
from syncline.sim.collectives.rounds import rounds
from syncline.sim.events.plans import Plan, plan_of
from syncline.sim.events.routes import Routes
from syncline.sim.events.state import CoreState, copy_records
from syncline.sim.programs import Collective

POSTS_FIRST, ISSUES_FIRST = 1, 2


class CollectiveKind(NamedTuple):
    """What all who join a collective must agree on.

    Attributes:
        collective: as it was first named.
        group: its workers; all if None.
        places: of each worker in the group.
    """

    collective: Collective
    group: NDArray[np.int64] | None
    places: dict[int, int]


class Kinds:
    """The kinds of a simulation.

    Args:
        state: the core's tables.
        over: the topology.
        routes: between workers.
        workers: P.
    """

    def __init__(self, state: CoreState, over: Topology, routes: Routes, workers: int) -> None:
        self._state, self._over, self._routes, self._workers = state, over, routes, workers
        self._inner_sizes = inner_sizes(over, workers)
        self._numbers: dict[Hashable, int] = {}
        self._kinds: list[CollectiveKind] = []
        self._last: tuple[Collective | None, int] = None, -1

    def __getitem__(self, what: int) -> CollectiveKind:
        return self._kinds[what]

    def of(self, collective: Collective) -> int:
        """The number of a collective's kind.

        Raises:
            SynclineError: a group that cannot be.
        """
        if self._last[0] is collective:
            return self._last[1]
        of = collective
        agreed = of.kind, of.nbytes, of.algorithm, of.group, of.stream, id(of.rounds), of.takes_s
        what = self._numbers.get(agreed)
        if what is None:
            what = self._numbers[agreed] = len(self._kinds)
            self._kinds.append(self._kind(collective))
            _, plans = self._state.take("plans", 1)
            plans["free"] = -1
        self._last = collective, what
        return what

    def _kind(self, of: Collective) -> CollectiveKind:
        if of.group is None:
            return CollectiveKind(of, None, {})
        if len(set(of.group)) < len(of.group) or not all(0 <= worker < self._workers for worker in of.group):
            raise SynclineError(f"{of} has the group {of.group}; expected different workers from 0")
        return CollectiveKind(
            of, np.array(of.group, dtype=np.int64), {worker: place for place, worker in enumerate(of.group)}
        )

    def place(self, what: int, worker: int) -> int:
        """The place of a worker in the group, -1 if it has none."""
        kind = self._kinds[what]
        return worker if kind.group is None else kind.places.get(worker, -1)

    def is_numbered(self, of: Collective, place: int) -> bool:
        """Whether a port in waits for it: of one among all, nobody is ahead who has not joined it."""
        if of.takes_s is not None:
            return False
        if of.group is None or place < 0:
            return True
        plan = plan_of(self._rounds(of), len(of.group))
        return bool(plan.places["receives"][place] > 0)

    def _rounds(self, of: Collective) -> Sequence[Round]:
        if of.rounds is not None:
            return of.rounds
        everybody = of.group is None or of.group == tuple(range(self._workers))
        ranks = self._workers if of.group is None else len(of.group)
        nccl = nccl_on(self._over) if is_nccl(of.kind, of.algorithm) else None
        return rounds(of.kind, ranks, of.nbytes, of.algorithm, self._inner_sizes if everybody else None, nccl)

    def plan(self, what: int) -> None:
        """Make the plan of a kind, if there is none yet."""
        state = self._state
        if state["plans"][what]["workers"]:
            return
        kind = self._kinds[what]
        of, group = kind.collective, kind.group
        ranks = self._workers if group is None else len(group)
        if of.takes_s is not None:
            self._take(what, of, ranks)
            return
        by_gloo = is_gloo(of.kind, of.algorithm)
        if of.rounds is None:
            self._open(what, of, ranks)
        told = self._rounds(of)
        plan = plan_of(told, ranks)
        senders, receivers = plan.senders, plan.receivers
        if by_gloo:
            one_by_one = plan_of(told, ranks, one_by_one=True)
            self._plan_gloo(what, of, one_by_one, group, len(told))
            rank0 = int(state["plans"][what]["rank0"])
            state["places"]["nbytes"][rank0 : rank0 + ranks] = plan.places["nbytes"]  # summed as rounds are told
        else:
            if group is not None:
                senders, receivers = group[senders], group[receivers]
            by_nccl = is_nccl(of.kind, of.algorithm)
            route0 = self._routes.add(senders, receivers, eager=by_nccl)
            self._store(what, plan, route0)
            if by_nccl and told:
                self._plan_nccl(what, of)

    def _take(self, what: int, of: Collective, ranks: int) -> None:
        """A plan without messages."""
        rank0, places = self._state.take("places", ranks)
        places.view(np.uint8)[:] = 0
        places["nbytes"] = of.nbytes
        record = self._state["plans"][what]
        record["workers"], record["rank0"], record["messages"] = ranks, rank0, ranks
        record["told"], record["takes"] = 1, of.takes_s

    def _store(
        self, what: int, plan: Plan, route0: int, from0: int = 0, which: NDArray[np.int64] | None = None
    ) -> None:
        state, ranks = self._state, len(plan.places)
        sending0 = state.used["sendings"]
        _, sendings = state.take("sendings", len(plan.sendings))
        copy_records(sendings, plan.sendings)
        if which is not None:
            sendings["route"] = which[plan.sendings["route"]]
        sendings["route"] += route0
        entry0, entries = state.take("entries", len(plan.entries))
        copy_records(entries, plan.entries)
        if sending0:
            entries["send0"] += sending0
        rank0, places = state.take("places", ranks)
        copy_records(places, plan.places)
        if entry0:
            places["entry0"] += entry0
            places["entry1"] += entry0
        places["from0"] = from0 + places["place0"]
        record = state["plans"][what]
        record["workers"], record["rank0"], record["total"] = ranks, rank0, len_of(plan)
        record["messages"] = ranks

    def _open(self, what: int, of: Collective, ranks: int) -> None:
        """What its connections take to open after idling."""
        over = self._over if of.group is None else among(self._over, of.group)
        opening = opening_of(of.kind, ranks, of.nbytes, over, of.algorithm)
        if opening is not None:
            record = self._state["plans"][what]
            record["opening0"] = self._state.append("openings", opening.seconds)
            record["openings"], record["timeout"] = len(opening.seconds), opening.timeout_s
            record["near"] = TOGETHER  # as data: the core is kept by its own sources alone

    def _plan_nccl(self, what: int, of: Collective) -> None:
        costs, record = nccl_on(self._over) or DEFAULT, self._state["plans"][what]
        rounds_ahead = costs.rounds_ahead(str(of.algorithm))
        record["nccl"], record["call"] = True, costs.call_s
        record["ahead"] = record["total"] if rounds_ahead is None else rounds_ahead - 1  # a message in each round

    def _plan_gloo(
        self, what: int, of: Collective, plan: Plan, group: NDArray[np.int64] | None, rounds_told: int
    ) -> None:
        state, ranks = self._state, len(plan.places)
        costs = self._over.gloo or FREE
        there, back = plan.senders * ranks + plan.receivers, plan.receivers * ranks + plan.senders
        pairs, which = np.unique(np.concatenate([there, back]), return_inverse=True)
        ends = np.divmod(pairs, ranks)
        if group is not None:
            ends = group[ends[0]], group[ends[1]]
        route0 = self._routes.add(*ends, added_s=costs.message_s)
        which = which.ravel()
        messages = len(plan.senders)
        by_turn = np.argsort(plan.receivers, kind="stable")
        from0 = state.append("sources", which[messages:][by_turn].astype(np.int32))
        entry0 = state.used["entries"]
        self._store(what, plan, route0, from0, which[:messages])
        self._gate(state["entries"][entry0 : entry0 + len(plan.entries)], plan, of.kind, rounds_told)
        record = state["plans"][what]
        record["gloo"] = POSTS_FIRST if posts_first(of.kind) else ISSUES_FIRST
        record["call"] = float(costs.beside_s(of.kind, ranks, of.nbytes)) if ranks > 1 else 0.0
        record["messages"], record["connections"], record["route0"] = 2 * messages, len(pairs), route0

    def _gate(self, entries: NDArray[np.void], plan: Plan, kind: str, rounds_told: int) -> None:
        """Of each entry, how many messages must have arrived and left before it."""
        ahead = np.array(rounds_ahead(kind, rounds_told), dtype=np.int64)
        count = (plan.places["entry1"] - plan.places["entry0"]).astype(np.int64)
        rank = np.repeat(np.arange(len(count)), count)
        at = plan.entries["round"].astype(np.int64)
        until = np.maximum(at + 1 - ahead[at], 0)
        before = np.searchsorted(rank * (rounds_told + 1) + at, rank * (rounds_told + 1) + until)
        begins = plan.places["entry0"].astype(np.int64)[rank]
        for name, of, waits in (("have", "receives", True), ("sent", "sends", waits_for_sends(kind))):
            counted = np.append(0, np.cumsum(plan.entries[of], dtype=np.int64))
            entries[name] = counted[before] - counted[begins] if waits else 0


def len_of(plan: Plan) -> int:
    """How many messages all ranks get."""
    last = plan.places[-1] if len(plan.places) else None
    return 0 if last is None else int(last["place0"]) + int(last["receives"])
