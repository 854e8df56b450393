"""`sl.advise`: the same rows as objects."""

from __future__ import annotations

import pytest

import syncline as sl


def test_rows_are_those_of_the_advice() -> None:
    asked = {"network": "two-sites", "hardware": "h100", "workers": 4, "methods": ["ddp-adam", "demo"]}
    advice = sl.advise("gpt-160m", **asked)
    assert [row["list"] for row in advice.rows] == sorted(
        (row["list"] for row in advice.rows), key=["ranked", "loss unknown", "infeasible"].index
    )
    assert list(advice.summary["method"]) == [row["method"] for row in advice.rows]
    assert "Verdict" in str(advice) and "Plans by time" in str(advice)


def test_mistakes_are_called_as_python_does() -> None:
    with pytest.raises(sl.SpecError, match=r"^batch_tokens: got 'many'"):
        sl.advise("gpt-160m", "two-sites-a100", batch_tokens="many")
