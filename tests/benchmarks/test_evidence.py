"""Predictions against what was published later or by others: what is kept in results/scaling is computed again."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence import PERIOD, PUBLISHED, PUBLISHED_STEP_S, Backtest, backtest, intellect, ranking, replayed

KEPT = Path(__file__).parents[2] / "results" / "scaling"


def assert_kept(name: str, rows: list[Any]) -> None:
    with (KEPT / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    assert len(kept) == len(rows)
    for before, row in zip(kept, rows, strict=True):
        for field, value in row._asdict().items():
            if isinstance(value, float) and not isinstance(value, bool):
                assert float(before[field]) == pytest.approx(value, rel=1e-3, abs=2e-5), (name, field)
            else:
                assert before[field] == ("" if value is None else str(value)), (name, field)


@pytest.fixture(scope="module")
def tests() -> list[Backtest]:
    return backtest()


def test_what_is_kept_is_what_comes_out(tests: list[Backtest]) -> None:
    assert_kept("backtest", tests)
    assert_kept("ranking", ranking())
    assert_kept("intellect", intellect())


def test_measured_ratios_are_those_of_the_tables(tests: list[Backtest]) -> None:
    tables = {("diloco", 4.0, 1): 2.219 / 2.224, ("diloco", 10.0, 4): 2.096 / 2.090,
              ("streaming-diloco", 4.18, 2): 2.26 / 2.25}  # fmt: skip
    rows = {(row.method, row.size_b, row.replicas): row.measured_ratio for row in tests}
    for key, value in tables.items():
        assert rows[key] == pytest.approx(value, abs=1e-5)


def test_the_measured_end_covers_what_the_laws_promise_too_much_of(tests: list[Backtest]) -> None:
    laws, end = ([row for row in tests if row.rule == rule] for rule in ("laws", "measured end"))
    assert len(laws) == len(end) == 7
    assert all(row.covered for row in end)
    assert sum(row.covered for row in laws) == 5
    assert max(abs(row.predicted_tokens / row.measured_tokens - 1) for row in end) < 0.08
    assert min(row.predicted_tokens / row.measured_tokens - 1 for row in laws) < -0.3


def test_ranks_count_pairs_and_regret_is_never_negative() -> None:
    rows = ranking()
    totals = {rule: [0, 0] for rule in ("laws", "measured end")}
    for row in rows:
        assert row.hits <= row.pairs and row.covered <= row.ratios and row.regret_nats >= 0
        if row.candidates == "all":
            totals[row.rule][0] += row.hits
            totals[row.rule][1] += row.pairs
    assert totals == {"laws": [11, 12], "measured end": [10, 12]}


def test_intellect_1_is_not_fitted_and_its_errors_are_as_told() -> None:
    clocks = replayed()
    fast, slow = clocks["fast-lines"], clocks["slow-lines"]
    assert fast.compute_s == pytest.approx(PUBLISHED_STEP_S, rel=0.1)
    assert fast.low_s < PUBLISHED_STEP_S < fast.high_s
    # The ring of 14 sites by hand: int8 of 10.2 B parameters over one line a site, 26 latencies.
    for clock, rate, latency_s in ((fast, 4e9, 0.0225), (slow, 0.5e9, 0.045)):
        by_hand = 2 * 13 / 14 * 10_211_381_248 * 8 / rate + 26 * latency_s
        assert clock.all_reduce_s == pytest.approx(by_hand, rel=0.01)
        assert clock.utilisation == pytest.approx(clock.compute_s / (clock.compute_s + clock.all_reduce_s / PERIOD))
    seconds, utilisation = PUBLISHED["USA"]
    assert fast.all_reduce_s < seconds < slow.all_reduce_s and slow.utilisation < utilisation < fast.utilisation
    for place in ("USA and Europe", "worldwide"):  # slower than the slowest line that is published
        assert PUBLISHED[place][0] > slow.all_reduce_s and PUBLISHED[place][1] < slow.utilisation


def test_published_utilisations_are_those_of_the_published_seconds() -> None:
    """The account behind the comparison: 100 steps, then an all-reduce for which all wait."""
    for seconds, utilisation in PUBLISHED.values():
        computing_s = PERIOD * PUBLISHED_STEP_S
        assert computing_s / (computing_s + seconds) == pytest.approx(utilisation, abs=1.5e-3)
