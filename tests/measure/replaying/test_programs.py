"""Records on streams: by hand, against a recurrence of streams, and what must hold of any."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import HARDWARE, Hardware, Link
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    CountedOperation,
    Event,
    HostWaited,
    Marked,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying import replay as replaying
from syncline.measure.replaying.replay import host_behaviour, replay
from tests.measure.replaying.schedules import end_s

SLOW = Hardware("slow", 1e9, 1.0, "fp32", "made up", memory_bytes_per_s=1e9)
LINK = Link(0.0, 1e6, "link")
SEGMENTS = [(CountedOperation(1e9, 0.0),), (CountedOperation(2e9, 0.0),), (CountedOperation(0.0, 5e8),)]
"""Of 1, 2 and 0.5 s."""

MAIN, COPIES, GATHERS, SCATTERS = range(4)


def call(number: int, kind: str, nbytes: int, stream: int) -> list[Event]:
    """A collective that is called and waited for on a stream, as torch does where it is not asynchronous."""
    started = Started(number, kind, kind, nbytes, (0, 1), ("all", number), f"train.py:{number}", stream)
    return [started, Waited(number, stream)]


def sharded_layers() -> RankRecord:
    """A pass through two sharded layers: the second is gathered while the first computes."""
    events: list[Event] = [
        Computed(2, COPIES), Marked(1, COPIES), StreamWaited(1, GATHERS), *call(1, "all_gather", 4_000_000, GATHERS),
        Marked(2, GATHERS), StreamWaited(2, MAIN), Computed(2, COPIES), Marked(3, COPIES), StreamWaited(3, GATHERS),
        *call(2, "all_gather", 1_000_000, GATHERS), Marked(4, GATHERS), Computed(1, MAIN), StreamWaited(4, MAIN),
        Computed(0, MAIN), Marked(5, MAIN), StreamWaited(5, SCATTERS),
        *call(3, "reduce_scatter", 2_000_000, SCATTERS), Marked(6, SCATTERS), Computed(0, MAIN), StreamWaited(6, MAIN),
        Computed(2, MAIN), Stepped(),
    ]  # fmt: skip
    return RankRecord(events, SEGMENTS)


def test_layers_are_gathered_while_others_compute() -> None:
    """Gathering takes 4 s and 1 s, scattering 1 s.

    Ahead: copied at 0.5, gathered at 4.5; the second is copied at 1 and gathered at 5.5, while the first computes until
    6.5, the second until 7.5; scattered at 8.5 as all is computed, and 0.5 s more. A host that waits adds all up.
    """
    both = [sharded_layers()] * 2
    ahead, waits = (replay(both, LINK, SLOW, "ring", host) for host in ("ahead", "waits"))
    assert ahead.timeline.makespan_s == pytest.approx(9.0)
    assert ahead.timeline.exposed_communication_s().mean() == pytest.approx(4.5)
    assert waits.timeline.makespan_s == pytest.approx(0.5 + 4 + 0.5 + 1 + 2 + 1 + 1 + 1 + 0.5)
    assert waits.timeline.exposed_communication_s().mean() == pytest.approx(6.0)
    waiting = ahead.timeline[(ahead.timeline.what == "wait") & (ahead.timeline.duration_s > 0)]
    assert dict(zip(waiting.label.tolist(), waiting.duration_s.round(3).tolist(), strict=True)) == {"train.py:1": 4.5}


def test_what_the_host_reads_holds_what_it_queues_later() -> None:
    events: list[Event] = [Computed(1), Marked(1), Computed(0), HostWaited(1), Computed(0, COPIES), Stepped()]
    for wait, wanted in ((HostWaited(1), 3.0), (HostWaited(EVERYTHING), 4.0), (None, 3.0)):
        told = [one if not isinstance(one, HostWaited) else wait for one in events if wait or one != HostWaited(1)]
        timeline = replay([RankRecord(told, SEGMENTS)], LINK, SLOW, host="ahead").timeline
        side = timeline[timeline.stream == f"compute {COPIES}"]
        assert float(side.end_s[0]) == (1.0 if wait is None else wanted)


def test_hosts_are_those_of_the_hardware() -> None:
    assert host_behaviour(None, HARDWARE["a100"]) == "ahead"
    assert host_behaviour(None, HARDWARE["cpu-core"]) == "waits"
    assert host_behaviour("ahead", HARDWARE["cpu-core"]) == "ahead"
    with pytest.raises(SpecError, match=r"--host: got 'wait'; expected one of 'ahead', 'waits' \(did you mean 'waits'"):
        host_behaviour("wait", HARDWARE["a100"], "--host")


@st.composite
def records(draw: st.DrawFn, streams: int = 3, everything: bool = True) -> RankRecord:
    """What a rank may do, of which each call begins and ends, on any streams."""
    events: list[Event] = []
    open_calls: list[int] = []
    marks = calls = 0
    kinds = ["compute", "compute", "call", "wait", "mark", "stream", "read"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=25)):
        stream = draw(st.integers(0, streams - 1))
        if kind == "compute":
            events.append(Computed(draw(st.integers(0, 2)), stream))
        elif kind == "call":
            calls += 1
            of, nbytes = draw(st.sampled_from(["all_reduce", "all_gather"])), draw(st.integers(1, 4)) * 500_000
            events.append(call(calls, of, nbytes, stream)[0])
            open_calls.append(calls)
        elif kind == "wait" and open_calls:
            events.append(Waited(open_calls.pop(draw(st.integers(0, len(open_calls) - 1))), stream))
        elif kind == "mark":
            marks += 1
            events.append(Marked(marks, stream))
        elif kind == "stream" and marks:
            events.append(StreamWaited(draw(st.integers(1, marks)), stream))
        elif kind == "read" and marks:
            events.append(HostWaited(draw(st.sampled_from([*range(1, marks + 1), *[EVERYTHING] * everything]))))
    return RankRecord([Computed(0), *events, *(Waited(one) for one in open_calls), Stepped()], SEGMENTS)


def wall_s(rank: RankRecord, host: str, link: Link = LINK, workers: int = 2) -> float:
    return float(replay([rank] * workers, link, SLOW, "ring", host).timeline.makespan_s)


@given(records())
def test_it_is_what_a_recurrence_of_streams_says(rank: RankRecord) -> None:
    for host in ("ahead", "waits"):
        assert wall_s(rank, host) == pytest.approx(end_s(rank, 2, LINK, SLOW, host == "ahead"))


@given(records(everything=False))
def test_a_host_that_goes_ahead_is_no_slower_and_nothing_is_exposed_less_than_not_at_all(rank: RankRecord) -> None:
    """But for ``synchronize()``, which waits for calls that are under way, and on a CPU for nothing."""
    ahead, waits = (replay([rank] * 2, LINK, SLOW, "ring", host) for host in ("ahead", "waits"))
    assert ahead.timeline.makespan_s <= waits.timeline.makespan_s * (1 + 1e-12)
    for told in (ahead, waits):
        assert told.timeline.exposed_communication_s().mean() >= 0
        assert (told.timeline.exposed_communication_s() <= told.timeline.makespan_s).all()


@given(records(), st.floats(1.0, 100.0))
def test_more_bandwidth_is_no_slower(rank: RankRecord, times: float) -> None:
    faster = Link(0.0, 1e6 * times, "link")
    for host in ("ahead", "waits"):
        assert wall_s(rank, host, faster) <= wall_s(rank, host) * (1 + 1e-12)


@given(records(streams=1, everything=False))
def test_on_one_stream_both_hosts_say_the_same(rank: RankRecord) -> None:
    """To the bit: reading a value holds nothing that was not behind it already."""
    ahead, waits = (replay([rank] * 2, LINK, SLOW, "ring", host).timeline for host in ("ahead", "waits"))
    for name, column in waits.to_columns().items():
        if name not in ("label", "step"):
            np.testing.assert_array_equal(column, ahead.to_columns()[name])


@pytest.mark.parametrize("max_messages", [0, replaying.MAX_SIMULATED_MESSAGES])
@given(rank=records(everything=False), host=st.sampled_from(["ahead", "waits"]))
def test_many_ranks_take_what_closed_forms_say(max_messages: int, rank: RankRecord, host: str) -> None:
    """Equal ranks in step take the closed forms' times whether their messages are simulated or not."""
    everybody = tuple(range(replaying.MAX_SIMULATED_RANKS + 1))
    events = [one._replace(ranks=everybody) if isinstance(one, Started) else one for one in rank.events]
    many = RankRecord(events, rank.segments)
    link = Link(1e-3, 1e6, "link")
    with patch.object(replaying, "MAX_SIMULATED_MESSAGES", max_messages):
        told = wall_s(many, host, link, len(everybody))
    assert told == pytest.approx(end_s(many, len(everybody), link, SLOW, host == "ahead"))


def test_messages_are_simulated_up_to_a_number() -> None:
    """A ring of 40 ranks has 2 x 40 x 39 = 3,120 messages, and two records have twice as many."""
    everybody = tuple(range(40))
    rank = RankRecord(
        [Started(1, "all_reduce", "all_reduce", 1000, everybody, ("all", 1), "train.py:1"), Waited(1)], []
    )
    for num_calls, max_messages, expected in ((1, 3120, True), (1, 3119, False), (2, 6240, True), (2, 6239, False)):
        ranks = [RankRecord(num_calls * rank.events, [])] * 40
        with patch.object(replaying, "MAX_SIMULATED_MESSAGES", max_messages):
            assert replaying.is_simulated(ranks, LINK, lambda event: "ring") is expected
            assert replaying.is_simulated(ranks[:32], LINK, lambda event: "ring")
