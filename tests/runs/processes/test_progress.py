"""How far a training is, in a log: when lines come, and what they say."""

from __future__ import annotations

import io
import time
from itertools import pairwise

import pytest
from rich.console import Console

from syncline.runs.processes import progress as module
from syncline.runs.processes.progress import FIRST_LINE_S, NUM_LINES, LogOfRuns, Pace, progress


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def lines_of(whole_s: float) -> list[tuple[float, str]]:
    """When lines come, and what they say, of work that goes on evenly."""
    clock = Clock()
    pace, begun_s, told = Pace(clock), clock.s, []
    while (at_s := pace.wait_s() + clock.s - begun_s) < whole_s:
        clock.s = begun_s + at_s
        told.append((at_s, pace.progress_text(at_s / whole_s)))
    return told


def test_short_work_is_told_of_when_it_is_done():
    assert lines_of(FIRST_LINE_S) == []


@pytest.mark.parametrize("whole_s", [2100.0, 36e3, 6e5])
def test_long_work_has_about_thirty_lines_whatever_it_takes(whole_s):
    at_s = [when for when, _ in lines_of(whole_s)]
    assert at_s[:3] == [10.0, 20.0, 40.0]  # no longer wait than the work has taken
    assert NUM_LINES * 0.9 <= len(at_s) <= NUM_LINES + 12  # of 12 doublings at most
    assert max(after - before for before, after in pairwise(at_s)) <= whole_s / NUM_LINES * 1.001


def test_a_line_says_how_much_since_when_and_what_is_left():
    assert [told for _, told in lines_of(50.0)][:2] == [
        "20% after 10 s, about 40 s left", "40% after 20 s, about 30 s left",
    ]  # fmt: skip


def test_where_nothing_is_done_yet_nothing_is_foretold():
    clock = Clock()
    pace = Pace(clock)
    clock.s += 10
    assert pace.progress_text(0.0) == "0% after 10 s" and pace.wait_s() == 10.0


def test_a_log_gets_lines_while_a_step_goes_on(monkeypatch):
    monkeypatch.setattr(module, "FIRST_LINE_S", 0.01)
    log = io.StringIO()
    with progress(Console(file=log), ["[red]ddp[/red]", "mt-dao"], 1000) as update:
        update([400, 100])
        deadline = time.monotonic() + 60
        while "left" not in log.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    told = [line for line in log.getvalue().splitlines() if "left" in line]
    assert told[0].startswith("25% after ") and told[0].endswith(" left: [red]ddp[/red] 400, mt-dao 100 of 1,000 steps")


def test_a_sweep_of_long_runs_says_that_it_goes_on():
    clock, said = Clock(), []
    log = LogOfRuns(said.append, clock)
    log.begins(4, 0)
    for _ in range(20):
        clock.s += 1
        log.reached((clock.s - 1000.0) / 20)
    assert said == [
        "12% after 10 s, about 1.2 min left: 0 of 4 runs are finished",
        "25% after 20 s, about 1 min left: 0 of 4 runs are finished",
    ]
    log.finished("lr=1", {"error": None, "loss": 1.0})
    assert said[-1] == "1/4 lr=1: loss 1.000; about 1 min left"
    clock.s += 5
    log.reached(1.25)
    assert len(said) == 3  # it has just said something
