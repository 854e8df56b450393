"""Who is told how far a sweep is: nobody, a terminal or a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from syncline.experiments.columns import four_digits
from syncline.experiments.progress import Pace, rough

_Row = Mapping[str, Any]


class Listener:
    """Hears, and says nothing."""

    def warns(self, lines: Sequence[str]) -> None:
        """What is allowed but surely not meant."""

    def begins(self, runs: int, finished: int) -> None:
        """There are so many runs to be, of which some are finished; again for each batch of a search."""

    def reached(self, runs: float) -> None:
        """So many runs are done, with the parts of those that are under way; now and then, from another thread."""

    def finished(self, label: str, row: _Row) -> None:
        """A run is finished, or has failed."""


class BarOfRuns(Listener):
    """A bar with the time that is left."""

    def __init__(self, bars: Progress, say: Callable[[str], None]) -> None:
        self._bars, self._say = bars, say
        self._task: TaskID | None = None
        self._runs = self._finished = self._failed = 0

    def warns(self, lines: Sequence[str]) -> None:
        """Above the bar."""
        _warn(self._say, lines)

    def begins(self, runs: int, finished: int) -> None:
        """The bar begins where an earlier sweep ended."""
        self._runs, self._finished = runs, finished
        if self._task is None:
            self._task = self._bars.add_task(self._told(), total=runs, completed=finished)

    def reached(self, runs: float) -> None:
        """The bar moves with the steps, the number with the runs."""
        if self._task is not None:
            self._bars.update(self._task, completed=runs, description=self._told())

    def finished(self, label: str, row: _Row) -> None:
        """One more."""
        self._finished += 1
        self._failed += row["error"] is not None

    def _told(self) -> str:
        failed = f", {self._failed:,} failed" if self._failed else ""
        return f"{self._finished:,} of {self._runs:,} runs{failed}"


class LogOfRuns(Listener):
    """A line per finished run, for logs; where runs take long, one now and then besides.

    Args:
        say: writes a line.
        now: seconds of a clock that does not go back.
    """

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say, self._now = say, now
        self._runs = self._finished = self._before = 0
        self._begun_s: float | None = None
        self._pace: Pace | None = None

    def warns(self, lines: Sequence[str]) -> None:
        """Before the first run."""
        _warn(self._say, lines)

    def begins(self, runs: int, finished: int) -> None:
        """Says what is there already."""
        self._runs, self._finished = runs, finished
        if self._begun_s is None:
            self._begun_s, self._before, self._pace = self._now(), finished, Pace(self._now)
            if finished:
                self._say(f"{finished:,} of {runs:,} runs were finished before")

    def reached(self, runs: float) -> None:
        """Says so if nothing was said for long."""
        if self._pace is not None and not self._pace.wait_s():
            made, ahead = runs - self._before, self._runs - self._before
            told = self._pace.told(made / max(ahead, 1))
            self._say(f"{told}: {self._finished:,} of {self._runs:,} runs are finished")

    def finished(self, label: str, row: _Row) -> None:
        """Says what came out, and how long the others will take."""
        self._finished += 1
        if self._pace is not None:
            self._pace.rest()
        came_out = f"failed: {row['error']}" if row["error"] is not None else _outcome_of(row)
        self._say(f"{self._finished:,}/{self._runs:,} {label}: {came_out}{self._left()}")

    def _left(self) -> str:
        made, ahead = self._finished - self._before, self._runs - self._finished
        if self._begun_s is None or not ahead or made <= 0:
            return ""
        return f"; about {rough((self._now() - self._begun_s) * ahead / made)} left"


MOST_WARNINGS = 10
"""Of many configurations; the others would say nothing new."""


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
    """A bar in a terminal, lines elsewhere."""
    if not console.is_terminal or console.color_system is None:
        yield LogOfRuns(say)
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        yield BarOfRuns(bars, say)
