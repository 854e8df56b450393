"""Windows that open after idling: the closed form, lockstep and the events on one clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Exchange, GlooCosts, Link, NcclCosts, Tcp, mean_step
from syncline.costmodel.collectives.tcp_slow_start import collective_opening_s
from syncline.costmodel.traffic.exchanges import calls_of_exchanges
from syncline.sim import Call, clock, collective_finish_s

FAR = Link(25e-3, 125e6, tcp=Tcp(window_bytes=8 * 2**20))


@given(
    st.sampled_from([{}, {"nccl": NcclCosts()}, {"gloo": GlooCosts()}]),
    st.sampled_from([1e-3, 25e-3, 0.1]),
    st.integers(3, 5),
    st.sampled_from([0.0, 0.01, 0.1, 0.4, 1.7]),
    st.integers(1, 4),
    st.sampled_from(["none", "async"]),
)
def test_closed_form_lockstep_and_events_are_one(known, latency_s, workers, compute_s, period, overlap):
    link = Link(latency_s, 125e6, tcp=Tcp(connections=workers - 2), **known)
    exchanges = [Exchange(4.0 * 2**19 * workers, period=period), Exchange(1e6, collective="all_gather", period=3)]
    told = mean_step(compute_s, exchanges, 12, workers, link, overlap=overlap)
    calls = [call for step in range(12) for call in calls_of_exchanges([e for e in exchanges if e.is_due(step)], step)]
    for by in ("lockstep", "events"):
        played = clock(calls, compute_s, link, workers, 12, overlap=overlap, evaluator=by)
        # The last steps' calls are waited for by nobody, in no evaluator.
        assert played.step_end_s[-1] == pytest.approx(12 * told.step_time_s, rel=1e-9)
        assert played.communication_s == pytest.approx(float(told.communication_s), rel=1e-9)


def test_unequal_workers_pay_by_their_own_idling():
    """Workers compute for different times, and wait: who is late has been idle for longer."""
    links = [FAR, replace(FAR, latency_s=5e-3), replace(FAR, bandwidth_bytes_per_s=5e7)]
    compute_s = np.random.default_rng(0).uniform(0.05, 0.9, (10, 3))
    calls = [Call(step, "all_reduce", 2e6) for step in range(10)] + [Call(9, "all_gather", 1e6, group=(0, 2))]
    for rule in ("eager", "rendezvous"):
        both = [clock(calls, compute_s, links, 3, 10, evaluator=by, rule=rule) for by in ("lockstep", "events")]
        np.testing.assert_allclose(*(each.step_end_s for each in both), rtol=1e-9)
        bare = clock(calls, compute_s, [replace(link, tcp=None) for link in links], 3, 10, rule=rule)
        assert both[0].wall_s > bare.wall_s + 0.1


@pytest.mark.parametrize("by", ["lockstep", "events"])
def test_what_computes_for_long_pays_and_what_is_alone_does_not(by):
    call, opening_s = Call(0, "all_reduce", 3e6), collective_opening_s("all_reduce", 4, 3e6, FAR, "ring", 2.0)
    bare = replace(FAR, tcp=None)
    warm_s = clock([call], 2.0, bare, 4, 1, evaluator=by).wall_s
    assert clock([call], 2.0, FAR, 4, 1, evaluator=by).wall_s == pytest.approx(warm_s + float(opening_s))
    assert clock([call], 2.0, FAR, 4, 1, starts_s=5.0, evaluator=by).wall_s == pytest.approx(
        5 + warm_s + float(opening_s)
    )
    told = [
        collective_finish_s("all_reduce", 4, 3e6, link, starts_s=[0, 9, 0, 0], evaluator=by).max()
        for link in (FAR, bare)
    ]
    assert told[0] == told[1]
