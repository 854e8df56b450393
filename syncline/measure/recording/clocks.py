"""Clocks that a script reads: the script may print a reading, but may not branch on it, as the network would change it.

A clock returns two kinds of numbers. A `ClockTime` is a point in time. Its comparison with a constant does not depend
on the network, for example if a timer checks whether it was started (``start_time > 0``). A `ClockReading` is an
interval between two points, whose comparison does depend on the network.
"""

from __future__ import annotations

import dis
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from syncline.measure.recording.recorder import RECORDER, Refusal, is_library, user_line

POINTS = ("time", "perf_counter", "monotonic")
"""Clocks of ``time`` that return a point in time."""

INTERVALS = ("process_time", "thread_time")
"""Clocks of ``time`` that return the time since the script began."""

COMPARE = dis.opmap["COMPARE_OP"]


def is_script_frame(frame: FrameType | None) -> bool:
    """Return whether a frame is of the script; libraries may use clocks, for example for a progress bar."""
    return frame is not None and not is_library(frame.f_code.co_filename)


class ClockReading(float):
    """An interval of time from a clock: arithmetic with it returns intervals too, and a script may not compare it.

    A comparison that the script itself contains, as in ``if`` and ``while``, is refused. ``min``, ``sorted`` and
    printing are allowed.
    """

    may_decide = False

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)


class ClockTime(ClockReading):
    """A point in time: its difference to another point is an interval; shifted or scaled it stays a point."""


KEEP_A_POINT = ("add", "radd", "sub", "mul", "rmul", "truediv", "abs", "pos")
"""Arithmetic that shifts or scales a point in time, unless the other operand is a point too."""

ARITHMETIC = (*KEEP_A_POINT, "rsub", "floordiv", "rtruediv", "mod", "neg")


def _computed(name: str) -> Callable[..., Any]:
    """Return an arithmetic method of readings, by the name of that of ``float``."""
    original = getattr(float, f"__{name}__")

    def computed(self: float, *others: Any) -> Any:
        value = original(self, *others)
        if type(value) is not float:
            return value
        points = [isinstance(x, ClockTime) for x in (self, *others)]
        is_point = points[0] and not any(points[1:]) and name in KEEP_A_POINT
        return (ClockTime if is_point else ClockReading)(value)

    return computed


def _compared(name: str) -> Callable[..., Any]:
    """Return a comparison of readings, by the name of that of ``float``, which refuses the script."""
    original = getattr(float, f"__{name}__")

    def compared(self: float, other: Any) -> Any:
        frame = sys._getframe(1)
        with_constant = isinstance(self, ClockTime) and not isinstance(other, ClockReading)
        if not with_constant and is_script_frame(frame) and frame.f_code.co_code[frame.f_lasti] == COMPARE:
            if not ClockReading.may_decide:
                raise Refusal(
                    "decides by the clock; a record knows nothing of the time on another network. A clock may be"
                    " printed: count steps where the script decides, or use --clock allow"
                )
            RECORDER.remark(f"{user_line()}: decides by the clock, as it was during the recording (--clock allow)")
        return original(self, other)

    return compared


for _kind in (ClockReading, ClockTime):  # both: Python prefers a subclass's method on the right to that on the left
    for _name in ARITHMETIC:
        setattr(_kind, f"__{_name}__", _computed(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(ClockReading, f"__{_name}__", _compared(_name))


def script_clock(clock: Callable[[], float], kind: type[ClockReading]) -> Callable[[], float]:
    """Return a clock that returns readings of the given kind to the script, and plain numbers to libraries."""

    def read() -> float:
        return kind(clock()) if is_script_frame(sys._getframe(1)) else clock()

    return read


def install_clocks(may_decide: bool = False) -> None:
    """Replace the clocks of ``time`` by clocks that return readings to the script.

    Args:
        may_decide: whether the script may compare readings, which the notes of the record then mention.
    """
    ClockReading.may_decide = may_decide
    for kind, names in ((ClockTime, POINTS), (ClockReading, INTERVALS)):
        for name in names:
            setattr(time, name, script_clock(getattr(time, name), kind))
