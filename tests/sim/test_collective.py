"""One collective: events, lockstep and the closed form agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, collective_s
from syncline.errors import SpecError, SynclineError
from syncline.sim import Collective, collective_finish_s, run_events
from tests.sim.strategies import EVERY_ALGORITHM, algorithms, links

RTOL = 1e-9
GIB = 2.0**30
LINK = Link(10.0, 1.0)


def is_exact(kind, workers):
    """Whether the closed form is exact; else an upper bound: the gather's last subtree is smaller."""
    return kind != "gather" or workers & (workers - 1) == 0


def assert_takes(finish_s, kind, workers, closed_form_s):
    if is_exact(kind, workers):
        np.testing.assert_allclose(finish_s.max(), closed_form_s, rtol=RTOL)
    else:
        assert closed_form_s / 2 * (1 - RTOL) <= finish_s.max() <= closed_form_s * (1 + RTOL)


@settings(deadline=None)
@given(algorithms, st.integers(2, 64), st.floats(4.0, GIB), links)
def test_workers_that_start_together_take_what_the_closed_form_says(of, workers, nbytes, link):
    kind, algorithm = of
    closed_form_s = collective_s(kind, workers, nbytes, link, algorithm)
    by_lockstep = collective_finish_s(kind, workers, nbytes, link, algorithm)
    assert_takes(by_lockstep, kind, workers, closed_form_s)
    by_events = collective_finish_s(kind, workers, nbytes, link, algorithm, by="events")
    np.testing.assert_allclose(by_events, by_lockstep, rtol=RTOL)


@pytest.mark.parametrize(
    "link", [Link(2e-6, 12.5e9), Link(25e-3, 125e6), Link(0.0, 1e9)], ids=["ib", "wan", "no alpha"]
)
@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_every_number_of_workers(kind, algorithm, link):
    for workers in range(1, 65):
        for nbytes in (4.0, 1e6, GIB):
            finish_s = collective_finish_s(kind, workers, nbytes, link, algorithm)
            assert_takes(finish_s, kind, workers, collective_s(kind, workers, nbytes, link, algorithm))


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
        collective_finish_s(*given_to, by="events"), collective_finish_s(*given_to, by="lockstep"), rtol=RTOL
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
    with pytest.raises(SynclineError, match="expected the same kind, size and algorithm"):
        run_events(programs, LINK)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"by": "event"}, "by: got 'event'.*did you mean 'events'"),
        ({"kind": "allreduce"}, "did you mean 'all_reduce'"),
        ({"algorithm": "rings"}, "did you mean 'ring'"),
        ({"workers": 0}, "workers: got 0"),
        ({"nbytes": -1.0}, "nbytes: got -1"),
        ({"link": [LINK] * 3}, "links: got 3"),
        ({"starts_s": [0.0, 1.0]}, "starts_s"),
    ],
)
@pytest.mark.parametrize("by", ["lockstep", "events"])
def test_arguments_that_cannot_be(changed, line, by):
    arguments = {"kind": "all_reduce", "workers": 4, "nbytes": 8.0, "link": LINK, "by": by}
    with pytest.raises(SpecError, match=line):
        collective_finish_s(**(arguments | changed))
