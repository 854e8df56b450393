"""Local servers with one above: by hand, and in the order and at the times of the public event loop of HALoS."""

from __future__ import annotations

import heapq
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link
from syncline.costmodel.network.two_level import Sites
from syncline.errors import SpecError
from syncline.sim.online.async_workers import StepSeconds, simulate_async_workers
from syncline.sim.online.server_interface import AsyncResult, ServerSettings, UpperServer
from tests.sim.online.test_async_workers import Told
from tests.sim.online.topology import server_topology

AT_ONCE = Link(latency_s=0.0, bandwidth_bytes_per_s=1e9)

STEP_S = 0.238391
SPEEDS = [
    [0.232, 0.907, 0.828, 0.347], [0.574, 0.531, 0.722, 0.194],
    [0.852, 0.132, 0.896, 0.107], [0.827, 0.515, 0.527, 0.788],
]  # fmt: skip
"""Of four regions in the example of HALoS (utnslab/halos, examples/env.yaml; the step's time is of its commons)."""

TIE_S = 1e-9
"""Times a worker's number, added to each of its rounds there, so that no two end together."""


def played(served: ServerSettings, pace: StepSeconds, link: Any = AT_ONCE, **options: Any) -> AsyncResult:
    return simulate_async_workers(served, pace, server_topology(link, served.workers, served.groups), **options)


def test_two_local_servers_by_hand() -> None:
    """Workers of 1 s and 1.5 s, each with a server of its own, which sends every second version. Messages take 0.25 s
    between servers; the second worker's is on the machine of the server above's handler at 0.75 s more each way."""
    told = Told()
    served = ServerSettings(2, 6, [1, 1], hierarchy=UpperServer((1, 1), 2))
    out = played(served, lambda m, _: [1.0, 1.5][m], Link(latency_s=0.25, bandwidth_bytes_per_s=1e9), observer=told)
    assert [(one.worker, one.arrived_s, one.version) for one in out.contributions] == [
        (0, 1.0, 1), (1, 1.5, 1), (0, 2.0, 2), (0, 3.0, 3), (1, 3.0, 2), (0, 4.0, 4),
    ]  # fmt: skip
    merges = [(one.server, one.versions, one.sent_s, one.arrived_s, one.age, one.merged_s) for one in out.merges]
    assert merges == [(0, 2, 2.0, 2.25, 0, 2.5), (1, 2, 3.0, 3.25, 1, 3.5), (0, 2, 4.0, 4.25, 1, 4.5)]
    assert told.lines.index("server 0 merges") < told.lines.index("0 steps 2") and out.end_s == 4.25


def test_order_and_times_are_those_of_the_public_event_loop() -> None:
    """Its discipline: a heap of ends of rounds, each ``1e-9 worker`` s longer; who ends is taken by its local server,
    which sends up when it has made so many versions since its last merge, and gives its model at once; what is sent up
    is taken above, and merged, at the same instant, before the next round ends."""
    every, groups = 5, [len(region) for region in SPEEDS]
    speeds = [speed / 0.907 for region in SPEEDS for speed in region]
    local = [max(1, math.ceil(8 * speed)) for speed in speeds]
    of = [s for s, size in enumerate(groups) for _ in range(size)]

    ends = [(local[m] * STEP_S / speeds[m] + m * TIE_S, m) for m in range(16)]
    heapq.heapify(ends)
    versions, merged, model, above, seen = [0] * 4, [0] * 4, [0] * 16, 0, [0] * 4
    rounds, ups = [], []
    for _ in range(400):
        now_s, m = heapq.heappop(ends)
        s = of[m]
        rounds.append((m, now_s, model[m], versions[s] - model[m]))
        versions[s] += 1
        model[m] = versions[s]
        heapq.heappush(ends, (now_s + local[m] * STEP_S / speeds[m] + m * TIE_S, m))
        if versions[s] == merged[s] + every:
            ups.append((s, now_s, above - seen[s]))
            above += 1
            merged[s], seen[s] = versions[s], above

    def pace(worker: int, number: int) -> float:
        return STEP_S / speeds[worker] + (worker * TIE_S if number % local[worker] == 0 else 0.0)

    out = played(ServerSettings(16, 20_000, local, hierarchy=UpperServer(tuple(groups), every)), pace)
    ours = out.contributions[: len(rounds)]
    assert [(one.worker, one.model, one.age) for one in ours] == [(m, v, age) for m, _, v, age in rounds]
    assert [one.arrived_s for one in ours] == pytest.approx([at for _, at, _, _ in rounds], rel=1e-9, abs=1e-6)
    up = out.merges[: len(ups)]
    assert [(one.server, one.age, one.versions) for one in up] == [(s, age, every) for s, _, age in ups]
    assert [one.merged_s for one in up] == pytest.approx([at for _, at, _ in ups], rel=1e-9, abs=1e-6)


def test_local_servers_are_on_the_machine_of_the_first_of_each_group() -> None:
    sites = Sites((2, 2), Link(1e-4, 1e9), Link(1e-2, 1e8))
    served = ServerSettings(4, 16, [1] * 4, update_bytes=1e6, model_bytes=1e6, hierarchy=UpperServer((2, 2), 2))
    out = played(served, lambda m, _: 1.0, sites)
    assert out.wait_s[0] == out.wait_s[2] == 0.0 and 0 < out.wait_s[1] < 0.2
    far = [one.merged_s - one.sent_s for one in out.merges if one.server == 1]
    assert min(far) > 0.04 and {one.merged_s - one.sent_s for one in out.merges if one.server == 0} == {0.0}
    assert out.timeline.workers == 7
    assert set(out.timeline[out.timeline.worker == 6].stream.tolist()) == {"send to server 0", "send to server 1"}
    assert "send up" in out.timeline[out.timeline.worker == 5].stream.tolist()


@settings(max_examples=25, deadline=None)
@given(
    seconds=st.lists(st.sampled_from([0.5, 1.0, 1.7, 4.0]), min_size=3, max_size=5),
    steps=st.integers(1, 25),
    local=st.integers(1, 2),
    groups=st.integers(1, 3),
    buffer_size=st.integers(1, 3),
    synchronous=st.booleans(),
    every=st.integers(1, 3),
)
def test_what_holds_in_all_cases(
    seconds: list[float], steps: int, local: int, groups: int, buffer_size: int, synchronous: bool, every: int
) -> None:
    """All steps are made and sent up in the end, whatever was on its way when they ran out."""
    workers = len(seconds)
    sizes = tuple(len(range(s, workers, groups)) for s in range(groups))
    buffer_size = min(buffer_size, *sizes, workers) if synchronous else buffer_size
    served = ServerSettings(
        workers, steps, [local] * workers, buffer_size, synchronous, 3e8, 1e8, hierarchy=UpperServer(sizes, every)
    )
    out = played(served, lambda m, _: seconds[m], Link(latency_s=0.01, bandwidth_bytes_per_s=1e9))
    columns = out.columns()
    assert columns["steps"].sum() == len(out.step_end_s) == steps
    assert all(one.merged_s >= one.arrived_s >= one.sent_s and one.age >= 0 for one in out.merges)
    assert [one.version for one in out.merges] == list(range(1, len(out.merges) + 1))
    assert sum(one.versions for one in out.merges) <= out.versions
    # What is not sent up was made while the local server's last was on its way.
    for s in range(groups):
        own = [one for one in out.merges if one.server == s]
        of = [m for m in range(workers) if sum(sizes[:s]) <= m < sum(sizes[: s + 1])]
        came = [one.arrived_s for one in out.contributions if one.worker in of]
        assert not came or own[-1].merged_s >= max(came) - 1e-12


@pytest.mark.parametrize(
    ("hierarchy", "line"),
    [
        (((2, 0), 1), r"groups: got \(2, 0\)"),
        (((2, 2), 0), "merge_period: got 0"),
        (((1, 2), 1), "hierarchy.groups: got"),
    ],
)
def test_what_cannot_be(hierarchy: tuple[tuple[int, ...], int], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        ServerSettings(4, 4, [1] * 4, hierarchy=UpperServer(*hierarchy))
