"""A quorum with a grace window, and who is drawn, by hand and in all cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link
from syncline.errors import SpecError
from syncline.sim.online.async_workers import simulate_async_workers
from syncline.sim.online.server_interface import AsyncResult, ServerSettings
from tests.sim.online.topology import server_topology

AT_ONCE = Link(latency_s=0.0, bandwidth_bytes_per_s=1e9)


def played(served: ServerSettings, seconds: list[float], link: Any = AT_ONCE, **options: Any) -> AsyncResult:
    over = server_topology(link, served.workers)
    return simulate_async_workers(served, lambda worker, _: seconds[worker], over, **options)


def told(out: AsyncResult) -> list[tuple[int, float, int, int, float]]:
    return [(one.worker, one.arrived_s, one.version, one.age, one.replied_s) for one in out.contributions]


def quorum(grace_period_s: float) -> ServerSettings:
    return ServerSettings(3, 6, [1, 1, 1], buffer_size=2, synchronous=True, grace_period_s=grace_period_s)


def test_a_grace_window_by_hand() -> None:
    """Workers of 1, 1.5 and 4 s. The quorum is there at 1.5 s and waits until 2.5 s; at 4 s nobody else can come."""
    assert told(played(quorum(1.0), [1.0, 1.5, 4.0])) == [
        (0, 1.0, 1, 0, 2.5), (1, 1.5, 1, 0, 2.5),
        (0, 3.5, 2, 0, 4.0), (1, 4.0, 2, 0, 4.0), (2, 4.0, 2, 1, 4.0), (0, 5.0, 3, 0, 5.0),
    ]  # fmt: skip


def test_who_waited_for_whom_by_hand() -> None:
    """Half a second for the second of a version, and half for the third; the grace after that is nobody's."""
    waited_s = played(quorum(1.0), [1.0, 1.5, 4.0]).waited_for_s(3)
    assert waited_s.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    at_once = ServerSettings(3, 6, [1, 1, 1], buffer_size=2)
    assert not played(at_once, [1.0, 1.5, 4.0]).waited_for_s(3).any()


def test_what_arrives_when_the_grace_ends_is_in_time() -> None:
    out = played(quorum(2.5), [1.0, 1.5, 4.0])
    assert [one.version for one in out.contributions][:3] == [1, 1, 1] and out.contributions[2].arrived_s == 4.0


def test_without_grace_it_is_the_quorum_alone() -> None:
    assert told(played(quorum(0.0), [1.0, 1.5, 4.0]))[:3] == [
        (0, 1.0, 1, 0, 1.5),
        (1, 1.5, 1, 0, 1.5),
        (0, 2.5, 2, 0, 3.0),
    ]


def test_grace_of_a_server_that_nobody_waits_for() -> None:
    """The version of the update at 1 s is made at 1.7 s, with that of 1.5 s; both had gone on with the model before."""
    out = played(ServerSettings(2, 4, [1, 1], grace_period_s=0.7), [1.0, 1.5])
    assert [(one.worker, one.arrived_s, one.version, one.age) for one in out.contributions] == [
        (0, 1.0, 1, 0), (1, 1.5, 1, 0), (0, 2.0, 2, 1), (1, 3.0, 3, 2)
    ]  # fmt: skip


def test_rounds_of_those_who_are_drawn() -> None:
    """Two of four in each round, who wait for each other; each draw is one of the six pairs, as often as the others."""
    rounds = 600
    out = played(
        ServerSettings(4, rounds * 2, [1] * 4, buffer_size=2, synchronous=True, participants=2), [1.0, 1.0, 1.0, 2.0]
    )
    columns = out.columns()
    pairs = [frozenset(columns["worker"][columns["version"] == v]) for v in range(1, rounds + 1)]
    assert out.versions == rounds and {len(pair) for pair in pairs} == {2} and not columns["age"].any()
    counts = [pairs.count(pair) for pair in set(pairs)]
    assert (
        len(counts) == 6 and sum((count - 100) ** 2 / 100 for count in counts) < 20.5
    )  # chi-squared, 5 degrees, 0.1 %
    assert out.end_s == rounds + sum(3 in pair for pair in pairs)


def test_who_is_drawn_gets_the_model_by_message() -> None:
    link = Link(latency_s=0.5, bandwidth_bytes_per_s=1e9)
    out = played(ServerSettings(2, 2, [1, 1], participants=1), [1.0, 1.0], link)
    first, second = out.contributions
    assert (first.begun_s, first.arrived_s) == (0.0, 1.5) and (second.begun_s, second.arrived_s) == (2.0, 3.5)


def test_a_seed_draws_the_same_again_and_another_does_not() -> None:
    def workers(seed: int) -> list[int]:
        out = played(ServerSettings(8, 40, [1] * 8, participants=3, seed=seed), [1.0 + 0.1 * m for m in range(8)])
        return [one.worker for one in out.contributions]

    assert workers(0) == workers(0) != workers(1)


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(st.sampled_from([0.5, 1.0, 1.7, 4.0]), min_size=1, max_size=4),
    local=st.integers(1, 3),
    steps=st.integers(1, 25),
    buffer_size=st.integers(1, 4),
    synchronous=st.booleans(),
    grace_period_s=st.sampled_from([0.0, 0.3, 1.0]),
    participants=st.integers(1, 4),
)
def test_what_holds_in_all_cases(
    seconds: list[float],
    local: int,
    steps: int,
    buffer_size: int,
    synchronous: bool,
    grace_period_s: float,
    participants: int,
) -> None:
    workers = len(seconds)
    participants = min(participants, workers)
    buffer_size = min(buffer_size, participants) if synchronous else buffer_size
    served = ServerSettings(
        workers,
        steps,
        [local] * workers,
        buffer_size,
        synchronous,
        3e8,
        1e8,
        grace_period_s=grace_period_s,
        participants=participants,
    )
    out = played(served, seconds, Link(latency_s=0.01, bandwidth_bytes_per_s=1e9))
    columns = out.columns()
    assert columns["steps"].sum() == len(out.step_end_s) == steps
    assert (columns["age"] == columns["version"] - 1 - columns["model"]).all() and columns["age"].min() >= 0
    sizes = np.bincount(columns["version"])[1:]
    assert len(sizes) == out.versions and (synchronous or (sizes[:-1] >= buffer_size).all())
    assert grace_period_s or (sizes <= buffer_size).all()
    # At no time do more work, or have updates or models under way, than take part at a time.
    begun, ended = np.sort(columns["begun_s"]), np.sort(columns["arrived_s"])
    assert max((begun <= t).sum() - (ended < t).sum() for t in begun) <= participants
    for worker in range(workers):
        own = columns["worker"] == worker
        assert (columns["begun_s"][own][1:] >= columns["replied_s"][own][:-1]).all()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"participants": 0}, "participants: got 0"),
        ({"participants": 3}, "participants: got 3"),
        ({"grace_period_s": -1.0}, "grace_period: got -1.0"),
        (
            {"participants": 1, "buffer_size": 2, "synchronous": True},
            "buffer_size: got 2; expected at most 1, the participants",
        ),
    ],
)
def test_what_cannot_be(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        ServerSettings(**({"workers": 2, "steps": 4, "local_steps": [1, 1]} | options))
