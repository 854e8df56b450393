"""What MT-DAO saves over data parallelism, without overlap and with it: the table of the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import syncline as sl

FINDINGS = Path(__file__).parents[3] / "docs" / "findings.md"
COMPUTE = {"hardware": "h100", "mfu": 0.4}
"""The findings tell the savings at this utilisation; without one, the kernels of a step are added up."""

AS_THE_PAPER = {"overlap": "none", "algorithm": "ring", "precision": "fp32"}
TOKENS = {"mt-dao-125m": 131_072, "mt-dao-720m": 262_144, "mt-dao-1.3b": 524_288}
"""Of a worker and step: a fourth of Table 2's batches."""

COLUMNS: tuple[dict[str, Any], ...] = (AS_THE_PAPER, AS_THE_PAPER | {"overlap": "ddp"}, {})


def saved_percent(model: str, bandwidth: str, how: dict[str, Any]) -> float:
    net = {"name": "between", "latency": "50us", "bandwidth": bandwidth}
    methods = ["ddp-adam", "mt-dao"]
    fields: dict[str, Any] = {
        "workers": 4,
        "tokens_per_worker": TOKENS[model],
        "steps": 4096,
        "thresholds": False,
        "period": "preset",
        "compute": COMPUTE,
    }
    ddp, mt_dao = sl.project(model=model, methods=methods, networks=[net], **fields, **how).rows
    return 100 * (1 - mt_dao["step_time_s"] / ddp["step_time_s"])


def told() -> list[tuple[str, ...]]:
    """The table's rows."""
    section = FINDINGS.read_text().split("## MT-DAO: the saving over data parallelism")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| mt-dao")]
    return [tuple(cell.strip() for cell in row) for row in rows]


def test_the_table_has_three_models_on_two_networks() -> None:
    assert len(told()) == 6


@pytest.mark.parametrize("row", told(), ids=lambda row: " ".join(row[:2]))
def test_savings_are_those_that_are_told(row: tuple[str, ...]) -> None:
    model, bandwidth, *percent = row
    assert [f"{saved_percent(model, bandwidth, how):.1f}" for how in COLUMNS] == percent
