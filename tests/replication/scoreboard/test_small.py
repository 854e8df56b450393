"""Trainings in small and stored runs: what the functions choose and count, on values that are known."""

from __future__ import annotations

import pytest

from replication.scoreboard import small, stored_runs


@pytest.mark.parametrize(
    ("momenta", "betas"),
    [("one", [0.99]), ("two", [0.9, 0.99]), ("one-and-middle", [0.95, 0.99]), ("three", [0.9, 0.95, 0.99])],
)
def test_the_best_weight_is_that_of_the_lowest_loss(monkeypatch, momenta, betas):
    specs = []

    def loss(spec, *_):
        specs.append(spec)
        return abs(spec["omegas"][-1] - 0.7)

    monkeypatch.setattr(small, "final_loss", loss)
    assert small.best_weight(momenta) == 0.7
    assert all(spec["betas"] == betas and sum(spec["omegas"]) <= 1 + 1e-9 for spec in specs)
    assert all(sum(spec["omegas"]) == pytest.approx(1) for spec in specs if momenta in ("two", "three"))


def test_the_best_rate_is_that_of_each_rule(monkeypatch):
    optimum = {"adam": 2.0**-6, "adopt": 2.0**-8}
    monkeypatch.setattr(small, "final_loss", lambda spec: abs(spec["lr"] - optimum[spec["rule"]["kind"]]))
    assert small.best_rates() == optimum


def test_robustness_is_a_ratio_of_ratios(monkeypatch):
    """CurvaDion's loss is 2 and 3 times Dion's at the two values."""
    factors = {0.125: 2.0, 0.5: 3.0}
    monkeypatch.setattr(
        small, "final_loss",
        lambda spec, batch_size: factors[spec["rank_fraction"]] if spec["kind"] == "curvadion" else 1.0,
    )  # fmt: skip
    assert small.robustness("rank_fraction", (0.125, 0.5)) == pytest.approx(1.5)


def test_points_and_steps_of_stored_runs():
    assert stored_runs.steps_to_loss({0: 5.0, 20: 3.0, 40: 2.0}, 2.5) == 40
    assert set(stored_runs.gaps_by_stages()) == {"1", "4", "8", "16"}
    assert 0 <= stored_runs.dominated_points() <= 3
    assert all(slowdown >= 1 for slowdown in stored_runs.slowdown_by_method().values())
