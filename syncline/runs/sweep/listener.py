"""Listeners that report the progress of a sweep: silent, as a bar in a terminal, or as lines of a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from syncline.planner.tables.columns import four_digits
from syncline.runs.processes.progress import Pace, rough

_Row = Mapping[str, Any]


class Listener:
    """A listener that receives all reports and prints nothing."""

    def warns(self, lines: Sequence[str]) -> None:
        """Receive warnings about settings that are allowed but surely not intended."""

    def begins(self, runs: int, finished: int) -> None:
        """Receive the number of runs and of finished runs; called again for each batch of a search."""

    def reached(self, runs: float) -> None:
        """Receive the number of finished runs, with fractions of running ones, at intervals from another thread."""

    def finished(self, label: str, row: _Row) -> None:
        """Receive the row of a run that is finished or has failed."""


class BarOfRuns(Listener):
    """A progress bar with the remaining time."""

    def __init__(self, bars: Progress, say: Callable[[str], None]) -> None:
        self._bars, self._say = bars, say
        self._task: TaskID | None = None
        self._runs = self._finished = self._failed = 0

    def warns(self, lines: Sequence[str]) -> None:
        """Print the warnings above the bar."""
        _warn(self._say, lines)

    def begins(self, runs: int, finished: int) -> None:
        """Start the bar at the number of runs that an earlier sweep finished."""
        self._runs, self._finished = runs, finished
        if self._task is None:
            self._task = self._bars.add_task(self._summary(), total=runs, completed=finished)

    def reached(self, runs: float) -> None:
        """Move the bar with the steps; its number counts the runs."""
        if self._task is not None:
            self._bars.update(self._task, completed=runs, description=self._summary())

    def finished(self, label: str, row: _Row) -> None:
        """Count a finished or failed run."""
        self._finished += 1
        self._failed += row["error"] is not None

    def _summary(self) -> str:
        failed = f", {self._failed:,} failed" if self._failed else ""
        return f"{self._finished:,} of {self._runs:,} runs{failed}"


class LogOfRuns(Listener):
    """A log with a line per finished run, and with lines at intervals while runs take long.

    Args:
        say: function that writes a line.
        now: function that gives the seconds of a monotonic clock.
    """

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say, self._now = say, now
        self._runs = self._finished = self._before = 0
        self._begun_s: float | None = None
        self._pace: Pace | None = None

    def warns(self, lines: Sequence[str]) -> None:
        """Print the warnings before the first run."""
        _warn(self._say, lines)

    def begins(self, runs: int, finished: int) -> None:
        """Print the number of runs that were finished before."""
        self._runs, self._finished = runs, finished
        if self._begun_s is None:
            self._begun_s, self._before, self._pace = self._now(), finished, Pace(self._now)
            if finished:
                self._say(f"{finished:,} of {runs:,} runs were finished before")

    def reached(self, runs: float) -> None:
        """Print the progress if no line was printed for long."""
        if self._pace is not None and not self._pace.wait_s():
            num_done, ahead = runs - self._before, self._runs - self._before
            progress_text = self._pace.progress_text(num_done / max(ahead, 1))
            self._say(f"{progress_text}: {self._finished:,} of {self._runs:,} runs are finished")

    def finished(self, label: str, row: _Row) -> None:
        """Print the result of a run, and the expected remaining time."""
        self._finished += 1
        if self._pace is not None:
            self._pace.rest()
        came_out = f"failed: {row['error']}" if row["error"] is not None else _outcome_of(row)
        self._say(f"{self._finished:,}/{self._runs:,} {label}: {came_out}{self._remaining_text()}")

    def _remaining_text(self) -> str:
        num_done, ahead = self._finished - self._before, self._runs - self._finished
        if self._begun_s is None or not ahead or num_done <= 0:
            return ""
        return f"; about {rough((self._now() - self._begun_s) * ahead / num_done)} left"


MOST_WARNINGS = 10
"""Largest number of printed warnings; with many configurations further ones repeat the same."""


def _warn(say: Callable[[str], None], lines: Sequence[str]) -> None:
    for line in lines[:MOST_WARNINGS]:
        say(f"warning: {line}")
    if len(lines) > MOST_WARNINGS:
        say(f"warning: and {len(lines) - MOST_WARNINGS:,} more")


def _outcome_of(row: _Row) -> str:
    if row.get("diverged_at") is not None:
        return f"diverged at step {row['diverged_at']}"
    loss = row.get("loss")
    return "no loss" if loss is None else f"loss {four_digits(loss)}"


@contextmanager
def listening(console: Console, say: Callable[[str], None]) -> Iterator[Listener]:
    """Yield a bar in a terminal, a log elsewhere."""
    if not console.is_terminal or console.color_system is None:
        yield LogOfRuns(say)
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        yield BarOfRuns(bars, say)
