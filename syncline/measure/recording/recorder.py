"""The recorder of a rank's events and of the CPU seconds of its segments, and the lines of the script that it names.

The seconds are CPU time of the computing thread, which excludes the time in which other processes use the core. The
clock stops while a call is recorded and made. The seconds to count an operation are measured once and subtracted.
"""

from __future__ import annotations

import math
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
from syncline.measure.recording import record
from syncline.measure.recording.operations import OperationCounter

REPEATS, OPERATIONS_PER_REPEAT = 5, 200
"""Repetitions of the measurement in `measure_counting_s`, and operations in each."""


class SegmentClock:
    """A clock of the CPU seconds that each run of a segment takes in the thread that called `start`.

    Time after a segment belongs to the next one; time before the first operation of the script is dropped.
    """

    def __init__(self) -> None:
        self._counting_s = 0.0  # seconds to count one operation; they are subtracted from runs
        self._seconds_of_runs: dict[int, list[float]] = {}  # by segment
        self._unassigned_s = 0.0  # seconds that belong to no run of a segment yet
        self._started_at_s: float | None = None  # None while the clock is stopped
        self._timed_thread = get_ident()  # the thread that computes

    def start(self, counting_s: float) -> None:
        """Start the clock for the script; counting one operation takes ``counting_s`` seconds."""
        self._counting_s, self._started_at_s, self._timed_thread = counting_s, thread_time(), get_ident()

    def stop(self) -> None:
        """Stop the clock, because the following work is not the script's."""
        if get_ident() != self._timed_thread:
            return
        if self._started_at_s is not None:
            self._unassigned_s += thread_time() - self._started_at_s
        self._started_at_s = None

    def resume(self, drop_elapsed: bool = False) -> None:
        """Start the clock again for the script's work; ``drop_elapsed`` drops the time that belongs to no segment."""
        if get_ident() != self._timed_thread:
            return
        if drop_elapsed:
            self._unassigned_s = 0.0
        if self._started_at_s is None:
            self._started_at_s = thread_time()

    def assign_to_segment(self, segment: int, num_counted: int) -> None:
        """Assign the time since the last call to one run of a segment, less the time to count its operations."""
        self.stop()
        seconds = max(0.0, self._unassigned_s - num_counted * self._counting_s)
        self._seconds_of_runs.setdefault(segment, []).append(seconds)
        self._unassigned_s = 0.0

    def medians_s(self) -> list[float]:
        """Return the median CPU seconds of each segment, in order."""
        return [statistics.median(self._seconds_of_runs[segment]) for segment in range(len(self._seconds_of_runs))]


def measure_counting_s() -> float:
    """Return the seconds to count an operation: the difference between counted and plain operations on one number."""
    x = torch.zeros(1)

    def time_operations_s() -> float:
        begin_s = thread_time()
        for _ in range(OPERATIONS_PER_REPEAT):
            x.add_(1.0)
        return thread_time() - begin_s

    counted_s, plain_s = [], []
    for _ in range(REPEATS):
        plain_s.append(time_operations_s())
        with OperationCounter(RankRecorder().add_operation, is_counting=lambda: True):
            counted_s.append(time_operations_s())
    smallest_difference_s = min(counted_s) - min(plain_s)  # the smallest times have the least noise
    return max(0.0, smallest_difference_s) / OPERATIONS_PER_REPEAT


def share_medians(ranks: Sequence[record.RankRecord]) -> None:
    """Set the seconds of equal segments to the same value on all ranks: the median of the ranks' medians.

    All ranks ran on one machine, so their medians differ only by noise. A rank that is slower in every step by this
    noise would fall behind by more than a latency in a replay, which changes the order of gloo's messages.
    """
    seconds_by_segment: dict[record.Operations, list[float]] = {}
    for rank in ranks:
        if rank.segment_cpu_s:
            for operations, seconds in zip(rank.segments, rank.segment_cpu_s, strict=True):
                seconds_by_segment.setdefault(operations, []).append(seconds)
    medians = {operations: statistics.median(measured_s) for operations, measured_s in seconds_by_segment.items()}
    for rank in ranks:
        if rank.segment_cpu_s:
            rank.segment_cpu_s = [medians[operations] for operations in rank.segments]


def share_payloads(ranks: Sequence[record.RankRecord]) -> None:
    """Set the bytes of each collective to the same value on all ranks, because predictions assume equal parts.

    A rank receives all parts of a gather but its own, so that the shared part of P ranks is 1 / (P - 1) of what the
    rank with the smallest part receives. Otherwise the rank that sends or receives most determines the time.
    """
    payloads: dict[tuple[str, int], list[int]] = {}
    for rank in ranks:
        for event in rank.events:
            if isinstance(event, record.Started):
                payloads.setdefault(event.key, []).append(event.payload_bytes)
    uneven = {key: nbytes for key, nbytes in payloads.items() if len(set(nbytes)) > 1}
    for rank in ranks if uneven else ():
        for index, event in enumerate(rank.events):
            if isinstance(event, record.Started) and event.key in uneven:
                nbytes = uneven[event.key]
                shared = max(nbytes)
                if event.kind in ("all_gather", "gather"):
                    shared = math.ceil((sum(nbytes) - min(nbytes)) / (len(nbytes) - 1))
                rank.events[index] = event._replace(payload_bytes=shared)


PACKAGE_FOLDER, TORCH_FOLDER = f"{Path(__file__).parents[2]}/", f"{Path(torch.__file__).parent}/"
"""The folders of this package, whose optimizers a script may use, and of torch; their lines are not the user's."""

LIBRARY_PREFIXES = (PACKAGE_FOLDER, TORCH_FOLDER, f"{sysconfig.get_path('stdlib')}/", "<frozen")
"""Prefixes of the file names of libraries: torch, Python and this package."""

DEPRECATION_DECORATOR_FILE = "/typing_extensions.py"
"""The file of the decorator that wraps deprecated functions of torch."""

INSTALLED_FOLDERS = ("/site-packages/", "/dist-packages/")
"""Folders of installed packages in any environment."""


class RankRecorder:
    """A recorder that appends events in order; the operations between two events form a segment, stored once."""

    def __init__(self) -> None:
        self.record = record.RankRecord()
        self.num_worlds = 0  # number of default groups, which torch calls worlds, that the script has created
        self.num_calls = self.num_marks = 0  # numbers of collectives and messages, and of marks on streams
        self.num_streams = 0  # besides stream 0, the default stream
        self.stream = 0  # the stream on which work is queued now
        self.clock = SegmentClock()
        self.last_script_line = ""  # the last result of `script_line`
        self._silence_depth = 0  # number of open `silence` blocks; operations count at depth 0 only
        self._has_begun = False  # whether the script has dispatched an operation
        self._operations: list[record.CountedOperation] = []  # since the last event
        self._num_known = 0  # how many of `_operations` were taken from an earlier equal step, not counted
        self._segment_of: dict[record.Operations, int] = {}  # number of the segment with these operations
        self._next_numbers: Counter[Any] = Counter()  # see `next_number`
        self._calls_awaited_in_backward: list[int] = []  # see `record_wait_in_cpp`

    def add_operation(self, operation: record.CountedOperation) -> None:
        """Add a dispatched operation to the operations since the last event."""
        self._has_begun = True
        self._operations.append(operation)

    def add_known_operations(self, operations: Sequence[record.CountedOperation]) -> None:
        """Add the operations of an optimizer step, known from an earlier equal step, to those since the last event."""
        self._operations += operations
        self._num_known += len(operations)

    def is_counting(self) -> bool:
        """Return whether to count the operations that run now, because they are the script's."""
        return self._silence_depth == 0

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Ignore the operations in a ``with`` block, because they are not the script's."""
        self.clock.stop()
        self._silence_depth += 1
        try:
            yield
        finally:
            self._silence_depth -= 1
            self._resume_clock()

    def stop(self) -> None:
        """Ignore all operations from now on, in a process that a rank has forked."""
        self._silence_depth += 1

    def _resume_clock(self) -> None:
        """Start the clock again unless a `silence` block is open; drop the time before the script's first operation."""
        if self.is_counting():
            self.clock.resume(drop_elapsed=not self._has_begun)

    def record_event(self, event: record.Event) -> None:
        """Record an event, after the operations before it."""
        self.clock.stop()
        self.end_segment()
        self.record.events.append(event)
        self._resume_clock()

    def end_segment(self) -> None:
        """End the current segment: record the operations since the last event as one `Computed` event."""
        if not self._operations:
            return
        self.clock.stop()
        operations = tuple(self._operations)
        self._operations.clear()
        if operations not in self._segment_of:
            self._segment_of[operations] = len(self.record.segments)
            self.record.segments.append(operations)
        segment = self._segment_of[operations]
        self.clock.assign_to_segment(segment, num_counted=len(operations) - self._num_known)
        self._num_known = 0
        self.record.events.append(record.Computed(segment, self.stream))

    def add_note(self, text: str) -> None:
        """Add a note for the user to the record, unless the record contains it."""
        if text not in self.record.notes:
            self.record.notes.append(text)

    def group_name(self, name: str) -> str:
        """Return torch's name of a group, made unique.

        Torch reuses names if a script destroys its default group and creates a new one.
        """
        return name if self.num_worlds <= 1 else f"{name} of world {self.num_worlds}"

    def next_number(self, key: Any) -> int:
        """Return the next number for a key: 0 at the first call with this key, then 1, and so on."""
        number = self._next_numbers[key]
        self._next_numbers[key] += 1
        return number

    def new_call(self) -> int:
        """Return a new number for a call of this rank."""
        self.num_calls += 1
        return self.num_calls

    def new_stream(self) -> int:
        """Return a new number for a stream of this rank."""
        self.num_streams += 1
        return self.num_streams

    def switch_stream(self, stream: int) -> int:
        """Let the following work be queued on another stream, and return the number of the previous stream."""
        previous_stream = self.stream
        if stream != previous_stream:
            self.end_segment()
            self.stream = stream
            self._resume_clock()
        return previous_stream

    def record_mark(self, stream: int) -> int:
        """Record a new mark behind the queued work of a stream, and return its number."""
        self.num_marks += 1
        self.record_event(record.Marked(self.num_marks, stream))
        return self.num_marks

    def record_host_wait(self) -> None:
        """Record that the host waits for all work on the current stream, as a read of a value on the GPU does."""
        if self.is_counting():
            self.record_event(record.HostWaited(self.record_mark(self.stream)))

    def num_calls_and_marks(self) -> int:
        """Return the number of calls and marks so far, which stays the same while the script only computes."""
        return self.num_calls + self.num_marks

    def record_wait_in_cpp(self, call: int) -> None:
        """Record a wait that C++ code performs for a call's future: in a backward pass at its end, otherwise now."""
        if torch._C._current_graph_task_id() == -1:  # no backward pass runs
            self.record_event(record.Waited(call, self.stream))
            return
        if not self._calls_awaited_in_backward:
            torch.autograd.Variable._execution_engine.queue_callback(self._record_waits_of_backward)
        self._calls_awaited_in_backward.append(call)

    def _record_waits_of_backward(self) -> None:
        """Record the waits that C++ code performs at the end of the backward pass."""
        calls, self._calls_awaited_in_backward = self._calls_awaited_in_backward, []
        for call in calls:
            self.record_event(record.Waited(call, self.stream))


def _stack_lines() -> Iterator[tuple[str, int]]:
    """Yield the file and the line of each frame on the stack, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def script_line() -> str:
    """Return the innermost line on the stack that belongs to the script or to a package other than torch.

    If the stack has no such line, as for calls from C++, return the last line that this function has returned.
    """
    for file, line in _stack_lines():
        if not file.startswith((*LIBRARY_PREFIXES, "<")) and not file.endswith(DEPRECATION_DECORATOR_FILE):
            RECORDER.last_script_line = f"{file}:{line}"
            break
    return RECORDER.last_script_line


def is_library(file: str) -> bool:
    """Return whether a file belongs to Python, torch, an installed package or this package, not to the script."""
    return file.startswith(LIBRARY_PREFIXES) or any(folder in file for folder in INSTALLED_FOLDERS)


def is_user_file(file: str) -> bool:
    """Return whether a file is of the user: no library, and no code without a file such as ``<string>``."""
    return not file.startswith("<") and not is_library(file)


def user_line() -> str:
    """Return the innermost line on the stack that is in a user's file, or else the result of `script_line`."""
    for file, line in _stack_lines():
        if is_user_file(file):
            return f"{file}:{line}"
    return script_line()


class Refusal(SynclineError, NotImplementedError):
    """An error for a script that needs what a record cannot know; its message begins with the user's line."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{user_line()}: {sentence}")


RECORDER = RankRecorder()
"""The recorder of this process."""
