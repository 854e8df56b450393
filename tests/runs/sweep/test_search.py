"""A search is gone through again from its finished runs, whatever number of processes made them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from statistics import median

import optuna
import pytest

from syncline.errors import SpecError
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep import folder
from syncline.runs.sweep.search import Search, Tuned
from syncline.runs.sweep.sweep import sweep
from tests.runs.sweep.small import FIELDS, counted_trainings

RATE = {"method.lr": (1e-4, 1.0)}


def search(out, trials=12, **options):
    given = {"tune": RATE, "seeds": 1, "jobs": 1, "out": out} | options
    searched = Search.from_options(given.pop("tune"), trials, given.pop("search", None))
    return sweep(FIELDS, given.pop("grid", {}), search=searched, **given)


def test_a_search_learns_and_asks_for_rates_of_all_sizes(tmp_path):
    result = search(tmp_path / "out", trials=20)
    rates = [row["method.lr"] for row in result.rows]
    assert len(set(rates)) == 20 and min(rates) < 1e-3 and max(rates) > 0.1 and all(1e-4 <= one <= 1.0 for one in rates)
    losses = [row["loss"] for row in result.rows]
    assert median(losses[16:]) < median(losses[:8])


def test_trials_are_those_of_optuna_asked_in_batches_and_told_the_median(tmp_path):
    """Against a literal loop over another study of the same seed."""
    result = search(tmp_path / "out", trials=12, seeds=2)
    found = {row["configuration"]: row["method.lr"] for row in result.rows}
    losses = {n: median(row["loss"] for row in result.rows if row["configuration"] == n) for n in found}
    from syncline.seeds import seed64

    seed = seed64(0, "search", "[]") % 2**32
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    study.enqueue_trial({"method.lr": FIELDS["method"]["lr"]})
    number = 0
    for size in (8, 4):
        trials = [study.ask() for _ in range(size)]
        rates = [trial.suggest_float("method.lr", 1e-4, 1.0, log=True) for trial in trials]
        assert rates == [found[number + i + 1] for i in range(size)]
        for i, trial in enumerate(trials):
            study.tell(trial, losses[number + i + 1])
        number += size


def test_a_finished_run_is_read_once_however_many_batches_follow(tmp_path, monkeypatch):
    reads, read_run = Counter(), folder.read_run

    def counted(runs, name):
        content = read_run(runs, name)
        reads.update([name] if content else [])
        return content

    monkeypatch.setattr(folder, "read_run", counted)
    assert len(search(tmp_path / "out", trials=20).rows) == 20
    assert sorted(reads.values()) == [1] * 20


def test_the_first_trial_is_the_spec_as_it_is(tmp_path):
    result = search(tmp_path / "out", trials=2)
    assert result.rows[0]["method.lr"] == pytest.approx(FIELDS["method"]["lr"], rel=1e-12)
    beyond = search(tmp_path / "beyond", trials=2, tune={"method.lr": (0.3, 0.9)})
    assert all(0.3 <= row["method.lr"] <= 0.9 for row in beyond.rows)


def test_a_field_is_found_in_what_is_drawn():
    momentum, rate = Tuned.parse("method.mu=1-0.1..1-0.001"), Tuned.parse("method.lr=1e-3..1e-1")
    assert momentum.number_of(0.9) == 0.1 and momentum.number_of(0.95) == pytest.approx(0.05)
    assert momentum.number_of(0.5) is None
    assert rate.number_of(0.01) == 0.01 and rate.number_of(None) is None and rate.number_of(True) is None


def test_a_search_that_was_stopped_goes_on_and_a_longer_one_begins_with_it(tmp_path):
    class Stopper(Listener):
        def finished(self, label, row):
            told.append(label)
            if len(told) == 10:
                os.kill(os.getpid(), signal.SIGINT)

    told: list[str] = []
    whole = search(tmp_path / "whole")
    with counted_trainings() as begun:
        stopped = search(tmp_path / "out", listener=Stopper())
        assert stopped.interrupted and len(stopped.rows) == 10
        rest = search(tmp_path / "out")
        assert len(begun) == 12 and rest.rows == whole.rows and rest.repeated == 10
        longer = search(tmp_path / "out", trials=14)
    assert len(begun) == 14 and longer.rows[:12] == whole.rows


def test_each_combination_of_the_grid_has_a_search_of_its_own_and_networks_share_it(tmp_path):
    grid = {"method": ["ddp-sgdm", "local-sgdm"], "network": ["10gbe", "wan"]}
    tune = {"method.lr": (1e-3, 1e-1), "local-sgdm:method.period": (1, 4)}
    with counted_trainings() as begun:
        result = search(tmp_path / "out", trials=3, grid=grid, tune=tune)
    assert len(begun) == 6 and len(result.rows) == 12 and result.effort == {"ddp-sgdm": 3, "local-sgdm": 3}
    by_method = {name: [row for row in result.rows if row["method"] == name] for name in grid["method"]}
    assert all("method.period" not in row for row in by_method["ddp-sgdm"])
    periods = {row["method.period"] for row in by_method["local-sgdm"]}
    assert periods <= {1, 2, 3, 4} and all(isinstance(one, int) for one in periods)
    for rows in by_method.values():
        assert [row["network"] for row in rows] == ["10gbe", "wan"] * 3
        assert [row["loss"] for row in rows[::2]] == [row["loss"] for row in rows[1::2]]


def test_a_divergence_is_told_as_infinite_and_a_failure_as_one(tmp_path):
    result = search(tmp_path / "out", trials=9, tune={"method.lr": (1e30, 1e36)})
    assert all(row["diverged_at"] is not None for row in result.rows) and len(result.rows) == 9
    fields = {"problem": {"kind": "digits", "hidden": 2, "batch_size": 1}, "steps": 1, "workers": 5000}
    failed = search(tmp_path / "failed", trials=9, overrides=fields)
    assert all(row["error"] for row in failed.rows) and len(failed.rows) == 9


def test_of_a_decay_rate_it_is_what_it_lacks_to_one_that_is_drawn_log_uniformly(tmp_path):
    method = {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0.9}, "lr": 0.01}
    tune = [Tuned.parse("method.rule.momentum=1-0.5..1-0.0001")]
    result = search(tmp_path / "out", trials=20, tune=tune, overrides={"method": method})
    lacking = [1 - row["method.rule.momentum"] for row in result.rows]
    assert all(1e-4 * (1 - 1e-9) <= one <= 0.5 for one in lacking) and min(lacking) < 1e-3 and max(lacking) > 0.1
    zero = Tuned.parse("method.rule.momentum=1-1..1-0.1")
    assert zero.value_range == [0, 0.9]
    with pytest.raises(
        SpecError, match=r"--tune method.lr: got '1-2.0..1-0.1'; expected two numbers from 0 to below 1"
    ):
        Tuned.parse("method.lr=1-2.0..1-0.1")


REFUSED = [
    ({"tune": {"method.lr": (1e-4, -1)}}, r"tune\['method.lr'\]: got '0.0001..-1'; expected from a number above 0"),
    ({"tune": {"method.lrr": (1e-4, 1)}}, r"tune\['method.lrr'\]: got 0.0001; expected no such field here"),
    ({"tune": {"network": (1, 2)}}, "expected a field that the loss depends on"),
    ({"tune": {"schedule.warmup_steps": (1, 10)}}, r"tune\['schedule.warmup_steps'\]: got 10; expected at most 6"),
    ({"tune": {}}, "--tune: got 'nothing'; expected a field to search over"),
    ({"trials": None}, "--trials: got None; expected the number of trials"),
    ({"search": "grid"}, "--search: got 'grid'; expected one of 'optuna'"),
    ({"grid": {"method.lr": [1]}}, r"expected each field once"),
    ({"tune": {"adam:method.lr": (1e-4, 1)}}, r"got 'adam'; expected a grid over methods, too"),
]


@pytest.mark.parametrize(("options", "line"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_searched_is_refused_before_anything_is_trained(options, line, tmp_path):
    with pytest.raises(SpecError, match=line):
        search(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["method.lr", "method.lr=1", "method.lr=a..b", "method.lr=1..", "=1..2"])
def test_a_range_is_two_numbers(text):
    with pytest.raises(SpecError, match=r"--tune.*expected (field.path=low..high|two numbers)"):
        Tuned.parse(text)
