"""Streams, events and clocks that a traced script sees.

Virtual streams and events record the current stream, the order between streams, and the waits of the host; the CPU
executes all work immediately. They replace the streams of ``torch.cpu``, which do nothing, and those of ``torch.cuda``.

A script may print what a clock returns, but may not branch on it, because another network would change it. A clock
returns a `ClockTime`, a point in time, which may be compared with a constant (``start_time > 0`` in a timer); the
difference of two points is a `ClockReading`, which may not be compared.
"""

from __future__ import annotations

import dis
import functools
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import torch

from syncline.measure.recording.operations import is_called_on_host_data
from syncline.measure.recording.record import EVERYTHING, HostWaited, StreamWaited
from syncline.measure.recording.recorder import RECORDER, Refusal, is_library, user_line

CLOCKS_OF_POINTS = ("time", "perf_counter", "monotonic")
"""Clocks of ``time`` that return a point in time."""

CLOCKS_OF_INTERVALS = ("process_time", "thread_time")
"""Clocks of ``time`` that return the time since the script began."""

COMPARE = dis.opmap["COMPARE_OP"]
"""The number of Python's instruction for a comparison in a script's own code."""


def is_script_frame(frame: FrameType | None) -> bool:
    """Return whether a frame is of the script; libraries may use clocks, for example for a progress bar."""
    return frame is not None and not is_library(frame.f_code.co_filename)


class ClockReading(float):
    """An interval of time from a clock; arithmetic with it returns intervals too.

    A comparison that the script itself contains, as in ``if`` and ``while``, is refused. ``min``, ``sorted`` and
    printing are allowed.

    Attributes:
        comparison_allowed: whether a script may compare readings. The record then has a note about it.
    """

    comparison_allowed = False

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (float(self),)


class ClockTime(ClockReading):
    """A point in time: its difference to another point is an interval; shifted or scaled it stays a point."""


KEEP_A_POINT = ("add", "radd", "sub", "mul", "rmul", "truediv", "abs", "pos")
"""Arithmetic that shifts or scales a point in time, unless the other operand is a point too."""

ARITHMETIC = (*KEEP_A_POINT, "rsub", "floordiv", "rtruediv", "mod", "neg")


def _arithmetic_method(name: str) -> Callable[..., Any]:
    """Return the arithmetic method ``__name__`` of `ClockReading`, which computes as ``float`` does."""
    original = getattr(float, f"__{name}__")

    def method(self: float, *others: Any) -> Any:
        """Return the result of arithmetic with a clock's reading, as a point in time or an interval."""
        value = original(self, *others)
        if type(value) is not float:  # NotImplemented, for example
            return value
        has_other_point = any(isinstance(other, ClockTime) for other in others)
        is_point = isinstance(self, ClockTime) and not has_other_point and name in KEEP_A_POINT
        return ClockTime(value) if is_point else ClockReading(value)

    return method


def _comparison_method(name: str) -> Callable[..., Any]:
    """Return the comparison ``__name__`` of `ClockReading`, which refuses a script that branches on the clock."""
    original = getattr(float, f"__{name}__")

    def method(self: float, other: Any) -> Any:
        """Compare; refuse a script's own decision by the clock, because a replay has another time."""
        frame = sys._getframe(1)
        is_point_and_constant = isinstance(self, ClockTime) and not isinstance(other, ClockReading)  # ``start > 0``
        # `min` and `sorted` compare too, but then the script's own instruction is a call.
        is_own_comparison = is_script_frame(frame) and frame.f_code.co_code[frame.f_lasti] == COMPARE
        if is_own_comparison and not is_point_and_constant:
            if not ClockReading.comparison_allowed:
                raise Refusal(
                    "decides by the clock; a record does not contain the time on another network. A clock may be"
                    " printed: let the script decide by its steps, or use --clock allow"
                )
            RECORDER.add_note(f"{user_line()}: decides by the clock, as it was during the recording (--clock allow)")
        return original(self, other)

    return method


for _class in (ClockReading, ClockTime):  # both: Python prefers a subclass's method on the right to that on the left
    for _name in ARITHMETIC:
        setattr(_class, f"__{_name}__", _arithmetic_method(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(ClockReading, f"__{_name}__", _comparison_method(_name))


def script_clock(clock: Callable[[], float], reading_class: type[ClockReading]) -> Callable[[], float]:
    """Return a clock that returns readings of the given class to the script, and plain numbers to libraries."""
    return lambda: reading_class(clock()) if is_script_frame(sys._getframe(1)) else clock()


def install_clocks(comparison_allowed: bool = False) -> None:
    """Replace the clocks of ``time`` by clocks that return a `ClockReading` to the script."""
    ClockReading.comparison_allowed = comparison_allowed
    for reading_class, names in ((ClockTime, CLOCKS_OF_POINTS), (ClockReading, CLOCKS_OF_INTERVALS)):
        for name in names:
            setattr(time, name, script_clock(getattr(time, name), reading_class))


class VirtualStream:
    """A virtual stream on which a script queues work: a new one, or the existing stream of a ``number``."""

    def __init__(self, *_: Any, number: int | None = None, **__: Any) -> None:
        self.number = RECORDER.new_stream() if number is None else number
        self._previous_streams: list[int] = []  # of the `with` blocks that are open

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualStream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("stream", self.number))

    def __enter__(self) -> VirtualStream:
        self._previous_streams.append(RECORDER.switch_stream(self.number))
        return self

    def __exit__(self, *_: Any) -> None:
        RECORDER.switch_stream(self._previous_streams.pop())

    def wait_stream(self, stream: VirtualStream) -> None:
        """Let later work of this stream wait for the queued work of another stream."""
        if stream.number != self.number:
            RECORDER.record_event(StreamWaited(RECORDER.record_mark(stream.number), self.number))

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record an event behind the queued work of this stream, and return the event."""
        event = event or VirtualEvent()
        event.record(self)
        return event

    def wait_event(self, event: VirtualEvent) -> None:
        """Let later work of the stream wait for an event; an event that was never recorded has no effect."""
        if event.mark is not None:
            RECORDER.record_event(StreamWaited(event.mark, self.number))

    def synchronize(self) -> None:
        """Let the host wait for the queued work of this stream."""
        RECORDER.record_event(HostWaited(RECORDER.record_mark(self.number)))

    def query(self) -> bool:
        """Refuse the question, because the answer would depend on the time of the recording."""
        raise Refusal("a stream's query() asks when; a record cannot know that. Use synchronize()")


class VirtualEvent:
    """A virtual event: a position in a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.mark: int | None = None
        self.recorded_s = 0.0

    def record(self, stream: VirtualStream | None = None) -> VirtualEvent:
        """Place the event at a new mark behind the queued work of a stream, the current stream by default."""
        self.mark = RECORDER.record_mark(RECORDER.stream if stream is None else stream.number)
        self.recorded_s = time.perf_counter()
        return self

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Let a stream wait for the event, the current stream by default."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Let the host wait for the event."""
        if self.mark is not None:
            RECORDER.record_event(HostWaited(self.mark))

    def query(self) -> bool:
        """Refuse the question, because the answer would depend on the time of the recording."""
        raise Refusal("an event's query() asks when; a record cannot know that. Use synchronize()")

    def elapsed_time(self, end: VirtualEvent) -> float:
        """Return the milliseconds between two events during the recording, not on a simulated clock."""
        return 1e3 * (end.recorded_s - self.recorded_s)


class StreamContext(AbstractContextManager[None]):
    """A context in which work is queued on a stream; None keeps the current stream."""

    def __init__(self, stream: VirtualStream | None) -> None:
        self._context: Any = stream or nullcontext()

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


def current_stream(device: Any = None) -> VirtualStream:
    """Return the current stream, on which new work is queued."""
    return VirtualStream(number=RECORDER.stream)


def set_stream(stream: VirtualStream | None) -> None:
    """Make a stream the current stream; None changes nothing."""
    if stream is not None:
        RECORDER.switch_stream(stream.number)


def synchronize(device: Any = None) -> None:
    """Let the host wait for all queued work."""
    RECORDER.record_event(HostWaited(EVERYTHING))


def install_streams() -> None:
    """Replace the streams of ``torch.cpu``; let ``Tensor.cpu`` and ``Tensor.tolist`` record a wait of the host."""
    replacements: dict[str, Any] = {
        "Stream": VirtualStream, "Event": VirtualEvent, "StreamContext": StreamContext, "stream": StreamContext,
        "current_stream": current_stream, "synchronize": synchronize,
    }  # fmt: skip
    for name, replacement in replacements.items():
        setattr(torch.cpu, name, replacement)
    for name in ("cpu", "tolist"):
        setattr(torch.Tensor, name, with_host_wait(getattr(torch.Tensor, name)))


def with_host_wait(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of a method of tensors which records that the host waits for the values.

    The operation counter does not see such a method, because it dispatches no operation for a tensor on the CPU.
    """

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_called_on_host_data():
            RECORDER.record_host_wait()
        return method(*args, **kwargs)

    return wrapper
