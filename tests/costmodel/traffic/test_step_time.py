from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Exchange, Link, StepTime, mean_step, ring_all_reduce_s
from syncline.errors import SpecError

LINK = Link(0.5, 8.0)


def test_without_overlap_all_communication_is_exposed() -> None:
    step = StepTime(compute_s=2.0, communication_s=np.array([0.0, 1.0]))
    np.testing.assert_array_equal(step.exposed_communication_s, [0, 1])
    np.testing.assert_array_equal(step.step_time_s, [2, 3])


def test_a_mean_step_spreads_the_communication_over_the_steps() -> None:
    step = mean_step(2.0, [Exchange(32.0, period=10)], 100, 4, LINK)
    assert step.communication_s == pytest.approx(ring_all_reduce_s(4, 32.0, LINK) / 10)
    assert mean_step(2.0, [Exchange(32.0)], 7, 1, LINK).step_time_s == 2.0  # one worker
    with pytest.raises(SpecError, match="steps: got 0"):
        mean_step(2.0, [], 0, 4, LINK)


def test_overheads_and_what_is_hidden_are_terms_of_a_step() -> None:
    step = StepTime(2.0, 5.0, encode_s=0.5, trigger_s=0.25, hidden_communication_s=1.5, optimizer_s=0.125)
    assert step.exposed_communication_s == 3.5
    assert step.computing_s == 2.0 + 0.5 + 0.25 + 0.125
    assert step.step_time_s == step.computing_s + 3.5


def test_a_step_by_an_algorithm_or_a_policy() -> None:
    link, flag = Link(1e-3, 1e9), [Exchange(4.0)]
    ring, tree, auto = (
        mean_step(0.0, flag, 5, 8, link, algorithm=name).step_time_s for name in ("ring", "tree", "auto")
    )
    assert auto < tree < ring == mean_step(0.0, flag, 5, 8, link).step_time_s
    assert mean_step(0.0, flag, 5, 8, link, algorithm={"all_reduce": "tree"}).step_time_s == tree
    gather = [Exchange(4.0, collective="all_gather")]
    first = mean_step(0.0, gather, 5, 8, link).step_time_s
    assert mean_step(0.0, gather, 5, 8, link, algorithm="tree").step_time_s == first  # it has no tree
    with pytest.raises(SpecError, match="did you mean 'ring'"):
        mean_step(0.0, flag, 5, 8, link, algorithm="rang")


def test_a_step_by_the_rendezvous_rule_pays_each_messages_latency() -> None:
    eager, rendezvous = (
        mean_step(0.0, [Exchange(4.0, collective="gather")], 5, 8, LINK, rule=rule).step_time_s
        for rule in ("eager", "rendezvous")
    )
    assert eager <= rendezvous
