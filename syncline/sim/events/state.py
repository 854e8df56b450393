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
    "core": _record(
        "now:f8 number:i8 leaves:i8 levels:i8 places:i8 noted:i8 free:i8 hole:i8 heap_room:i8"
        " first_arrival:i8 end_arrival:i8 arrival_room:i8"
        " eager:i1 delays:i1 settling:i1 built:i1 keeps_start:i1 completes:i1"
        " changed:i8 visit:i4 width:i8 shift:i8 spans:i8 sends:i8 late:i8 awaited:i8 parts:i8 known_parts:i8"
        " instances:i8 instance_room:i8 ranks:i8 rank_room:i8 messages:i8 message_room:i8 slots:i8 slot_room:i8"
        " ports:i8 port_room:i8 resume:i8 freed:i8 effect:i8 stream:i8 kind_without_room:i8 ahead:i8"
        " ahead_bytes:f8"
    ),
    # Events: time, order within one instant (priority, then number, then kind), place among the waiting events, and
    # subject, the number of a record. The subject of a place without an event is the next such place.
    "heap": _record("time:f8 key:i8 place:i4 subject:i4"),
    "turns": NUMBER,  # of an arrival at a place among the waiting events: the message's turn at the receiving rank
    # A queue of arrivals that are scheduled in their order, with the receiving rank: a ring of records.
    "arrivals": _record("time:f8 key:i8 rank:i4 turn:i4"),
    # Instructions: code, whether it has an effect and whether the timeline leaves out its span; number of its message,
    # part, mark, choice or error line, or of the operation to which it jumps; a message's port and route; its seconds
    # or bytes.
    "operations": _record("code:i2 effect:i1 hidden:i1 number:i4 port:i4 route:i4 amount:f8"),
    # Streams of workers' programs: current operation, worker, and the next stream that waits for the same, from 1. The
    # first streams are the default ones of the workers, one each.
    "streams": _record("operation:i8 parts:i8 start:f8 worker:i4 next:i4"),
    "spans": _record("worker:i4 operation:i4 start:f8 end:f8 nbytes:f8"),
    # Collectives that a worker's program names: position on the stream, and the rank once any worker has joined.
    "parts": _record(
        "worker:i4 kind:i4 key:i4 place:i4 port:i4 rank:i4 state:i1 numbered:i1 receives:i1"
        " next_number:i4 next_of_key:i4 after:i4 operation:i4 waits:i4 start:f8"
    ),
    "keys": _record("first:i4 last:i4 instance:i4"),
    "marks": _record("done:i4 waits:i4"),
    # Collectives under way, which some worker has joined and not all have finished.
    "instances": _record(
        "kind:i4 key:i4 left:i4 entered:i4 rank0:i4 next:i4 operation:i4 message0:i8 port0:i8 slot0:i8"
    ),
    # The part of each worker in a collective under way: its rounds (the present entry of the plan and its repetition,
    # likewise of its sends), messages that it needs before it goes on, has received in order, has received early, may
    # receive, and has issued; the place in ``slots`` of the first message to it.
    "ranks": _record(
        "part:i4 instance:i4 message:i4 rank0:i4 entry:i4 end:i4 repetition:i4 send_entry:i4"
        " send_repetition:i4 sending:i4 queued:i4 unsent:i4 needed:i4 received:i4 received_early:i4 admitted:i4"
        " receives:i4 slot0:i8 busy:i1 gloo:i1 nccl:i1 issued:i4 departed:i4 ahead:i4"
    ),
    "messages": _record(
        "kind:i1 due:i1 sent:i1 offered:i1 arrived:i1 reader:i1 flowing:i1 hops:i4 reads:i4 route:i4 next:i4 port:i4"
        " sender:i4 receiver:i4 turn:i4 operation:i4 visit:i4 nbytes:f8 left:f8 rate:f8 fair:f8 since:f8 before:f8"
        " after:f8 end:f8 key:i8 start:f8"
    ),
    # As many records per message as the longest route has channels: the message's neighbours on each.
    "links": _record("before:i4 after:i4 channel:i4"),
    # Resources that serve a worker's messages one at a time.
    "ports": _record("busy:i4 head:i4 tail:i4 serving:i4 last_number:i4 last_part:i4 idle_since:f8"),
    # Resources with one bandwidth that messages share.
    "channels": _record(
        "bandwidth:f8 left:f8 left_each:f8 visit:i4 head:i4 tail:i4 flows:i4 growing:i4 changed:i4 hub:i4 bound:f8"
    ),
    # Routes: rate, seconds before and after the bytes, and channels.
    "routes": _record("rate:f8 before:f8 after:f8 hop0:i4 hops:i4"),
    # Of each route, the number of a program's messages that are queued for it, and the messages that have left and not
    # arrived, see `syncline.sim.events.core.messages`.
    "route_queues": _record("queued:i4 first:i4 last:i4 waiting:i4 behind:f8"),
    "hops": NUMBER,  # channels of the routes
    # Kinds of collectives, and the plans of their rounds: see `syncline.sim.events.plans`.
    "plans": _record(
        "workers:i4 gloo:i4 nccl:i4 free:i4 ahead:i4 rank0:i8 total:i8 messages:i8 connections:i8 route0:i8 call:f8"
        " opening0:i8 openings:i4 timed:i4 timeout:f8 near:f8 duration:f8"
    ),
    "places": _record("entry0:i4 entry1:i4 send0:i4 receives:i4 sends:i4 from0:i8 slot0:i8 nbytes:f8"),
    "entries": _record("send0:i4 sends:i4 receives:i4 times:i4 round:i4 received:i4 departed:i4"),
    "sendings": _record("to:i4 turn:i4 stride:i4 route:i4 nbytes:f8"),
    "sources": NUMBER,
    "openings": np.dtype(np.float64),
    "slots": NUMBER,  # per message to a rank: the message that waits to start; -1 if it has arrived before its turn
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
    "heap",
    "turns",
    "arrivals",
    "spans",
    "links",
    "routes",
    "hops",
    "places",
    "entries",
    "sendings",
    *_SCRATCH,
}
"""Tables whose new records are written completely before any is read."""

BLOCK, ALIGNED = 2**15, 64
"""Bytes of the block that small tables share, and the multiple to which each table is rounded up."""

NO_RECORDS: dict[str, Records] = {name: np.zeros(0, dtype=kind) for name, kind in TABLES.items()}

AT = {name: at for at, name in enumerate(TABLES)}


def copy_records(target: Records, source: Records) -> None:
    """Copy records as bytes, which NumPy copies faster than fields with gaps between them."""
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
        self._block = block[-block.ctypes.data % ALIGNED :][:BLOCK]
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
