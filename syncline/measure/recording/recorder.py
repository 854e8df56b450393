"""The recorder of the events of a rank, and the source lines of a script that its messages name."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from syncline.errors import SynclineError
from syncline.measure.recording.measured import SegmentClock
from syncline.measure.recording.record import (
    Computed,
    Counted,
    Event,
    HostWaited,
    Marked,
    Operations,
    RankRecord,
    Waited,
)

OURS, TORCHS = f"{Path(__file__).parents[2]}/", f"{Path(torch.__file__).parent}/"
"""The folders of this package, whose optimizers a script may use, and of torch; their lines are not the user's."""

LIBRARY = (OURS, TORCHS, f"{sysconfig.get_path('stdlib')}/", "<frozen")
"""Prefixes of the file names of libraries: torch, Python and this package."""

DECORATORS = "/typing_extensions.py"
"""The file of the decorator that wraps deprecated functions of torch."""

INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of installed packages in any environment."""


class RankRecorder:
    """A recorder that appends events in order; the operations between two events form a segment, stored once."""

    def __init__(self) -> None:
        self.record = RankRecord()
        self.inside = self.worlds = 0
        self.calls = self.marks = self.streams = 0
        self.stream = 0
        self.clock = SegmentClock()
        self._begun = False
        self.last_site = ""
        self._operations: list[Counted] = []
        self._uncounted = 0  # number of these that were not counted one by one, which took no time
        self._segments: dict[Operations, int] = {}
        self._numbers: Counter[Any] = Counter()
        self._hidden: list[int] = []

    def operation(self, operation: Counted) -> None:
        """Record an operation that was dispatched."""
        self._begun = True
        self._operations.append(operation)

    def known_operations(self, costs: Sequence[Counted]) -> None:
        """Record the operations of an optimizer step, which are not counted one by one."""
        self._operations += costs
        self._uncounted += len(costs)

    def is_counting(self) -> bool:
        """Return whether the operations that run now are the script's."""
        return not self.inside

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Ignore the operations in a ``with`` block, because they are not the script's."""
        self.clock.stop()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self.clock.go(anew=not self._begun)

    def stop(self) -> None:
        """Ignore all operations from now on, in a process that a rank has forked."""
        self.inside += 1

    def note(self, event: Event) -> None:
        """Record an event, after the operations before it."""
        self.clock.stop()
        self.flush()
        self.record.events.append(event)
        if not self.inside:
            self.clock.go(anew=not self._begun)

    def flush(self) -> None:
        """Record the operations since the last event as one event."""
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
        """Add a note for the user to the record, unless the record contains it."""
        if text not in self.record.notes:
            self.record.notes.append(text)

    def group_name(self, name: str) -> str:
        """Return torch's name of a group, made unique.

        Torch reuses names if a script destroys its default group (the world) and creates a new one.
        """
        return name if self.worlds <= 1 else f"{name} of world {self.worlds}"

    def number(self, key: Any) -> int:
        """Return the number of earlier calls with the same key."""
        self._numbers[key] += 1
        return self._numbers[key] - 1

    def new_call(self) -> int:
        """Return a new number for a call of this rank."""
        self.calls += 1
        return self.calls

    def new_stream(self) -> int:
        """Return a new number for a stream of this rank."""
        self.streams += 1
        return self.streams

    def queue_on(self, stream: int) -> int:
        """Set the stream on which the following work is queued, and return the previous stream."""
        before = self.stream
        if stream != before:
            self.flush()
            self.stream = stream
            if not self.inside:
                self.clock.go(anew=not self._begun)
        return before

    def mark(self, stream: int) -> int:
        """Record a new mark behind the queued work of a stream, and return its number."""
        self.marks += 1
        self.note(Marked(self.marks, stream))
        return self.marks

    def host_waits(self) -> None:
        """Record that the host waits for the work queued on the current stream, as when it reads a value."""
        if not self.inside:
            self.note(HostWaited(self.mark(self.stream)))

    def num_events(self) -> int:
        """Return a number that changes with each call and each mark, that is with anything but computation."""
        return self.calls + self.marks

    def wait_unseen(self, call: int) -> None:
        """Record a wait that C++ code performs for a call's future.

        In a backward pass the wait is recorded at its end, else now.
        """
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


def _stack() -> Iterator[tuple[str, int]]:
    """Yield the file and the line of each frame on the stack, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def site() -> str:
    """Return the line of the script, or of a package other than torch, that called.

    If the stack has no such line, as for calls from C++, return the last line that this function has returned.
    """
    for file, line in _stack():
        if not file.startswith((*LIBRARY, "<")) and not file.endswith(DECORATORS):
            RECORDER.last_site = f"{file}:{line}"
            break
    return RECORDER.last_site


def is_library(file: str) -> bool:
    """Return whether a file belongs to Python, torch, an installed package or this package, not to the script."""
    return file.startswith(LIBRARY) or any(folder in file for folder in INSTALLED)


def user_line() -> str:
    """Return the innermost line of the user's files on the stack; the result of `site` if there is none."""
    lines = (f"{file}:{line}" for file, line in _stack() if not file.startswith("<") and not is_library(file))
    return next(lines, "") or site()


class Refusal(SynclineError, NotImplementedError):
    """An error for a script that needs what a record cannot know; its message begins with the user's line."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{user_line()}: {sentence}")


RECORDER = RankRecorder()
"""The recorder of this process."""
