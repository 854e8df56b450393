"""Workers at their own pace whose machines fail: by hand, and what holds in all cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.sim.failures.outages import Absences, FailingGroup, Outage
from syncline.sim.online.async_workers import simulate_async_workers
from syncline.sim.online.server_interface import AsyncResult, ServerSettings, UpperServer
from tests.sim.online.test_async_workers import AT_ONCE, Told
from tests.sim.online.topology import server_topology


class ToldOfFailures(Told):
    def fail(self, worker: int) -> None:
        self.lines.append(f"{worker} fails")


def played(served: ServerSettings, seconds: Sequence[float], outages: list[Outage], **options: Any) -> AsyncResult:
    absences = Absences(FailingGroup(served.workers, restart_s=0.5), outages)
    over = server_topology(AT_ONCE, served.workers, served.groups)
    return simulate_async_workers(served, lambda worker, _: seconds[worker], over, absences=absences, **options)


def test_by_hand() -> None:
    """Two workers of 1 s and two local steps; the second fails at 3.25 s and is back at 4 s, and has a model at 4.5 s.

    Its first step of that round is lost, and what it had begun of the next; worker 0 makes what it gave back.
    """
    told = ToldOfFailures()
    out = played(ServerSettings(2, 12, [2, 2]), [1.0, 1.0], [Outage(3.25, 1, 2, 4.0)], observer=told)
    assert [(one.worker, one.arrived_s, one.age) for one in out.contributions] == [
        (0, 2.0, 0), (1, 2.0, 1), (0, 4.0, 0), (0, 6.0, 0), (1, 6.5, 1), (0, 8.0, 1),
    ]  # fmt: skip
    assert out.steps_of(2).tolist() == [8, 4] and out.end_s == 8.0
    assert out.failed is not None and out.failed.stuck is None
    assert (out.failed.lost_s, out.failed.down_s, out.failed.lost_steps) == (1.25, 1.25, 1 / 2)
    assert "1 fails" in told.lines and told.lines.count("1 steps 2") == 1  # steps that are lost are no effects
    assert out.compute_s.tolist() == [8.0, 4.0]
    lost = out.timeline[(out.timeline.what == "lost") | (out.timeline.what == "away")]
    assert [(s, e) for s, e in zip(lost.start_s.tolist(), lost.end_s.tolist(), strict=True)] == [(2, 3.25), (3.25, 4.5)]


def test_who_does_not_come_back_leaves_the_work_to_others() -> None:
    out = played(ServerSettings(2, 12, [1, 1]), [1.0, 1.0], [Outage(2.5, 1, 2)])
    assert out.steps_of(2).tolist() == [10, 2] and out.end_s == 10.0
    never = played(ServerSettings(2, 6, [1, 1]), [1.0, 1.0], [Outage(0.0, 1, 2)])
    assert never.steps_of(2).tolist() == [6, 0]


def test_where_nobody_comes_back_it_ends_and_says_since_when() -> None:
    out = played(ServerSettings(2, 12, [1, 1]), [1.0, 1.0], [Outage(2.5, 0, 2)])
    assert len(out.step_end_s) == 4 and out.failed is not None
    assert out.failed.stuck == "no progress possible since 2.5 s: nobody comes back"


def test_who_had_no_steps_left_makes_those_that_a_failure_gives_back() -> None:
    """Worker 1 has made its last step at 2 s when worker 0 fails with the last but one, for a day."""
    out = played(ServerSettings(2, 4, [1, 1]), [1.5, 1.0], [Outage(2.9, 0, 1, 86400.0)])
    assert [(one.worker, one.arrived_s) for one in out.contributions] == [(1, 1.0), (0, 1.5), (1, 2.0), (1, 3.9)]
    assert out.failed is not None and out.failed.stuck is None and out.end_s == 3.9


def test_where_a_version_is_of_all_all_wait_for_who_is_away() -> None:
    out = played(ServerSettings(3, 9, [1, 1, 1], buffer_size=3, synchronous=True), [1.0] * 3, [Outage(1.5, 2, 3, 6.0)])
    assert [one.arrived_s for one in out.contributions] == [1, 1, 1, 2, 2, 7.5, 8.5, 8.5, 8.5]
    assert out.versions == 3 and out.ages().tolist() == [9]


def test_where_a_quorum_is_enough_nobody_waits() -> None:
    out = played(
        ServerSettings(3, 9, [1, 1, 1], buffer_size=2, synchronous=True), [1.0, 1.0, 1.0], [Outage(1.5, 2, 3, 6.0)]
    )
    assert out.end_s <= 5.0 and out.steps_of(3)[2] == 1


def test_a_gone_worker_is_not_waited_for() -> None:
    out = played(ServerSettings(3, 9, [1, 1, 1], buffer_size=3, synchronous=True), [1.0] * 3, [Outage(1.5, 2, 3)])
    assert out.failed is not None and out.failed.stuck is None and out.steps_of(3).tolist() == [4, 4, 1]


PART: dict[str, Any] = {"participants": 2, "buffer_size": 2}


def test_of_those_who_take_part_others_take_the_place_of_who_fails() -> None:
    """Two of four work at a time, for 12 s; who is drawn while away is waited for where a version is of both."""
    late = played(ServerSettings(4, 24, [1] * 4, **PART), [1.0] * 4, [Outage(2.5, 1, 2)])
    assert late.steps_of(4).tolist() == [5, 1, 9, 9] and late.end_s == 12.5 and late.versions == 12
    together = played(ServerSettings(4, 24, [1] * 4, synchronous=True, **PART), [1.0] * 4, [Outage(2.5, 1, 2)])
    assert together.steps_of(4).sum() == 24 and together.steps_of(4)[1] == 1 and together.versions == 12
    for synchronous in (True, False):
        alone = played(ServerSettings(4, 24, [1] * 4, synchronous=synchronous, **PART), [1.0] * 4, [Outage(2.5, 1, 4)])
        assert alone.steps_of(4).tolist() == [21, 1, 1, 1] and alone.failed is not None and alone.failed.stuck is None
        ends = played(ServerSettings(4, 24, [1] * 4, synchronous=synchronous, **PART), [1.0] * 4, [Outage(2.5, 0, 4)])
        assert len(ends.step_end_s) == 4 and ends.failed is not None
        assert ends.failed.stuck == "no progress possible since 2.5 s: nobody comes back"


def test_a_group_of_a_local_server_that_fails_leaves_its_steps_to_the_others() -> None:
    """Two local servers of two workers each; a version of both is sent above."""
    fields: dict[str, Any] = {"buffer_size": 2, "hierarchy": UpperServer((2, 2), 1)}
    served = ServerSettings(4, 24, [1] * 4, **fields)
    gone = played(served, [1.0] * 4, [Outage(2.5, 0, 2)])
    assert gone.steps_of(4).tolist() == [2, 2, 10, 10] and gone.end_s == 10.0
    assert [one.server for one in gone.merges].count(0) == 2 and len(gone.merges) == gone.versions == 12
    back = played(served, [1.0] * 4, [Outage(2.5, 0, 2, 6.0)])  # at 6.5 s they ask for a model
    assert back.steps_of(4).tolist() == [4, 4, 8, 8] and back.end_s == 8.5 and len(back.merges) == 12
    one = played(served, [1.0] * 4, [Outage(2.5, 1, 2)])
    assert one.steps_of(4)[1] == 2 and one.steps_of(4).sum() == 24 and len(one.merges) == one.versions
    ends = played(served, [1.0] * 4, [Outage(2.5, 0, 4)])
    assert len(ends.step_end_s) == 8 and ends.failed is not None
    assert ends.failed.stuck == "no progress possible since 2.5 s: nobody comes back"


def test_a_local_server_without_workers_ends_with_the_others() -> None:
    """One has an update of the two that a version takes, and nobody is left to send another."""
    served = ServerSettings(4, 24, [1] * 4, buffer_size=2, hierarchy=UpperServer((2, 2), 2))
    out = played(served, [1.0] * 4, [Outage(0.5, 2, 3), Outage(1.51, 3, 4)])
    assert out.steps_of(4).tolist() == [12, 11, 0, 1] and len(out.step_end_s) == 24
    assert out.failed is not None and out.failed.stuck is None


def test_no_outage_changes_nothing() -> None:
    served, over = ServerSettings(3, 30, [2, 1, 3], buffer_size=2), server_topology(AT_ONCE, 3)
    plain = simulate_async_workers(served, lambda worker, _: [1.0, 0.7, 0.3][worker], over)
    watched = played(served, [1.0, 0.7, 0.3], [])
    assert watched.contributions == plain.contributions and watched.end_s == plain.end_s
    assert watched.compute_s.tolist() == plain.compute_s.tolist() and watched.wait_s.tolist() == plain.wait_s.tolist()
    assert plain.failed is None and watched.failed is not None and watched.failed.goodput == 1


@settings(max_examples=25)
@given(
    times=st.lists(
        st.tuples(st.floats(0, 12), st.integers(0, 2), st.sampled_from([0.0, 0.4, 3.0, math.inf])), max_size=6
    ),
    local=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    buffer_size=st.integers(1, 3),
    synchronous=st.booleans(),
)
def test_every_step_is_made_once_whoever_fails(times, local, buffer_size, synchronous):
    outages = sorted(Outage(at, who, who + 1, at + away) for at, who, away in times)
    out = played(
        ServerSettings(3, 20, local, buffer_size=buffer_size, synchronous=synchronous), [1.0, 0.8, 0.5], outages
    )
    assert out.failed is not None
    leave = {who for _, who, away in times if math.isinf(away)}
    assert out.failed.stuck is None or len(leave) == 3
    if out.failed.stuck is None:
        assert len(out.step_end_s) == 20 == sum(one.steps for one in out.contributions)
    else:
        assert len(out.step_end_s) < 20
    for worker in range(3):
        assert out.steps_of(3)[worker] == sum(one.steps for one in out.contributions if one.worker == worker)
