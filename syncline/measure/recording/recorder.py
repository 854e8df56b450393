"""The recorder of a rank's events and of the CPU seconds of its segments, and the lines of the script that it names.

The seconds are CPU time of the computing thread, which excludes the time in which other processes use the core. The
clock stops while a call is recorded and made. The seconds to count an operation are measured once and subtracted.
"""

from __future__ import annotations

import statistics
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from time import thread_time
from typing import Any

import torch

from syncline.errors import SynclineError
from syncline.measure.recording.operations import OperationCounter
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

REPEATS, OPERATIONS = 5, 200
"""Repetitions of the measurement in `counting_s`, and operations in each."""


class SegmentClock:
    """A clock that measures the CPU seconds of each run of each segment, after `begin` has started it.

    Time in which no operation was counted belongs to the next segment, except the time before the first segment. The
    clock measures only the thread that called `begin`.
    """

    def __init__(self) -> None:
        """Begin without measured segments."""
        self._counting_s = 0.0
        self._taken: dict[int, list[float]] = {}
        self._carried_s = 0.0
        self._since_s: float | None = None
        self._thread = get_ident()

    def begin(self, counting_s: float) -> None:
        """Start the clock for the script; counting one operation takes ``counting_s`` seconds."""
        self._counting_s, self._since_s, self._thread = counting_s, thread_time(), get_ident()

    def stop(self) -> None:
        """Stop the clock, because the following work is not the script's."""
        if get_ident() != self._thread:
            return
        if self._since_s is not None:
            self._carried_s += thread_time() - self._since_s
        self._since_s = None

    def go(self, anew: bool = False) -> None:
        """Start the clock again for the script's work; ``anew`` drops the time measured since the last segment."""
        if get_ident() != self._thread:
            return
        if anew:
            self._carried_s = 0.0
        if self._since_s is None:
            self._since_s = thread_time()

    def take(self, segment: int, operations: int) -> None:
        """Assign the time since the last call to one run of a segment, less the time to count its operations."""
        self.stop()
        self._taken.setdefault(segment, []).append(max(0.0, self._carried_s - operations * self._counting_s))
        self._carried_s = 0.0

    def medians_s(self) -> list[float]:
        """Return the median CPU seconds of each segment, in order."""
        return [statistics.median(self._taken[segment]) for segment in range(len(self._taken))]


def counting_s() -> float:
    """Return the seconds to count an operation: the difference between counted and plain operations on one number."""
    x, num_counted = torch.zeros(1), 0

    def note(operation: Counted) -> None:
        nonlocal num_counted
        num_counted += 1

    def taken_s() -> float:
        begin_s = thread_time()
        for _ in range(OPERATIONS):
            x.add_(1.0)
        return thread_time() - begin_s

    with_s, without_s = [], []
    for _ in range(REPEATS):
        without_s.append(taken_s())
        with OperationCounter(note, lambda: True):
            with_s.append(taken_s())
    return max(0.0, min(with_s) - min(without_s)) / OPERATIONS


def share_medians(ranks: Sequence[RankRecord]) -> None:
    """Set the seconds of equal segments to the same value on all ranks: the median of the ranks' medians.

    All ranks ran on one machine, so their medians differ only by noise. A rank that is slower in every step by this
    noise would fall behind by more than a latency in a replay, which changes the order of gloo's messages.
    """
    seconds_by_segment: dict[Operations, list[float]] = {}
    for rank in ranks:
        for operations, seconds in zip(rank.segments, rank.segment_cpu_s, strict=False):
            seconds_by_segment.setdefault(operations, []).append(seconds)
    medians = {operations: statistics.median(measured_s) for operations, measured_s in seconds_by_segment.items()}
    for rank in ranks:
        if rank.segment_cpu_s:
            rank.segment_cpu_s = [medians[operations] for operations in rank.segments]


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
        """Begin an empty record, without operations."""
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
        """Add an operation that was dispatched to the current segment."""
        self._begun = True
        self._operations.append(operation)

    def known_operations(self, costs: Sequence[Counted]) -> None:
        """Add the operations of an optimizer step, known from an earlier equal step, to the current segment."""
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
        """End the current segment: record the operations since the last event as one `Computed` event."""
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
        """Let the following work be queued on another stream, and return the number of the previous stream."""
        stream_before = self.stream
        if stream != stream_before:
            self.flush()
            self.stream = stream
            if not self.inside:
                self.clock.go(anew=not self._begun)
        return stream_before

    def mark(self, stream: int) -> int:
        """Record a new mark behind the queued work of a stream, and return its number."""
        self.marks += 1
        self.note(Marked(self.marks, stream))
        return self.marks

    def host_waits(self) -> None:
        """Record that the host waits for all work on the current stream, as a read of a value on the GPU does."""
        if not self.inside:
            self.note(HostWaited(self.mark(self.stream)))

    def num_events(self) -> int:
        """Return a number that changes with each call and each mark, that is with anything but computation."""
        return self.calls + self.marks

    def wait_unseen(self, call: int) -> None:
        """Record a wait that C++ code performs for a call's future: in a backward pass at its end, otherwise now."""
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
