"""The headline: finals of protocol 2, their tables, and that README and findings say what the tables have."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import pytest

from benchmarks.headline.demo import SMALL, SMALL_RUN, differences, in_columns, times_table
from benchmarks.headline.figures import README_METHODS, README_NETWORKS
from benchmarks.headline.finals import RESULTS, TARGETS, Finals, finals
from benchmarks.headline.sizes import AT_PAPERS_RATE, sizes, trigger_rate
from benchmarks.headline.tables import by_network, by_size, first_three, loss, losses, seconds, spread
from benchmarks.headline.words import short_words, words
from replication.replications.reading import read_replication
from syncline.specs import CompareSpec, load_spec

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stored() -> Finals:
    return finals()


def test_losses_and_bytes_are_those_of_the_runs_table(stored):
    rows = read_replication(RESULTS / "protocol-2").networks
    by_method = {row["method"]: row for row in rows if row["setting"] == "finals"}
    assert list(by_method) == list(stored.cells) == list(stored.runs)
    for method, row in by_method.items():
        assert median(stored.last_losses(method)) == row["loss"]
        assert stored.cells[method].bytes_per_worker == row["bytes_per_worker"]


def test_steps_are_those_of_the_runs_table(stored):
    for row in read_replication(RESULTS / "protocol-2").networks:
        if row["setting"] == "finals":
            step_s = stored.cells[row["method"]].step_time_s[row["network"]]
            assert step_s == pytest.approx(row["step_time_s"], rel=1e-9)


def test_a_seed_reaches_a_loss_between_two_evaluations(stored):
    cell = stored.cells["ddp-adam"]
    for seed, time_s in enumerate(cell.times_s("wan", TARGETS[1])):
        after = int((cell.curve.loss[seed] <= TARGETS[1]).argmax())
        assert cell.clock_s["wan"][seed][after - 1] < time_s <= cell.clock_s["wan"][seed][after]
    assert stored.median_time_s("ddp-adam", "wan", 0.1) == math.inf


def test_targets_are_losses_of_the_defaults_after_a_quarter_half_and_all_steps(stored):
    """The first trial of DDP-Adam, whose last loss is in the table of the search."""
    search = read_replication(RESULTS / "protocol-2").kept["search"].rows
    first = next(row for row in search if row["method"] == "ddp-adam" and row["trial"] == 1)
    assert TARGETS[-1] == math.ceil(first["loss"] / 0.05) * 0.05
    assert list(TARGETS) == sorted(TARGETS, reverse=True)


def test_seconds_and_losses_are_written_with_their_spread():
    assert [seconds(s) for s in (0.01234, 1.0, 9.996, 61.24, 1234.5, math.inf)] == [
        "12.3 ms", "1.00 s", "10.00 s", "61.2 s", "1234 s", "never"]  # fmt: skip
    assert spread([3.0, 1.0, 2.0]) == "2.00 s (1.00 s to 3.00 s)"
    assert spread([math.inf, 1.0, 2.0]) == "2 of 3 seeds: 1.00 s to 2.00 s"
    assert spread([math.inf]) == "never"
    assert loss([2.0, 1.5, 2.5]) == "2.000 (1.500 to 2.500)"


def test_tables_have_each_method_once_per_network(stored):
    text = losses(stored) + "\n" + by_network(stored)
    for method in stored.cells:
        assert text.count(f"| {method} |") == 1 + len(stored.networks)


def test_the_table_of_firsts_is_in_the_order_of_medians(stored):
    head, _, *lines = first_three(stored).splitlines()
    assert head == f"| first at a loss of | {' | '.join(f'{target:.2f}' for target in TARGETS)} |"
    cells = {line.strip("| ").split(" | ")[0]: line.strip("| ").split(" | ")[1:] for line in lines}
    times_s = {method: stored.median_time_s(method, "wan", TARGETS[1]) for method in stored.cells}
    arrived = sorted((time_s, method) for method, time_s in times_s.items() if math.isfinite(time_s))
    expected = ", ".join(f"{method} {seconds(time_s)}" for time_s, method in arrived[:3])
    assert cells["wan"][1] == f"{expected}; {len(arrived)} of {len(times_s)}"


def test_larger_models_have_the_same_methods_and_the_papers_rate(stored):
    rows = sizes(stored)
    assert {row.method for row in rows} == {*stored.cells, AT_PAPERS_RATE}
    assert 0 < trigger_rate(stored) < 1
    assert all(row.step_time_s >= row.compute_s * (1 - 1e-9) for row in rows)
    assert by_size(rows).count("\n") == 2 + len(stored.cells) + 1


def test_the_demo_has_each_method_in_80_characters(stored):
    head, *lines = in_columns(times_table(stored, TARGETS[1])).splitlines()
    assert [line.split()[0] for line in lines] == list(stored.cells)
    assert max(map(len, (head, *lines))) <= 80 and all(f"on {network}" in head for network in stored.networks)


def test_the_bundled_comparison_repeats_finals_of_the_small_form():
    spec, small = load_spec(SMALL, (), CompareSpec), finals(SMALL_RUN)
    for method in spec.methods:
        assert small.runs[method.name].method == method
    setting = small.setting
    for name in ("problem", "workers", "steps", "eval_every", "schedule", "compute", "overlap", "algorithm"):
        assert getattr(spec, name) == getattr(setting, name), name
    assert spec.seeds == setting.seeds[:1] and [link.name for link in spec.networks] == list(small.networks)
    rows = [{"method": method.name, "loss": 2.0} for method in spec.methods]
    assert differences(small, 0, rows).count("\n") == 2 + len(rows)


def test_readme_and_documentation_say_what_the_tables_have(stored):
    assert words(stored) in (ROOT / "docs" / "headline.md").read_text()
    assert " ".join(short_words(stored).split()) in " ".join((ROOT / "README.md").read_text().split())
    findings = (ROOT / "docs" / "findings.md").read_text()
    tables = "\n".join((losses(stored), by_network(stored), by_size(sizes(stored))))
    assert not [line for line in tables.splitlines() if line not in findings]
    assert set(README_METHODS) <= set(stored.cells) and set(README_NETWORKS) <= set(stored.networks)
