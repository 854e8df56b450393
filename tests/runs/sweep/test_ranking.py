from __future__ import annotations

import math

import pytest

from syncline.errors import SpecError
from syncline.runs.sweep.ranking import effort, effort_line, ranked, with_equal_effort


def row(configuration, seed, loss, *, error=None, diverged_at=None, wall_s=1.0, method="a"):
    shared = {"configuration": configuration, "method.lr": configuration / 10, "method": method, "seed": seed}
    measured = {"diverged_at": diverged_at, "loss": loss, "step_time_s": wall_s / 10, "wall_clock_s": wall_s}
    return shared | (measured if error is None else {}) | {"error": error, "run": f"{configuration}-{seed}"}


def test_configurations_are_ranked_by_the_median_with_the_spread():
    rows = [row(1, 0, 3.0), row(1, 1, 1.0), row(1, 2, 9.0), row(2, 0, 2.0), row(2, 1, 2.5), row(2, 2, 0.5)]
    best, second = ranked(rows)
    assert (best["rank"], best["configuration"], best["method.lr"], best["method"], best["seeds"]) == (
        1,
        2,
        0.2,
        "a",
        3,
    )
    assert (best["loss"], best["loss_min"], best["loss_max"]) == (2.0, 0.5, 2.5)
    assert (second["loss"], second["loss_min"], second["loss_max"]) == (3.0, 1.0, 9.0)


def test_seeds_that_were_lost_count_as_infinite():
    rows = [
        row(1, 0, 0.1), row(1, 1, None, diverged_at=4), row(1, 2, 0.01, diverged_at=3),
        row(2, 0, 5.0), row(2, 1, 5.0), row(2, 2, None, error="no"),
        row(3, 0, None, error="no"), row(3, 1, None, error="no"), row(3, 2, None, error="no"),
    ]  # fmt: skip
    best, *others = ranked(rows)
    assert (best["configuration"], best["loss"], best["loss_max"], best["failed"]) == (2, 5.0, math.inf, 1)
    assert [(one["configuration"], one["loss"], one["diverged"], one["failed"]) for one in others] == [
        (1, math.inf, 2, 0), (3, math.inf, 0, 3),
    ]  # fmt: skip


def test_of_equal_losses_the_faster_one_is_better():
    rows = [row(1, 0, 1.0, wall_s=3.0), row(2, 0, 1.0, wall_s=2.0), row(3, 0, 1.0, wall_s=2.0)]
    assert [one["configuration"] for one in ranked(rows)] == [2, 3, 1]


def test_another_number_ranks_if_there_is_one():
    rows = [row(1, 0, 1.0, wall_s=3.0), row(2, 0, 2.0, wall_s=2.0)]
    assert [one["configuration"] for one in ranked(rows, "step_time_s")] == [2, 1]
    with pytest.raises(SpecError, match="--by: got 'los'; expected one of 'loss', 'step_time_s', 'wall_clock_s'"):
        ranked(rows, "los")


def test_effort_counts_configurations_that_are_trained_and_is_made_equal_from_the_first_ones():
    asked = [
        {"run": f"{number}-{seed}", "method": method, "training": training}
        for number, (method, training) in enumerate([("a", "x"), ("a", "x"), ("a", "y"), ("b", "z"), ("a", "v")], 1)
        for seed in (0, 1)
    ]
    assert effort(asked) == {"a": 3, "b": 1}
    assert effort_line({"a": 3, "b": 1}) == "tuning effort: not equal; configurations: a 3, b 1"
    assert effort_line({"a": 2, "b": 2}) == "tuning effort: equal, 2 configurations of each of 2 methods"
    assert effort_line({}) == ""
    rows = [row(int(one["run"][0]), int(one["run"][2]), 1.0, method=one["method"]) for one in asked]
    assert {one["configuration"] for one in with_equal_effort(rows, asked)} == {1, 2, 4}
