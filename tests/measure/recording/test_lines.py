"""An error names the innermost line of the user's files, whatever a framework does below it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncline.measure.recording import rank_processes
from syncline.measure.recording.rank_processes import find_user_line
from syncline.measure.recording.ranks import failing_line
from syncline.measure.recording.recorder import Refusal, is_library, user_line

SCRIPT, PACKAGE = "/home/someone/train.py", "/home/someone/.venv/lib/python3.11/site-packages/framework/trainer.py"


def through_a_framework(last: Any) -> Any:
    """Return what a function returns that a framework calls, which a script calls on its second line."""
    names: dict[str, Any] = {"last": last}
    exec(compile("def train():\n\n\n    return last()\n", PACKAGE, "exec"), names)
    exec(compile("\nresult = train()\n", SCRIPT, "exec"), names)
    return names["result"]


def test_the_line_of_a_refusal() -> None:
    def refuse() -> None:
        raise Refusal("no")

    names: dict[str, Any] = {"Refusal": Refusal}
    exec(compile("def inner():\n    raise Refusal('no')\n", PACKAGE, "exec"), names)
    with pytest.raises(Refusal) as refused:
        through_a_framework(names["inner"])
    assert str(refused.value) == f"{SCRIPT}:2: no"


def test_the_line_of_a_failure() -> None:
    names: dict[str, Any] = {}
    exec(compile("def inner():\n    raise KeyError('no')\n", PACKAGE, "exec"), names)
    with pytest.raises(KeyError) as failed:
        through_a_framework(names["inner"])
    assert failing_line(failed.value) == f"{SCRIPT}:2"


def test_the_line_of_a_rank_that_waits() -> None:
    def stack(*lines: tuple[str, int]) -> str:
        return "".join(f'  File "{file}", line {line} in f\n' for file, line in lines)

    other = "Thread 0x1 (most recent call first):\n" + stack((SCRIPT, 7))
    current = "Current thread 0x2 (most recent call first):\n" + stack((PACKAGE, 4), (SCRIPT, 2), (SCRIPT, 9))
    assert find_user_line(other + "\n" + current) == f"{SCRIPT}:2"


def test_a_pause_of_the_machine_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    monkeypatch.setattr(rank_processes, "total_cpu_s", lambda pids: 5.0)
    timer = rank_processes.IdleTimer(120.0)

    def seconds_until_over(step_s: float) -> float:
        nonlocal clock_s
        begin_s = clock_s
        while not timer.is_over_limit([1, 2]):
            clock_s += step_s
        return clock_s - begin_s

    clock_s = 600.0  # this process, too, was paused since its last reading
    assert not timer.is_over_limit([1, 2])
    assert not timer.is_over_limit([1, 2])
    assert 110 < seconds_until_over(2.0) <= 122


def test_files_of_libraries() -> None:
    assert is_library(PACKAGE) and is_library("/usr/lib/python3/dist-packages/x.py") and not is_library(SCRIPT)
    assert user_line().startswith(f"{__file__}:")
