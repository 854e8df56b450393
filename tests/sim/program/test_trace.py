from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.sim import Collective, Compute, Recv, Send, Wait, chrome_trace, run_events, run_lockstep
from tests.sim.strategies import trainings


def slices_by_thread(trace):
    threads = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    return threads


def test_a_trace_in_full():
    join = Collective("all_gather", 5.0, "g", "gradient", step=3)
    timeline = run_events([[join, Compute(2.0, "forward", step=3), Wait("g")], [join]], Link(10.0, 1.0))
    trace = json.loads(json.dumps(chrome_trace(timeline, ["left", "right"])))
    named = [(e["name"], e["pid"], e["tid"], *e["args"].values()) for e in trace["traceEvents"] if e["ph"] == "M"]
    assert named == [
        ("process_name", 1, 0, "left"),
        ("process_sort_index", 1, 0, 0),
        ("thread_name", 1, 1, "compute"),
        ("thread_sort_index", 1, 1, 0),
        ("thread_name", 1, 2, "network"),
        ("thread_sort_index", 1, 2, 1),
        ("process_name", 2, 0, "right"),
        ("process_sort_index", 2, 0, 1),
        ("thread_name", 2, 2, "network"),
        ("thread_sort_index", 2, 2, 1),
    ]
    sliced = [
        (e["name"], e["cat"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"
    ]
    assert sliced == [
        ("forward", "compute", 1, 1, 0.0, 2e6),
        ("gradient", "wait", 1, 1, 2e6, 13e6),
        ("gradient", "all_gather", 1, 2, 0.0, 15e6),
        ("gradient", "all_gather", 2, 2, 0.0, 15e6),
    ]
    assert trace["traceEvents"][-1]["args"] == {"step": 3, "bytes": 5.0}


def test_every_event_has_what_a_viewer_needs():
    timeline = run_events([[Send(1, 5.0)], [Recv(0), Compute(1e-12)]], Link(10.0, 1.0))
    events = chrome_trace(timeline)["traceEvents"]
    assert all({"ph", "name", "cat", "ts", "pid", "tid", "args"} <= set(event) for event in events)
    assert [event["cat"] for event in events if event["ph"] == "X"] == ["send", "recv"]  # not what is under 1 ns
    assert all(event["tid"] > 0 and event["dur"] > 0 for event in events if event["ph"] == "X")


def test_a_wrong_number_of_names():
    with pytest.raises(SpecError, match="names: got \\['left'\\]; expected a name for each of the 2 workers"):
        chrome_trace(run_events([[], []], Link(10.0, 1.0)), ["left"])


@settings(deadline=None)
@given(trainings(max_workers=6))
def test_the_slices_of_a_thread_do_not_overlap(training):
    for events in slices_by_thread(chrome_trace(run_lockstep(*training))).values():
        start = np.rint(np.array([event["ts"] for event in events]) * 1000)
        end = start + np.rint(np.array([event["dur"] for event in events]) * 1000)
        assert np.all(start[1:] >= end[:-1])
