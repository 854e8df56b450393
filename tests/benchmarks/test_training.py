"""The benchmark of training steps, at a size that takes no time."""

from __future__ import annotations

import json

import pytest

from benchmarks import training


def test_its_json_is_one_object_with_a_row_for_each_method_and_group(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "STEPS", 1)
    training.main(["--quick", "--rounds", "1", "--relus", "4", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == 4 * 75 + 10
    expected = {(name, workers) for name in training.METHODS for workers in training.WORKERS}
    assert {(row["method"], row["workers"]) for row in told["rows"]} == expected
    assert all(row["of_bare"] == row["step_s"] / row["bare_s"] > 0 for row in told["rows"])
