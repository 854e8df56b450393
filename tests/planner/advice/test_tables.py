"""Advice for people fits 80 columns and never names a bare winner."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from syncline.planner.advice.advice import Advice
from syncline.planner.advice.tables import advice_tables


def shown(advice: Advice) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, emoji=False, highlight=False)
    for table in advice_tables(advice):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_it_fits_a_terminal_in_one_piece(advice: Advice) -> None:
    text = shown(advice)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Ranked by time") == 1 and text.count("bounds") == 2  # not cut into blocks
    for words in ("Not given: batch", "the longest period is always the fastest", "What decides", "What nobody knows",
                  "played by events, message by message", "USD", "Cannot be", "memory: "):  # fmt: skip
        assert words in " ".join(text.split()), words


def test_ties_are_marked(advice: Advice) -> None:
    text = shown(advice)
    assert "\n 2 = " in text and "nobody can tell" in text


def test_a_deadline_that_an_upper_bound_misses_is_told(advice: Advice) -> None:
    between = (advice.ranked[0]["time_s"] + advice.ranked[0]["high_s"]) / 2
    late = replace(advice, question=replace(advice.question, deadline_s=between))
    assert f"{len(advice.ranked)} of {len(advice.ranked)} may miss the deadline" in " ".join(shown(late).split())
