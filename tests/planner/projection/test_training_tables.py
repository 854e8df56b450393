"""What tables say of whole trainings: few lines, few columns, 80 characters."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

import syncline as sl


def drawn(width: int = 80, **asked: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for one in sl.project(thresholds=False, **asked).tables:
        console.print(one)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


LLAMA: dict[str, Any] = {"model": "llama-7b", "cluster": "two-sites-a100", "tokens": "140B"}


def test_one_line_says_of_all_methods_why_their_loss_is_unknown() -> None:
    text = " ".join(drawn(200, methods=["ddp-adam", "diloco", "mt-dao", "demo"], **LLAMA))
    assert text.count("Loss unknown of") == 2
    assert "ddp-adam, diloco: 6.738 B parameters, outside the range of the fits, 35 M to 2.4 B; --extrapolate" in text
    assert "mt-dao, demo: no published fit covers this method." in text


def test_what_the_fit_has_not_seen_is_named() -> None:
    asked = {"model": "gpt-160m", "networks": ["wan"], "methods": ["ddp-adam", "diloco"], "tokens": "3B"}
    assert "ddp-adam, diloco: 18.5 tokens per parameter, outside the range of the fits, 19.5 to 20.5" in " ".join(
        drawn(**asked)
    )


@pytest.mark.parametrize(
    ("more", "headings"),
    [
        ({}, "method every step time waiting speedup training loss"),
        ({"prices": "aws-p4de-2026-11"}, "method every speedup training loss cost energy"),
        (
            {"tokens": None, "target_loss": 2.3, "extrapolate": True},
            "method every step time speedup training tokens loss",
        ),
    ],
)
def test_a_training_s_columns_fit_80_characters(more: dict[str, Any], headings: str) -> None:
    shown = drawn(methods=["ddp-adam", "diloco"], layout="data=32", **LLAMA | more)
    assert max(map(len, shown)) <= 80
    assert [line.split() for line in shown if line.startswith(" method")] == [headings.split()]
