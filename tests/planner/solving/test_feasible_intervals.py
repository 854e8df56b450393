"""Where a target is met, on functions whose crossings are known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.evaluations import (
    Evaluation,
    FeasibleSpan,
    FeasibleSpans,
    Trials,
    feasible_spans,
    solved_value,
)
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import CLOSE, DecisionVariable


class Played(Trials):
    """A variable whose margins are a function of it."""

    def __init__(self, sought: DecisionVariable, margin: Callable[[float], float]) -> None:
        super().__init__(sought, SolveTargets(step_time_s=1.0), WholeTraining())
        self.margin = margin

    def evaluate(self, values):
        for one in values:
            three = np.array([self.margin(one), self.margin(one) + 0.5, self.margin(one) - 0.5])
            self.evaluations.setdefault(one, Evaluation({}, three, "step_time_s", {}, None))
        return [self.evaluations[one] for one in values]


def of(sense="least", whole=None, grid=None) -> DecisionVariable:
    grid = grid or tuple(np.geomspace(1.0, 1e6, 31).tolist())
    return DecisionVariable("bandwidth", sense, "", "", grid, whole, lambda value: None, str, None)  # type: ignore[arg-type, return-value]


@given(st.floats(2.0, 5e5), st.floats(0.05, 5.0))
def test_a_smooth_crossing_is_found_in_few_values(crossing: float, slope: float) -> None:
    trials = Played(of(), lambda value: slope * np.log(value / crossing))
    (span,) = feasible_spans(trials).spans
    assert span.last is None and span.first is not None
    assert crossing <= span.first <= crossing * (1 + 2 * CLOSE)
    assert len(trials.evaluations) < 31 + 30


@given(st.lists(st.floats(2.0, 5e5), min_size=1, max_size=4, unique=True).map(sorted))
def test_every_jump_further_apart_than_the_values_that_are_tried_first_is_found(jumps: list[float]) -> None:
    if any(b / a < 2.6 for a, b in pairwise(jumps)):
        return
    trials = Played(of(), lambda value: 1.0 if sum(value >= one for one in jumps) % 2 else -1.0)
    assert feasible_spans(trials).crossings == pytest.approx(jumps, rel=2 * CLOSE)


@given(st.integers(1, 5000))
def test_whole_numbers_end_at_one(least: int) -> None:
    whole = range(1, 5001)
    grid = tuple(float(n) for n in sorted({*np.geomspace(1, 5000, 20).astype(int).tolist(), 1, 5000}))
    trials = Played(of("fewest", whole, grid), lambda value: float(value - least + 0.25))
    here = feasible_spans(trials)
    assert solved_value([here] * 3, "fewest", grid[0]).value == least


def test_what_is_met_everywhere_or_nowhere_has_no_value() -> None:
    assert feasible_spans(Played(of(), lambda value: 1.0)) == FeasibleSpans("always", (FeasibleSpan(None, None),), ())
    assert feasible_spans(Played(of(), lambda value: -1.0)) == FeasibleSpans("never", (), ())
    assert feasible_spans(Played(of(), lambda value: float("nan"))) == FeasibleSpans("unknown", (), ())


def test_bounds_are_in_order_whichever_way_a_target_is_met() -> None:
    rising = Played(of(), lambda value: np.log(value / 100.0))
    up = solved_value([feasible_spans(rising, bound) for bound in range(3)], "least", 1.0)
    assert (up.low, up.value, up.high) == pytest.approx((100 * np.exp(-0.5), 100.0, 100 * np.exp(0.5)), rel=1e-5)
    falling = Played(of("most"), lambda value: np.log(100.0 / value))
    down = solved_value([feasible_spans(falling, bound) for bound in range(3)], "most", 1.0)
    assert (down.low, down.value, down.high) == pytest.approx((100 * np.exp(-0.5), 100.0, 100 * np.exp(0.5)), rel=1e-5)
    assert up.met_above and not down.met_above


def test_of_several_spans_it_is_the_one_that_is_asked_for() -> None:
    both = [FeasibleSpans("in parts", (FeasibleSpan(2.0, 3.0), FeasibleSpan(5.0, None)), (2.0, 3.0, 5.0))] * 3
    assert solved_value(both, "least", 1.0).value == 5.0
    assert solved_value(both, "fewest", 1.0).value == 2.0
    below = [FeasibleSpans("in parts", (FeasibleSpan(None, 3.0), FeasibleSpan(5.0, 7.0)), (3.0, 5.0, 7.0))] * 3
    assert solved_value(below, "most", 1.0).value == 3.0
    assert solved_value(below, "longest", 1.0).value == 7.0
    assert solved_value([FeasibleSpans("from", (FeasibleSpan(4.0, None),), (4.0,))] * 3, "longest", 1.0).value == 4.0
