"""Programs on streams: against hand counts, and against a recurrence that knows nothing of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Link
from syncline.errors import SpecError, SynclineError
from syncline.sim import Collective, Compute, HostWait, Queued, Recv, Send, StreamMark, StreamWait, Wait, run_events

LINK = Link(1.0, 1.0)
"""An all-reduce of n bytes between two takes n + 2 s."""

SIDE = "compute side"
OTHER = "compute other"


def queued(*told: tuple[str, Any]) -> Queued:
    return Queued([instruction for _, instruction in told], [stream for stream, _ in told])


def reduced(key: str, nbytes: float, stream: str = "network") -> Collective:
    return Collective("all_reduce", nbytes, key, algorithm="ring", stream=stream)


def ends_s(program: Queued, workers: int = 2) -> dict[str, float]:
    """When each computing is done, by its label, the same for every worker."""
    told = run_events([program] * workers, LINK)
    computed = told[told.computes]
    return dict(zip(computed.label.tolist(), computed.end_s.tolist(), strict=True))


def test_streams_go_side_by_side_and_meet_at_marks() -> None:
    told = ends_s(
        queued(
            ("compute", Compute(1.0, "a")),
            ("compute", StreamMark("m")),
            ("compute", Compute(2.0, "b")),
            (SIDE, StreamWait("m")),
            (SIDE, Compute(5.0, "c")),
            (SIDE, StreamMark("n")),
            ("compute", StreamWait("n")),
            ("compute", Compute(1.0, "d")),
        )
    )
    assert told == {"a": 1.0, "b": 3.0, "c": 6.0, "d": 7.0}


def test_a_wait_ends_with_a_collective_whose_messages_had_arrived_when_it_was_joined() -> None:
    """Both broadcasts are on one network stream; the second's only message arrives long before worker 1 joins it."""
    x, y = (Collective("broadcast", 1.0, key, algorithm="binomial") for key in "xy")
    sender = queued(("compute", x), (SIDE, y))
    receiver = queued(
        ("compute", x),
        (SIDE, Compute(100.0, "late")),
        (SIDE, y),
        ("compute", Wait("y")),
        ("compute", Compute(1.0, "z")),
    )
    timeline = run_events([sender, receiver], LINK)
    ends_s = dict(zip(timeline.label.tolist(), timeline.end_s.tolist(), strict=True))
    assert (ends_s["late"], ends_s["z"]) == (100.0, 101.0)


def test_a_wait_holds_its_own_stream_alone() -> None:
    told = run_events(
        [queued(
            ("compute", reduced("k", 4.0)),
            (SIDE, Wait("k")),
            (SIDE, Compute(1.0, "behind")),
            ("compute", Compute(2.0, "beside")),
            ("compute", Wait("k")),
            ("compute", Compute(1.0, "after")),
        )] * 2,
        LINK,
    )  # fmt: skip
    computed = told[told.computes]
    assert dict(zip(computed.label.tolist(), computed.end_s.tolist(), strict=True)) == {
        "beside": 2.0,
        "behind": 7.0,
        "after": 7.0,
    }
    # Only the first stream's waits are of the history: there nothing computes because of the network.
    assert told.exposed_communication_s().tolist() == [4.0, 4.0]


def test_collectives_of_a_group_run_in_the_order_of_the_host() -> None:
    """The second could begin at 0, and waits for the first, which comes after computing on another stream."""
    told = ends_s(
        queued(
            (SIDE, Compute(3.0, "long")),
            (SIDE, reduced("first", 2.0)),
            ("compute", reduced("second", 2.0)),
            ("compute", Compute(1.0, "beside")),
            ("compute", Wait("second")),
            ("compute", Compute(1.0, "after")),
        )
    )
    assert told == {"long": 3.0, "beside": 1.0, "after": 3.0 + 4.0 + 4.0 + 1.0}
    own = ends_s(
        queued(
            (SIDE, Compute(3.0, "long")),
            (SIDE, reduced("first", 2.0)),
            ("compute", reduced("second", 2.0, "another")),
            ("compute", Wait("second")),
            ("compute", Compute(1.0, "after")),
        )
    )
    assert own["after"] == 5.0


@pytest.mark.parametrize("what", ["mark", "all"])
def test_what_is_queued_after_the_host_has_waited_comes_later(what: str) -> None:
    told = ends_s(
        queued(
            ("compute", Compute(4.0, "a")),
            ("compute", StreamMark("m")),
            ("compute", Compute(2.0, "b")),
            ("compute", HostWait("m" if what == "mark" else None)),
            (SIDE, Compute(1.0, "c")),
        )
    )
    assert told["c"] == (5.0 if what == "mark" else 7.0)


def test_the_host_waits_for_collectives_too() -> None:
    told = ends_s(queued(("compute", reduced("k", 4.0)), (SIDE, HostWait()), (SIDE, Compute(1.0, "after"))))
    assert told == {"after": 7.0}


def test_messages_come_to_the_stream_that_asks() -> None:
    sender = queued(("compute", Compute(9.0, "busy")), (SIDE, Compute(1.0, "made")), (SIDE, Send(1, 2.0, "x")))
    receiver = queued(("compute", Compute(1.0, "beside")), (SIDE, Recv(0, "x")), (SIDE, Compute(1.0, "used")))
    told = run_events([sender, receiver], LINK)
    assert float(told.end_s[told.label == "used"][0]) == 1.0 + 2.0 + 1.0 + 1.0
    assert not (told.what == "recv").any()


def told_by_seconds(takes_s: float | None, group: tuple[int, ...] | None = None) -> list[Any]:
    first = Collective("all_reduce", 6.0, "k", algorithm="ring", takes_s=takes_s, group=group)
    return [first, replace(first, key="l"), Compute(1.0, "beside"), Wait("k"), Compute(1.0, "between"), Wait("l")]


def test_a_collective_told_by_its_seconds_begins_with_the_last_and_ends_for_all() -> None:
    """It is what it is when played, where it begins for all at once."""
    played, told = (run_events([told_by_seconds(takes_s)] * 2, LINK) for takes_s in (None, 8.0))
    for name in ("worker", "stream", "what", "start_s", "end_s"):
        assert played.to_columns()[name].tolist() == told.to_columns()[name].tolist()
    late = run_events([[Compute(float(worker)), *told_by_seconds(2.5)] for worker in range(3)], LINK)
    ends_s = late.end_s[(late.what == "all_reduce")]
    assert ends_s.tolist() == [4.5, 7.0] * 3
    with pytest.raises(SpecError, match=r"collective\.takes_s: got -1"):
        told_by_seconds(-1.0)


@pytest.mark.parametrize("group", [None, (0, 1)])
def test_a_collective_told_by_its_seconds_is_its_group_s(group: tuple[int, ...] | None) -> None:
    workers = [told_by_seconds(2.5, group), told_by_seconds(2.5, group), [Compute(9.0)]]
    if group is None:
        with pytest.raises(SynclineError, match="every worker must join it"):
            run_events(workers, LINK)
    else:
        assert run_events(workers, LINK).makespan_s == 9.0
    with pytest.raises(SynclineError, match="expected the same kind"):
        run_events([told_by_seconds(2.5), told_by_seconds(2.0)], LINK)


def test_refusals() -> None:
    with pytest.raises(SpecError, match=r"queued\.streams: got 'side'; expected 'compute', or a name that begins"):
        queued(("side", Compute(1.0)))
    for wrong, said in (
        (queued(("compute", StreamWait("m"))), "waits for a mark that is not there"),
        (queued(("compute", HostWait("m"))), "waits for a mark that is not there"),
        (queued(("compute", Wait("m"))), "waits for a collective that has not started"),
        (queued(("compute", StreamMark("m")), (SIDE, StreamMark("m"))), "a different key for each mark"),
    ):
        with pytest.raises(SynclineError, match=said):
            run_events([wrong], LINK)
    with pytest.raises(SynclineError, match="worker 0 never gets past"):
        run_events([queued((SIDE, Recv(1, "x"))), queued(("compute", Compute(1.0)))], LINK)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Draw instructions; of two network streams one has bytes, as no recurrence knows of flows that share a link."""
    told: list[tuple[str, Any]] = []
    marks, keys = [], []
    for number in range(draw(st.integers(1, 14))):
        stream = draw(st.sampled_from(["compute", SIDE, OTHER]))
        kind = draw(st.sampled_from(["compute", "collective", "wait", "mark", "stream", "host", "all"]))
        if kind == "compute":
            told.append((stream, Compute(draw(st.integers(0, 4)) / 2, str(number))))
        elif kind == "collective":
            keys.append(f"k{number}")
            nbytes, of = draw(st.tuples(st.integers(0, 3), st.just("one")) | st.just((0, "two")))
            told.append((stream, reduced(keys[-1], nbytes, of)))
        elif kind == "mark":
            marks.append(f"m{number}")
            told.append((stream, StreamMark(marks[-1])))
        elif kind == "wait" and keys:
            told.append((stream, Wait(draw(st.sampled_from(keys)))))
        elif kind == "stream" and marks:
            told.append((stream, StreamWait(draw(st.sampled_from(marks)))))
        elif kind == "host" and marks:
            told.append((stream, HostWait(draw(st.sampled_from(marks)))))
        elif kind == "all":
            told.append((stream, HostWait()))
    return told


def recurrence(told: Sequence[tuple[str, Any]]) -> dict[str, float]:
    """When each computing is done, for workers who are all alike."""
    host, tails, marks, done, free = 0.0, dict[str, float](), dict[str, float](), dict[str, float](), dict[str, float]()
    ends: dict[str, float] = {}
    for stream, one in told:
        now = max(host, tails.get(stream, 0.0))
        if isinstance(one, Compute):
            tails[stream] = ends[one.label] = now + one.seconds
        elif isinstance(one, Collective):
            done[one.key] = free[one.stream] = max(now, free.get(one.stream, 0.0)) + one.nbytes + 2.0
        elif isinstance(one, Wait):
            tails[stream] = max(now, done[one.key])
        elif isinstance(one, StreamMark):
            marks[one.key] = now
        elif isinstance(one, StreamWait):
            tails[stream] = max(now, marks[one.key])
        elif one.key is not None:
            host = max(host, marks[one.key])
        else:
            host = max([host, *tails.values(), *done.values()])
    return ends


@given(programs())
def test_it_is_what_a_recurrence_says_of_workers_who_are_alike(told: list[tuple[str, Any]]) -> None:
    assert ends_s(queued(*told)) == pytest.approx(recurrence(told))


@given(programs())
def test_on_one_stream_it_is_the_plain_program(told: list[tuple[str, Any]]) -> None:
    """To the bit, spans and all."""
    plain = [one for _, one in told if isinstance(one, Compute | Collective | Wait)]
    one, other = (run_events([made] * 2, LINK) for made in (plain, Queued(plain, ["compute"] * len(plain))))
    assert one.to_columns().keys() == other.to_columns().keys()
    for name, column in one.to_columns().items():
        assert column.tolist() == other.to_columns()[name].tolist()
