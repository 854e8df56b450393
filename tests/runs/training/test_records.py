from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from syncline.runs.compare import compare
from syncline.runs.folders.result_files import json_value
from syncline.runs.training.results import final_loss, reachable_target, time_to_target
from syncline.runs.training.tables import metrics_tables
from syncline.runs.training.trained import Trained
from syncline.sim import clock
from syncline.specs import network
from syncline.training import History
from tests.runs.examples import bowl


def method(name, losses, eval_step, diverged_at=None, steps=10):
    """A training whose evaluation losses ``(S, E)`` are given."""
    losses = np.atleast_2d(np.array(losses, dtype=float))
    seeds = tuple(range(len(losses)))
    history = History(
        seeds=seeds,
        steps=steps,
        loss=np.ones((steps, len(seeds))),
        trace={"position": np.arange(2.0 * steps * len(seeds)).reshape(steps, len(seeds), 2)},
        eval_step=np.array(eval_step),
        evaluation={"loss": losses.T},
        diverged_at=diverged_at or (None,) * len(seeds),
    )
    return Trained(name, history, {}, {}, None, 0.0)


def timed(seconds_per_step=2.0, steps=10):
    return clock([], seconds_per_step, network("wan"), 2, steps)


def test_the_time_to_a_target_is_interpolated_between_evaluations():
    one = method("a", [4.0, 3.0, 1.0], [0, 5, 10])
    # The loss is 2 halfway between steps 5 and 10, which end after 10 s and 20 s.
    assert time_to_target(one, timed(), 2.0) == pytest.approx(15.0)
    assert time_to_target(one, timed(), 3.0) == pytest.approx(10.0)
    assert time_to_target(one, timed(), 4.0) == 0.0
    assert time_to_target(one, timed(), 0.5) == math.inf
    assert time_to_target(one, timed(), None) == math.inf


def test_it_is_that_of_the_median_seed():
    three = method("a", [[4.0, 1.0], [4.0, 2.0], [4.0, 3.9]], [0, 10])
    assert time_to_target(three, timed(), 2.0) == pytest.approx(20.0)
    assert final_loss(three) == (2.0, 1.0, 3.9)


def test_a_lost_seed_counts_as_the_worst():
    one_lost = method("a", [[4.0, 1.0], [4.0, 2.0], [4.0, math.nan]], [0, 10], (None, None, 3))
    assert final_loss(one_lost) == (2.0, 1.0, 2.0)
    most_lost = method("a", [[4.0, 1.0], [4.0, math.nan], [4.0, math.inf]], [0, 10], (None, 5, 3))
    assert final_loss(most_lost)[0] == math.inf


def test_the_target_is_the_highest_loss_that_every_method_reached():
    good, better = method("a", [4.0, 2.0], [0, 10]), method("b", [4.0, 1.0], [0, 10])
    worse, lost = method("c", [4.0, 5.0], [0, 10]), method("d", [4.0, math.nan], [0, 10], (3,))
    assert reachable_target([good, better]) == 2.0
    assert reachable_target([good, better, worse, lost]) == 2.0
    assert reachable_target([worse, lost]) is None
    assert reachable_target([]) is None


def test_speedups_are_over_the_first_method_on_the_same_network(tmp_path):
    # Over rings all workers are through at once; three have no such time over others, but each its own.
    rows = compare(bowl(algorithm="ring"), tmp_path / "out", jobs=1)["rows"]
    by = {(row["method"], row["network"]): row for row in rows}
    assert len(by) == 4
    for (_, link), row in by.items():
        base = by["ddp-sgdm", link]
        assert row["speedup"] == pytest.approx(base["step_time_s"] / row["step_time_s"], rel=1e-12)
        expected = base["time_to_target_s"] / row["time_to_target_s"]
        assert row["time_to_target_speedup"] == pytest.approx(expected, rel=1e-12)
        assert row["compute_s"] + row["exposed_communication_s"] == pytest.approx(row["step_time_s"], rel=1e-9)
    assert by["local-adam", "wan"]["speedup"] > by["local-adam", "10gbe"]["speedup"] > 1


def metrics_of(trained):
    return pa.concat_tables(metrics_tables(trained)).to_pydict()


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_metrics_of_any_number_of_rows_at_a_time_are_the_same(rows, monkeypatch):
    both = [method("a", [[4.0, 1.0], [5.0, 2.0]], [0, 3], steps=3), method("b", [1.0], [0], steps=1)]
    whole = metrics_of(both)
    monkeypatch.setattr("syncline.runs.training.tables.ROWS_AT_A_TIME", rows)
    tables = list(metrics_tables(both))
    assert max(map(len, tables)) <= max(2 * rows, 1) and pa.concat_tables(tables).to_pydict() == whole


def test_metrics_count_completed_steps():
    columns = metrics_of([method("a", [[4.0, 1.0], [5.0, 2.0]], [0, 3], steps=3)])
    assert columns["seed"] == [0] * 4 + [1] * 4
    assert columns["step"] == [0, 1, 2, 3] * 2
    assert columns["train_loss"] == [None, 1.0, 1.0, 1.0] * 2
    assert columns["eval_loss"] == [4.0, None, None, 1.0, 5.0, None, None, 2.0]
    assert columns["position_1"][:4] == [None, 1.0, 5.0, 9.0]


def test_methods_with_different_metrics_share_a_table():
    plain_one, traced = method("a", [1.0], [0], steps=1), method("b", [1.0], [0], steps=1)
    plain_one.history.trace = {}
    columns = metrics_of([plain_one, traced])
    assert {len(values) for values in columns.values()} == {4}
    assert columns["position_0"] == [None, None, None, 0.0]


def test_json_has_no_numbers_that_json_does_not_have():
    given = {1: np.float64(2), "a": (math.nan, [np.array([math.inf, 1])]), "b": None, "c": True}
    assert json_value(given) == {"1": 2.0, "a": [None, [[None, 1.0]]], "b": None, "c": True}
