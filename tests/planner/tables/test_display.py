from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from syncline.planner.projection.project import project
from syncline.planner.projection.tables import project_tables
from syncline.planner.tables import display
from syncline.runs.catalogue import CATALOGUES
from syncline.specs import load_spec
from tests.runs.examples import bowl, bowl_run


def lines(tables, width=100):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def row(method, network, **fields):
    clock = {"step_time_s": 0.1514, "compute_s": 1e-3, "communication_s": 0.1504, "communication_share": 0.993,
             "exposed_communication_s": 0.1504, "bytes_per_worker": 19240.0, "wall_clock_s": 9.69}  # fmt: skip
    told = {"speedup": 1.0, "loss": 0.4701, "target_loss": 1.5998, "time_to_target_s": 3.35, "interrupted": False,
            "time_to_target_speedup": 1.0, "diverged_at": None, "steps": 64, "workers": 3}  # fmt: skip
    return {"method": method, "network": network, **clock, **told, **fields}


def test_a_comparison_fits_a_terminal_of_100_columns_uncut():
    spec = bowl(methods=["ddp-adam", "des-loc-adopt", "diloco", "mt-dao-adopt"])
    rows = [
        row(name, link.name, **fields)
        for link in spec.networks
        for name, fields in {
            "ddp-adam": {},
            "des-loc-adopt": {"loss": math.inf, "diverged_at": 17, "time_to_target_s": math.inf, "speedup": None},
            "diloco": {"loss": 22410.4, "steps": 31, "interrupted": True, "time_to_target_speedup": None},
            "mt-dao-adopt": {"loss": 3.2e-7, "time_to_target_s": None},
        }.items()
    ]
    shown = lines(display.compare_tables(rows, spec))
    assert max(map(len, shown)) <= 100 and not any("…" in line for line in shown)
    assert "10gbe: 50 us one way, 10 Gbit/s, 3 workers, 40 steps" in shown
    cells = {line.split()[0]: line.split() for line in shown if line.startswith((" ddp", " des", " dil", " mt"))}
    ddp = ["ddp-adam", "0.4701", "151 ms", "99%", "1.00x", "3.35 s", "1.00x"]
    assert cells["ddp-adam"] == " ".join(ddp).split()
    assert cells["des-loc-adopt"][1] == "diverged" and cells["des-loc-adopt"][-3:-1] == ["-", "-"]
    assert cells["diloco"][1] == "2.241e+04" and cells["mt-dao-adopt"][1] == "3.200e-07"
    assert {"(step 17)", "(step 31)"} <= {line.strip() for line in shown}
    assert "1.600" in " ".join(shown) and shown[-4].startswith("Waiting") and "over ddp-adam" in " ".join(shown[-4:])


def test_an_interrupt_before_the_first_step_has_no_tables():
    assert display.compare_tables([], bowl()) == []


@pytest.mark.parametrize("timed", [True, False])
def test_a_run_shows_its_seeds_and_the_clock_that_they_share_once(timed):
    rows = [row("local-adam", "wan", seed=seed) for seed in (0, 1)]
    metrics = {"loss", "seed", "steps", "workers", "method", "network", "diverged_at"}
    rows = [one if timed else {name: one[name] for name in metrics} for one in rows]
    shown = lines(display.run_tables(rows, bowl_run()))
    assert [line.split()[0] for line in shown if line.lstrip().startswith(("0 ", "1 ", "wan "))] == (
        ["0", "1", "wan"] if timed else ["0", "1"]
    )


def test_a_run_says_which_seeds_diverged():
    lost = {"loss": math.nan, "train_loss": math.inf, "diverged_at": 17}
    rows = [row("local-adam", "wan", seed=0), row("local-adam", "wan", seed=1, **lost)]
    rows[0] |= {"train_loss": 0.25}
    shown = lines(display.run_tables(rows, bowl_run()))
    first, second = (next(line for line in shown if line.lstrip().startswith(f"{seed} ")) for seed in (0, 1))
    assert "diverged" not in first and "0.2500" in first
    assert second.count("diverged") == 2 and not any("nan" in line or "inf" in line.split() for line in shown)
    assert shown[shown.index(second) + 1].count("(step 17)") == 2


@pytest.mark.parametrize(("name", "width"), [("project-gpt-160m", 80), ("curvadion-table3", 100)])
def test_projections_fit_a_terminal_uncut(name, width):
    spec = load_spec(name)
    shown = lines(project_tables(project(spec), spec), width)
    assert max(map(len, shown)) <= width and not any("…" in line for line in shown)
    assert sum(line.startswith((" mt-dao", " wan")) for line in shown) == (4 if name == "project-gpt-160m" else 1)


@pytest.mark.parametrize("what", CATALOGUES)
def test_lists_fit_a_terminal_of_100_columns_and_name_everything(what):
    rows = CATALOGUES[what](print)
    shown = lines([display.catalogue_table(what, rows)])
    assert max(map(len, shown)) <= 100 and not any("…" in line for line in shown)
    for one in rows:
        assert any(one["name"] in line.split() for line in shown)


def test_what_methods_send_is_told_as_a_formula():
    sends = {one["name"]: one["bytes_per_worker_and_step"] for one in CATALOGUES["methods"](print)}
    assert sends["ddp-adam"] == "4 N"
    assert sends["local-adam"] == "12 N / 32"
    assert sends["des-loc"] == "8 N / 32 + 4 N / 69"
    assert sends["mt-dao-muon"] == "(8 N + 4 N') / 32"
    assert sends["curvadion"] == "4 + 4 N / 100"
    assert sends["dion-compressed"] == sends["powersgd"] == "4 (Σ (m + n) r + rest)"
    assert sends["demo"] == "12 × 32 N / 64²"
