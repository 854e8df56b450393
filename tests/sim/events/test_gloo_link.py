"""The clock on a link that knows what gloo's software takes: without being told, as if told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from syncline.costmodel import GLOO, GlooCosts, Link, collective_s, topology
from syncline.costmodel.network.link import among
from syncline.sim import (
    Call,
    Clock,
    Collective,
    Durations,
    Pipeline,
    Wait,
    clock,
    collective_finish_s,
    phased_clock,
    run_events,
    run_pipeline,
    schedule,
)
from syncline.sim.clocks.overlap import run_lockstep
from syncline.sim.program.disturbances import SlowLink, with_slow_links
from syncline.specs import network

COSTS = GlooCosts(1e-4, ((2, 2e-4), (4, 5e-4)), (("all_reduce", 5e-11), ("all_gather", 4e-10)))
BARE = Link(1e-3, 125e6)
KNOWN = dataclasses.replace(BARE, gloo=COSTS)
WORKERS, STEPS = 4, 6
KINDS = ("all_reduce", "all_gather")
CALLS = [Call(step, KINDS[step % 2], 1e5) for step in range(STEPS)]


def varied() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.01, 0.02, (STEPS, WORKERS))


def assert_same(one: Clock, other: Clock) -> None:
    for field in dataclasses.fields(Clock):
        if field.name != "timeline":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


@pytest.mark.parametrize("evaluator", ["events", "lockstep"])
@pytest.mark.parametrize("overlap", ["none", "async"])
def test_a_clock_takes_the_links_algorithms_and_costs(evaluator: str, overlap: str) -> None:
    options = {"evaluator": evaluator, "overlap": overlap}
    of_link = clock(CALLS, varied(), KNOWN, WORKERS, STEPS, **options)
    assert_same(of_link, clock(CALLS, varied(), KNOWN, WORKERS, STEPS, algorithm="gloo", **options))
    assert of_link.wall_s > clock(CALLS, varied(), BARE, WORKERS, STEPS, algorithm="gloo", **options).wall_s


@pytest.mark.parametrize("evaluator", ["events", "lockstep"])
def test_what_is_made_of_such_links_knows_it_too(evaluator: str) -> None:
    """A topology, one link per worker, workers that are slowed, and some of them: their clock is the network's."""
    of_link = clock(CALLS, varied(), KNOWN, WORKERS, STEPS, evaluator=evaluator)
    star = topology(KNOWN, WORKERS)
    slowed = with_slow_links(star, [SlowLink(0, 1.0, 1.0)])
    for same in (star, [KNOWN] * WORKERS, slowed, among(topology(KNOWN, 2 * WORKERS), range(WORKERS, 2 * WORKERS))):
        assert_same(clock(CALLS, varied(), same, WORKERS, STEPS, evaluator=evaluator), of_link)
    assert topology([KNOWN, BARE], 2).gloo is None  # its algorithms are one software's, on all ends
    assert topology(network("dgx-h100"), 8).gloo is None


def test_workers_together_pay_the_closed_forms() -> None:
    told = clock(CALLS, 0.01, KNOWN, WORKERS, STEPS)
    sums_s = sum(collective_s(kind, WORKERS, 1e5, KNOWN) for kind in KINDS) * STEPS / 2
    assert told.wall_s == pytest.approx(STEPS * 0.01 + sums_s)


def test_what_is_told_wins() -> None:
    """Other costs, other algorithms; a call's own algorithm, too."""
    free = clock(CALLS, varied(), dataclasses.replace(KNOWN, gloo=GlooCosts()), WORKERS, STEPS)
    assert_same(free, clock(CALLS, varied(), BARE, WORKERS, STEPS, algorithm="gloo"))
    assert_same(
        clock(CALLS, varied(), KNOWN, WORKERS, STEPS, algorithm="ring"),
        clock(CALLS, varied(), BARE, WORKERS, STEPS, algorithm="ring"),
    )
    named = [call._replace(algorithm="recursive-doubling") for call in CALLS]
    assert_same(clock(named, varied(), KNOWN, WORKERS, STEPS), clock(named, varied(), BARE, WORKERS, STEPS))


def test_phases_do_not_forget() -> None:
    present = np.ones((STEPS, WORKERS), dtype=bool)
    assert_same(
        phased_clock(present, CALLS, varied(), KNOWN),
        phased_clock(present, CALLS, varied(), KNOWN, algorithm="gloo"),
    )
    present[2:4, 1:3] = False  # two of four, whose calls cost less
    timed = phased_clock(present, CALLS, np.full((STEPS, WORKERS), 0.01), KNOWN)
    taken_s = np.diff(timed.step_end_s) - 0.01
    expected_s = [collective_s(KINDS[step % 2], 2 if step in (2, 3) else 4, 1e5, KNOWN) for step in range(1, STEPS)]
    np.testing.assert_allclose(taken_s, expected_s, rtol=1e-9)


@pytest.mark.parametrize("by", ["auto", "events"])
@pytest.mark.parametrize("kind", GLOO)
def test_a_collective_by_itself(kind: str, by: str) -> None:
    told = collective_finish_s(kind, WORKERS, 1e5, KNOWN, GLOO[kind], evaluator=by)
    np.testing.assert_array_equal(collective_finish_s(kind, WORKERS, 1e5, KNOWN, evaluator=by), told)
    np.testing.assert_array_equal(collective_finish_s(kind, 1, 1e5, KNOWN, evaluator=by), 0)


def test_programs_that_name_no_algorithm_run_gloos() -> None:
    def ends(network: Link, algorithm: str | None) -> list[float]:
        program = [Collective("all_reduce", 1e5, "a", algorithm=algorithm), Wait("a")]
        return run_events([program] * WORKERS, network).end_s.tolist()

    assert ends(KNOWN, None) == ends(KNOWN, "gloo-ring") != ends(BARE, None)
    assert ends(KNOWN, "ring") == ends(BARE, None)
    calls = [Call(0, "all_reduce", 1e5), Call(0, "all_gather", 1e5)]
    lockstep = run_lockstep(np.full((1, WORKERS), 0.01), calls, KNOWN)
    assert lockstep.end_s.max() == pytest.approx(0.01 + sum(collective_s(kind, WORKERS, 1e5, KNOWN) for kind in KINDS))


def test_replicas_of_a_pipeline_average_as_gloo_does() -> None:
    """One stage, two replicas, one micro-batch of 1 s + 2 s: then the average."""
    made = Pipeline(
        schedule("gpipe", 1, 1), 1, Durations(np.full((1, 1), 1.0), np.full((1, 1), 2.0)),
        replicas=2, gradient_bytes=(1e5,),
    )  # fmt: skip
    assert run_pipeline(made, KNOWN).end_s.max() == pytest.approx(3 + collective_s("all_reduce", 2, 1e5, KNOWN))
