"""Workers at their own pace: by hand, in the order of a public code, and what holds in all cases."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError
from syncline.sim.online.async_workers import simulate_async_workers
from syncline.sim.online.server_interface import (
    AsyncResult,
    EventObserver,
    ServerSettings,
    with_server,
)
from tests.sim.online.topology import server_topology

AT_ONCE = Link(latency_s=0.0, bandwidth_bytes_per_s=1e9)


def played(served: ServerSettings, seconds: list[float], link: Any = AT_ONCE, **options: Any) -> AsyncResult:
    over = server_topology(link, served.workers)
    return simulate_async_workers(served, lambda worker, _: seconds[worker], over, **options)


class Told(EventObserver):
    """What happened, in words."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, worker: int, number: int) -> None:
        self.lines.append(f"{worker} steps {number}")

    def arrive(self, worker: int, age: int) -> None:
        self.lines.append(f"{worker} is there, {age} late")

    def version(self, count: int, server: int) -> None:
        self.lines.append(f"version of {count}")

    def reply(self, worker: int) -> None:
        self.lines.append(f"{worker} goes on")

    def send_up(self, server: int) -> None:
        self.lines.append(f"server {server} sends up")

    def arrive_up(self, server: int, age: int) -> None:
        self.lines.append(f"server {server} is there, {age} late")

    def reply_up(self, server: int) -> None:
        self.lines.append(f"server {server} is replied to")

    def merge(self, server: int) -> None:
        self.lines.append(f"server {server} merges")


def test_two_workers_by_hand() -> None:
    """Worker 0 takes 1 s, worker 1 takes 2.5 s, messages take no time; they make 6 steps in all.

    Worker 1's first update is of version 0, when worker 0 has made two; then worker 0's is one late. At 5 s both are
    there: worker 0 comes first, so worker 1 misses its versions of 3, 4 and 5 s.
    """
    told = Told()
    out = played(ServerSettings(2, 7, [1, 1]), [1.0, 2.5], observer=told)
    assert [(one.worker, one.arrived_s, one.model, one.version, one.age) for one in out.contributions] == [
        (0, 1.0, 0, 1, 0), (0, 2.0, 1, 2, 0), (1, 2.5, 0, 3, 2), (0, 3.0, 2, 4, 1),
        (0, 4.0, 4, 5, 0), (0, 5.0, 5, 6, 0), (1, 5.0, 3, 7, 3),
    ]  # fmt: skip
    assert out.ages().tolist() == [4, 1, 1, 1] and out.versions == 7 and out.end_s == 5.0
    assert told.lines[:8] == [
        "0 steps 0", "0 is there, 0 late", "version of 1", "0 goes on",
        "0 steps 1", "0 is there, 0 late", "version of 1", "0 goes on",
    ]  # fmt: skip


def test_what_arrives_together_is_taken_by_worker_and_before_any_reply() -> None:
    told = Told()
    out = played(ServerSettings(3, 6, [2, 2, 2]), [1.0, 1.0, 1.0], observer=told)
    assert out.ages().tolist() == [1, 1, 1]
    assert told.lines[-9:] == [
        "0 is there, 0 late", "version of 1", "1 is there, 1 late", "version of 1", "2 is there, 2 late",
        "version of 1", "0 goes on", "1 goes on", "2 goes on",
    ]  # fmt: skip


def test_messages_take_latency_and_share_the_servers_way() -> None:
    """Two updates of 1 MB meet on the server's 100 MB/s: each takes 20 ms and 5 ms of latency; so do the models."""
    link = Link(latency_s=5e-3, bandwidth_bytes_per_s=100e6)
    out = played(ServerSettings(2, 4, [1, 1], buffer_size=2, update_bytes=1e6, model_bytes=1e6), [1.0, 1.0], link)
    assert [one.arrived_s for one in out.contributions] == pytest.approx([1.025, 1.025, 2.075, 2.075])
    assert out.wait_s.tolist() == pytest.approx([0.1, 0.1])
    alone = played(ServerSettings(2, 4, [1, 1], update_bytes=1e6, model_bytes=1e6), [1.0, 1.5], link)
    assert [one.arrived_s for one in alone.contributions] == pytest.approx([1.015, 1.515, 2.045, 3.045])


def test_who_waits_goes_on_with_the_version_that_its_update_is_in() -> None:
    """K-async: of three, the first two make a version, and the third waits for one of them."""
    out = played(ServerSettings(3, 6, [1, 1, 1], buffer_size=2, synchronous=True), [1.0, 2.0, 3.0])
    assert [(one.worker, one.arrived_s, one.version, one.replied_s) for one in out.contributions] == [
        (0, 1.0, 1, 2.0), (1, 2.0, 1, 2.0), (0, 3.0, 2, 3.0), (2, 3.0, 2, 3.0), (0, 4.0, 3, 4.0), (1, 4.0, 3, 4.0),
    ]  # fmt: skip


SECONDS_PER_STEP = [0.58, 0.75, 1.51, 3.33]
"""Of the four workers of the public toy of Asynchronous Local-SGD (google-deepmind/asyncdiloco); 20 steps each."""


def test_order_and_ages_are_those_of_the_public_toy() -> None:
    """Its discipline: whoever is first ready, ties by number, is synchronised and begins again at once; ages are of
    versions; it ends when the steps of all that was handed out are there."""
    steps, total = 20, 20 * 4 * 25
    ready = [(steps * seconds, worker) for worker, seconds in enumerate(SECONDS_PER_STEP)]
    heapq.heapify(ready)
    expected, versions, took, handed = [], 0, [0] * 4, 4 * steps
    while ready:
        now_s, worker = heapq.heappop(ready)
        expected.append((worker, now_s, versions - took[worker]))
        versions += 1
        if handed < total:
            took[worker], handed = versions, handed + steps
            heapq.heappush(ready, (now_s + steps * SECONDS_PER_STEP[worker], worker))
    out = played(ServerSettings(4, total, [steps] * 4), SECONDS_PER_STEP)
    assert [(one.worker, one.age) for one in out.contributions] == [(worker, age) for worker, _, age in expected]
    assert [one.arrived_s for one in out.contributions] == pytest.approx([at for _, at, _ in expected], rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(st.sampled_from([0.5, 1.0, 1.7, 4.0]), min_size=1, max_size=4),
    local=st.integers(1, 3),
    steps=st.integers(1, 25),
    buffer_size=st.integers(1, 4),
    synchronous=st.booleans(),
)
def test_what_holds_in_all_cases(
    seconds: list[float], local: int, steps: int, buffer_size: int, synchronous: bool
) -> None:
    workers = len(seconds)
    buffer_size = min(buffer_size, workers) if synchronous else buffer_size
    served = ServerSettings(
        workers, steps, [local] * workers, buffer_size, synchronous, update_bytes=3e8, model_bytes=1e8
    )
    out = played(served, seconds, Link(latency_s=0.01, bandwidth_bytes_per_s=1e9))
    columns = out.columns()
    assert columns["steps"].sum() == len(out.step_end_s) == steps
    assert (np.diff(out.step_end_s) >= 0).all() and (np.diff(columns["arrived_s"]) >= 0).all()
    assert (columns["age"] == columns["version"] - 1 - columns["model"]).all() and columns["age"].min() >= 0
    assert out.versions == columns["version"][-1] and np.bincount(columns["version"])[1:].max() <= buffer_size
    assert (np.bincount(columns["version"])[1:-1] == buffer_size).all() or synchronous
    assert out.end_s == max(columns["arrived_s"][-1], out.step_end_s[-1])
    for worker in range(workers):
        own = columns["worker"] == worker
        begun, replied = columns["begun_s"][own], columns["replied_s"][own]
        assert (begun[1:] >= replied[:-1]).all()
        assert (np.diff(columns["model"][own]) >= 0).all()
    again = played(served, seconds, Link(latency_s=0.01, bandwidth_bytes_per_s=1e9))
    assert repr(again.contributions) == repr(out.contributions) and (again.step_end_s == out.step_end_s).all()


def test_the_timeline_has_the_server_after_the_workers() -> None:
    link = Link(latency_s=5e-3, bandwidth_bytes_per_s=100e6)
    out = played(ServerSettings(2, 4, [1, 1], update_bytes=1e6, model_bytes=2e6), [1.0, 1.5], link)
    assert out.timeline.workers == 3
    server = out.timeline[out.timeline.worker == 2]
    assert set(server.stream.tolist()) == {"send to 0", "send to 1"} and (server.nbytes == 2e6).all()
    assert out.timeline.exposed_communication_s()[:2].tolist() == pytest.approx(out.wait_s.tolist())
    short = played(ServerSettings(2, 4, [1, 1]), [1.0, 1.5], link, keep_steps=1)
    assert set(short.timeline.step.tolist()) == {0}


def test_where_the_server_is() -> None:
    """Of nodes it has one of its own; where all places are taken it is on worker 0's machine, and it is not far."""
    nodes = TwoLevel(2, Link(1e-6, 1e11), Link(1e-3, 1e9))
    whole, place = with_server(nodes, 4)
    assert (whole.workers, place) == (6, 4)
    sites = Sites((2, 2), Link(1e-4, 1e9), Link(1e-2, 1e8))
    whole, place = with_server(sites, 4)
    assert (whole.workers, place) == (4, 0)
    served = ServerSettings(4, 8, [1] * 4, update_bytes=1e6, model_bytes=1e6)
    synchronous = played(served, [1.0] * 4, sites).wait_s
    assert synchronous[0] == 0.0 < synchronous[1] < synchronous[2] == synchronous[3]


def test_who_begins_late() -> None:
    out = played(ServerSettings(2, 2, [1, 1]), [1.0, 1.0], starts_s=[0.0, 3.0])
    assert [(one.worker, one.begun_s, one.arrived_s) for one in out.contributions] == [(0, 0.0, 1.0), (1, 3.0, 4.0)]


def test_late_messages_are_late_between_places() -> None:
    asked = set()

    def delay(sender: int, receiver: int) -> float:
        asked.add((sender, receiver))
        return 0.5

    out = played(ServerSettings(2, 2, [1, 1]), [1.0, 1.0], delay=delay)
    assert asked == {(0, 2), (1, 2), (2, 0), (2, 1)} and out.end_s == 1.5


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"workers": 0, "local_steps": []}, "workers: got 0"),
        ({"steps": 0}, "steps: got 0"),
        ({"buffer_size": 0}, "buffer_size: got 0"),
        ({"local_steps": [1]}, r"local_steps: got \[1\]"),
        ({"local_steps": [1, 0]}, r"local_steps: got \[1, 0\]"),
        ({"buffer_size": 3, "synchronous": True}, "buffer_size: got 3; expected at most 2"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        ServerSettings(**({"workers": 2, "steps": 4, "local_steps": [1, 1]} | options))


def test_nothing_is_replied_where_nothing_is_left() -> None:
    """The last contribution's worker still gets the last model, so that all end with it."""
    out = played(ServerSettings(1, 1, [1]), [1.0])
    assert not math.isnan(out.contributions[-1].replied_s)
