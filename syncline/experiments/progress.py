"""How far trainings are: bars in a terminal, lines in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from syncline.units import format_seconds

FIRST_LINE_S = 10.0
"""What is over by then needs no line."""

LINES = 30
"""Of a long training, about."""

Update = Callable[[list[int]], None]
"""Takes the completed steps of each training, or whatever is counted."""


@contextmanager
def progress(console: Console, names: Sequence[str], steps: int, what: str = "steps") -> Iterator[Update]:
    """A bar per training, or lines now and then; yields what is to be told."""
    # Without colours, no escape sequences: a bar is redrawn by moving the cursor.
    shown = _bars if console.is_terminal and console.color_system is not None else _lines
    with shown(console, names, steps, what) as update:
        yield update


@contextmanager
def _bars(console: Console, names: Sequence[str], steps: int, what: str) -> Iterator[Update]:
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(what),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = [bars.add_task(name, total=steps) for name in names]

        def update(done: list[int]) -> None:
            for task, count in zip(tasks, done, strict=True):
                bars.update(task, completed=count)

        yield update


@contextmanager
def _lines(console: Console, names: Sequence[str], steps: int, what: str) -> Iterator[Update]:
    """A thread writes them: a step that takes minutes is told of, too."""
    latest, over, pace = [0] * len(names), threading.Event(), Pace()

    def update(done: list[int]) -> None:
        latest[:] = done

    def write() -> None:
        while not over.wait(pace.wait_s()):
            share = sum(latest) / max(steps * len(names), 1)
            line = f"{pace.told(share)}: {_counted(names, latest, steps, what)}"
            print(line, file=console.file, flush=True)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield update
    finally:
        over.set()
        writer.join()


def _counted(names: Sequence[str], done: Sequence[int], steps: int, what: str) -> str:
    """``ddp-adam 120, diloco 96 of 500 steps``."""
    each = ", ".join(f"{name} {count:,}" for name, count in zip(names, done, strict=True))
    return f"{each} of {steps:,} {what}"


class Pace:
    """When a log gets its next line: after 10 s, then twice as late each time, until about 30 cover the whole.

    Args:
        now: seconds of a clock that does not go back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._begun_s = now, now()
        self._step_s = FIRST_LINE_S
        self._due_s = self._begun_s + self._step_s

    def rest(self) -> None:
        """A line was written that says enough: the next one is due as much later."""
        self._due_s = self._now() + self._step_s

    def wait_s(self) -> float:
        """How long there is nothing to say; not below zero."""
        return max(self._due_s - self._now(), 0.0)

    def told(self, share: float) -> str:
        """How much of it is done, since when, how long the rest will take; the next line is due later.

        Args:
            share: what is done, of 1.
        """
        now = self._now()
        passed_s = now - self._begun_s
        whole_s = passed_s / share if share > 0 else 0.0
        step_s = max(whole_s / LINES, FIRST_LINE_S) if share > 0 else passed_s
        self._step_s = min(step_s, max(passed_s, FIRST_LINE_S))
        self._due_s = now + self._step_s
        left = f", about {rough(whole_s - passed_s)} left" if 0 < share < 1 else ""
        return f"{share:.0%} after {rough(passed_s)}{left}"


def rough(seconds: float) -> str:
    """A time as exact as a guess is: two digits, and less than a second is one.

    >>> rough(0.2), rough(34.4), rough(1234)
    ('1 s', '34 s', '21 min')
    """
    least = max(seconds, 1.0)
    unit_s = next(unit_s for unit_s in (86400.0, 3600.0, 60.0, 1.0) if least >= unit_s)
    return format_seconds(float(f"{least / unit_s:.2g}") * unit_s)
