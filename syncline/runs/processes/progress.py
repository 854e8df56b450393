"""The progress of trainings, and of the runs of a sweep: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from syncline.columns import four_digits
from syncline.units import format_seconds

FIRST_LINE_S = 10.0
"""Seconds before the first line, and the shortest time between two lines; shorter work needs no line."""

NUM_LINES = 30
"""Approximate number of lines of a long training."""

Update = Callable[[list[int]], None]
"""A function of the completed steps of each training, or of other counts."""


@contextmanager
def progress(console: Console, names: Sequence[str], steps: int, unit_name: str = "steps") -> Iterator[Update]:
    """Show the progress of trainings, and yield the function that receives their completed steps.

    A terminal shows a bar per training. Elsewhere a line is printed now and then.
    """
    show = _bars if has_bars(console) else _lines
    with show(console, names, steps, unit_name) as update:
        yield update


def has_bars(console: Console) -> bool:
    """Return whether a console can redraw a bar: a terminal that takes escape sequences, so that it has colours."""
    return console.is_terminal and console.color_system is not None


@contextmanager
def _bars(console: Console, names: Sequence[str], steps: int, unit_name: str) -> Iterator[Update]:
    """Show the progress of each training as a bar; see `progress`."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn(unit_name), TimeElapsedColumn(), console=console, transient=True) as bars:
        tasks = [bars.add_task(name, total=steps) for name in names]

        def update(completed_steps: list[int]) -> None:
            for task, count in zip(tasks, completed_steps, strict=True):
                bars.update(task, completed=count)

        yield update


@contextmanager
def _lines(console: Console, names: Sequence[str], steps: int, unit_name: str) -> Iterator[Update]:
    """Print lines such as "12% after 20 s: ddp-adam 120, diloco 96 of 500 steps" from a thread; see `progress`."""
    latest_steps, is_over, pace = [0] * len(names), threading.Event(), Pace()

    def update(completed_steps: list[int]) -> None:
        latest_steps[:] = completed_steps

    def write_lines() -> None:
        while not is_over.wait(pace.wait_s()):
            progress_text = pace.progress_text(sum(latest_steps) / max(steps * len(names), 1))
            counts = ", ".join(f"{name} {count:,}" for name, count in zip(names, latest_steps, strict=True))
            print(f"{progress_text}: {counts} of {steps:,} {unit_name}", file=console.file, flush=True)

    writer = threading.Thread(target=write_lines, daemon=True)
    writer.start()
    try:
        yield update
    finally:
        is_over.set()
        writer.join()


class Pace:
    """The times at which a log prints its progress: `NUM_LINES` lines at equal intervals over the expected time.

    The first line is after `FIRST_LINE_S`. An interval is at most as long as the time that has passed, because early
    estimates of the whole time are unsure; early lines are thus at 10, 20, 40 and 80 s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._start_s = now, now()
        self._interval_s = FIRST_LINE_S
        self._due_s = self._start_s + self._interval_s

    def postpone(self) -> None:
        """Delay the next line by an interval, because another line was just written."""
        self._due_s = self._now() + self._interval_s

    def wait_s(self) -> float:
        """Return the seconds until the next line of the log is due; not below zero."""
        return max(self._due_s - self._now(), 0.0)

    def progress_text(self, share: float) -> str:
        """Return the progress as text with the passed and the remaining time, and set the time of the next line.

        Args:
            share: the completed part of the work, from 0 to 1.
        """
        now_s = self._now()
        passed_s = now_s - self._start_s
        remaining = ""
        self._interval_s = longest_interval_s = max(passed_s, FIRST_LINE_S)
        if share > 0:
            whole_s = passed_s / share
            self._interval_s = min(max(whole_s / NUM_LINES, FIRST_LINE_S), longest_interval_s)
            if share < 1:
                remaining = f", about {rough_duration(whole_s - passed_s)} left"
        self._due_s = now_s + self._interval_s
        return f"{share:.0%} after {rough_duration(passed_s)}{remaining}"


def rough_duration(seconds: float) -> str:
    """Return a duration as text with two digits, at least one second, because it is an estimate.

    >>> rough_duration(0.2), rough_duration(34.4), rough_duration(1234)
    ('1 s', '34 s', '21 min')
    """
    seconds = max(seconds, 1.0)
    unit_s = next(unit_s for unit_s in (86400.0, 3600.0, 60.0, 1.0) if unit_s <= seconds)  # the largest unit
    units_with_two_digits = float(f"{seconds / unit_s:.2g}")
    return format_seconds(units_with_two_digits * unit_s)


_Row = Mapping[str, Any]


MOST_WARNINGS = 10
"""Largest number of printed warnings; with many configurations further warnings repeat the same."""


class Listener:
    """A listener to the progress of a sweep, which counts its runs and prints the warnings by ``say``."""

    num_runs = num_finished = num_failed = 0

    def __init__(self, say: Callable[[str], object] = lambda line: None) -> None:
        self.say = say

    def warns(self, lines: Sequence[str]) -> None:
        """Print the first warnings about settings that are probably mistakes, and the number of further ones."""
        for line in lines[:MOST_WARNINGS]:
            self.say(f"warning: {line}")
        if len(lines) > MOST_WARNINGS:
            self.say(f"warning: and {len(lines) - MOST_WARNINGS:,} more")

    def begins(self, runs: int, finished: int) -> None:
        """Store the number of runs, and of those that are finished; a search calls this again for each batch."""
        self.num_runs, self.num_finished = runs, finished

    def reached(self, runs: float) -> None:
        """Receive the number of finished runs, with fractions for running ones; another thread calls this often."""

    def finished(self, label: str, row: _Row) -> None:
        """Count a run that has finished or failed, given its label and its row."""
        self.num_finished += 1
        self.num_failed += row["error"] is not None


class BarOfRuns(Listener):
    """A listener that shows the runs of a sweep as a bar with the remaining time."""

    def __init__(self, bars: Progress, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._bars = bars
        self._task: TaskID | None = None

    def begins(self, runs: int, finished: int) -> None:
        """Start the bar at the number of runs that an earlier sweep finished."""
        super().begins(runs, finished)
        if self._task is None:
            self._task = self._bars.add_task(self._summary(), total=runs, completed=finished)

    def reached(self, runs: float) -> None:
        """Move the bar to a number of finished runs with fractions."""
        if self._task is not None:
            self._bars.update(self._task, completed=runs, description=self._summary())

    def _summary(self) -> str:
        """Return the text beside the bar, with the numbers of finished and failed runs."""
        failed = f", {self.num_failed:,} failed" if self.num_failed else ""
        return f"{self.num_finished:,} of {self.num_runs:,} runs{failed}"


class LogOfRuns(Listener):
    """A listener that prints a line per finished run of a sweep, and lines at intervals while runs take long."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(say)
        self._now, self._start_s = now, 0.0
        self._num_earlier = 0  # runs that an earlier sweep finished
        self._pace: Pace | None = None  # None until the sweep begins

    def begins(self, runs: int, finished: int) -> None:
        """Start the clock, and print the number of runs that an earlier sweep finished."""
        super().begins(runs, finished)
        if self._pace is not None:  # a search calls this for each batch; the clock runs since the first
            return
        self._start_s, self._num_earlier, self._pace = self._now(), finished, Pace(self._now)
        if finished:
            self.say(f"{finished:,} of {runs:,} runs were finished before")

    def reached(self, runs: float) -> None:
        """Print the progress if the time of the next line has come."""
        if self._pace is not None and self._pace.wait_s() == 0:
            num_to_do = max(self.num_runs - self._num_earlier, 1)  # 1 avoids a division by zero
            progress_text = self._pace.progress_text((runs - self._num_earlier) / num_to_do)
            self.say(f"{progress_text}: {self.num_finished:,} of {self.num_runs:,} runs are finished")

    def finished(self, label: str, row: _Row) -> None:
        """Print the result of a run, and the expected remaining time."""
        super().finished(label, row)
        if row["error"] is not None:
            result = f"failed: {row['error']}"
        elif row.get("diverged_at") is not None:
            result = f"diverged at step {row['diverged_at']}"
        elif row.get("loss") is None:
            result = "no loss"
        else:
            result = f"loss {four_digits(row['loss'])}"
        num_done, num_to_do = self.num_finished - self._num_earlier, self.num_runs - self.num_finished
        if self._pace is not None:
            self._pace.postpone()
            if num_to_do and num_done > 0:
                remaining_s = (self._now() - self._start_s) * num_to_do / num_done
                result += f"; about {rough_duration(remaining_s)} left"
        self.say(f"{self.num_finished:,}/{self.num_runs:,} {label}: {result}")


@contextmanager
def listening(console: Console, say: Callable[[str], None]) -> Iterator[Listener]:
    """Yield the listener of a sweep: a bar in a terminal, a log of lines elsewhere."""
    if not has_bars(console):
        yield LogOfRuns(say)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, transient=True) as bars:
        yield BarOfRuns(bars, say)
