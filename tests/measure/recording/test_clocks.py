"""Scripts may look at clocks; what they decide by an interval is refused, and by a point in time it is not."""

from __future__ import annotations

import pytest

from syncline.measure.recording.recorder import RECORDER, Refusal
from syncline.measure.recording.streams import ClockReading, ClockTime

SCRIPT, PACKAGE = "/home/someone/train.py", "/home/someone/.venv/lib/python3.11/site-packages/framework/timer.py"

HARMLESS = (
    "start > 0", "0 < start", "start * 1000 >= 5", "start + 60 > 0", "60 + start > 0", "start - 3600 > 0",
    "start == now", "min(now - start, 5.0) and True", "sorted([now - start, 1.0]) != []",
)  # fmt: skip
"""What a timer asks to know whether it was started, and what is no decision."""

DECIDING = (
    "now - start > 5", "5 < now - start", "now < start + 60", "(now - start) / 2 > 1", "now * 1000 - start * 1000 > 1",
    "10 - start > 0", "cpu < 60", "now - cpu > start", "sum([now - start]) > 1", "now % 60 < 30",
)  # fmt: skip


def decides(expression: str, file: str) -> bool:
    names = {"start": ClockTime(100.0), "now": ClockTime(107.0), "cpu": ClockReading(3.0)}
    return bool(eval(compile(expression, file, "eval"), names))


@pytest.mark.parametrize("expression", HARMLESS)
def test_a_point_in_time_may_be_compared_with_a_constant(expression: str) -> None:
    decides(expression, SCRIPT)


@pytest.mark.parametrize("expression", DECIDING)
def test_an_interval_may_not_decide(expression: str) -> None:
    with pytest.raises(Refusal, match="decides by the clock"):
        decides(expression, SCRIPT)


@pytest.mark.parametrize("expression", DECIDING)
def test_packages_may_decide(expression: str) -> None:
    decides(expression, PACKAGE)


def test_a_decision_that_is_allowed_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(RECORDER.record, "notes", notes)
    monkeypatch.setattr(ClockReading, "comparison_allowed", True)
    assert decides("now - start > 5", SCRIPT) and not decides("now - start > 50", SCRIPT)
    (note,) = notes
    assert note.startswith(f"{SCRIPT}:1: decides by the clock")
