"""Advice for people fits 80 columns and never names a bare winner."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from syncline.planner.advice.advice import Advice
from syncline.planner.advice.sentences import compared
from syncline.planner.advice.tables import SHORT, TIED, advice_tables


def shown(advice: Advice, every_plan: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, emoji=False, highlight=False)
    for table in advice_tables(advice, every_plan):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_it_fits_a_terminal_in_one_piece(advice: Advice) -> None:
    text = shown(advice, every_plan=True)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Ranked by time") == 1 and text.count("bounds") == 2  # not cut into blocks
    for words in ("524,288 tokens in a step", "the longest period is always the fastest", "What decides",
                  "What nobody knows", "played by events, message by message",
                  "USD", "Cannot be", "memory: "):  # fmt: skip
        assert words in " ".join(text.split()), words


def test_ties_are_marked(advice: Advice) -> None:
    text = shown(advice, every_plan=True)
    assert re.search(r"\n \d+ = ", text) and "nobody can tell" in text


def test_the_short_form_is_assumptions_a_verdict_and_ten_plans(advice: Advice) -> None:
    text = shown(advice)
    assert max(map(len, text.splitlines())) <= 80
    assumptions, verdict, plans = (text.index(words) for words in ("\nAssumptions", "\nVerdict", "\nPlans by time"))
    assert assumptions < verdict < plans
    assert " ".join(text[verdict:plans].split()) == " ".join(["Verdict", *advice.verdict])
    others = compared(advice.question, advice.loss_unknown)
    assert {row["period"] for row in others} == {1, advice.question.compared_period}
    assert " same " in text[plans:] and " unknown " in text[plans:] and f"{TIED} " in text[plans:]
    lines = [line for line in text[plans:].splitlines() if line.startswith(" ") and line.strip().endswith(" d")]
    assert len(lines) == SHORT


def test_the_verdict_has_the_saving_and_its_interval(advice: Advice) -> None:
    do, saving, change = advice.verdict
    first = advice.ranked[0]
    parallel = next(row for row in advice.ranked if row["method"] == "ddp-adam")
    assert do.startswith(f"Train with {first['method']}") and "to the same loss" in do
    assert f"It saves {1 - first['time_s'] / parallel['time_s']:.0%} (" in saving and "ddp-adam" in saving
    assert change == advice.changes[0]


def test_a_deadline_that_an_upper_bound_misses_is_told(advice: Advice) -> None:
    between = (advice.ranked[0]["time_s"] + advice.ranked[0]["high_s"]) / 2
    late = replace(advice, question=replace(advice.question, deadline_s=between))
    assert f"{len(advice.ranked)} of {len(advice.ranked)} may miss the deadline" in " ".join(shown(late).split())
