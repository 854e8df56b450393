"""Published tables of DiLoCo at scale, row by row: what is kept in results/scaling, and what it says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.scaling import GRID, SETTINGS, UTILISATION, Utilisation, calculated, charles, main, utilisation

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
        assert float(one["ours_gbit_s"]) == pytest.approx(row.ours_gbit_s, rel=0.02)
    told = calculated(SETTINGS[0])
    assert float(kept("calculator")[0]["ours_days"]) == pytest.approx(told.ours_days, rel=0.01)
    assert len(kept("calculator")) == len(SETTINGS) == 10


def test_printed_bandwidths_are_of_the_grid() -> None:
    for part in UTILISATION:
        for row in part.methods.values():
            for value in row:
                assert min(abs(value - one) for one in GRID) <= max(0.055, 0.01 * value)


def test_methods_meet_the_table_where_nothing_hides_behind_the_last_backward_pass() -> None:
    rows: list[Utilisation] = [row for part in UTILISATION[:2] for row in utilisation(part)]
    ddp = [row for row in rows if row.method == "data parallelism" and row.utilisation <= 0.95]
    assert all(abs(row.steps_off) <= 1 for row in ddp)
    half = [row for row in rows if row.method.startswith("DiLoCo") and row.utilisation <= 0.9]
    assert all(0 <= row.steps_off <= 1 for row in half)
    diloco = [row for row in rows if row.method.startswith("DiLoCo")]
    assert all(abs(row.backward_steps_off) <= 1 for row in diloco)


def test_the_calculator_pays_more_of_the_model_and_fewer_latencies() -> None:
    sequential = calculated(SETTINGS[2])
    assert sequential.calculator_utilisation < sequential.ours_utilisation < sequential.all_links_utilisation
    assert "sends 1.00 times the model by 2 latencies, the calculator's of 16 1.88 times" in sequential.why


def test_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--table", "charles"])
    assert "Table 10" in capsys.readouterr().out
