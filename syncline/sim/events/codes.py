"""Numbers on which Python and the compiled core agree, the core's functions that Python calls, and the core's sources.

The numbers stand for kinds of instructions, messages and events in the records of the core's tables.
"""

from __future__ import annotations

from pathlib import Path

NOT_ENTERED = 2**31 - 1
"""More messages than a worker ever waits for: the value of a rank that has not come to the collective."""

LEFT_OVER = 1e-12
"""Fraction of a flow's bytes up to which the rest counts as a rounding error, and the flow as done."""

# Instructions. MARK sets a stream's mark; AFTER_CHOICE asks Python for what follows a `First`.
COMPUTE, SEND, RECV, JOIN, WAIT, JUMP, END, FIRST, AFTER_CHOICE, WRONG, MARK, WAIT_FOR_MARK = range(12)

# Messages: of a rank by the start rules, of a program, of a rank of gloo, and its clear-to-send.
OF_RANK, OF_PROGRAM, OF_GLOO, CLEAR_TO_SEND = range(4)

# States of a worker's part in a collective; 0 before the worker joins.
PART_JOINED, PART_DONE = 1, 2

# Events. DURATION_OVER ends a collective whose duration is fixed.
GO_ON, COMPUTED, ENTER, BEGIN, FLOW, DRAINED, ARRIVED, DELIVERED, CLEARED, QUEUE, SETTLE, DURATION_OVER = range(12)

# Reasons why compiled code returns to Python.
IDLE, EFFECT, TIMER, CHOICE, CHOSEN, ROOM, LATE, DISAGREE, TWICE, FOREIGN, REFUSED = range(11)

NORMAL = 1
AFTER_ALL = 10
"""Priority of events after all else of their instant: SimPy's own priorities are smaller."""

PRIORITY_BIT, KIND_BITS = 58, 4
KIND_MASK = (1 << KIND_BITS) - 1
"""An event's key: its priority from bit 58, its number from bit 4, then its kind."""

NOTED = 32
"""Number of events that are noted because they come soon; a power of two."""

SPARE = 64
"""Number of places on the heap beyond one per message, which is more than one event takes."""


FOLDER = Path(__file__).parent
SOURCES = (*sorted((FOLDER / "core").glob("*.py")), FOLDER / "state.py", Path(__file__))
"""Files on which the compiled code depends."""

ENTRIES = {
    "run_core": "int64 float64 int64", "write_routes": "int64 int64 int64 int64 int64 int64",
    "count_entries": "int64 int64 int64", "write_plan": "int64 int64 int64",
}  # fmt: skip
"""Types of the arguments of each function that Python calls; arrays are passed as addresses. Each returns an int64."""
