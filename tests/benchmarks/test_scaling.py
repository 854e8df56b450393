"""Published tables of DiLoCo at scale, row by row: what is kept in results/scaling, and what it says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.scaling import (
    CHARLES,
    GRID,
    SETTINGS,
    STREAMING,
    TARGETS,
    UTILISATION,
    calculated,
    charles,
    main,
    on_grid,
    projected_shares,
    sufficient_rate,
    utilisation,
)

KEPT = Path(__file__).parents[2] / "results" / "scaling"


def kept(name: str) -> list[dict[str, str]]:
    with (KEPT / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_kept_is_what_comes_out() -> None:
    rows = charles()
    assert [row["what"] for row in kept("charles")] == [row.what for row in rows]
    for one, row in zip(kept("charles"), rows, strict=True):
        assert float(one["ours"]) == pytest.approx(row.ours, abs=2e-3)
    part = UTILISATION[0]
    for one, row in zip(kept("utilisation"), utilisation(part), strict=False):
        assert (one["model"], one["method"], float(one["utilisation"])) == (part.model, row.method, row.utilisation)
        assert float(one["project_gbit_s"]) == pytest.approx(row.project_gbit_s, rel=0.002)
        assert float(one["advise_gbit_s"]) == pytest.approx(row.advise_gbit_s, rel=0.002)
    told = calculated(SETTINGS[0])
    assert float(kept("calculator")[0]["ours_days"]) == pytest.approx(told.ours_days, rel=0.01)
    assert len(kept("calculator")) == len(SETTINGS) == 10


def test_printed_bandwidths_are_of_the_grid() -> None:
    for part in UTILISATION:
        for row in part.methods.values():
            for value in row:
                assert min(abs(value - one) for one in GRID) <= max(0.055, 0.01 * value)


def steps_off(rows: list[dict[str, str]], table: str, method: str, column: str) -> list[int]:
    """Return the distances of a table's cells from the printed values, in steps of the grid."""
    cells = [row for row in rows if row["where"] == table and row["method"].startswith(method)]
    return [abs(int(row[f"{column}_steps_off"])) for row in cells]


def test_project_meets_the_published_tables() -> None:
    """Every cell of both tables is projected; what docs/scaling.md says of them is counted here."""
    rows: list[dict[str, str]] = []
    for part in UTILISATION:
        shares = projected_shares(part)
        for name, printed in part.methods.items():
            for target, value in zip(TARGETS, printed, strict=True):
                _, distance = on_grid(sufficient_rate(shares[name], target), value)
                rows.append({"where": part.where, "method": name, "project_steps_off": str(distance)})
    assert [row["project_steps_off"] for row in rows] == [row["project_steps_off"] for row in kept("utilisation")]
    assert len(rows) == 165
    streaming = steps_off(rows, STREAMING, "streaming", "project")
    assert (len(streaming), streaming.count(0), max(streaming)) == (45, 39, 1)
    assert steps_off(rows, STREAMING, "DiLoCo", "project") == [0] * 15
    table_6 = steps_off(rows, CHARLES, "", "project")
    assert (len(table_6), table_6.count(0), table_6.count(1)) == (90, 44, 44)


def test_a_plan_of_advise_meets_the_published_tables() -> None:
    rows = kept("utilisation")
    streaming = steps_off(rows, STREAMING, "streaming", "advise")
    assert (len(streaming), streaming.count(0), max(streaming)) == (45, 37, 1)
    assert steps_off(rows, STREAMING, "DiLoCo", "advise") == [0] * 15


def test_two_papers_differ_in_the_same_setting() -> None:
    """Ten billion parameters, 0.8 s a step, an exchange every 100 steps: why Table 6 is a step or two lower."""
    table_4, table_6 = (part.methods["DiLoCo, H = 100"] for part in (UTILISATION[1], UTILISATION[3]))
    assert (UTILISATION[1].width, UTILISATION[1].step_s) == (UTILISATION[3].width, UTILISATION[3].step_s)
    assert all(a > b for a, b in zip(table_4, table_6, strict=True))


def test_the_calculator_pays_more_of_the_model_and_fewer_latencies() -> None:
    sequential = calculated(SETTINGS[2])
    assert sequential.calculator_utilisation < sequential.ours_utilisation < sequential.all_links_utilisation
    assert "sends 1.00 times the model by 2 latencies, the calculator's of 16 1.88 times" in sequential.why


def test_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--table", "charles"])
    assert "Table 10" in capsys.readouterr().out
