"""What gloo runs, message by message: the events, lockstep, and the closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import GLOO, Link, Sites, collective_s, wire_bytes
from syncline.costmodel.collectives.gloo import gloo_s
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.sim import Call, clock, collective_finish_s, rounds
from syncline.sim.events.run import run_events
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.instructions import Collective
from syncline.sim.program.rounds import sent_bytes
from tests.costmodel.collectives.gloo.shaped import SHAPED

RINGS = ("all_reduce", "reduce_scatter", "all_gather")
SLOW = Link(1.0, 1.0)

links = st.builds(Link, st.floats(1e-4, 0.1), st.floats(1e5, 1e9), overhead_s=st.sampled_from([0.0, 1e-4]))


def finish_s(kind, workers, nbytes, network, starts_s=None, by="events"):
    return collective_finish_s(kind, workers, nbytes, network, GLOO[kind], starts_s, by)


@given(st.sampled_from(sorted(GLOO)), st.sampled_from([1, 2, 3, 4, 5, 8]), st.integers(1, 2**21), links)
def test_the_events_take_the_closed_form_s_time(kind, workers, elements, link):
    # So many elements that segments are full, or nearly: the closed form counts what is left of a ring by latencies.
    nbytes = 4.0 * elements * (2 * workers if kind in RINGS else 1)
    seconds = float(collective_s(kind, workers, nbytes, link, GLOO[kind]))
    told = finish_s(kind, workers, nbytes, link).max()
    assert told == pytest.approx(seconds, rel=1e-3 if kind in RINGS else 1e-9)
    if kind in RINGS:
        np.testing.assert_allclose(finish_s(kind, workers, nbytes, link, by="lockstep").max(), told, rtol=1e-9)


@given(st.sampled_from(sorted(GLOO)), st.integers(2, 8), st.integers(0, 2**21), links, st.floats(0.05, 1.5))
def test_a_connection_limits_its_messages_as_in_the_closed_form(kind, workers, elements, link, part):
    """The limit counts headers, as the link's bandwidth does, whose payload is 0.9 of it."""
    open_windows = Tcp(window_bytes=math.inf, slow_start=False, flow_bytes_per_s=part * link.bandwidth_bytes_per_s)
    limited = replace(link, efficiency=0.9, gloo=GlooCosts(connection=open_windows))
    nbytes = 4.0 * elements * (2 * workers if kind in RINGS else 1)
    seconds = float(collective_s(kind, workers, nbytes, limited, GLOO[kind]))
    told = finish_s(kind, workers, nbytes, limited).max()
    assert told == pytest.approx(seconds, rel=1e-3 if kind in RINGS else 1e-9)
    if kind in RINGS and workers > 2:
        assert finish_s(kind, workers, nbytes, limited, by="lockstep").max() == pytest.approx(told, rel=1e-9)


@given(st.integers(2, 9), st.integers(1, 40))
def test_short_tensors_pay_the_latencies_that_are_told(workers, elements):
    far = Link(1.0, 1e15)
    told = finish_s("all_reduce", workers, 4.0 * elements, far)
    assert told.max() == pytest.approx(float(collective_s("all_reduce", workers, 4.0 * elements, far, "gloo-ring")))


@given(st.sampled_from(RINGS), st.integers(3, 6), st.integers(1, 10**6), st.integers(0, 2**31))
def test_lockstep_is_the_events_of_unequal_workers(kind, workers, elements, seed):
    draw = np.random.default_rng(seed)
    unequal = [Link(*draw.uniform([1e-4, 1e6], [1e-2, 1e8])) for _ in range(workers)]
    starts_s = draw.uniform(0, 0.1, workers)
    told = finish_s(kind, workers, 4.0 * elements, unequal, starts_s, "lockstep")
    np.testing.assert_allclose(told, finish_s(kind, workers, 4.0 * elements, unequal, starts_s), rtol=1e-9)


def test_a_late_receiver_holds_its_sender_up():
    """Eager, a message of 8 bytes would be there at 10 when its receiver comes; here it asks for it first."""
    assert finish_s("broadcast", 2, 8.0, SLOW, [0.0, 10.0]).tolist() == [19.0, 20.0]
    assert collective_finish_s("broadcast", 2, 8.0, SLOW, "binomial", [0.0, 10.0]).tolist() == [8.0, 10.0]


def test_a_clear_to_send_waits_behind_data_on_a_connection():
    # Worker 1 enters an all-to-all at 3, issues its 4 bytes (it was told at 1 that it may), which leave until 7, and
    # only then its clear-to-send, which is there at 8: worker 0's leave until 12 and are there at 13.
    assert finish_s("all_to_all", 2, 8.0, SLOW, [0.0, 3.0]).tolist() == [12.0, 13.0]
    # In an all-reduce of one segment it sends its 4 bytes from 3 to 7; worker 0, asked at 7, answers from 8 to 12.
    assert finish_s("all_reduce", 2, 4.0, SLOW, [0.0, 3.0]).tolist() == [12.0, 13.0]


MEASURED_MS = {  # of 1,047,552 bytes at 100 Mbit/s, 5 ms one way: common starts, and with the last worker 20 ms late
    ("all_to_all", 2): (53.3, 95.2),
    ("all_to_all", 3): (67.9, 95.3),
    ("all_to_all", 4): (75.8, 116.2),
    ("all_gather", 2): (53.7, 74.8),
    ("all_gather", 3): (68.1, 67.4),
    ("all_gather", 4): (75.4, 74.6),
    ("all_reduce", 2): (105.8, 105.6),
    ("all_reduce", 3): (134.3, 133.8),
    ("all_reduce", 4): (148.7, 147.9),
}


@pytest.mark.parametrize(("kind", "workers"), MEASURED_MS)
def test_a_late_worker_costs_what_it_costs_on_real_links(kind, workers):
    """Medians of four between network namespaces (benchmarks/shaped), torch 2.13; from the last start on."""
    line = Link(5e-3, 12.5e6, efficiency=8948 / 9000)
    nbytes = 1_047_552 / (workers if kind == "all_gather" else 1)
    for late_s, measured in zip((0.0, 0.02), MEASURED_MS[kind, workers], strict=True):
        starts_s = [0.0] * (workers - 1) + [late_s]
        told = collective_finish_s(kind, workers, nbytes, replace(line, gloo=SHAPED), GLOO[kind], starts_s, "events")
        assert told.max() - late_s == pytest.approx(1e-3 * measured, rel=0.025)


def test_what_lockstep_leaves_to_the_events():
    for kind in ("all_to_all", "broadcast", "gather"):
        with pytest.raises(Contention, match="share a link"):
            finish_s(kind, 3, 8.0, SLOW, by="lockstep")
    with pytest.raises(Contention, match="one connection"):
        finish_s("all_gather", 2, 8.0, SLOW, [0.0, 1.0], by="lockstep")
    with pytest.raises(Contention, match="one connection"):
        finish_s("all_gather", 2, 8.0, [Link(1.0, 2.0, upload_bytes_per_s=1.0), Link(1.0, 2.0)], by="lockstep")


def test_a_ring_over_two_sites():
    """One message crosses each way at a time, so lockstep follows; each waits for its clear-to-send across."""
    sites = Sites((2, 2), Link(1e-4, 1e9), Link(1e-2, 1e8))
    told = collective_finish_s("all_reduce", 4, 1e6, sites, "gloo-ring", evaluator="lockstep")
    np.testing.assert_allclose(told, collective_finish_s("all_reduce", 4, 1e6, sites, "gloo-ring", evaluator="events"))
    assert told.max() > 1.5 * collective_finish_s("all_reduce", 4, 1e6, sites, "ring").max()


@pytest.mark.parametrize("kind", GLOO)
def test_rounds_carry_the_bytes_that_are_told(kind):
    for workers in (1, 2, 5, 6):
        played = sent_bytes(rounds(kind, workers, 4e6, GLOO[kind]), workers)
        assert played.mean() == pytest.approx(float(wire_bytes(kind, workers, 4e6, GLOO[kind])))


def test_a_training_on_gloo_is_told_alike_by_lockstep_and_events():
    link, compute_s = Link(1e-3, 1e7), np.random.default_rng(0).uniform(0.01, 0.05, (6, 3))
    calls = [Call(step, kind, 1e5) for step in range(6) for kind in ("all_reduce", "all_gather")]
    both = [clock(calls, compute_s, link, 3, 6, evaluator=by, algorithm="gloo") for by in ("lockstep", "events")]
    np.testing.assert_allclose(*(each.step_end_s for each in both), rtol=1e-9)
    assert both[0].bytes_per_worker == both[1].bytes_per_worker == 2e5
    other = clock(calls, compute_s, link, 3, 6, algorithm="ring")
    assert both[0].wall_s > other.wall_s
    calls.append(Call(5, "all_to_all", 1e5))
    assert clock(calls, compute_s, link, 3, 6, algorithm="gloo").evaluator == "events"


@pytest.mark.parametrize("kind", GLOO)
def test_software_costs_are_the_closed_form_s(kind):
    costs = GlooCosts(0.1, ((2, 0.5), (8, 2.0)), ((kind, 0.01),))
    known = replace(SLOW, gloo=costs)
    for workers in (1, 2, 4):
        told = collective_finish_s(kind, workers, 64.0, known, GLOO[kind], evaluator="events")
        assert told.max() == pytest.approx(float(gloo_s(kind, workers, 64.0, SLOW, costs)))
        by_clock = clock([Call(0, kind, 64.0)], 1.0, known, workers, 1)
        assert by_clock.wall_s == pytest.approx(1 + told.max())


def test_it_takes_turns_with_other_collectives_on_a_stream():
    parts = [("all_reduce", "gloo-ring"), ("all_reduce", "ring"), ("all_to_all", "gloo-posted")]
    joins = [Collective(kind, 48.0, key, algorithm=name) for key, (kind, name) in enumerate(parts)]
    for rule in ("eager", "rendezvous"):
        timeline = run_events([joins] * 3, SLOW, rule=rule)
        alone = [float(collective_s(kind, 3, 48.0, SLOW, name)) for kind, name in parts]
        assert timeline.end_s.max() == pytest.approx(sum(alone))


def test_delays_are_asked_for_when_messages_start():
    """As `run_events` promises: worker 1's message takes 8 s to leave and worker 0's one, but it starts first."""
    asked = []
    joins = [[Collective("all_to_all", 16.0, "a", algorithm="gloo-posted")]] * 2
    slow_up = [Link(1.0, 8.0), Link(1.0, 8.0, upload_bytes_per_s=1.0)]
    run_events(joins, slow_up, delay=lambda *ends: asked.append(ends) or 0.0)
    assert asked == [(1, 0), (0, 1)]
