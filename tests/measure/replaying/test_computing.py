"""How long segments take: by their operations, or as measured."""

from __future__ import annotations

import pytest

from syncline.costmodel import HARDWARE, Hardware
from syncline.errors import SpecError
from syncline.measure.recording.record import CountedOperation, RankRecord
from syncline.measure.replaying.replay import MeasuredComputing, parse_computing, segment_seconds

SLOW = Hardware("slow", 1e9, 1.0, "fp32", "made up", memory_bytes_per_s=1e9)
SEGMENTS = [(CountedOperation(2e9, 0.0),), (CountedOperation(0.0, 3e9), CountedOperation(1e9, 0.0))]


def test_medians_are_scaled_and_operations_are_not_asked() -> None:
    record = RankRecord([], SEGMENTS, segment_cpu_s=[0.5, 0.25])
    assert segment_seconds(record, SLOW) == [2.0, 4.0]
    assert segment_seconds(record, MeasuredComputing()) == [0.5, 0.25]
    assert segment_seconds(record, MeasuredComputing(0.5)) == [0.25, 0.125]


def test_what_a_user_writes() -> None:
    assert parse_computing("h100", "--hardware") == HARDWARE["h100"]
    assert parse_computing("measured", "--hardware") == MeasuredComputing()
    assert parse_computing("measured:0.5", "--hardware").name == "measured:0.5"
    for wrong in ("measured:fast", "measured:0", "measured:-1", "measured:nan"):
        with pytest.raises(SpecError, match=r"--hardware: got 'measured:.*factor"):
            parse_computing(wrong, "--hardware")


def test_what_nobody_measured_or_counted_is_refused() -> None:
    with pytest.raises(SpecError, match="got 'measured'; expected a hardware, as this record has no measured times"):
        segment_seconds(RankRecord([], SEGMENTS), MeasuredComputing())
    with pytest.raises(SpecError, match="got 'slow'; expected 'measured'"):
        segment_seconds(RankRecord([], [(CountedOperation(0.0, 0.0),)], segment_cpu_s=[1.0]), SLOW)
