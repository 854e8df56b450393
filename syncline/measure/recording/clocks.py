"""Clocks that a script reads: to print what they say is harmless, to decide by it is what a record cannot know.

Two kinds of numbers come from a clock. A `ClockTime` is a point in time; whether it is later than a constant does not
depend on the network, as where a timer asks whether it was started (``start_time > 0``). A `ClockReading` is an
interval between two points, and does.
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
"""Clocks of ``time`` that tell a point in time."""

INTERVALS = ("process_time", "thread_time")
"""Clocks of ``time`` that tell what has passed since the script began."""

COMPARE = dis.opmap["COMPARE_OP"]


def of_script(frame: FrameType | None) -> bool:
    """Return whether a frame is of the script; libraries read clocks for their own ends, such as a progress bar."""
    return frame is not None and not is_library(frame.f_code.co_filename)


class ClockReading(float):
    """An interval that came from a clock: what is computed of it is one, too, and it may not decide.

    ``if``, ``while`` and a comparison that is written down ask it; ``min``, ``sorted`` and printing do not.
    """

    may_decide = False

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)


class ClockTime(ClockReading):
    """A point in time: less another point it is an interval, moved or in another unit it is a point."""


KEEP_A_POINT = ("add", "radd", "sub", "mul", "rmul", "truediv", "abs", "pos")
"""Arithmetic that moves a point or gives it another unit, unless the other number is a point, too."""

ARITHMETIC = (*KEEP_A_POINT, "rsub", "floordiv", "rtruediv", "mod", "neg")


def _computed(name: str) -> Callable[..., Any]:
    plain = getattr(float, f"__{name}__")

    def computed(self: float, *others: Any) -> Any:
        value = plain(self, *others)
        if type(value) is not float:
            return value
        points = [isinstance(x, ClockTime) for x in (self, *others)]
        is_point = points[0] and not any(points[1:]) and name in KEEP_A_POINT
        return (ClockTime if is_point else ClockReading)(value)

    return computed


def _compared(name: str) -> Callable[..., Any]:
    plain = getattr(float, f"__{name}__")

    def compared(self: float, other: Any) -> Any:
        frame = sys._getframe(1)
        with_constant = isinstance(self, ClockTime) and not isinstance(other, ClockReading)
        if not with_constant and of_script(frame) and frame.f_code.co_code[frame.f_lasti] == COMPARE:
            if not ClockReading.may_decide:
                raise Refusal(
                    "decides by the clock; a record knows nothing of the time on another network. A clock may be"
                    " printed: count steps where the script decides, or use --clock allow"
                )
            RECORDER.remark(f"{user_line()}: decides by the clock, as it was during the recording (--clock allow)")
        return plain(self, other)

    return compared


for _kind in (ClockReading, ClockTime):  # in both, so that a point on the right comes before an interval on the left
    for _name in ARITHMETIC:
        setattr(_kind, f"__{_name}__", _computed(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(ClockReading, f"__{_name}__", _compared(_name))


def telling(clock: Callable[[], float], kind: type[ClockReading]) -> Callable[[], float]:
    """Return a clock that tells the script readings of a kind, and all others what it did."""

    def read() -> float:
        return kind(clock()) if of_script(sys._getframe(1)) else clock()

    return read


def install_clocks(may_decide: bool = False) -> None:
    """Let the clocks of ``time`` tell the script readings.

    Args:
        may_decide: whether the script may decide by them, which the record's notes then say.
    """
    ClockReading.may_decide = may_decide
    for kind, names in ((ClockTime, POINTS), (ClockReading, INTERVALS)):
        for name in names:
            setattr(time, name, telling(getattr(time, name), kind))
