"""Who notes what a rank does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from syncline.backend.tracing.record import Computed, Event, Operations, RankRecord, Waited

OURS, TORCHS = str(Path(__file__).parent), str(Path(torch.__file__).parent)


class RankRecorder:
    """Notes events in their order; operations between two of them are one segment, kept once."""

    def __init__(self) -> None:
        self.record = RankRecord()
        self.inside = 0
        self.calls = 0
        self._operations: list[tuple[float, float]] = []
        self._segments: dict[Operations, int] = {}
        self._numbers: dict[Any, int] = {}
        self._hidden: list[int] = []

    def operation(self, flops: float, nbytes: float) -> None:
        """An operation was dispatched."""
        self._operations.append((flops, nbytes))

    def listens(self) -> bool:
        """Whether operations are the script's own."""
        return not self.inside

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Operations in here are not the script's."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def note(self, event: Event) -> None:
        """Something other than computing happened."""
        self.flush()
        self.record.events.append(event)

    def flush(self) -> None:
        """What was computed since the last event, as one."""
        if not self._operations:
            return
        operations = tuple(self._operations)
        self._operations.clear()
        if operations not in self._segments:
            self._segments[operations] = len(self.record.segments)
            self.record.segments.append(operations)
        self.record.events.append(Computed(self._segments[operations]))

    def number(self, key: Any) -> int:
        """How often this was asked for before."""
        count = self._numbers.get(key, 0)
        self._numbers[key] = count + 1
        return count

    def new_call(self) -> int:
        """The number of a call of this rank."""
        self.calls += 1
        return self.calls

    def wait_unseen(self, call: int) -> None:
        """Somebody in C++ waits for a call's future, unseen: in a backward pass that is over when it ends, else now."""
        if torch._C._current_graph_task_id() == -1:
            self.note(Waited(call))
            return
        if not self._hidden:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        self._hidden.append(call)

    def _end_of_backward(self) -> None:
        hidden, self._hidden = self._hidden, []
        for call in hidden:
            self.note(Waited(call))


def site() -> str:
    """The line of the script, or of a library that is not torch, which called."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((OURS, TORCHS, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


RECORDER = RankRecorder()
"""Of this process."""
