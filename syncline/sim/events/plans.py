"""The plans of collectives and the routes of messages, as records of the core.

A plan has the messages that each rank sends and receives. Equal rounds that follow each other, as those of a ring, are
one *run*. An entry of a rank is a run in which it sends or receives; a rank has no entry for a run in which it does
neither, so an idle rank costs nothing. In the k-th round of a run a message's turn, its place among all messages to its
receiver, is ``turn + k stride``.

A route has the channels of a topology from one worker to another; they are looked up for many workers at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round, RoundTable
from syncline.costmodel.network.paths import Floats, Ints, Topology
from syncline.sim.events.engine import address, aligned, count_entries, write_plan, write_routes
from syncline.sim.events.state import TABLES, CoreState, Records

PLACE, ENTRY, SENDING = TABLES["places"], TABLES["entries"], TABLES["sendings"]

CACHED_PLANS, MAX_CACHED_MESSAGES = 32, 2**18
"""Number of plans that are kept from one simulation to the next, and the largest number of messages of a kept plan."""


class Plan(NamedTuple):
    """The messages of a collective by rank, independent of the workers and the network.

    Attributes:
        places: a record per rank, with the range of its entries, its messages and its bytes.
        entries: entries of all ranks, see the module.
        sendings: messages of all ranks, a record for each message of a run; ``route`` is its index in ``senders``. A
            last record is zero and belongs to no rank: a rank that has sent all may read it.
        senders: rank of each sending's sender, ``(N,)``.
        receivers: rank of each sending's receiver, ``(N,)``.
    """

    places: Records
    entries: Records
    sendings: Records
    senders: Ints
    receivers: Ints


_cached_plans: OrderedDict[tuple[int, int, bool], tuple[Sequence[Round], Plan]] = OrderedDict()


def plan_of(rounds: Sequence[Round], ranks: int, one_by_one: bool = False) -> Plan:
    """Return the plan of these rounds among ``ranks`` ranks; the plan of a tuple of rounds is cached.

    With ``one_by_one`` each round is a run of its own, even if it is equal to the round before.
    """
    key = id(rounds), ranks, one_by_one
    if key in _cached_plans:
        _cached_plans.move_to_end(key)
        _, plan = _cached_plans[key]
        return plan
    plan = _build_plan(rounds, ranks, one_by_one)
    is_immutable = isinstance(rounds, (tuple, RoundTable))
    if is_immutable and len(plan.senders) <= MAX_CACHED_MESSAGES:
        _cached_plans[key] = rounds, plan  # with the rounds, so that no other object gets their id
        if len(_cached_plans) > CACHED_PLANS:
            _cached_plans.popitem(last=False)
    return plan


def _build_plan(rounds: Sequence[Round], ranks: int, one_by_one: bool) -> Plan:
    """Return the plan of these rounds; arguments as in `plan_of`."""
    num_messages: Ints  # of each run of equal rounds
    run_lengths: Ints  # number of rounds of each run
    senders: Ints
    receivers: Ints
    if isinstance(rounds, RoundTable):  # no two rounds of a table are equal
        num_messages, run_lengths = np.diff(rounds.first), np.ones(len(rounds), np.int64)
        # Copies, because `write_plan` sorts the senders and receivers of the plan.
        senders, receivers = rounds.senders.astype(np.int64), rounds.receivers.astype(np.int64)
        sizes = np.repeat(rounds.nbytes, num_messages)
    else:
        runs, run_lengths = _runs(rounds, one_by_one)
        num_messages = np.array([len(round_.senders) for round_ in runs], dtype=np.int64)
        senders = _joined([round_.senders for round_ in runs], np.int64)
        receivers = _joined([round_.receivers for round_ in runs], np.int64)
        if all(isinstance(round_.nbytes, (int, float)) for round_ in runs):
            sizes = np.repeat(np.array([round_.nbytes for round_ in runs], dtype=np.float64), num_messages)
        else:
            sizes = _joined([np.broadcast_to(round_.nbytes, round_.senders.shape) for round_ in runs], np.float64)
    senders, receivers, sizes = aligned(senders, np.int64), aligned(receivers, np.int64), aligned(sizes, np.float64)
    first_message = np.zeros(len(num_messages) + 1, dtype=np.int64)  # of each run
    np.cumsum(num_messages, out=first_message[1:])

    # Compiled code counts the records and then writes them; it takes all arrays as one array of their addresses.
    scratch = np.zeros((3, ranks), dtype=np.int64)
    columns = np.zeros(9, dtype=np.int64)  # addresses: six inputs, then three tables to write
    columns[:6] = [address(array) for array in (first_message, run_lengths, senders, receivers, sizes, scratch)]
    num_entries = count_entries(address(columns), len(run_lengths), ranks)
    places, entries = np.zeros(ranks, PLACE), np.zeros(num_entries, ENTRY)
    sendings = np.zeros(len(senders) + 1, SENDING)
    columns[6:] = [address(table) for table in (places, entries, sendings)]
    write_plan(address(columns), len(run_lengths), ranks)
    return Plan(places, entries, sendings, senders, receivers)


def _runs(rounds: Sequence[Round], one_by_one: bool) -> tuple[list[Round], Ints]:
    """Return the first round of each run of equal rounds, and the number of rounds in the run."""
    runs: list[Round] = []
    run_lengths: list[int] = []
    previous_key: Any = None
    for round_ in rounds:
        nbytes = round_.nbytes if isinstance(round_.nbytes, float) else id(round_.nbytes)  # an array by its identity
        key = id(round_.senders), id(round_.receivers), nbytes  # equal rounds share their arrays
        if key == previous_key and not one_by_one:
            run_lengths[-1] += 1
        else:
            runs.append(round_)
            run_lengths.append(1)
            previous_key = key
    return runs, np.array(run_lengths, dtype=np.int64)


def _joined(columns: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    """Return arrays one after another as one array of a type; an empty array without any."""
    return np.concatenate(columns).astype(kind, copy=False) if columns else np.zeros(0, dtype=kind)


ROUTES_PER_LOOKUP = 2**18
"""Number of routes that are looked up together, which takes some tens of temporary numbers each."""


def add_channels(state: CoreState, bandwidth: Floats) -> int:
    """Add channels with these bandwidths, in bytes per second, to the core's tables; return the index of the first."""
    first, channels = state.take("channels", len(bandwidth))
    channels["bandwidth"] = bandwidth
    channels["head"] = channels["tail"] = -1  # no message flows yet
    for table_name in ("changed", "to_visit", "seen"):
        state.take(table_name, len(bandwidth))  # lists of channels, which the core fills
    return first


class Routes:
    """The routes between workers, in the core's tables.

    Args:
        eager: whether the latency of a message comes after its bytes have flown; else it comes before.

    Attributes:
        longest: largest number of channels of a route so far, at least 1.
    """

    def __init__(self, state: CoreState, topology: Topology, eager: bool) -> None:
        self._state, self._topology, self._eager = state, topology, eager
        self._bandwidth = np.array(topology.bandwidth_bytes_per_s, dtype=np.float64)
        self.longest = 1

    def add(
        self,
        senders: Ints,
        receivers: Ints,
        added_s: float | None = None,
        eager: bool = False,
        latency_factor: float = 1.0,
        flow_bytes_per_s: float = math.inf,
    ) -> int:
        """Add a route for each pair of workers; return the index of the first in the table of routes.

        Args:
            senders: ``(N,)`` workers.
            receivers: ``(N,)`` workers.
            added_s: seconds between a message's last byte and its arrival on gloo's connections, beside its latency and
                overhead; None for messages that start by the eager or the rendezvous rule.
            eager: whether the latency comes after the bytes even by the rendezvous rule, as for NCCL.
            latency_factor: factor of the paths' latencies.
            flow_bytes_per_s: largest rate of a flow. Where it limits a flow, each route has a channel of its own of
                this bandwidth.
        """
        first = self._state.used["routes"]
        self._state.room("routes", len(senders))
        for begin in range(0, len(senders), ROUTES_PER_LOOKUP):
            part = slice(begin, begin + ROUTES_PER_LOOKUP)
            self._add(senders[part], receivers[part], added_s, eager or self._eager, latency_factor, flow_bytes_per_s)
        return first

    def _add(
        self, senders: Ints, receivers: Ints, added_s: float | None, eager: bool, latency_factor: float,
        flow_bytes_per_s: float,
    ) -> None:  # fmt: skip
        """Add at most ``ROUTES_PER_LOOKUP`` routes; arguments as in `add`."""
        paths = self._topology.paths(senders, receivers)
        channels = np.array(paths.channels, dtype=np.int64, order="C")  # a copy, because the cached array is read-only
        if flow_bytes_per_s < self._bandwidth.max(initial=0.0):
            flow_bandwidths = np.full(len(senders), flow_bytes_per_s)
            own_channels = add_channels(self._state, flow_bandwidths) + np.arange(len(senders))
            self._bandwidth = np.append(self._bandwidth, flow_bandwidths)
            channels = np.ascontiguousarray(np.column_stack([channels, own_channels]))
        # Seconds of a message before and after its bytes flow; the sender's overhead comes before in any case.
        latency_s, overhead_s = paths.latency_s * latency_factor, paths.overhead_s
        before_s, after_s = (overhead_s, latency_s) if eager else (latency_s + overhead_s, np.zeros(len(senders)))
        if added_s is not None:  # all seconds come after the bytes
            before_s, after_s = np.zeros(len(senders)), before_s + after_s + added_s
        before_s, after_s = aligned(before_s, np.float64), aligned(after_s, np.float64)
        state = self._state
        first, routes = state.take("routes", len(senders))
        state.room("hops", channels.size)
        columns = np.array([address(array) for array in (self._bandwidth, channels, before_s, after_s)])
        num_routes, width = channels.shape
        num_hops = write_routes(state.address, address(columns), num_routes, width, first, state.used["hops"])
        state.used["hops"] += num_hops
        self.longest = max(self.longest, int(routes["hops"].max(initial=0)))
