"""Pipelines played from arrays have the history of the general events, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.acceleration import Kernels
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.software_costs import NcclCosts
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SynclineError
from syncline.sim import run_events
from syncline.sim.pipelines import run as module
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.report import report
from syncline.sim.pipelines.run import array_timeline, pipeline_programs, run_pipeline
from syncline.sim.pipelines.schedules import PipelineTask, schedule
from tests.sim.pipelines.schedules import NAMES, chunks_of, made_of

LINK = Link(0.1, 1e3)


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    """However little there is to do."""
    pytest.importorskip("syncline.sim.pipelines.compiled")
    monkeypatch.setattr(module, "KERNELS", Kernels("syncline.sim.pipelines.compiled", break_even_units=0))


def assert_same(one, other):
    for (name, column), values in zip(one.to_columns().items(), other.to_columns().values(), strict=True):
        assert column.dtype.kind == values.dtype.kind
        assert column.tolist() == values.tolist(), name


times = st.sampled_from([0.0, 0.1, 0.25, 1.0, 1.0, 2.0, 3.7])
rates = st.sampled_from([0.7, 1.0, 2.0, 3.0, 1e15])
links = st.builds(
    Link,
    times,
    rates,
    overhead_s=st.sampled_from([0.0, 0.0, 0.25]),
    upload_bytes_per_s=st.none() | rates,
    nccl=st.none() | st.builds(NcclCosts, buffer_bytes=st.sampled_from([0.25, 0.75, 1.5, 8.0])),
)


@st.composite
def pipelines(draw):
    """Any schedule; times that meet at one instant, or do not; links that messages share, or not."""
    name, stages, groups = draw(st.sampled_from(NAMES)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    microbatches = stages * groups
    limit = draw(st.integers(1, 7)) if name == "greedy" and draw(st.booleans()) else None
    made = made_of(name, stages, microbatches, max_in_flight=limit)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shape = (3, stages, microbatches)
    seconds = draw(st.sampled_from([np.ones(shape), rng.integers(0, 4, shape) / 2, rng.uniform(0.1, 3.0, shape)]))
    network = draw(links | st.lists(links, min_size=stages, max_size=stages))
    return Pipeline(made, stages, Durations(*seconds), draw(st.sampled_from([0.0, 1.0, 2.5, 3.0]))), network


@settings(deadline=None, max_examples=200)
@given(pipelines())
def test_it_is_the_history_of_the_events(pipeline):
    of, network = pipeline
    timeline = array_timeline(of, network)
    assert timeline is not None
    assert_same(timeline, run_events(pipeline_programs(of), network))


def test_two_messages_share_a_way_in():
    """Stage 2 of 3 gets two activations of 4 bytes at 1 byte per second: forward from 4 s on, backward from 6 s."""
    of = Pipeline(schedule("1f1b", 3, 3), 3, Durations([[4.0], [0.5], [0.5]], 0.5), activation_bytes=4.0)
    timeline = array_timeline(of, Link(0.0, 1.0))
    assert timeline is not None
    sends = timeline[timeline.what == "send"]
    assert sends.duration_s.max() > 4.0  # some message had half of the way for a while
    assert_same(timeline, run_events(pipeline_programs(of), Link(0.0, 1.0)))


def test_orders_that_are_lists_of_tasks():
    turns = [PipelineTask(kind, i) for i in range(3) for kind in ("forward", "backward")]
    made = schedule("gpipe", 2, 3)._replace(orders=[turns, turns])
    of = Pipeline(made, 2, Durations(), 3.0)
    timeline = array_timeline(of, LINK)
    assert timeline is not None
    assert_same(timeline, run_events(pipeline_programs(of), LINK))


@pytest.mark.parametrize(
    "of, network",
    [
        (Pipeline(schedule("gpipe", 4, 2), 4, Durations()), TwoLevel(2, LINK, LINK)),
        (Pipeline(schedule("gpipe", 4, 2), 4, Durations()), Link(0.1, 1e3, duplex="half")),
        (Pipeline(schedule("gpipe", 4, 2), 4, Durations(), replicas=2), LINK),
        (Pipeline(schedule("gpipe", 4, 2), 4, Durations(), effects=lambda stage, task: None), LINK),
    ],
    ids=["another network", "half duplex", "replicas", "effects"],
)
def test_all_else_is_left_to_the_events(of, network):
    assert array_timeline(of, network) is None
    assert run_pipeline(of, network).makespan_s > 0


def test_what_waits_for_ever_is_told_by_the_events():
    f, b = ([PipelineTask(kind, i) for i in range(2)] for kind in ("forward", "backward"))
    of = Pipeline(schedule("gpipe", 2, 2)._replace(orders=[[f[0], b[0], f[1], b[1]], [*f, *b]]), 2, Durations())
    assert array_timeline(of, LINK) is None
    with pytest.raises(SynclineError, match="stage 1 never runs backward 1: it waits for stage 2"):
        run_pipeline(of, LINK)


def test_little_work_is_left_to_the_events(monkeypatch):
    monkeypatch.setattr(module, "KERNELS", Kernels("syncline.sim.pipelines.compiled", break_even_units=100))
    of = Pipeline(schedule("gpipe", 2, 3), 2, Durations())
    made = [array_timeline(of, LINK) for _ in range(5)]  # 24 tasks and messages at most each time
    assert [timeline is not None for timeline in made] == [False] * 4 + [True]


@pytest.mark.parametrize("name", NAMES)
def test_many_microbatches(name):
    """64 stages with 1,024 micro-batches: each task once, after its input."""
    made = schedule(name, 64, 1024, chunks_of(name))
    timeline = run_pipeline(Pipeline(made, 64, Durations(1.0, 1.0, 1.0), 1.0), LINK)
    kinds = len(made.kinds)
    assert timeline.computes.sum() == 64 * 1024 * made.chunks * kinds
    told = report(timeline, made, 64)
    assert 0 < told.bubble < 1 and len(told.stages) == 64
