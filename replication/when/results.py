"""Results of the study: the table of its trainings, differences at equal counts, the rule, shares of noise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from replication.theory import noise_rmmc
from replication.when.setting import PLACEMENTS, RESULTS, TRIGGERS, when_setting

SMALLEST = 0.02
"""Smallest median difference that counts, in nats; the rule of ``when.yaml``."""

LEAST_SEEDS = 3
"""Number of seeds below which nothing is decided; the time on the GPU left one seed of the largest batch."""

FIRST = 6
"""Averages in the first sixth of the steps are early, as in the replication of CurvaDion."""

MU, LAYERS, PILOT_DIMENSION = 0.95, 12, 6.0
"""Decay of Dion's momentum, its matrices, and the effective dimension of gradient noise in the pilot (4 to 12)."""

PLACED_OR_TRIGGERED = ("trigger", *PLACEMENTS)

COMPARED = (*TRIGGERS, "early", "random")
"""Arms that are compared with as many even averages."""


def table(files: Iterable[Path]) -> pd.DataFrame:
    """Return a row per training, of files with a line per training; values of triggers only of even schedules."""
    rows = []
    for line in (json.loads(text) for file in files for text in file.read_text().splitlines()):
        names = ("form", "stage", "tokens", "arm", "follows", "seed", "lr", "threshold", "count")
        row = {name: line[name] for name in (*names, "shared_variance", "noise_variance", "seconds", "device")}
        keeps_values = line["stage"] == "finals" and line["arm"] == "even" and line["follows"] == "trigger"
        rows.append({
            **row, "averages": len(line["averaged"]),
            "averaged": np.array([] if line["arm"] == "every" else line["averaged"], dtype=np.int16),
            "loss": line["losses"][-1][1], "losses": np.array([loss for _, loss in line["losses"]], dtype=np.float32),
            "values": np.array(line["largest_values"] if keeps_values else [], dtype=np.float32),
        })  # fmt: skip
    keys = ["form", "stage", "tokens", "count", "arm", "follows", "seed", "lr"]
    return pd.DataFrame(rows).sort_values(keys, ignore_index=True)


def finals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the trainings of the finals, of the seeds of which all arms of a batch and a form are there."""
    of_finals = frame[frame["stage"] == "finals"]
    arms = len(TRIGGERS) * 2 + len(PLACEMENTS) * 2 + 2 + 1
    sizes = of_finals.groupby(["form", "tokens", "seed"])["arm"].transform("size")
    return of_finals[sizes == arms]


class Cell(NamedTuple):
    """A setting of the finals: the form of its averages, tokens per step, and the planned number of averages."""

    form: str
    tokens: int
    planned: int


def of_arm(frame: pd.DataFrame, cell: Cell, arm: str) -> pd.DataFrame:
    """Return the trainings of an arm at a planned number of averages; of ``every``, which has one number, all."""
    rows = frame[(frame["form"] == cell.form) & (frame["tokens"] == cell.tokens) & (frame["arm"] == arm)]
    return rows if arm == "every" else rows[rows["count"] == cell.planned]


def losses(frame: pd.DataFrame, cell: Cell, arm: str, follows: str = "trigger") -> pd.Series:
    """Return the last losses of an arm by seed; placements are those with as many averages as ``follows`` made."""
    rows = of_arm(frame, cell, arm)
    rows = rows[rows["follows"] == (follows if arm in PLACEMENTS else "")]
    return rows.set_index("seed")["loss"].fillna(np.inf).sort_index()


def over_even(frame: pd.DataFrame, cell: Cell, arm: str) -> pd.Series:
    """Return the last loss of an arm less that of the even schedule with as many averages, by seed."""
    follows = arm if arm in TRIGGERS else "trigger"
    return losses(frame, cell, arm) - losses(frame, cell, "even", follows)


def gain(frame: pd.DataFrame, form: str, tokens: int, counts: Sequence[int]) -> pd.Series:
    """Return what the even schedule gains by many averages over few, by seed: its loss at few less that at many."""
    few, many = (losses(frame, Cell(form, tokens, count), "even") for count in counts)
    return few - many


def outcome(differences: pd.Series) -> str:
    """Return ``below`` or ``above`` if all seeds have this sign and the median counts, else ``equal``.

    With fewer than three seeds the outcome is ``open``.

    >>> outcome(pd.Series([-0.03, -0.01, -0.05])), outcome(pd.Series([-0.03, 0.01, -0.05]))
    ('below', 'equal')
    """
    if len(differences) < LEAST_SEEDS:
        return "open"
    middle = median(differences)
    if abs(middle) < SMALLEST or len(set(np.sign(differences))) > 1:
        return "equal"
    return "below" if middle < 0 else "above"


def spread(frame: pd.DataFrame, cell: Cell) -> float:
    """Return the largest less the smallest median loss of trigger, even, early and random averages."""
    medians = [median(losses(frame, cell, arm)) for arm in PLACED_OR_TRIGGERED]
    return max(medians) - min(medians)


class Decision(NamedTuple):
    """The rule's answer at a batch and a form.

    Attributes:
        thesis: ``holds`` if the trigger ends below the even schedule at both counts, and by more than the gain, else
            ``fails``; ``open`` with fewer than three seeds.
        placement: ``yes`` if the spread over placements is above the gain at both counts, else ``no``, or ``open``.
        gain: median gain of many even averages over few.
        spreads: spread over placements at few and at many averages.
        trigger: median of trigger less even at few and at many averages.
        outcomes: outcome of trigger against even at few and at many averages.
        seeds: number of seeds.
    """

    thesis: str
    placement: str
    gain: float
    spreads: tuple[float, float]
    trigger: tuple[float, float]
    outcomes: tuple[str, str]
    seeds: int


def decide(frame: pd.DataFrame, form: str, tokens: int, counts: Sequence[int]) -> Decision:
    """Return what the rule of ``when.yaml`` says at a batch and a form."""
    gain_by_number = median(gain(frame, form, tokens, counts))
    few, many = (Cell(form, tokens, count) for count in counts)
    few_differences, many_differences = over_even(frame, few, "trigger"), over_even(frame, many, "trigger")
    trigger = median(few_differences), median(many_differences)
    outcomes = outcome(few_differences), outcome(many_differences)
    spreads = spread(frame, few), spread(frame, many)
    thesis = "holds" if outcomes == ("below", "below") and -max(trigger) > gain_by_number else "fails"
    placement = "yes" if min(spreads) > gain_by_number else "no"
    if "open" in outcomes:
        thesis = placement = "open"
    return Decision(thesis, placement, gain_by_number, spreads, trigger, outcomes, seeds=len(few_differences))


def verdict(form: str, field: str = "thesis", scale: str = "gpu") -> str:
    """Return what the rule says of all batches of a form that it decides: one answer, or the answer at each batch.

    Args:
        form: ``gradients`` or ``parameters``.
        field: ``thesis``, or ``placement``: whether placements differ by more than numbers.
        scale: the scale of the trainings.
    """
    setting, frame = when_setting(scale), stored_finals(scale)
    answers = {}
    for tokens in setting["tokens"]:
        if ((frame["form"] == form) & (frame["tokens"] == tokens)).any():
            answer = str(getattr(decide(frame, form, tokens, setting["counts"]), field))
            if answer != "open":
                answers[tokens] = answer
    if not answers:
        return "open"
    if len(set(answers.values())) == 1:
        return answers.popitem()[1]
    return ", ".join(f"{tokens}: {answer}" for tokens, answer in answers.items())


def maximum_and_mean(form: str, tokens: int, count: int) -> dict[str, float]:
    """Return what the maximum and the mean as triggers end above as many even averages, medians over the seeds."""
    cell, frame = Cell(form, tokens, count), stored_finals()
    arms = {"maximum": "trigger", "mean": "mean-trigger"}
    return {name: float(median(over_even(frame, cell, arm))) for name, arm in arms.items()}


class Noise(NamedTuple):
    """Shares of noise at a batch, of even trainings with few averages, medians over the seeds.

    Attributes:
        deviation: root of the variance of each worker's noise, summed over the layers.
        share: share of the variance that the workers of a step have in common.
        exceeded: steps above the threshold that as many steps as the larger count exceed at the smallest batch.
        early: how many of these steps lie in the first sixth.
    """

    deviation: float
    share: float
    exceeded: float
    early: float


def noise(frame: pd.DataFrame, form: str, tokens: Sequence[int], counts: Sequence[int]) -> dict[int, Noise]:
    """Return the shares of noise by batch."""
    few, many = counts
    even = frame[
        (frame["form"] == form)
        & (frame["arm"] == "even")
        & (frame["follows"] == "trigger")
        & (frame["count"] == few)
        & frame["tokens"].isin(tokens)
    ]
    smallest = even[even["tokens"] == min(tokens)]["values"]
    threshold = median(sorted(values, reverse=True)[many] for values in smallest)
    by_batch = {}
    for batch, rows in even.groupby("tokens"):
        above = [np.asarray(values) > threshold for values in rows["values"]]
        shared, single = rows["shared_variance"], rows["noise_variance"]
        by_batch[int(batch)] = Noise(
            deviation=float(np.sqrt(single.median())),
            share=float((shared / (shared + single)).median()),
            exceeded=median(int(flags.sum()) for flags in above),
            early=median(int(flags[: (len(flags) + 1) // FIRST].sum()) for flags in above),
        )
    return by_batch


def equal_workers(trainings: pd.DataFrame) -> dict[int, tuple[float, float]]:
    """Return deviation of noise and shared share by batch of workers that average all gradients and stay equal."""
    rows = trainings[trainings["stage"] == "equal"].set_index("tokens").sort_index()
    shared, single = rows["shared_variance"], rows["noise_variance"]
    return {
        int(tokens): (float(single[tokens] ** 0.5), float(shared[tokens] / (shared[tokens] + single[tokens])))
        for tokens in rows.index
    }


def closed_form_deviations(deviation: float, batches: Sequence[int]) -> dict[int, float]:
    """Return the deviation of noise by batch in closed form, from its value at the smallest batch.

    The signal q that gives this value is proportional to the batch. The noise has the effective dimension of the pilot,
    and the deviation is over all layers.
    """
    smallest = min(batches)

    def over_layers(signal: float) -> float:
        return LAYERS**0.5 * float(noise_rmmc(MU, PILOT_DIMENSION, signal))

    signal = brentq(lambda q: over_layers(q) - deviation, 0.0, 100.0)
    return {batch: over_layers(signal * batch / smallest) for batch in batches}


def early_share(frame: pd.DataFrame, cell: Cell, arm: str, steps: int) -> float:
    """Return the share of an arm's averages in the first sixth of the steps, the median over its trainings."""
    averaged = of_arm(frame, cell, arm)["averaged"]
    return float(np.median([np.mean(np.asarray(steps_of) < steps // FIRST) for steps_of in averaged]))


def stored_file(scale: str) -> Path:
    """Return the path of the table of all trainings at a scale."""
    return RESULTS / f"{scale}.parquet"


def stored_trainings(scale: str = "gpu") -> pd.DataFrame:
    """Return all stored trainings at a scale, also those of the search."""
    return pd.read_parquet(stored_file(scale))


def stored_finals(scale: str = "gpu") -> pd.DataFrame:
    """Return the stored trainings of the finals that count."""
    return finals(stored_trainings(scale))


def chosen_rates(frame: pd.DataFrame, form: str, tokens: int) -> dict[str, float]:
    """Return the learning rate of each arm with the lowest loss in the search; of equal losses the lower rate."""
    rows = frame[(frame["stage"] == "search") & (frame["form"] == form) & (frame["tokens"] == tokens)]
    best = rows.assign(loss=rows["loss"].fillna(np.inf)).sort_values(["loss", "lr"]).groupby("arm").first()
    return {str(arm): float(lr) for arm, lr in best["lr"].items()}
