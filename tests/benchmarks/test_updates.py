"""The benchmark of updates beside gradients, at a size that takes no time."""

from __future__ import annotations

import json

import pytest

from benchmarks import updates
from syncline.problems import TextGPT


def test_each_method_has_the_time_of_its_update_and_of_its_gradient(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "PROBLEMS", {"tiny": TextGPT(width=8, layers=1, heads=1, context=4, batch_size=1)})
    monkeypatch.setattr(updates, "STEPS", 2)
    monkeypatch.setattr(updates, "ROUNDS", 1)
    updates.main(["--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["method"] for row in rows] == list(updates.METHODS)
    assert all(row["update_s"] > 0 and row["gradient_s"] > 0 for row in rows)


def test_the_table_has_the_update_over_the_gradient() -> None:
    (*_, row) = updates.table([updates.Measured("tiny", "dion", 0.002, 0.008, 0.1)]).splitlines()
    assert row == "| tiny | dion | 8.0 | 2.00 | 25% | 10% |"
