"""The state of the event core: tables of records that grow, and the list of their addresses.

Each table is a structured NumPy array. Compiled functions take the addresses of all tables as one array of integers,
and read a table by its place in ``TABLES``; so a call costs one argument, and a table that has grown only changes its
address. The caller of compiled code keeps the `CoreState`, and with it the tables, alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]


def _record(fields: str) -> np.dtype[Any]:
    """Return the type of a table's records from its fields: ``name:type`` each."""
    pairs = [field.split(":") for field in fields.split()]
    return np.dtype([(name, kind) for name, kind in pairs], align=True)


NUMBER = np.dtype(np.int32)

TABLES: dict[str, np.dtype[Any]] = {
    # The single record of the core: the clock, the used size of each table, the reason why compiled code returned.
    # A new event takes the ``reusable_place`` of the event that is processed; ``free_place`` begins a list of others.
    "core": _record(
        "now:f8 number:i8 leaves:i8 levels:i8 places:i8 noted:i8 free_place:i8 reusable_place:i8 heap_room:i8"
        " first_arrival:i8 end_arrival:i8 arrival_room:i8"
        " eager:i1 delays:i1 settling:i1 heap_is_built:i1 keeps_start:i1 compute_is_done:i1"
        " num_changed:i8 search_number:i4 width:i8 shift:i8 spans:i8 num_sends:i8 num_late:i8 num_awaited:i8"
        " parts:i8 known_parts:i8 instances:i8 instance_room:i8 ranks:i8 rank_room:i8 messages:i8 message_room:i8"
        " slots:i8 slot_room:i8 ports:i8 port_room:i8 resume:i8 freed_receiver:i8 effect:i8 stream:i8"
        " kind_without_room:i8 ahead:i8 ahead_bytes:f8"
    ),
    # Events: time, key (the order within one instant), place among the waiting events, and the number of the record to
    # which the event happens. Empty places form a list: the subject of each is the next.
    "heap": _record("time:f8 key:i8 place:i4 subject:i4"),
    "turns": NUMBER,  # by place among the waiting events: an arrival's turn at the receiving rank
    # Arrivals that are scheduled in their order: a ring of records.
    "arrivals": _record("time:f8 key:i8 rank:i4 turn:i4"),
    # Instructions, see `syncline.sim.events.names.Operation`.
    "operations": _record("code:i2 effect:i1 hidden:i1 number:i4 port:i4 route:i4 amount:f8"),
    # Streams of workers' programs; stream w is the main one of worker w. ``next_waiting`` is the next stream, from 1,
    # that waits for the same collective or mark.
    "streams": _record("operation:i8 parts:i8 start:f8 worker:i4 next_waiting:i4"),
    "spans": _record("worker:i4 operation:i4 start:f8 end:f8 nbytes:f8"),
    # Collectives that a worker's program names, see `syncline.sim.events.names.Part`; the worker's rank once any worker
    # has joined; lists of parts by incoming port, key and network stream.
    "parts": _record(
        "worker:i4 kind:i4 key:i4 place:i4 port:i4 rank:i4 state:i1 takes_turn:i1 receives:i1"
        " next_on_port:i4 next_of_key:i4 next_on_stream:i4 operation:i4 first_waiting:i4 start:f8"
    ),
    "keys": _record("first:i4 last:i4 instance:i4"),
    "marks": _record("done:i4 first_waiting:i4"),
    # Collectives under way, which some worker has joined and not all have finished.
    "instances": _record(
        "kind:i4 key:i4 ranks_left:i4 entered:i4 rank0:i4 next_free:i4 operation:i4 message0:i8 port0:i8 slot0:i8"
    ),
    # The part of each worker in a collective under way: its position in the plan (entry and repetition, also of its
    # sends), and numbers of messages: ``needed`` before it goes on, ``received`` in order, ``admitted`` to start.
    "ranks": _record(
        "part:i4 instance:i4 message:i4 rank0:i4 entry:i4 end:i4 repetition:i4 send_entry:i4"
        " send_repetition:i4 sending:i4 queued:i4 unsent:i4 needed:i4 received:i4 received_early:i4 admitted:i4"
        " receives:i4 slot0:i8 busy:i1 gloo:i1 nccl:i1 issued:i4 departed:i4 ahead:i4"
    ),
    "messages": _record(
        "kind:i1 is_scheduled:i1 sent:i1 offered:i1 arrived:i1 awaited_by:i1 flowing:i1 gloo_state:i1"
        " hops:i4 reading_stream:i4 route:i4 next:i4 port:i4 sender:i4 receiver:i4 turn:i4 operation:i4 last_search:i4"
        " nbytes:f8 bytes_left:f8 rate:f8 fair_rate:f8 rate_since_s:f8 before_s:f8 after_s:f8 end:f8 key:i8 start:f8"
    ),
    # A record for each message and channel of its route: the message's neighbours in the channel's list of flows.
    "links": _record("previous:i4 next:i4 channel:i4"),
    # Resources that serve a worker's messages one at a time.
    "ports": _record("busy:i4 head:i4 tail:i4 serving:i4 last_in_turn:i4 last_joined:i4 idle_since:f8"),
    # Resources with one bandwidth that messages share.
    "channels": _record(
        "bandwidth:f8 bandwidth_left:f8 equal_share:f8 last_search:i4 head:i4 tail:i4 flows:i4 growing:i4 changed:i4"
        " bottleneck:i4 other_share:f8"
    ),
    # Routes: rate, seconds before and after the bytes, and channels.
    "routes": _record("rate:f8 before_s:f8 after_s:f8 hop0:i4 hops:i4"),
    # Programs' messages on each route: the number queued, and a list of those that have left and not arrived.
    "route_queues": _record("queued:i4 first:i4 last:i4 waiting:i4 bytes_behind:f8"),
    "hops": NUMBER,  # channels of the routes
    # Kinds of collectives, and the plans of their rounds: see `syncline.sim.events.plans`.
    "plans": _record(
        "workers:i4 gloo:i4 nccl:i4 free_instance:i4 ahead:i4 rank0:i8 num_messages:i8 message_records:i8"
        " connections:i8 route0:i8 call_s:f8 opening0:i8 openings:i4 has_fixed_duration:i4 timeout_s:f8"
        " timeout_tolerance:f8 duration_s:f8"
    ),
    "places": _record("entry0:i4 entry1:i4 send0:i4 receives:i4 sends:i4 source0:i8 slot0:i8 nbytes:f8"),
    "entries": _record("send0:i4 sends:i4 receives:i4 times:i4 round:i4 needs_received:i4 needs_departed:i4"),
    "sendings": _record("to:i4 turn:i4 stride:i4 route:i4 nbytes:f8"),
    "sources": NUMBER,
    "openings": np.dtype(np.float64),
    "slots": NUMBER,  # of each message to a rank: from 1, the message that waits to start; -1 if it has arrived early
    # Scratch memory: messages that start and their lateness; messages that a choice waits for; channels whose flows
    # have changed; in a search for connected flows, the flows found, and the channels to visit and seen.
    "noted": np.dtype(np.int64),
    "late": NUMBER,
    "late_s": np.dtype(np.float64),
    "awaited": NUMBER,
    "changed": NUMBER,
    "found": NUMBER,
    "to_visit": NUMBER,
    "seen": NUMBER,
}
"""The tables whose addresses compiled code has, in this order."""

_SCRATCH = "late", "late_s", "awaited", "changed", "found", "to_visit", "seen"
WRITTEN_FIRST = {
    "heap", "turns", "arrivals", "spans", "links", "routes", "hops", "places", "entries", "sendings", *_SCRATCH,
}  # fmt: skip
"""Tables whose new records are written completely before any is read."""

BLOCK, ALIGNED = 2**15, 64
"""Bytes of the block that small tables share, and the multiple to which each table is rounded up."""

NO_RECORDS: dict[str, Records] = {name: np.zeros(0, dtype=kind) for name, kind in TABLES.items()}

AT = {name: at for at, name in enumerate(TABLES)}


def copy_records(target: Records, source: Records) -> None:
    """Copy records as bytes, in less time than NumPy takes for fields with gaps between them."""
    target.view(np.uint8)[:] = source.view(np.uint8)


class CoreState:
    """The tables that Python and the compiled core share, and the list of their addresses.

    Attributes:
        addresses: address of each table, in the order of ``TABLES``.
        address: address of ``addresses``.
        used: number of used records of each table; records beyond it are zero, except in ``WRITTEN_FIRST``.
    """

    def __init__(self) -> None:
        self.addresses = np.zeros(len(TABLES), dtype=np.int64)
        self.address = self.addresses.ctypes.data
        self.used = dict.fromkeys(TABLES, 0)
        block = np.zeros(BLOCK + ALIGNED, dtype=np.uint8)
        self._block = block[-block.ctypes.data % ALIGNED :][:BLOCK]  # begins at a multiple of ALIGNED
        self._block_address, self._block_bytes_left = self._block.ctypes.data, BLOCK
        self._tables: dict[str, Records] = {}
        self.take("core", 1)

    def __getitem__(self, name: str) -> Records:
        table = self._tables.get(name)
        return NO_RECORDS[name] if table is None else table

    def _allocate(self, name: str, records: int) -> Records:
        """Return a new table with room for this number of records, and note its address.

        Small tables are parts of one block. The memory is bytes, because NumPy returns the address of bytes faster than
        of records.
        """
        kind = TABLES[name]
        nbytes = -(records * kind.itemsize // -ALIGNED) * ALIGNED  # rounded up
        if nbytes <= self._block_bytes_left:
            memory, offset = self._block, len(self._block) - self._block_bytes_left
            self._block_bytes_left -= nbytes
            address = self._block_address + offset
        else:
            allocate = np.empty if name in WRITTEN_FIRST else np.zeros
            memory = allocate(nbytes + ALIGNED, dtype=np.uint8)
            start = memory.__array_interface__["data"][0]
            offset = -start % ALIGNED
            address = start + offset
        table: Records = np.ndarray((records,), kind, memory, offset)
        self._tables[name] = table
        self.addresses[AT[name]] = address
        return table

    def room(self, name: str, records: int) -> Records:
        """Return a table after making room for ``records`` more records than are used."""
        table, num_needed = self[name], self.used[name] + records
        if num_needed <= len(table):
            return table
        larger_table = self._allocate(name, max(num_needed, 2 * self.used[name]))
        num_copied = min(self.used[name], len(table))
        if num_copied:
            copy_records(larger_table[:num_copied], table[:num_copied])
        return larger_table

    def take(self, name: str, records: int) -> tuple[int, Records]:
        """Add zeroed records to a table; return the index of the first, and the new records."""
        first = self.used[name]
        table = self.room(name, records)
        self.used[name] = first + records
        return first, table[first : first + records]

    def append(self, name: str, records: Records) -> int:
        """Add records to a table, and return the index of the first; an empty table takes the array as it is."""
        if not self.used[name] and len(records) and records.dtype == TABLES[name]:
            table = self._tables[name] = np.ascontiguousarray(records)
            self.addresses[AT[name]] = table.ctypes.data
            self.used[name] = len(records)
            return 0
        first, added = self.take(name, len(records))
        copy_records(added, np.ascontiguousarray(records, dtype=added.dtype))
        return first
