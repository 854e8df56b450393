"""CPU seconds of segments, on a clock that the test moves."""

from __future__ import annotations

import threading

import pytest

from syncline.measure.recording import recorder as measured
from syncline.measure.recording.record import CountedOperation, RankRecord, Stepped
from syncline.measure.recording.recorder import RankRecorder, SegmentClock, share_medians


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(measured, "thread_time", lambda: at[0])
    return at


def test_a_segment_has_the_median_of_its_times_less_what_counting_takes(now: list[float]) -> None:
    clock = SegmentClock()
    clock.start(counting_s=0.125)
    for seconds in (3.0, 2.0, 9.0):
        now[0] += seconds
        clock.assign_to_segment(0, num_counted=4)
        clock.resume()
    assert clock.medians_s() == [2.5]


def test_what_is_not_the_script_s_does_not_count(now: list[float]) -> None:
    recorder = RankRecorder()
    recorder.clock.start(0.0)
    now[0] += 50.0  # imports
    recorder.record_event(Stepped())
    recorder.add_operation(CountedOperation(1.0, 1.0))
    now[0] += 2.0
    with recorder.silence():
        now[0] += 7.0
        with recorder.silence():
            now[0] += 7.0
        now[0] += 7.0
    now[0] += 1.0
    recorder.record_event(Stepped())
    now[0] += 4.0  # nothing counted: it belongs to what is computed next
    recorder.record_event(Stepped())
    recorder.add_operation(CountedOperation(2.0, 1.0))
    recorder.switch_stream(1)
    now[0] += 0.5
    recorder.add_operation(CountedOperation(3.0, 1.0))
    recorder.end_segment()
    assert recorder.clock.medians_s() == [3.0, 4.0, 0.5]


def test_other_threads_are_not_looked_at(now: list[float]) -> None:
    clock = SegmentClock()
    clock.start(0.0)
    now[0] += 1.0
    other = threading.Thread(target=lambda: (clock.stop(), clock.resume()))
    other.start()
    other.join()
    now[0] += 1.0
    clock.assign_to_segment(0, 1)
    assert clock.medians_s() == [2.0]


def test_counting_takes_some_time() -> None:
    assert 0 <= measured.measure_counting_s() < 1e-2


def test_the_same_operations_take_as_long_on_all_ranks() -> None:
    one, two = ((1.0, 2.0),), ((3.0, 4.0),)
    ranks = [RankRecord([], [one, two], segment_cpu_s=[1.0, 5.0]), RankRecord([], [two], segment_cpu_s=[7.0])]
    share_medians([*ranks, RankRecord([], [one])])
    assert [rank.segment_cpu_s for rank in ranks] == [[1.0, 6.0], [6.0]]
