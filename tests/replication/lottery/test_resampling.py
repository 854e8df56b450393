"""Searches of the lottery: exact probabilities against draws, limit cases, and the kept table."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.lottery.resampling import (
    Trials,
    pair_orders,
    place_probabilities,
    smallest_difference,
    summary,
)
from replication.lottery.setting import RESULTS, drawn_knobs, labels, lottery_setting
from replication.replications.choosing import with_knobs


@given(st.integers(1, 8), st.integers(1, 8))
def test_places_have_the_probabilities_of_all_subsets(trials, searched):
    searched = min(searched, trials)
    subsets = list(combinations(range(trials), searched))
    counts = np.bincount([min(subset) for subset in subsets], minlength=trials)
    np.testing.assert_allclose(place_probabilities(trials, searched), counts / len(subsets))


def trials_of(search, judge):
    return Trials(
        [f"m{number}" for number in range(len(search))], np.array(search)[..., None], np.array(judge)[..., None]
    )


def test_all_trials_take_the_best_and_one_trial_any():
    trials = trials_of([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]], [[0.3, 0.1, 0.2], [0.15, 0.25, 0.35]])
    (score,) = trials.scores()["one seed"]
    assert trials.below([score], 3)[0, 1] == 1.0  # 0.1 against 0.35
    assert trials.below([score], 1)[0, 1] == pytest.approx(6 / 9)  # of the nine pairs, 0.3 and 0.2 lose three
    assert trials.spread(score, 3, 0) == (0.1, 0.1, 0.1)
    assert trials.spread(score, 1, 0) == (0.1, 0.2, 0.3)


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_an_order_and_its_reverse_are_certain_together(seed, searched):
    draw = np.random.default_rng(seed)
    trials = trials_of(draw.random((3, 6)), draw.integers(0, 3, (3, 6)).astype(float))
    below = trials.below(trials.scores()["three seeds"], searched)
    np.testing.assert_allclose(below + below.T, 1.0)


def test_the_choice_follows_the_search_and_the_result_the_judge():
    """The trial that a search likes best is the worst for the judge."""
    trials = trials_of([[1.0, 2.0], [1.0, 2.0]], [[9.0, 1.0], [5.0, 5.0]])
    (score,) = trials.scores()["one seed"]
    assert trials.below([score], 2)[1, 0] == 1.0
    assert trials.below([score], 1)[1, 0] == 0.5


def test_knobs_are_equal_in_every_run_and_inside_their_ranges():
    setting = lottery_setting()
    for entry in setting["methods"]:
        knobs = drawn_knobs(entry["method"]["label"], entry["tune"], setting["trials"], setting["draw_seed"])
        again = drawn_knobs(entry["method"]["label"], entry["tune"], 2, setting["draw_seed"])
        assert knobs[:2] == again and len({json.dumps(trial) for trial in knobs}) == setting["trials"]
        assert len(entry["tune"]) == 2
        assert with_knobs(entry["method"], knobs[0])["lr"] == knobs[0]["lr"]


def test_the_kept_summary_follows_from_the_kept_trials():
    setting = lottery_setting()
    table = pd.read_parquet(RESULTS / "trials.parquet")
    assert set(table["method"]) == set(labels(setting))
    assert json.loads((RESULTS / "summary.json").read_text()) == json.loads(json.dumps(summary(table, setting)))
    trials = Trials.of_table(table, setting)
    pairs = pair_orders(trials, trials.scores()["three seeds"], 64)
    assert len(pairs) == 55 and all(pair.difference >= 0 for pair in pairs)
    resolved = smallest_difference(pairs)
    assert resolved is None or all(pair.probability >= 0.95 for pair in pairs if pair.difference >= resolved)
