"""Tables of docs/when.md, made from the kept trainings; a test compares the page with them.

python -m replication.when.page
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pandas as pd

from replication.when.results import (
    COMPARED,
    Cell,
    chosen_rates,
    decide,
    early_share,
    equal_workers,
    finals,
    losses,
    noise,
    of_arm,
    outcome,
    over_even,
    stored_finals,
    stored_trainings,
)
from replication.when.setting import PLACEMENTS, TRIGGERS, when_setting


def size_of(tokens: int) -> str:
    """Return a batch as the page writes it.

    >>> size_of(8192)
    '8k'
    """
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def difference_text(differences: pd.Series) -> str:
    """Return the median of differences and how many seeds are below 0, in bold if the rule counts the difference.

    >>> difference_text(pd.Series([-0.03, -0.01, -0.05])), difference_text(pd.Series([0.001, -0.01, -0.05]))
    ('**-0.030** (3/3)', '-0.010 (2/3)')
    """
    middle = f"{median(differences):+.3f}"
    shown = f"**{middle}**" if outcome(differences) in ("below", "above") else middle
    return f"{shown} ({int((differences < 0).sum())}/{len(differences)})"


def differences_table(frame: pd.DataFrame, setting: Mapping[str, Any], form: str) -> Iterator[str]:
    """Yield a table of the differences to the even schedule at equal counts, by batch and count."""
    yield "| tokens per step | averages | even | " + " | ".join(COMPARED) + " | every step |"
    yield "|---" * 8 + "|"
    for count in setting["counts"]:
        for tokens in batches_of(frame, form):
            cell = Cell(form, tokens, count)
            averages = of_arm(frame, cell, "trigger")["averages"]
            even, every = (f"{median(losses(frame, cell, arm)):.3f}" for arm in ("even", "every"))
            others = " | ".join(difference_text(over_even(frame, cell, arm)) for arm in COMPARED)
            yield f"| {size_of(tokens)} | {averages.min()} to {averages.max()} | {even} | {others} | {every} |"


def rule_table(frame: pd.DataFrame, setting: Mapping[str, Any], form: str) -> Iterator[str]:
    """Yield a table of the rule's outcomes by batch."""
    few, many = setting["counts"]
    yield (
        f"| tokens per step | seeds | {many} over {few} even averages gain | spread over placements at {few}, {many} "
        "| trigger less even at both | thesis | placement over number |"
    )
    yield "|---" * 7 + "|"
    for tokens in batches_of(frame, form):
        row = decide(frame, form, tokens, setting["counts"])
        yield (
            f"| {size_of(tokens)} | {row.seeds} | {row.gain:+.3f} | {row.spreads[0]:.3f}, {row.spreads[1]:.3f} "
            f"| {row.trigger[0]:+.3f}, {row.trigger[1]:+.3f} | {row.thesis} | {row.placement} |"
        )


def noise_table(frame: pd.DataFrame, setting: Mapping[str, Any], trainings: pd.DataFrame) -> Iterator[str]:
    """Yield a table of the shares of noise by batch, for both forms of averages and for equal workers."""
    many = setting["counts"][1]
    yield (
        f"| average of | tokens per step | deviation of noise | shared share | steps above 2k's threshold of {many} "
        "| of them in the first sixth |"
    )
    yield "|---" * 6 + "|"
    for form in setting["forms"]:
        for tokens, row in noise(frame, form, setting["tokens"], setting["counts"]).items():
            yield (
                f"| {form} | {size_of(tokens)} | {row.deviation:.3f} | {row.share:.2f} | {row.exceeded:g} "
                f"| {row.early:g} |"
            )
    for tokens, (deviation, share) in equal_workers(trainings).items():
        yield f"| gradients, in every step | {size_of(tokens)} | {deviation:.3f} | {share:.2f} | | |"


def early_table(frame: pd.DataFrame, setting: Mapping[str, Any], form: str) -> Iterator[str]:
    """Yield a table of the share of the triggers' averages that lies in the first sixth of the steps."""
    yield "| tokens per step | " + " | ".join(
        f"{arm}, {count}" for arm in TRIGGERS for count in setting["counts"]
    ) + " |"  # fmt: skip
    yield "|---" * 5 + "|"
    for tokens in batches_of(frame, form):
        shares = [
            f"{early_share(frame, Cell(form, tokens, count), arm, setting['steps']):.0%}"
            for arm in TRIGGERS
            for count in setting["counts"]
        ]
        yield f"| {size_of(tokens)} | {' | '.join(shares)} |"


def rates_table(frame: pd.DataFrame, setting: Mapping[str, Any], form: str) -> Iterator[str]:
    """Yield a table of the rates that the search chose; those at an end of the grid are in italics."""
    arms = ("every", *PLACEMENTS, *TRIGGERS)
    yield "| tokens per step | " + " | ".join(arms) + " |"
    yield "|---" * 7 + "|"
    ends = (min(setting["rates"]), max(setting["rates"]))
    for tokens in batches_of(finals(frame), form):
        rates = chosen_rates(frame, form, tokens)
        shown = [f"*{rates[arm]:g}*" if rates[arm] in ends else f"{rates[arm]:g}" for arm in arms]
        yield f"| {size_of(tokens)} | {' | '.join(shown)} |"


def batches_of(frame: pd.DataFrame, form: str) -> list[int]:
    """Return the batches of a form, the smallest first."""
    return sorted(int(tokens) for tokens in frame.loc[frame["form"] == form, "tokens"].unique())


def tables(scale: str = "gpu") -> Iterator[str]:
    """Yield the lines of all tables of the page at a scale."""
    setting, frame, trainings = when_setting(scale), stored_finals(scale), stored_trainings(scale)
    for form in setting["forms"]:
        yield from (*differences_table(frame, setting, form), "")
        yield from (*rule_table(frame, setting, form), "")
        yield from (*rates_table(trainings, setting, form), "")
    yield from (*early_table(frame, setting, "gradients"), "")
    yield from (*noise_table(frame, setting, trainings), "")


if __name__ == "__main__":
    print("\n".join(tables()))
