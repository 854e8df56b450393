"""Who notes what a rank does."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from syncline.errors import SynclineError
from syncline.measure.recording.measured import SegmentClock
from syncline.measure.recording.record import (
    Computed,
    Event,
    HostWaited,
    Marked,
    Operations,
    RankRecord,
    Waited,
)

OURS, TORCHS = f"{Path(__file__).parents[2]}/", f"{Path(torch.__file__).parent}/"
"""Folders of libraries whose lines are nobody's: the package's, whose optimizers a script may use, and torch's."""

LIBRARY = (OURS, TORCHS, f"{sysconfig.get_path('stdlib')}/", "<frozen")
"""How the files of libraries begin: torch's, Python's and ours."""

DECORATORS = "/typing_extensions.py"
"""The package that wraps what torch deprecates."""

INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of packages that are installed, wherever the environment is."""


class RankRecorder:
    """Notes events in their order; operations between two of them are one segment, kept once."""

    def __init__(self) -> None:
        self.record = RankRecord()
        self.inside = self.worlds = 0
        self.calls = self.marks = self.streams = 0
        self.stream = 0
        self.clock = SegmentClock()
        self._begun = False
        self.last_site = ""
        self._operations: list[tuple[float, float]] = []
        self._uncounted = 0  # of these, so that counting them has taken nothing
        self._segments: dict[Operations, int] = {}
        self._numbers: dict[Any, int] = {}
        self._hidden: list[int] = []

    def operation(self, flops: float, nbytes: float) -> None:
        """An operation was dispatched."""
        self._begun = True
        self._operations.append((flops, nbytes))

    def known_operations(self, costs: Sequence[tuple[float, float]]) -> None:
        """Operations come that nobody will count."""
        self._operations += costs
        self._uncounted += len(costs)

    def listens(self) -> bool:
        """Whether operations are the script's own."""
        return not self.inside

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Operations in here are not the script's."""
        self.clock.stop()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self.clock.go(anew=not self._begun)

    def stop(self) -> None:
        """Operations from now on are not the script's: in a process that a rank has forked."""
        self.inside += 1

    def note(self, event: Event) -> None:
        """Something other than computing happened."""
        self.clock.stop()
        self.flush()
        self.record.events.append(event)
        if not self.inside:
            self.clock.go(anew=not self._begun)

    def flush(self) -> None:
        """What was computed since the last event, as one."""
        if not self._operations:
            return
        self.clock.stop()
        operations = tuple(self._operations)
        self._operations.clear()
        if operations not in self._segments:
            self._segments[operations] = len(self.record.segments)
            self.record.segments.append(operations)
        segment = self._segments[operations]
        self.clock.take(segment, len(operations) - self._uncounted)
        self._uncounted = 0
        self.record.events.append(Computed(segment, self.stream))

    def remark(self, text: str) -> None:
        """Something that people should know of the record, once."""
        if text not in self.record.notes:
            self.record.notes.append(text)

    def group_name(self, name: str) -> str:
        """Torch's, which begin anew with each world that a script makes after it has destroyed one."""
        return name if self.worlds <= 1 else f"{name} of world {self.worlds}"

    def number(self, key: Any) -> int:
        """How often this was asked for before."""
        count = self._numbers.get(key, 0)
        self._numbers[key] = count + 1
        return count

    def new_call(self) -> int:
        """The number of a call of this rank."""
        self.calls += 1
        return self.calls

    def new_stream(self) -> int:
        """The number of a stream of this rank."""
        self.streams += 1
        return self.streams

    def queue_on(self, stream: int) -> int:
        """What comes now is queued on this stream; returns on which it was."""
        before = self.stream
        if stream != before:
            self.flush()
            self.stream = stream
            if not self.inside:
                self.clock.go(anew=not self._begun)
        return before

    def mark(self, stream: int) -> int:
        """A mark behind what is queued on a stream."""
        self.marks += 1
        self.note(Marked(self.marks, stream))
        return self.marks

    def host_waits(self) -> None:
        """The host waits for what is queued on the stream that it is at, as when it reads a value."""
        if not self.inside:
            self.note(HostWaited(self.mark(self.stream)))

    def others(self) -> int:
        """A number that changes with each call and each mark: what a rank does beside computing."""
        return self.calls + self.marks

    def wait_unseen(self, call: int) -> None:
        """Somebody in C++ waits for a call's future, unseen: in a backward pass that is over when it ends, else now."""
        if torch._C._current_graph_task_id() == -1:
            self.note(Waited(call, self.stream))
            return
        if not self._hidden:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        self._hidden.append(call)

    def _end_of_backward(self) -> None:
        hidden, self._hidden = self._hidden, []
        for call in hidden:
            self.note(Waited(call, self.stream))


def site() -> str:
    """Return the line of the script, or of a package but torch, which called; where C++ has, the last that did."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*LIBRARY, "<")) and not name.endswith(DECORATORS):
            RECORDER.last_site = f"{name}:{frame.f_lineno}"
            break
        frame = frame.f_back
    return RECORDER.last_site


def is_library(file: str) -> bool:
    """Return whether a file is of Python, torch, an installed package or this package, and not of the script."""
    return file.startswith(LIBRARY) or any(folder in file for folder in INSTALLED)


def user_line() -> str:
    """Return the innermost line of the user's files that led here; of a library's, as `site` does, if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not is_library(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return site()


class Refusal(SynclineError, NotImplementedError):
    """A script asks for what a record cannot know or a trace does not do; the message begins with the user's line."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{user_line()}: {sentence}")


RECORDER = RankRecorder()
"""Of this process."""
