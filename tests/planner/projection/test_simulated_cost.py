"""Rows of what has no closed form on a network: played, or without a time and a word why; all others as they were."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.costmodel import collective_s
from syncline.planner.projection.project import project, project_all
from syncline.planner.projection.tables import project_tables
from syncline.sim import collective_finish_s
from syncline.sim.clocks import single_collective as simulated_cost
from syncline.specs import ProjectSpec, load_spec, network

NO_FORM = "algorithm=hierarchical-doubling"
"""An all-reduce on nodes, which has a closed form; an all-gather then goes round a ring of all, without one."""

TIMES = ("step_time_s", "communication_s", "exposed_communication_s", "communication_share", "wall_clock_s", "speedup")
STAR = {
    "hosts": ["a", "b", "c", "d"],
    "edges": [{"from": one, "to": "switch", "latency": "25us", "bandwidth": "10 Gbit/s"} for one in "abcd"],
    "name": "star",
}


def spec_of(*overrides: str, methods: str = "[ddp-adam, demo, diloco]", on: Any = "dgx-h100") -> ProjectSpec:
    plain = ["precision=fp32", "overlap=none"]
    given = [f"methods={methods}", f"networks=[{json.dumps(on)}]", *plain, *overrides]
    return load_spec("project-gpt-160m", given, ProjectSpec)


def rows_of(*overrides: str, algorithm: str | None = None, **fields: Any) -> dict[str, dict[str, Any]]:
    overrides += (f"algorithm={algorithm}",) if algorithm else ()
    return {row["method"]: row for row in project(spec_of(*overrides, **fields))}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is played, as on networks of many thousands."""
    monkeypatch.setattr(simulated_cost, "MAX_MESSAGES", {"lockstep": 10, "events": 10})
    monkeypatch.setattr(simulated_cost, "MAX_REPEATED_MESSAGES", {"lockstep": 10, "events": 10})
    simulated_cost.simulated_s.cache_clear()
    yield
    simulated_cost.simulated_s.cache_clear()


def test_a_collective_without_a_closed_form_is_played_and_says_so() -> None:
    rows, others = rows_of("workers=64", NO_FORM), rows_of("workers=64", NO_FORM, methods="[ddp-adam, diloco]")
    assert {name: row["timed_by"] for name, row in rows.items()} == {
        "ddp-adam": "closed form", "demo": "lockstep", "diloco": "closed form"
    }  # fmt: skip
    assert rows["demo"]["not_timed"] is None
    assert {name: row for name, row in rows.items() if name != "demo"} == others
    nbytes = rows["demo"]["bytes_per_worker"]
    alone = collective_finish_s("all_gather", 64, nbytes, network("dgx-h100"), "ring", evaluator="lockstep")
    assert rows["demo"]["communication_s"] == pytest.approx(alone.max(), rel=1e-12)


def test_a_graph_that_is_a_star_takes_what_links_take() -> None:
    link = {"latency": "50us", "bandwidth": "10 Gbit/s", "name": "star"}
    links, graph = rows_of(on=link, algorithm="ring"), rows_of(on=STAR, algorithm="ring")
    for name, row in links.items():
        assert graph[name]["timed_by"] == "lockstep" and row["timed_by"] == "closed form"
        assert [graph[name][one] for one in TIMES] == pytest.approx([row[one] for one in TIMES], rel=1e-12)


@pytest.mark.parametrize("overlap", ["none", "ddp", "async"])
def test_a_row_without_a_time_says_why_and_leaves_the_others_alone(few: None, overlap: str) -> None:
    how = f"overlap={overlap}", NO_FORM
    rows, others = rows_of("workers=64", *how), rows_of("workers=64", *how, methods="[ddp-adam, diloco]")
    assert {name: row for name, row in rows.items() if name != "demo"} == others
    demo = rows["demo"]
    assert demo["timed_by"] is None
    assert demo["not_timed"] == (
        "all_gather by ring among 64 has no closed form here: 4,032 messages are too many for lockstep, "
        "which simulates at most 10"
    )
    assert all(demo[name] is None for name in TIMES)
    assert demo["compute_s"] and demo["bytes_per_worker"] and demo["memory_bytes"]


def test_a_baseline_without_a_time_gives_no_speedups(few: None) -> None:
    rows = rows_of("workers=64", NO_FORM, methods="[demo, ddp-adam]")
    assert (rows["ddp-adam"]["speedup"], rows["demo"]["speedup"]) == (None, None)
    assert rows["ddp-adam"]["step_time_s"]


def test_tables_and_files_have_the_row(few: None, tmp_path: Path) -> None:
    spec = spec_of("workers=64", NO_FORM)
    console = Console(width=80, record=True)
    for table in project_tables(project(spec), spec):
        console.print(table)
    shown = console.export_text()
    assert "\n demo" in shown and max(map(len, shown.splitlines())) <= 80
    assert "-: demo: all_gather by ring among 64" in shown
    given = ["project", "--network", "dgx-h100", "--algorithm", NO_FORM.partition("=")[2]]
    given += ["--workers", "64", "--method", "ddp-adam,demo"]
    done = CliRunner().invoke(app, [*given, "--csv", str(tmp_path / "r.csv"), "--parquet", str(tmp_path / "r.parquet")])
    assert done.exit_code == 0, done.output
    with (tmp_path / "r.csv").open() as file:
        assert [row["step_time_s"] != "" for row in csv.DictReader(file)] == [True, False]
    table = pq.read_table(tmp_path / "r.parquet")
    assert table["timed_by"].to_pylist() == ["closed form", None]
    assert table["step_time_s"].null_count == table["not_timed"].null_count == 1
    grid = [*given[:5], "--method", "ddp-adam,demo", "--grid", "workers=8,64", "--parquet", str(tmp_path / "g.parquet")]
    assert CliRunner().invoke(app, grid).exit_code == 0
    rows = pq.read_table(tmp_path / "g.parquet")
    assert rows["timed_by"].to_pylist() == ["closed form"] * 3 + [None]


def test_a_note_tells_who_played() -> None:
    spec = spec_of("workers=64", NO_FORM)
    console = Console(width=80, record=True)
    for table in project_tables(project(spec), spec):
        console.print(table)
    assert "No closed form, simulated by lockstep: demo on dgx-h100." in console.export_text()


def test_messages_that_meet_are_played_by_events() -> None:
    rows = rows_of("workers=4", on={"latency": "50us", "bandwidth": "1 Gbit/s", "duplex": "half", "name": "hub"},
                   methods="[ddp-adam, lion-cub]", algorithm="ring")  # fmt: skip
    hub = network({"latency": "50us", "bandwidth": "1 Gbit/s", "duplex": "half"})
    closed = collective_s("all_reduce", 4, 4 * 162_201_600, hub)
    assert rows["ddp-adam"]["communication_s"] == pytest.approx(closed, rel=1e-12)
    seconds, by = simulated_cost.simulated_s("all_reduce", 3, 1e6, hub, "rabenseifner")
    assert by == "events"
    assert seconds == collective_finish_s("all_reduce", 3, 1e6, hub, "rabenseifner", evaluator="events").max()


def test_half_duplex_links_of_which_some_have_no_closed_form() -> None:
    """Three workers are no power of two: `rabenseifner` is played there, and no threshold is told."""
    hub = {"latency": "50us", "bandwidth": "1 Gbit/s", "duplex": "half"}
    names = ["slow", "fast"]
    both = [hub | {"name": "slow"}, hub | {"name": "fast", "bandwidth": "10 Gbit/s"}]
    spec = load_spec(
        "project-gpt-160m",
        [
            f"networks={json.dumps(both)}",
            "methods=[ddp-adam, diloco]",
            "algorithm=rabenseifner",
            "workers=3",
            "precision=fp32",
            "overlap=none",
        ],
        ProjectSpec,
    )
    rows = project(spec)
    assert [(row["network"], row["timed_by"]) for row in rows] == [(name, "events") for name in names for _ in "12"]
    assert all(row["faster"] is None for row in rows)
    for row, given in zip(rows[::2], both, strict=True):
        alone = collective_finish_s(
            "all_reduce", 3, 4 * 162_201_600.0, network(given), "rabenseifner", evaluator="events"
        )
        assert row["communication_s"] == pytest.approx(alone.max(), rel=1e-12)
    assert np.isfinite([row["speedup"] for row in rows]).all()


def test_numbers_of_workers_that_a_network_cannot_join_have_rows_that_say_so(tmp_path: Path) -> None:
    given = ["project", "--network", "dgx-h100", "--network", "wan", "--method", "ddp-adam,demo"]
    done = CliRunner().invoke(app, [*given, "--workers", "8,12,1", "--json"])
    rows = json.loads(done.stdout)["rows"]
    why = "dgx-h100 cannot connect so many workers; expected a multiple of 8, the workers of a node"
    assert {row["workers"] for row in rows if row["not_timed"]} == {12}
    assert [row["not_timed"] for row in rows if row["workers"] == 12] == [why, why, None, None]
    assert all((row["step_time_s"] is None) == (row["not_timed"] is not None) for row in rows)
    grid = [*given, "--grid", "workers=8,12", "--parquet", str(tmp_path / "g.parquet")]
    assert CliRunner().invoke(app, grid).exit_code == 0
    assert pq.read_table(tmp_path / "g.parquet")["step_time_s"].null_count == 2
    refused = CliRunner().invoke(app, [*given, "--workers", "12"])
    line = "workers: got 12; expected a multiple of 8, the workers of a node (network 'dgx-h100')"
    assert refused.exit_code != 0 and (line in str(refused.exception) or line in refused.output)
    on = [f"networks=[{json.dumps(STAR)}]", "methods=[demo, ddp-adam]"]
    specs = [load_spec("project-gpt-160m", [*on, f"workers={workers}"], ProjectSpec) for workers in (4, 5)]
    told = [row["not_timed"] for row in project_all(specs)]
    assert (
        told == [None] * 2 + ["star cannot connect so many workers; expected at most 4, the hosts of the network"] * 2
    )
