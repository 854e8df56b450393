"""Clocks that a script reads: to print what they say is harmless, to decide by it is what a record cannot know."""

from __future__ import annotations

import dis
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from syncline.backend.tracing.recorder import OURS, TORCHS

CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")

LIBRARY = (OURS, TORCHS, str(Path(dis.__file__).parent), "<frozen")
"""Files that may read a clock for their own ends: torch's, Python's, with packages that are installed, and ours."""

COMPARE = dis.opmap["COMPARE_OP"]


def of_script(frame: FrameType | None) -> bool:
    """Whether a frame is of the script."""
    return frame is not None and not frame.f_code.co_filename.startswith(LIBRARY)


class ClockReading(float):
    """A number that came from a clock: what is computed of it has come from it, too, and it may not decide.

    ``if``, ``while`` and a comparison that is written down ask it; ``min``, ``sorted`` and printing do not.
    """

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)


def _computed(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def computed(self: float, *others: Any) -> Any:
        value = plain(self, *others)
        return ClockReading(value) if type(value) is float else value

    return computed


def _compared(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def compared(self: float, other: Any) -> Any:
        frame = sys._getframe(1)
        if of_script(frame) and frame.f_code.co_code[frame.f_lasti] == COMPARE:
            raise NotImplementedError(
                f"{frame.f_code.co_filename}:{frame.f_lineno}: decides by the clock; a record knows nothing of the time"
                " on another network. A clock may be printed: count steps where the script decides"
            )
        return plain(self, other)

    return compared


ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "radd", "rsub", "rmul", "rtruediv", "neg", "abs", "pos",
)  # fmt: skip

for _name in ARITHMETIC:
    setattr(ClockReading, f"__{_name}__", _computed(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(ClockReading, f"__{_name}__", _compared(f"__{_name}__"))


def telling(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that tells the script readings, and all others what it did."""

    def read() -> float:
        return ClockReading(clock()) if of_script(sys._getframe(1)) else clock()

    return read


def install_clocks() -> None:
    """Let the clocks of ``time`` tell the script readings."""
    for name in CLOCKS:
        setattr(time, name, telling(getattr(time, name)))
