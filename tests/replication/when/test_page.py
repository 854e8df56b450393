"""Every number of docs/when.md comes out of the stored trainings again, and the findings repeat them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from replication.when.page import batches_of, tables
from replication.when.results import (
    LEAST_SEEDS,
    Cell,
    closed_form_deviations,
    equal_workers,
    gain,
    losses,
    noise,
    outcome,
    over_even,
    stored_finals,
    stored_trainings,
    verdict,
)
from replication.when.setting import when_setting
from syncline.problems import TextGPT

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "when.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
SETTING, FRAME = when_setting("gpu"), stored_finals()
FEW, MANY = SETTING["counts"]


def differences(form: str, count: int, arm: str) -> dict[int, object]:
    """Return the differences to even averages by batch, of batches that the rule decides."""
    batches = [b for b in batches_of(FRAME, form) if len(losses(FRAME, Cell(form, b, count), arm)) >= LEAST_SEEDS]
    return {batch: over_even(FRAME, Cell(form, batch, count), arm) for batch in batches}


def mean_over_maximum(tokens: int, count: int) -> float:
    """Return how much more the mean trigger loses to its even averages than the maximum, the median over seeds."""
    cell = Cell("gradients", tokens, count)
    return float(median(over_even(FRAME, cell, "mean-trigger") - over_even(FRAME, cell, "trigger")))


def test_the_tables_are_those_of_the_trainings():
    for line in tables():
        assert line in PAGE


def test_what_was_trained():
    trainings = stored_trainings()
    assert f"The {(trainings['stage'] != 'equal').sum()} trainings ran on an H200" in TEXT
    assert set(trainings.loc[trainings["stage"] != "equal", "device"]) == {"NVIDIA H200"}
    seeds = FRAME.groupby(["form", "tokens"])["seed"].nunique().to_dict()
    assert seeds == {
        ("gradients", 2048): 5, ("gradients", 8192): 5, ("gradients", 32768): 3, ("gradients", 65536): 1,
        ("parameters", 2048): 5, ("parameters", 8192): 5, ("parameters", 32768): 1,
    }  # fmt: skip
    parameters = sum(p.numel() for p in TextGPT(**SETTING["problem"]).module().parameters())
    assert f"a GPT of {parameters:,} parameters" in TEXT
    cpu = stored_trainings("cpu")
    assert f"two seeds in {cpu['seconds'].sum() / 60:.0f} minutes" in TEXT


def test_the_answers():
    assert verdict("gradients") == verdict("parameters") == "fails"
    assert verdict("gradients", "placement") == "yes"
    assert verdict("parameters", "placement") == "2048: no, 8192: yes"
    early = [-median(d) for d in differences("gradients", MANY, "early").values()]
    assert f"50 early averages end {min(early):.2f} to {max(early):.2f} below 50 even ones" in TEXT
    assert all(outcome(d) == "below" for d in differences("gradients", MANY, "early").values())
    for count in (FEW, MANY):
        for arm in ("trigger", "mean-trigger", "early", "random"):
            assert "below" not in {outcome(d) for d in differences("parameters", count, arm).values()}
        assert {outcome(d) for d in differences("parameters", count, "trigger").values()} == {"above"}
    every = [
        median(losses(FRAME, Cell("gradients", b, c), "even")) - median(losses(FRAME, Cell("gradients", b, c), "every"))
        for b in batches_of(FRAME, "gradients")
        for c in (FEW, MANY)
    ]
    assert f"ends {min(every):.2f} to {max(every):.2f} below the even schedule" in TEXT
    same_rate = [differences("gradients", count, "trigger")[batch] for count in (FEW, MANY) for batch in (2048, 8192)]
    assert {outcome(d) for d in same_rate} == {"equal"}


def test_what_the_trigger_sees():
    apart = {form: noise(FRAME, form, SETTING["tokens"], SETTING["counts"]) for form in SETTING["forms"]}
    assert max(row.share for rows in apart.values() for row in rows.values()) < 0.055  # "at most 5 %"
    gradients, equal = apart["gradients"], equal_workers(stored_trainings())
    closed = closed_form_deviations(gradients[2048].deviation, SETTING["tokens"])
    shown = [f"{closed[batch]:.3f}" for batch in SETTING["tokens"]]
    assert "deviation of {} at 2k give {} at 8k, {} at 32k and {} at 64k".format(*shown) in TEXT
    (d2, s2), (d8, s8), (d32, s32) = equal.values()
    assert f"Equal workers have {d2:.3f}, {d8:.3f} and {d32:.3f}, and share {s2:.2f}, {s8:.2f} and {s32:.2f}" in TEXT
    assert s8 < 0.5 < s32
    assert gradients[32768].deviation / d32 > 2
    above = [gradients[batch] for batch in SETTING["tokens"]]
    assert "{:g} steps exceed it at 8k, {:g} at 32k, and {:g} at 64k (one seed)".format(
        *(row.exceeded for row in above[1:])
    ) in TEXT  # fmt: skip
    assert all(row.early <= row.exceeded / 5 for row in above)


def test_the_predictions():
    gradients = noise(FRAME, "gradients", SETTING["tokens"], SETTING["counts"])
    ratios = {batch: row.deviation / gradients[2048].deviation for batch, row in gradients.items()}
    assert f"does not hold: {ratios[65536]:.2f} (one seed); {ratios[32768]:.2f} at 32k" in TEXT
    shares = [f"{gradients[batch].share:.2f}" for batch in SETTING["tokens"]]
    assert "holds at 2k ({}), not at 8k, 32k and 64k ({}, {}, {})".format(*shares) in TEXT
    assert f"does not hold: {gradients[65536].exceeded:g} (one seed), {gradients[65536].early:g} of them early" in TEXT
    by_number = {b: median(gain(FRAME, "gradients", b, SETTING["counts"])) for b in batches_of(FRAME, "gradients")}
    assert max(by_number[b] for b in (2048, 8192, 32768)) < 0.05
    assert f"holds at 2k, 8k and 32k, not at 64k ({by_number[65536]:.3f}, one seed)" in TEXT
    early = {b: over_even(FRAME, Cell("gradients", b, FEW), "early") for b in by_number}
    assert all(median(d) < 0 for d in early.values())
    assert [b for b, d in early.items() if outcome(d) == "below"] == [2048]
    for batch in (2048, 8192, 32768):
        assert median(gain(FRAME, "parameters", batch, SETTING["counts"])) > 0.05
        assert all((over_even(FRAME, Cell("parameters", batch, c), "early") > 0).all() for c in (FEW, MANY))
    apart = {(b, c): mean_over_maximum(b, c) for b in by_number for c in (FEW, MANY)}
    assert all(abs(apart[b, c]) < 0.05 for b in (8192, 32768) for c in (FEW, MANY))
    told = f"not at 2k ({apart[2048, FEW]:.3f} and {apart[2048, MANY]:.3f}, with different rates)"
    assert f"{told}, nor at 64k with 12 ({apart[65536, FEW]:.3f}, one seed)" in TEXT


def test_the_counts_and_the_findings():
    made = FRAME[(FRAME["form"] == "gradients") & (FRAME["arm"] == "trigger") & (FRAME["tokens"] < 65536)]
    few, many = (made.loc[made["count"] == count, "averages"] for count in (FEW, MANY))
    assert f"({few.min()} to {few.max()} and {many.min()} to {many.max()} with gradients" in TEXT
    findings = " ".join((DOCS / "findings.md").read_text(encoding="utf-8").split())
    trigger = [median(d) for c in (FEW, MANY) for d in differences("parameters", c, "trigger").values()]
    assert f"the trigger ends {min(trigger):.2f} to {max(trigger):.2f} higher on all seeds" in findings
    early = [-median(d) for d in differences("gradients", MANY, "early").values()]
    late = [median(d) for c in (FEW, MANY) for d in differences("parameters", c, "early").values()]
    assert f"({min(early):.2f} to {max(early):.2f} below 50 even ones)" in findings
    assert f"({min(late):.2f} to {max(late):.2f} above even ones)" in findings
    higher = sorted(mean_over_maximum(2048, count) for count in (FEW, MANY))
    assert f"the mean ends {higher[0]:.2f} to {higher[1]:.2f} higher" in findings
    shares = [share for _, share in equal_workers(stored_trainings()).values()]
    assert f"They share {shares[0]:.0%}".replace("%", " %") in findings
    assert f"and {shares[-1]:.0%} at 32k".replace("%", " %") in findings
