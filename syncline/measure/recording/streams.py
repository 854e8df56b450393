"""Virtual streams and events for scripts that use them on a CPU, which executes all work immediately.

They record the current stream, the order between streams, and the waits of the host. They replace the streams of
``torch.cpu``, which do nothing, and can replace those of other devices.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from syncline.measure.recording.operations import is_of_host
from syncline.measure.recording.record import EVERYTHING, HostWaited, StreamWaited
from syncline.measure.recording.recorder import RECORDER, Refusal


class VirtualStream:
    """A virtual stream on which a script queues work.

    Args:
        number: the number of an existing stream; if None, the stream is new, whatever its device and priority are.
    """

    def __init__(self, *_: Any, number: int | None = None, **__: Any) -> None:
        self.number = RECORDER.new_stream() if number is None else number
        self._before: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualStream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("stream", self.number))

    def __repr__(self) -> str:
        return f"VirtualStream({self.number})"

    def __enter__(self) -> VirtualStream:
        self._before.append(RECORDER.queue_on(self.number))
        return self

    def __exit__(self, *_: Any) -> None:
        RECORDER.queue_on(self._before.pop())

    def wait_stream(self, stream: VirtualStream) -> None:
        """Let later work of this stream wait for the queued work of another stream."""
        if stream.number != self.number:
            RECORDER.note(StreamWaited(RECORDER.mark(stream.number), self.number))

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record an event behind the queued work of this stream, and return the event."""
        event = event or VirtualEvent()
        event.record(self)
        return event

    def wait_event(self, event: VirtualEvent) -> None:
        """Let later work of this stream wait for an event; an event that was not recorded has no effect."""
        if event.mark is not None:
            RECORDER.note(StreamWaited(event.mark, self.number))

    def synchronize(self) -> None:
        """Let the host wait for the queued work of this stream."""
        RECORDER.note(HostWaited(RECORDER.mark(self.number)))

    def query(self) -> bool:
        """Refuse the question, because the answer would depend on the time of the recording."""
        raise Refusal("a stream's query() asks when; a record cannot know that. Use synchronize()")


class VirtualEvent:
    """A virtual event: a position in a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.mark: int | None = None
        self.recorded_s = 0.0

    def record(self, stream: VirtualStream | None = None) -> VirtualEvent:
        """Place the event behind the queued work of a stream, the current stream by default."""
        self.mark = RECORDER.mark(RECORDER.stream if stream is None else stream.number)
        self.recorded_s = time.perf_counter()
        return self

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Let a stream wait for the event, the current stream by default."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Let the host wait for the event."""
        if self.mark is not None:
            RECORDER.note(HostWaited(self.mark))

    def query(self) -> bool:
        """Refuse the question, because the answer would depend on the time of the recording."""
        raise Refusal("an event's query() asks when; a record cannot know that. Use synchronize()")

    def elapsed_time(self, end: VirtualEvent) -> float:
        """Return the milliseconds between two events during the recording, not on a simulated clock."""
        return 1e3 * (end.recorded_s - self.recorded_s)


class StreamContext(AbstractContextManager[None]):
    """A context in which work is queued on a stream; None keeps the current stream."""

    def __init__(self, stream: VirtualStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *how: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*how)


def current_stream(device: Any = None) -> VirtualStream:
    """Return the current stream, on which new work is queued."""
    return VirtualStream(number=RECORDER.stream)


def set_stream(stream: VirtualStream | None) -> None:
    """Make a stream the current stream; None changes nothing."""
    if stream is not None:
        RECORDER.queue_on(stream.number)


def synchronize(device: Any = None) -> None:
    """Let the host wait for all queued work."""
    RECORDER.note(HostWaited(EVERYTHING))


def install_streams() -> None:
    """Replace the streams of ``torch.cpu``, and record waits when tensors are read."""
    replacements: dict[str, Any] = {
        "Stream": VirtualStream, "Event": VirtualEvent, "StreamContext": StreamContext, "stream": StreamContext,
        "current_stream": current_stream, "synchronize": synchronize,
    }  # fmt: skip
    for name, replacement in replacements.items():
        setattr(torch.cpu, name, replacement)
    for name in ("cpu", "tolist"):
        setattr(torch.Tensor, name, reading(getattr(torch.Tensor, name)))


def reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of tensors that records that the host waits for the values.

    If the values are in host memory already, the method dispatches no operation, so the counter does not see it.
    """

    @functools.wraps(method)
    def reads(*args: Any, **kwargs: Any) -> Any:
        if not is_of_host():
            RECORDER.host_waits()
        return method(*args, **kwargs)

    return reads
