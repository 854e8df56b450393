"""The progress of trainings: bars in a terminal, lines in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from syncline.units import format_seconds

FIRST_LINE_S = 10.0
"""Seconds before the first line; shorter work needs none."""

LINES = 30
"""Approximate number of lines of a long training."""

Update = Callable[[list[int]], None]
"""A function that gets the completed steps of each training, or another count."""


@contextmanager
def progress(console: Console, names: Sequence[str], steps: int, unit_name: str = "steps") -> Iterator[Update]:
    """Show a bar per training, or lines at intervals, and yield the function that receives the counts."""
    with (_bars if has_bars(console) else _lines)(console, names, steps, unit_name) as update:
        yield update


def has_bars(console: Console) -> bool:
    """Return whether a console can redraw a bar: a terminal that takes escape sequences, so has colours."""
    return console.is_terminal and console.color_system is not None


@contextmanager
def _bars(console: Console, names: Sequence[str], steps: int, unit_name: str) -> Iterator[Update]:
    """Show a bar per training."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn(unit_name), TimeElapsedColumn(), console=console, transient=True) as bars:
        tasks = [bars.add_task(name, total=steps) for name in names]

        def update(done: list[int]) -> None:
            for task, count in zip(tasks, done, strict=True):
                bars.update(task, completed=count)

        yield update


@contextmanager
def _lines(console: Console, names: Sequence[str], steps: int, unit_name: str) -> Iterator[Update]:
    """Write lines such as "12% after 20 s: ddp-adam 120, diloco 96 of 500 steps" from a thread, also during a step."""
    latest, is_over, pace = [0] * len(names), threading.Event(), Pace()

    def update(done: list[int]) -> None:
        latest[:] = done

    def write() -> None:
        while not is_over.wait(pace.wait_s()):
            progress_text = pace.progress_text(sum(latest) / max(steps * len(names), 1))
            counts = ", ".join(f"{name} {count:,}" for name, count in zip(names, latest, strict=True))
            print(f"{progress_text}: {counts} of {steps:,} {unit_name}", file=console.file, flush=True)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield update
    finally:
        is_over.set()
        writer.join()


class Pace:
    """The times of a log's lines: after 10 s, then after twice the time each, until about 30 lines cover the whole.

    Args:
        now: function that gives the seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._begun_s = now, now()
        self._step_s = FIRST_LINE_S
        self._due_s = self._begun_s + self._step_s

    def rest(self) -> None:
        """Delay the next line, because another line was just written."""
        self._due_s = self._now() + self._step_s

    def wait_s(self) -> float:
        """Return the seconds until the next line; not below zero."""
        return max(self._due_s - self._now(), 0.0)

    def progress_text(self, share: float) -> str:
        """Return a text about the progress, the time passed and the remaining time, and set the time of the next line.

        Args:
            share: the part that is done, from 0 to 1.
        """
        now = self._now()
        passed_s = now - self._begun_s
        whole_s = passed_s / share if share > 0 else 0.0
        step_s = max(whole_s / LINES, FIRST_LINE_S) if share > 0 else passed_s
        self._step_s = min(step_s, max(passed_s, FIRST_LINE_S))
        self._due_s = now + self._step_s
        remaining = f", about {rough(whole_s - passed_s)} left" if 0 < share < 1 else ""
        return f"{share:.0%} after {rough(passed_s)}{remaining}"


def rough(seconds: float) -> str:
    """Return a time with the precision of a guess: two digits, at least one second.

    >>> rough(0.2), rough(34.4), rough(1234)
    ('1 s', '34 s', '21 min')
    """
    clamped_s = max(seconds, 1.0)
    unit_s = next(unit_s for unit_s in (86400.0, 3600.0, 60.0, 1.0) if clamped_s >= unit_s)
    return format_seconds(float(f"{clamped_s / unit_s:.2g}") * unit_s)
