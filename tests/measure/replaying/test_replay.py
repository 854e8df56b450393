"""Records on networks: by hand, and against a replay of barriers that knows nothing of the events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.costmodel import Hardware, Link, collective_s
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.measure.recording.record_files import read_record, record_tables
from syncline.measure.replaying.replay import MeasuredComputing, operations_s, replay
from tests.measure.replaying.records import LINK, SECOND, SLOW, both, rank, started, step


def test_operations_are_bounded_by_arithmetic_or_by_memory() -> None:
    assert operations_s((CountedOperation(2e9, 1e9), CountedOperation(0.0, 3e9)), SLOW) == 2.0 + 3.0
    assert operations_s((CountedOperation(2e9, 1e12),), replace(SLOW, memory_bytes_per_s=None, mfu=0.5)) == 4.0


def test_a_call_runs_beside_what_is_computed_before_its_wait() -> None:
    """Of two ranks an all-reduce of 5 MB takes 2.5 s twice and two latencies: 5.002 s of which a second is hidden."""
    told = replay(both(2), LINK, SLOW, "ring")
    assert told.step_end_s.tolist() == pytest.approx([6.002, 12.004])


def test_messages_leave_while_their_sender_goes_on() -> None:
    tag = ("all", 0, 1, 0)
    ranks = [
        rank(MessageSent(1, 1, 2_000_000, tag, "p.py:1"), Waited(1), Computed(0), Stepped()),
        rank(MessageAwaited(1, 0, tag, "p.py:2"), Computed(0), Waited(1), Computed(0), Stepped()),
    ]
    assert replay(ranks, LINK, SLOW).timeline.makespan_s == pytest.approx(2.001 + 1)


def barriers_s(ranks: Sequence[RankRecord], link: Link, hardware: Hardware) -> float:
    """When all are through, if every call begins when the last has come to it, after the call before it."""
    now, done, at, free = [0.0] * len(ranks), {}, [0] * len(ranks), 0.0
    came: dict[tuple[str, int], dict[int, float]] = {}
    while any(at[i] < len(one.events) for i, one in enumerate(ranks)):
        for i, one in enumerate(ranks):
            while at[i] < len(one.events):
                event = one.events[at[i]]
                if isinstance(event, Computed):
                    now[i] += operations_s(one.segments[event.segment], hardware)
                elif isinstance(event, Started):
                    came.setdefault(event.key, {})[i] = now[i]
                    done[i, event.call] = event.key
                    if len(came[event.key]) == len(ranks):
                        cost = collective_s(event.kind, len(ranks), event.payload_bytes, link, "ring")
                        free = max(free, *came[event.key].values()) + float(cost)
                        done[event.key] = free
                elif isinstance(event, Waited):
                    if done[i, event.call] not in done:
                        break
                    now[i] = max(now[i], done[done[i, event.call]])
                at[i] += 1
    return max(now)


@pytest.mark.parametrize("host", ["ahead", "waits"])
def test_it_is_what_barriers_say_of_ranks_that_are_nearly_alike(host: str) -> None:
    uneven = [
        rank(
            *(one for number in range(20) for one in step(number, 3_000_000)),
            segments=[(CountedOperation(1e9 * share, 0.0),)],
        )
        for share in (1.0, 1.02, 0.98, 1.01)
    ]
    for one in uneven:
        one.events = [e._replace(ranks=(0, 1, 2, 3)) if isinstance(e, Started) else e for e in one.events]
    told = replay(uneven, LINK, SLOW, "ring", host).timeline.makespan_s
    assert told == pytest.approx(barriers_s(uneven, LINK, SLOW), rel=0.01)


def test_groups_run_beside_each_other() -> None:
    calls = {pair: started(1, 0, 4_000_000, pair)._replace(key=(f"pair {pair}", 0)) for pair in ((0, 1), (2, 3))}
    ranks = [rank(Computed(0), calls[(0, 1) if i < 2 else (2, 3)], Waited(1), Stepped()) for i in range(4)]
    assert replay(ranks, LINK, SLOW, "ring").timeline.makespan_s == pytest.approx(1 + 4.002)


def keep(ranks: Sequence[RankRecord], folder: Path) -> None:
    for name, parts in record_tables(ranks).items():
        pq.write_table(pa.concat_tables(parts), folder / f"{name}.parquet")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    tag = ("all", 0, 1, 0)
    ranks = [
        rank(
            *step(0, 8),
            MessageSent(2, 1, 4, tag, "a.py:1"),
            Waited(2),
            segments=[SECOND, (CountedOperation(1.0, 2.0), CountedOperation(3.0, 4.0))],
        ),
        rank(*step(0, 8), MessageAwaited(2, 0, tag, "a.py:2"), Waited(2)),
    ]
    keep(ranks, tmp_path)
    assert read_record(tmp_path) == ranks
    sent = [[event for event in rank.events if isinstance(event, Started | MessageSent)] for rank in ranks]
    assert [sum(event.payload_bytes for event in events) for events in sent] == [12, 8]
    with pytest.raises(SpecError, match=r"expected the folder of a trace, with trace\.parquet"):
        read_record(tmp_path / "nowhere")


def test_gloo_runs_two_collectives_of_a_group_at_a_time() -> None:
    """As torch gives it two threads: two calls in the time of one, where each waits for latencies alone."""
    calls = [started(number + 1, number, 8) for number in range(2)]
    two = [rank(*calls, Waited(1), Waited(2), Stepped()) for _ in range(2)]
    far = Link(1.0, 1e9)
    alone_s = replay([rank(calls[0], Waited(1), Stepped()) for _ in range(2)], far, SLOW, "gloo").timeline.makespan_s
    assert replay(two, far, SLOW, "gloo").timeline.makespan_s == pytest.approx(alone_s)
    assert replay(two, far, SLOW, "ring").timeline.makespan_s == pytest.approx(2 * 2.0)


def test_a_record_keeps_what_was_measured(tmp_path: Path) -> None:
    measured = rank(
        Computed(0), Computed(1), Stepped(), segments=[SECOND, (CountedOperation(1.0, 2.0), CountedOperation(3.0, 4.0))]
    )
    measured.segment_cpu_s = [0.5, 0.25]
    for name, parts in record_tables([measured]).items():
        pq.write_table(pa.concat_tables(parts), tmp_path / f"{name}.parquet")
    (read,) = read_record(tmp_path)
    assert read == measured
    assert replay([read], LINK, MeasuredComputing(2.0)).timeline.makespan_s == 1.5
    assert MeasuredComputing(2.0).name == "measured:2"
