"""Streams and events for scripts that queue work on them, where there is one device, the CPU, that does all at once.

They note which stream is current, what is queued behind what, and for what the host waits. ``torch.cpu`` has them
instead of its own, which do nothing; whatever else speaks of streams can be given the same.
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
    """A stream.

    Args:
        number: of one that is there already; a new one unless given, whatever device and priority are asked for.
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
        """What is queued here from now on comes after what is queued there so far."""
        if stream.number != self.number:
            RECORDER.note(StreamWaited(RECORDER.mark(stream.number), self.number))

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """An event behind what is queued here so far."""
        event = event or VirtualEvent()
        event.record(self)
        return event

    def wait_event(self, event: VirtualEvent) -> None:
        """What is queued here from now on comes after what the event is behind; nothing, if it was never recorded."""
        if event.mark is not None:
            RECORDER.note(StreamWaited(event.mark, self.number))

    def synchronize(self) -> None:
        """The host waits for what is queued here so far."""
        RECORDER.note(HostWaited(RECORDER.mark(self.number)))

    def query(self) -> bool:
        """Refused: an answer would depend on the time that the recording took."""
        raise Refusal("a stream's query() asks when; a record cannot know that. Use synchronize()")


class VirtualEvent:
    """An event: a place in a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.mark: int | None = None
        self.recorded_s = 0.0

    def record(self, stream: VirtualStream | None = None) -> VirtualEvent:
        """Be behind what is queued on a stream so far, the current one unless given."""
        self.mark = RECORDER.mark(RECORDER.stream if stream is None else stream.number)
        self.recorded_s = time.perf_counter()
        return self

    def wait(self, stream: VirtualStream | None = None) -> None:
        """A stream waits for it, the current one unless given."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """The host waits for it."""
        if self.mark is not None:
            RECORDER.note(HostWaited(self.mark))

    def query(self) -> bool:
        """Refused: an answer would depend on the time that the recording took."""
        raise Refusal("an event's query() asks when; a record cannot know that. Use synchronize()")

    def elapsed_time(self, end: VirtualEvent) -> float:
        """Milliseconds between two events as they were recorded here, not on any simulated clock."""
        return 1e3 * (end.recorded_s - self.recorded_s)


class StreamContext(AbstractContextManager[None]):
    """What is computed and sent inside is queued on a stream; on the current one, if it is none."""

    def __init__(self, stream: VirtualStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *how: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*how)


def current_stream(device: Any = None) -> VirtualStream:
    """The stream on which what comes now is queued."""
    return VirtualStream(number=RECORDER.stream)


def default_stream(device: Any = None) -> VirtualStream:
    """The stream that a script has without asking."""
    return VirtualStream(number=0)


def set_stream(stream: VirtualStream | None) -> None:
    """What comes now is queued on this stream."""
    if stream is not None:
        RECORDER.queue_on(stream.number)


def synchronize(device: Any = None) -> None:
    """The host waits for all that is queued anywhere."""
    RECORDER.note(HostWaited(EVERYTHING))


def install_streams() -> None:
    """Give ``torch.cpu`` streams."""
    given: dict[str, Any] = {
        "Stream": VirtualStream, "Event": VirtualEvent, "StreamContext": StreamContext, "stream": StreamContext,
        "current_stream": current_stream, "synchronize": synchronize,
    }  # fmt: skip
    for name, what in given.items():
        setattr(torch.cpu, name, what)
    for name in ("cpu", "tolist"):
        setattr(torch.Tensor, name, reading(getattr(torch.Tensor, name)))


def reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of tensors that takes values to the host; where they are there already, nothing is dispatched."""

    @functools.wraps(method)
    def reads(*args: Any, **kwargs: Any) -> Any:
        if not is_of_host():
            RECORDER.host_waits()
        return method(*args, **kwargs)

    return reads
