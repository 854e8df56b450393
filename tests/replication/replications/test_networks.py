"""Clocks on networks that nobody trained on: the same as if somebody had."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from replication.replications.choosing import method_with
from replication.replications.networks import firsts, rows_over_networks, timed_cells, untimed
from replication.replications.networks_page import networks_page
from replication.replications.reading import read_replication
from replication.replications.replicate import replicate
from replication.replications.stages import final_stages
from replication.replications.tables import replication_tables
from syncline.analysis import time_to_target_s
from tests.replication.replications.small import tiny
from tests.runs.sweep.small import counted_trainings


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    return replicate(tiny(folder, {"networks": ["10gbe", "wan"]}), folder / "out", jobs=1)


def cells_of(result, **changes):
    chosen = {one.label: method_with(one, result.chosen[one.label]["knobs"]) for one in result.spec.methods}
    stages = list(final_stages(result.spec, chosen, lambda _: {}))
    return timed_cells(result.spec.model_copy(update=changes), stages, result.kept)


def test_on_the_network_of_the_trainings_it_is_their_clock(made):
    """Step for step: finals were timed on the default network when they were trained, by their own ledgers."""
    rows = [row for row in made.networks if row["network"] == "10gbe"]
    assert [(row["method"], row["setting"]) for row in rows] == [
        ("together", "finals"),
        ("apart", "finals"),
        ("apart", "K4"),
    ]
    kept = [made.kept["finals"].rows, made.kept["extra K4"].rows]
    for row in rows:
        own = [one for one in kept[row["setting"] == "K4"] if one["method"] == row["method"]]
        assert all(one["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-12) for one in own)
        assert {one["bytes_per_worker"] for one in own} == {row["bytes_per_worker"]}
        assert row["training_s"] == pytest.approx(8 * row["step_time_s"])


def test_on_a_slow_network_steps_take_the_latency_besides(made):
    """Two workers: an all-reduce of 8 bytes is a reduce-scatter and an all-gather, or one exchange, of 25 ms each."""
    finals = [row for row in made.networks if row["network"] == "wan" and row["setting"] == "finals"]
    step = {row["method"]: row["step_time_s"] for row in finals}
    assert step["together"] == pytest.approx(1e-3 + 25e-3, rel=1e-3)  # the fastest algorithm: one exchange
    assert step["apart"] == pytest.approx(1e-3 + 25e-3 / 2, rel=1e-3)  # every second step


def test_who_is_first_is_told_of_the_finals_and_nothing_is_trained(made):
    with counted_trainings() as begun:
        cells = cells_of(made)
    assert begun == []
    rows = rows_over_networks(cells, made.spec.networks)
    assert rows == made.networks == pq.read_table(made.folder / "networks.parquet").to_pylist()
    on_wan = [row for row in rows if row["network"] == "wan" and row["setting"] == "finals"]
    assert firsts(rows, "to_all_s")["wan"] == min(on_wan, key=lambda row: row["to_all_s"])


def test_a_method_wins_a_seed_if_it_is_there_before_all_others(made):
    """By a loop over seeds; extras do not take part."""
    finals = [one for one in cells_of(made) if not one.cell.extra]
    rows = {row["method"]: row for row in made.networks if row["network"] == "wan" and row["setting"] == "finals"}
    aim, wins = rows["apart"]["to_all_loss"], dict.fromkeys(rows, 0)
    for seed in range(5):
        times = {
            one.cell.method: time_to_target_s(one.curve.clock_s["wan"], one.curve.loss[seed], aim) for one in finals
        }
        best = min(times.values())
        winners = [method for method, at in times.items() if at == best < float("inf")]
        if len(winners) == 1:
            wins[winners[0]] += 1
    assert wins == {method: row["seeds_first_to_all"] for method, row in rows.items()} and sum(wins.values()) > 0
    assert {row["seeds_first_to_all"] for row in made.networks if row["setting"] == "K4"} == {None}


def test_what_depends_on_values_has_no_clock(made):
    """Finals that sent something else than their method's closed form says."""
    for row in made.kept["finals"].rows:
        row["bytes_per_worker"] *= 1.5 if row["method"] == "apart" else 1
    rows = {(one.cell.method, one.cell.extra): one for one in cells_of(made)}
    assert rows["apart", ""].step_time_s == {} != rows["together", ""].step_time_s
    (row,) = rows_over_networks([rows["apart", ""]], ["wan"])
    assert (row["to_all_s"], row["timed_by"]) == (None, None)


def test_workers_at_their_own_pace_have_a_clock_where_all_come_in_the_order_of_the_training(tmp_path):
    """It is their own on the network of the trainings, and on a faster one; on a slow one messages change the order."""
    late = {"kind": "diloco", "label": "apart", "rule": "sgdm", "period": 2, "lr": 0.1}
    changes = {"methods.1.method": late | {"asynchronous": {}}, "training.speeds": [1.0, 0.4]}
    changes |= {"networks": ["infiniband", "10gbe", "wan"], "rerun": None, "search.trials": 1, "finals.seeds": 1}
    result = replicate(tiny(tmp_path, changes), tmp_path / "out", jobs=1)
    (own,) = {row["step_time_s"] for row in result.kept["finals"].rows if row["method"] == "apart"}
    rows = {row["network"]: row for row in result.networks if (row["method"], row["setting"]) == ("apart", "finals")}
    assert rows["10gbe"]["step_time_s"] == pytest.approx(own, rel=1e-12)
    assert [rows[name]["training_s"] is not None for name in ("infiniband", "10gbe", "wan")] == [True, True, False]
    assert rows["infiniband"]["training_s"] < rows["10gbe"]["training_s"] == pytest.approx(8 * own)
    assert rows["wan"]["step_time_s"] > rows["10gbe"]["step_time_s"] + 0.01
    assert [rows[name]["timed_by"] for name in ("infiniband", "10gbe", "wan")] == ["events", "events", None]
    assert untimed(result.networks) == ["wan"] and "wan" not in firsts(result.networks, "to_all_s", extras=True)
    assert "Who is first is not told of wan" in " ".join((result.folder / "README.md").read_text().split())


def test_the_page_says_who_is_first(made):
    page = (made.folder / "README.md").read_text()
    assert "## Over networks" in page and "First at " in page and "![losses over bytes](bytes.png)" in page
    assert (made.folder / "networks.png").stat().st_size > 5000


def test_who_never_gets_there_is_named_below_the_rows(made):
    """Aims that nobody reaches, whichever rows of them there are."""
    nobody = replace(made, networks=[{**row, "to_all_s": None, "to_first_s": None} for row in made.networks])
    page = "\n".join(networks_page(nobody))
    assert "First at" in page and "Never: together in finals, apart in finals" in page
    assert "| together |" not in page


def test_the_command_s_table_says_so_too(made):
    console = Console(width=80, file=StringIO())
    for one in replication_tables(made, {}):
        console.print(one)
    text = console.file.getvalue()
    assert "first over networks" in text
    (line,) = [line for line in text.splitlines() if line.startswith(" wan ")]
    assert "apart" in line and "of 5" in line and max(map(len, text.splitlines())) <= 80


def test_a_folder_that_is_read_again_has_them(made):
    path = made.folder.parent / "tiny.yaml"
    replicate(made.spec, made.folder, jobs=1, command=f"syncline replicate {path}")
    again = read_replication(made.folder)
    assert again.networks == made.networks and again.chosen == made.chosen and again.verdicts == made.verdicts
