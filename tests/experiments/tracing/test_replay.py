"""Records on networks: by hand, and against a replay of barriers that knows nothing of the events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from syncline.backend.tracing.ranks import ForeignScript, script_of
from syncline.backend.tracing.record import (
    Computed,
    Event,
    Lost,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    Waited,
    payload_bytes,
)
from syncline.costmodel import HARDWARE, Hardware, Link, collective_s
from syncline.errors import SpecError
from syncline.experiments.tracing.kept import read_record, tables_of_record
from syncline.experiments.tracing.replay import losses_of, operations_s, replay
from syncline.experiments.tracing.trace import ReplayedOn, check_trace, replayed

SLOW = Hardware("slow", 1e9, 1.0, "fp32", "made up", memory_bytes_per_s=1e9)
LINK = Link(1e-3, 1e6, "link")
SECOND = ((1e9, 0.0),)


def started(call: int, number: int, nbytes: int, ranks: tuple[int, ...] = (0, 1), kind: str = "all_reduce") -> Started:
    return Started(call, kind, kind, nbytes, ranks, ("all", number), "train.py:7")


def step(number: int, nbytes: int) -> list[Event]:
    """A call beside half of the computing."""
    return [
        Computed(0),
        started(number + 1, number, nbytes),
        Computed(0),
        Waited(number + 1),
        Lost(1 / (number + 1)),
        Stepped(),
    ]


def rank(*events: Event, segments: Sequence[tuple[tuple[float, float], ...]] = (SECOND,)) -> RankRecord:
    return RankRecord(list(events), list(segments))


def test_operations_are_bounded_by_arithmetic_or_by_memory() -> None:
    assert operations_s(((2e9, 1e9), (0.0, 3e9)), SLOW) == 2.0 + 3.0
    assert operations_s(((2e9, 1e12),), replace(SLOW, memory_bytes_per_s=None, mfu=0.5)) == 4.0


def test_a_call_runs_beside_what_is_computed_before_its_wait() -> None:
    """Of two ranks an all-reduce of 5 MB takes 2.5 s twice and two latencies: 4.002 s of which a second is hidden."""
    both = [rank(*step(0, 5_000_000), *step(1, 5_000_000)) for _ in range(2)]
    told = replay(both, LINK, SLOW, "ring")
    assert told.row["step_time_s"] == pytest.approx(1 + 5.002)
    assert told.row["wall_clock_s"] == pytest.approx(2 * 6.002)
    assert told.row["exposed_communication_s"] == pytest.approx(4.002)
    assert told.row["bytes_per_worker"] == 5e6
    assert told.row["loss"] == 0.5
    assert told.step_end_s.tolist() == pytest.approx([6.002, 12.004])


def test_messages_leave_while_their_sender_goes_on() -> None:
    tag = ("all", 0, 1, 0)
    ranks = [
        rank(MessageSent(1, 1, 2_000_000, tag, "p.py:1"), Waited(1), Computed(0), Stepped()),
        rank(MessageAwaited(1, 0, tag, "p.py:2"), Computed(0), Waited(1), Computed(0), Stepped()),
    ]
    assert replay(ranks, LINK, SLOW).row["wall_clock_s"] == pytest.approx(2.001 + 1)


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


def test_it_is_what_barriers_say_of_ranks_that_are_nearly_alike() -> None:
    uneven = [
        rank(*(one for number in range(20) for one in step(number, 3_000_000)), segments=[((1e9 * share, 0.0),)])
        for share in (1.0, 1.02, 0.98, 1.01)
    ]
    for one in uneven:
        one.events = [e._replace(ranks=(0, 1, 2, 3)) if isinstance(e, Started) else e for e in one.events]
    told = replay(uneven, LINK, SLOW, "ring").row["wall_clock_s"]
    assert told == pytest.approx(barriers_s(uneven, LINK, SLOW), rel=0.01)


def test_groups_run_beside_each_other() -> None:
    calls = {pair: started(1, 0, 4_000_000, pair)._replace(key=(f"pair {pair}", 0)) for pair in ((0, 1), (2, 3))}
    ranks = [rank(Computed(0), calls[(0, 1) if i < 2 else (2, 3)], Waited(1), Stepped()) for i in range(4)]
    assert replay(ranks, LINK, SLOW, "ring").row["wall_clock_s"] == pytest.approx(1 + 4.002)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    tag = ("all", 0, 1, 0)
    ranks = [
        rank(*step(0, 8), MessageSent(2, 1, 4, tag, "a.py:1"), Waited(2), segments=[SECOND, ((1.0, 2.0), (3.0, 4.0))]),
        rank(*step(0, 8), MessageAwaited(2, 0, tag, "a.py:2"), Waited(2)),
    ]
    for name, table in tables_of_record(ranks).items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert read_record(tmp_path) == ranks
    assert payload_bytes(ranks) == [12, 8] and losses_of(ranks) == [1.0]
    with pytest.raises(SpecError, match=r"expected the folder of a trace, with events\.parquet"):
        read_record(tmp_path / "nowhere")


def test_sites_tell_which_lines_communicate() -> None:
    both = [rank(*step(0, 5_000_000), *step(1, 5_000_000)) for _ in range(2)]
    told, _ = replayed(both, ReplayedOn([LINK], SLOW, "ring"))
    (site,) = told["sites"]
    assert (site["site"], site["calls"], site["bytes"]) == ("train.py:7", 2, 10_000_000)
    assert site["communication_s"] == pytest.approx(2 * 5.002)


def test_refusals(tmp_path: Path) -> None:
    asked = ReplayedOn.of(["10gbe"], "a100")
    assert asked.hardware == HARDWARE["a100"]
    with pytest.raises(SpecError, match=r"script: got 'none\.py'; expected a Python file"):
        check_trace(ForeignScript("none.py"), 2, asked)
    with pytest.raises(SpecError, match="--workers: got 0"):
        check_trace(ForeignScript(str(Path(__file__))), 0, asked)
    with pytest.raises(SpecError, match="--hardware"):
        ReplayedOn.of(["10gbe"], "a1000")
    with pytest.raises(SpecError, match=r"--algorithm: got 'rang'; .*did you mean 'ring'"):
        ReplayedOn.of(["10gbe"], "a100", "rang")
    with pytest.raises(SpecError, match="script: got '-m'"):
        script_of(["-m"])
    assert script_of(["-m", "my.training", "--lr", "1"]) == ForeignScript("my.training", ("--lr", "1"), True)
