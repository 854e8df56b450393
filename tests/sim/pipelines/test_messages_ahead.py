"""Messages of NCCL on lines that are always busy: the rule, written down once more, and published times."""

from __future__ import annotations

import csv
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.software_costs import NcclCosts, messages_ahead
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import schedule
from tests.reference import REFERENCE, needs_reference

STAGES = 8
MESSAGE_BYTES = 2 * 2048 * 2048.0
"""Bytes of the activations of one sequence of 2,048 tokens, 2,048 wide, in fp16."""


def arrivals_s(ready_s, message_s, latency_s, ahead):
    """Return when messages of a line arrive that are ready at these times, in order."""
    left_s, at = [], 0.0
    for ready in ready_s:
        at = max(at, ready) + message_s
        left_s.append(at)
    arrived_s = []
    for i in range(len(left_s)):
        last = i
        while last < min(i + ahead, len(left_s) - 1) and ready_s[last + 1] <= left_s[last]:
            last += 1
        arrived_s.append(left_s[last] + latency_s)
    return arrived_s


def flush_s(stages, microbatches, forward_s, backward_s, message_s, latency_s, ahead):
    """Return the seconds of a flush of GPipe, stage by stage."""
    free_s = [0.0] * stages
    for seconds, order in ((forward_s, range(stages)), (backward_s, reversed(range(stages)))):
        inputs_s = [0.0] * microbatches
        for stage in order:
            outputs_s = []
            for input_s in inputs_s:
                free_s[stage] = max(free_s[stage], input_s) + seconds
                outputs_s.append(free_s[stage])
            inputs_s = arrivals_s(outputs_s, message_s, latency_s, ahead)
    return free_s[0]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 5),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
    st.floats(1.1, 3.0),
    st.floats(0.1, 5.0),
    st.floats(0.0, 2.0),
    st.sampled_from([0.2, 0.3, 0.6]),
)
def test_a_flush_is_that_of_the_rule(stages, microbatches, forward_s, backward_s, message_s, latency_s, buffer_bytes):
    forward_s, message_s = (
        forward_s * 2**0.5,
        message_s * 3**0.5,
    )  # no message is ready as another leaves
    link = Link(latency_s, 1.0 / message_s, nccl=NcclCosts(buffer_bytes=buffer_bytes))
    pipeline = Pipeline(
        schedule("gpipe", stages, microbatches), stages, Durations(forward_s, backward_s), activation_bytes=1.0
    )
    ahead = messages_ahead(topology(link, stages), 1.0)
    assert ahead == {0.2: 0, 0.3: 1, 0.6: 2}[buffer_bytes]
    expected_s = flush_s(stages, microbatches, forward_s, backward_s, message_s, latency_s, ahead)
    assert run_pipeline(pipeline, link).makespan_s == pytest.approx(expected_s, rel=1e-12)


def test_throughput_stays_and_the_fill_takes_two_messages_more_a_hop():
    """Lines bind: each hop's first message arrives two messages later, and so does the end."""
    timelines = {}
    for costs in (None, NcclCosts(buffer_bytes=1.0)):
        pipeline = Pipeline(schedule("gpipe", 4, 100), 4, Durations(0.01, 0.02), activation_bytes=1.0)
        timelines[costs is None] = run_pipeline(pipeline, Link(0.0, 1.0, nccl=costs)).makespan_s
    # the last hop of a direction takes no longer: all its messages have left by then
    assert timelines[False] - timelines[True] == pytest.approx(2 * 2 * 2, rel=0.1)


def one_pipeline_rows(path):
    """Return (bytes per second, seconds one way, measured seconds) by the number of micro-batches."""
    rows = defaultdict(list)
    with (path / "wan" / "rows.csv").open() as file:
        for row in csv.DictReader(file):
            if row["id"].startswith(("dfm-1pipe", "dfm-pp8-SinglePipeline")) and "24" in row["layers"]:
                rate = 10.0 if row["link_gbit_s"] == "up to 10" else float(row["link_gbit_s"])
                microbatches = int(row["batch_per_worker_tokens"]) // 2048
                rows[microbatches].append((rate / 8 * 1e9, float(row["rtt_ms"]) / 2e3, float(row["value"])))
    return rows


def flush_of_link_s(microbatches, forward_s, rate, latency_s, costs):
    """Return the seconds of a flush in which a backward pass computes the forward pass again."""
    durations = Durations(forward_s, 3 * forward_s)
    pipeline = Pipeline(schedule("gpipe", STAGES, microbatches), STAGES, durations, activation_bytes=MESSAGE_BYTES)
    return run_pipeline(pipeline, Link(latency_s, rate, nccl=costs)).makespan_s


@needs_reference
def test_published_flushes_on_shaped_lines():
    """Computing comes from the row on unshaped lines of the same number of micro-batches; nothing else is fitted."""
    errors = {None: [], NcclCosts(): []}
    for microbatches, rows in one_pipeline_rows(REFERENCE).items():
        for costs, found in errors.items():
            unshaped = [seconds for rate, _, seconds in rows if rate == 10e9 / 8]

            def excess_s(forward_s, microbatches=microbatches, costs=costs, unshaped=unshaped):
                return flush_of_link_s(microbatches, forward_s, 10e9 / 8, 5e-5, costs) - np.mean(unshaped)

            forward_s = brentq(excess_s, 1e-3, 0.1, xtol=1e-5)
            found += [
                flush_of_link_s(microbatches, forward_s, rate, latency_s, costs) / seconds - 1
                for rate, latency_s, seconds in rows
                if rate < 10e9 / 8
            ]
    without, with_costs = (np.abs(found) for found in errors.values())
    assert len(with_costs) == 20
    assert np.median(without) > 0.08 and np.median(with_costs) < 0.03
    assert np.mean(with_costs < 0.1) >= 0.9 and np.max(with_costs) < 0.2  # 32 micro-batches over 50 ms
