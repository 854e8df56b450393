"""The headline: what is kept of its runs, what is told of it, and that README and findings tell just that."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.headline.__main__ import tables
from benchmarks.headline.choose import (
    SEED,
    SEEN_AGAIN,
    chosen,
    chosen_methods,
    keep_again,
    searched_spec,
    second_look,
    trials_of,
)
from benchmarks.headline.demo import at_a_glance, in_columns
from benchmarks.headline.kept import RESULTS, TARGETS, Finals, Reached, Row, calls, finals, keep_losses, tensors_of_gpt
from benchmarks.headline.sizes import AGAIN
from benchmarks.headline.tables import by_network, first_three, loss, losses, reached, seconds
from benchmarks.headline.words import short_words, words
from syncline.runs.training.train_and_time import train_method
from syncline.specs import CompareSpec, load_spec

ROOT = Path(__file__).parents[2]
STEPS = np.arange(0, 401, 20)


@pytest.fixture(scope="module")
def spec() -> CompareSpec:
    return load_spec("headline", (), CompareSpec)


@pytest.fixture(scope="module")
def made_up(spec, tmp_path_factory) -> Finals:
    """Method i at seed s ends at 2 + i / 10 + s / 100."""
    folder = tmp_path_factory.mktemp("headline")
    runs = []
    for i, method in enumerate(spec.methods):
        for seed in spec.seeds:
            losses = [3 - (1 - i / 10 - seed / 100) * step / 400 if step % 20 == 0 else None for step in range(401)]
            runs.append((method.name, seed, pa.table({"step": range(401), "eval_loss": losses})))
    keep_losses(runs[::-1], folder / "headline.parquet")
    return finals(folder=folder)


def test_losses_are_kept_by_method_seed_and_step(made_up, spec):
    for i, method in enumerate(spec.methods):
        history = made_up.trained[method.name].history
        assert history.seeds == spec.seeds and history.eval_step.tolist() == STEPS.tolist()
        expected = [[3 - (1 - i / 10 - seed / 100) * step / 400 for seed in spec.seeds] for step in STEPS]
        assert history.evaluation["loss"] == pytest.approx(np.array(expected), abs=1e-12)


def test_a_row_has_median_range_and_when_each_target_was_reached(made_up):
    rows = {(row.method, row.network): row for row in made_up.rows((2.5, 2.02, 1.0))}
    row = rows["ddp-adam", "wan"]
    assert (row.loss, row.loss_min, row.loss_max) == pytest.approx((2.02, 2.0, 2.04))
    steps = [0.5 * 400 / (1 - seed / 100) for seed in range(5)]
    found = row.reached[2.5]
    # Steps of one length, but for what the clock begins and ends with.
    assert found.median_s == pytest.approx(steps[2] * row.step_time_s, rel=0.01) and found.seeds == 5
    assert (found.low_s, found.high_s) == pytest.approx(
        (steps[0] * row.step_time_s, steps[4] * row.step_time_s), rel=0.01
    )
    assert row.reached[2.02].seeds == 3 and row.reached[1.0] == Reached(np.inf, np.inf, np.inf, 0)
    assert made_up.steps_to("ddp-adam", 2.5).median_s == pytest.approx(steps[2])


def test_what_is_told_of_a_row():
    assert [seconds(s) for s in (0.01234, 1.0, 9.996, 61.24, 1234.5, np.inf)] == [
        "12.3 ms", "1.00 s", "10.00 s", "61.2 s", "1234 s", "never"]  # fmt: skip
    assert reached(Reached.of([3.0, 1.0, 2.0]), 3) == "2.00 s (1.00 s to 3.00 s)"
    assert reached(Reached.of([np.inf, 1.0, 2.0]), 3) == "2 of 3 seeds: 1.00 s to 2.00 s"
    assert reached(Reached.of([np.inf]), 1) == "never" and reached(Reached.of([1.5]), 1) == "1.50 s"
    assert loss(Row("a", "b", 2.0, 1.5, 2.5, 1.0, 1.0, 1.0, {})) == "2.000 (1.500 to 2.500)"


def test_tables_have_each_method_once_per_network(made_up, spec):
    text = losses(made_up) + "\n" + by_network(made_up)
    for method in spec.methods:
        assert text.count(f"| {method.name} |") == 1 + len(spec.networks)
    columns = in_columns(text).splitlines()
    assert "---" not in "".join(columns) and columns[1].index("2.0") == columns[2].index("2.1")


def test_the_demo_tells_of_each_method_in_80_characters(made_up, spec):
    head, *lines = in_columns(at_a_glance(made_up)).splitlines()
    assert [line.split()[0] for line in lines if line] == [method.name for method in spec.methods]
    assert max(map(len, (head, *lines))) <= 80 and all(f"on {link.name}" in head for link in spec.networks)


def test_what_a_method_sends_is_what_a_training_sends(tmp_path):
    """But for the trigger, whose calls are kept."""
    fields = {"steps": 33, "schedule": {}, "seeds": [0], "eval_every": 0, "problem.width": 16, "problem.context": 8}
    small = {f"problem.{name}": 1 for name in ("batch_size", "layers", "heads", "validation_windows")}
    short = load_spec("headline", fields | small, CompareSpec)
    tensors = tensors_of_gpt(short.problem)
    for method in short.methods:
        if method.kind == "curvadion":
            continue
        trained = train_method(short, method)
        told = calls(method, tensors, short, tmp_path / "headline.parquet")
        shown = [[one._replace(group=None, label="") for one in of] for of in (trained.ledger, told)]
        assert shown[0] == shown[1], method.name


def test_the_first_comparison_is_some_of_the_headline(spec):
    first = load_spec("compare-text", (), CompareSpec)
    known = {method.name: method for method in spec.methods}
    assert all(known[method.name] == method for method in first.methods)
    differing = {name for name in dict(spec) if dict(spec)[name] != dict(first)[name]}
    assert differing == {"name", "description", "source", "methods", "seeds", "target_loss"}
    assert first.seeds == spec.seeds[:1] and first.target_loss in TARGETS


def test_the_search_was_on_another_text_and_another_seed(spec):
    searched = load_spec(RESULTS / "search.yaml", (), CompareSpec)
    assert searched.problem == replace(spec.problem, held_out="first-half") and spec.problem.held_out == "second-half"
    assert not set(searched.seeds) & set(spec.seeds)
    names = [method.name for method in spec.methods if method.name not in AGAIN]
    assert [method.name for method in searched.methods] == names
    assert (searched.steps, searched.workers, searched.schedule) == (spec.steps, spec.workers, spec.schedule)


def test_the_longer_trainings_differ_in_length_alone(spec):
    longer = load_spec("headline-long", (), CompareSpec)
    known = {method.name: method for method in spec.methods}
    assert all(method == known[method.name] for method in longer.methods)
    differing = {name for name in dict(spec) if dict(spec)[name] != dict(longer)[name]}
    assert differing <= {"name", "description", "source", "methods", "seeds", "steps", "schedule", "eval_every"}
    assert longer.schedule.shape == spec.schedule.shape
    stretched = [
        getattr(longer.schedule, name) / getattr(spec.schedule, name) for name in ("warmup_steps", "cooldown_steps")
    ]
    assert stretched == [longer.steps / spec.steps] * 2


def test_who_is_first_is_told_by_the_median_and_only_of_those_that_get_there(made_up):
    head, _, *lines = first_three(made_up, (2.5, 2.15)).splitlines()
    assert head == "| first at a loss of | 2.50 | 2.15 |"
    rows = {row.method: row for row in made_up.rows((2.5, 2.15)) if row.network == "wan"}
    (told,) = [line.strip("| ").split(" | ") for line in lines if line.startswith("| wan ")]
    there = sorted((rows[name].reached[2.15].median_s, name) for name in ("ddp-adam", "ddp-lion"))
    assert told[2] == ", ".join(f"{name} {seconds(at_s)}" for at_s, name in there) + "; 2 of 12"
    assert told[1].endswith("; 5 of 12")


def test_readme_and_findings_say_what_is_kept():
    kept = finals()
    longer = finals("headline-long")
    assert words(kept, longer) in (ROOT / "docs" / "headline.md").read_text()
    assert " ".join(short_words(kept).split()) in " ".join((ROOT / "README.md").read_text().split())
    findings = (ROOT / "docs" / "findings.md").read_text()
    missing = [line for line in (tables(kept) + losses(longer)).splitlines() if line not in findings]
    assert not missing


def test_every_method_has_as_many_trials_and_the_best_of_them_were_seen_again():
    for method, trials in trials_of().items():
        assert [one["trial"] for one in trials] == list(range(1, 17)), method
        again = sorted(one["trial"] for one in trials if "again" in one)
        ranked = sorted(trials, key=lambda one: one.get("loss", float("inf")))
        assert again == sorted(one["trial"] for one in ranked[:SEEN_AGAIN]), method


def test_what_was_chosen_is_in_the_specs(spec):
    fields = chosen_methods()
    assert list(fields) == [method.name for method in spec.methods if method.name not in AGAIN]
    searched = load_spec(RESULTS / "search.yaml", {"methods": list(fields.values())}, CompareSpec)
    assert list(searched.methods) == [method for method in spec.methods if method.name not in AGAIN]
    assert SEED not in {*searched.seeds, *spec.seeds}


def test_the_best_of_a_search_are_seen_again_and_the_best_mean_is_chosen(tmp_path):
    """Method i's trial t lost i + t / 10; at the other seed the first four are in the reverse order."""
    searched = searched_spec()
    names = [method["label"] for method in searched["methods"]]
    trials = tmp_path / "trials.csv"
    with trials.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "trial", "loss", "lr"])
        writer.writerows([name, t, i + t / 10, t / 1000] for i, name in enumerate(names) for t in range(1, 17))
    second_look(tmp_path / "again.yaml", trials)
    again = load_spec(tmp_path / "again.yaml", (), CompareSpec)
    assert [method.name for method in again.methods] == [f"{name} {t}" for name in names for t in range(1, 5)]
    assert [method.lr for method in again.methods] == [0.001, 0.002, 0.003, 0.004] * len(names)
    assert again.seeds == (SEED,) and again.problem == load_spec(RESULTS / "search.yaml", (), CompareSpec).problem
    rows = [
        {"method": f"{name} {t}", "loss": i + (5 - 2 * t) / 10} for i, name in enumerate(names) for t in range(1, 5)
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"rows": rows}))
    keep_again(tmp_path, trials)
    assert [chosen(of)["trial"] for of in trials_of(trials).values()] == [4] * len(names)
