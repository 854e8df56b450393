"""One collective: events, lockstep and the closed form agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, collective_s
from syncline.costmodel.collectives.cost import closed_form_s
from syncline.costmodel.collectives.table import HIERARCHICAL
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError, SynclineError
from syncline.sim import Collective, Round, collective_finish_s, run_events
from syncline.sim.clocks.single_collective import rounds_finish_s
from syncline.sim.lockstep.routed import Contention
from tests.sim.strategies import EVERY_ALGORITHM, algorithms, any_links, collectives_anywhere, links, rules

RTOL = 1e-9
GIB = 2.0**30
LINK = Link(10.0, 1.0)


@settings(deadline=None)
@given(algorithms, st.integers(2, 64), st.floats(4.0, GIB), any_links(), rules)
def test_workers_that_start_together_take_what_the_closed_form_says(of, workers, nbytes, link, rule):
    kind, algorithm = of
    takes_s = closed_form_s(kind, workers, nbytes, link, algorithm, rule)
    assume(takes_s is not None)  # some algorithms on half-duplex links
    by_lockstep = collective_finish_s(kind, workers, nbytes, link, algorithm, rule=rule)
    np.testing.assert_allclose(by_lockstep.max(), takes_s, rtol=RTOL)


@settings(deadline=None, max_examples=60)
@given(algorithms, st.integers(2, 64), st.floats(4.0, GIB), links, rules)
def test_so_say_the_events(of, workers, nbytes, link, rule):
    kind, algorithm = of
    by_lockstep, by_events = (
        collective_finish_s(kind, workers, nbytes, link, algorithm, evaluator=by, rule=rule)
        for by in ("lockstep", "events")
    )
    np.testing.assert_allclose(by_events, by_lockstep, rtol=RTOL)
    np.testing.assert_allclose(
        by_events.max(), collective_s(kind, workers, nbytes, link, algorithm, rule=rule), rtol=RTOL
    )


@pytest.mark.parametrize(
    "link", [Link(2e-6, 12.5e9), Link(25e-3, 125e6), Link(0.0, 1e9)], ids=["ib", "wan", "no alpha"]
)
@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_numbers_of_workers(kind, algorithm, link):
    """All small ones, and those around powers of two."""
    for workers in (*range(1, 18), 31, 32, 33, 63, 64):
        for nbytes in (4.0, GIB):
            finish_s = collective_finish_s(kind, workers, nbytes, link, algorithm)
            takes_s = collective_s(kind, workers, nbytes, link, algorithm)
            np.testing.assert_allclose(finish_s.max(), takes_s, rtol=RTOL)


@settings(deadline=None, max_examples=200)
@given(collectives_anywhere(), rules)
def test_where_lockstep_answers_the_events_answer_the_same(of, rule):
    try:
        by_lockstep = collective_finish_s(*of, evaluator="lockstep", rule=rule)
    except Contention:
        assume(False)
    np.testing.assert_allclose(collective_finish_s(*of, evaluator="events", rule=rule), by_lockstep, rtol=RTOL)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 8), st.integers(2, 8), st.integers(1, 8), st.floats(4.0, GIB), rules, st.data())
def test_hierarchical_all_reduces_take_what_the_closed_form_says(group, nodes, nics, nbytes, rule, data):
    network = TwoLevel(group, Link(2e-6, 450e9), Link(5e-6, 12.5e9, overhead_s=1e-6), min(nics, group))
    algorithm = data.draw(st.sampled_from(HIERARCHICAL["all_reduce"]))
    assume(group > 1)
    workers = group * nodes
    by_lockstep = collective_finish_s("all_reduce", workers, nbytes, network, algorithm, rule=rule)
    takes_s = collective_s("all_reduce", workers, nbytes, network, algorithm, rule=rule)
    if group % min(nics, group) == 0:  # else cards carry different numbers of workers
        np.testing.assert_allclose(by_lockstep.max(), takes_s, rtol=RTOL)
    by_events = collective_finish_s("all_reduce", workers, nbytes, network, algorithm, evaluator="events", rule=rule)
    np.testing.assert_allclose(by_events, by_lockstep, rtol=RTOL)


def test_auto_takes_the_events_where_lockstep_cannot_follow():
    # Two sites of two, 4 bytes at once in both directions; worker 1 is a second late. Worker 0's 4 bytes have the
    # uplink for themselves for a second; then both share it: 0 has 3 left, which takes 6 s, until 7; 1 has then 1 left.
    sites = Sites((2, 2), Link(0.0, 1e9), Link(0.0, 1.0))
    of = [Round(np.array([0, 1, 2, 3]), np.array([2, 3, 0, 1]), 4.0)]
    late = [0.0, 1.0, 0.0, 1.0]
    finish_s = rounds_finish_s(of, 4, sites, late)
    np.testing.assert_allclose(finish_s, [7.0, 8.0, 7.0, 8.0])
    with pytest.raises(Contention, match="share a channel"):
        rounds_finish_s(of, 4, sites, late, evaluator="lockstep")
    np.testing.assert_allclose(rounds_finish_s(of, 4, sites, evaluator="lockstep"), [8.0] * 4)


def test_a_worker_that_sends_twice_in_a_round_is_left_to_the_events():
    of = [Round(np.array([0, 0]), np.array([1, 2]), 4.0)]
    with pytest.raises(Contention, match="twice"):
        rounds_finish_s(of, 3, LINK, evaluator="lockstep")
    assert rounds_finish_s(of, 3, LINK).tolist() == [8.0, 14.0, 18.0]


def test_a_worker_without_messages_is_done_when_it_enters():
    of = [Round(np.array([0]), np.array([1]), 4.0)]
    for by in ("lockstep", "events"):
        assert rounds_finish_s(of, 3, LINK, [0.0, 0.0, 5.0], evaluator=by).tolist() == [4.0, 14.0, 5.0]


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "rabenseifner"])
def test_among_a_power_of_two_all_end_at_once(algorithm):
    finish_s = collective_finish_s("all_reduce", 16, 1e6, Link(25e-3, 125e6), algorithm)
    np.testing.assert_allclose(finish_s, finish_s[0], rtol=RTOL)


@settings(deadline=None)
@given(algorithms, st.integers(1, 24), st.floats(0.0, 1e8), st.randoms(use_true_random=False), st.booleans())
def test_lockstep_and_events_agree_for_any_starts_and_links(of, workers, nbytes, random, equal):
    kind, algorithm = of
    each = [Link(random.uniform(0.0, 0.1), 10 ** random.uniform(6, 11)) for _ in range(workers)]
    starts_s = [random.uniform(0.0, 1.0) for _ in range(workers)]
    given_to = kind, workers, nbytes, each[0] if equal else each, algorithm, starts_s
    np.testing.assert_allclose(
        collective_finish_s(*given_to, evaluator="events"),
        collective_finish_s(*given_to, evaluator="lockstep"),
        rtol=RTOL,
    )


@given(algorithms, st.integers(1, 32), st.integers(0, 31), st.floats(0.0, 1.0))
def test_a_late_worker_makes_nobody_earlier_and_nobody_later_than_the_delay(of, workers, late, delay_s):
    kind, algorithm = of
    on_time = collective_finish_s(kind, workers, 1e6, Link(25e-3, 125e6), algorithm)
    starts_s = np.where(np.arange(workers) == late % workers, delay_s, 0.0)
    delayed = collective_finish_s(kind, workers, 1e6, Link(25e-3, 125e6), algorithm, starts_s)
    assert np.all(delayed >= on_time * (1 - RTOL)) and np.all(delayed <= (on_time + delay_s) * (1 + RTOL))


def test_an_early_partner_is_not_waited_for():
    # Worker 0's partners have sent by the time it comes; it is done when its own two messages of 4 s have left. The
    # first reaches worker 1 at 114, and what that sends on worker 3 at 128; the second reaches worker 2 at 118.
    finish_s = collective_finish_s("all_reduce", 4, 4.0, LINK, "recursive-doubling", [100.0, 0.0, 0.0, 0.0])
    assert finish_s.tolist() == [108.0, 118.0, 118.0, 128.0]


def test_all_workers_must_name_the_same_algorithm():
    programs = [[Collective("all_reduce", 8.0, "g", algorithm=name)] for name in ("ring", "tree")]
    with pytest.raises(SynclineError, match=r"worker 1 joins .* expected the same"):
        run_events(programs, LINK)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"evaluator": "event"}, "evaluator: got 'event'.*did you mean 'events'"),
        ({"kind": "allreduce"}, "did you mean 'all_reduce'"),
        ({"algorithm": "rings"}, "did you mean 'ring'"),
        ({"workers": 0}, "workers: got 0"),
        ({"nbytes": -1.0}, "nbytes: got -1"),
        ({"network": [LINK] * 3}, "links: got 3"),
        ({"starts_s": [0.0, 1.0]}, "starts_s"),
        ({"rule": "rendez-vous"}, "rule: got 'rendez-vous'.*did you mean 'rendezvous'"),
    ],
)
@pytest.mark.parametrize("by", ["lockstep", "events"])
def test_arguments_that_cannot_be(changed, line, by):
    arguments = {"kind": "all_reduce", "workers": 4, "nbytes": 8.0, "network": LINK, "evaluator": by}
    with pytest.raises(SpecError, match=line):
        collective_finish_s(**(arguments | changed))
