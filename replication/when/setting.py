"""The setting of the study, what it trains in which order, and how thresholds and learning rates are chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from replication.when.arms import Arm
from syncline.files import parse_yaml
from syncline.methods.dion import placed_steps

FILE = Path(__file__).with_name("when.yaml")
RESULTS = Path(__file__).parents[2] / "results" / "replication" / "when"

TRIGGERS = ("trigger", "mean-trigger")
PLACEMENTS = ("even", "early", "random")

Line = Mapping[str, Any]
"""A training: the fields of its arm, the form and the stage, its losses, averages and the values of both triggers."""


def when_setting(scale: str, file: Path = FILE) -> dict[str, Any]:
    """Return the fields of ``when.yaml``, with those of one of its scales."""
    fields: dict[str, Any] = parse_yaml(file.read_text(encoding="utf-8"))
    return {**fields, **fields.pop("scales")[scale]}


def placed(name: str, count: int, steps: int, seed: int) -> tuple[int, ...]:
    """Return the steps after which a placement averages; ``every`` averages after each step."""
    return tuple(range(steps)) if name == "every" else placed_steps(count, steps, name, seed)  # type: ignore[arg-type]


def threshold_for(values: Sequence[float], count: int) -> float:
    """Return the threshold that ``count`` of the values of a trigger exceed.

    >>> threshold_for([9.0, 0.1, 0.4, 0.3], 2)
    0.3
    """
    return sorted(values, reverse=True)[count]


def values_of(line: Line, name: str) -> Sequence[float]:
    """Return the values that a trigger would have compared in a training; that of the first step is infinite."""
    return [float("inf"), *line["mean_values" if name == "mean-trigger" else "largest_values"]]


def placed_search(setting: Line) -> list[Arm]:
    """Return the arms of the search that do not depend on a trigger: each placement at each learning rate."""
    seed, count, steps = setting["search_seed"], setting["search_count"], setting["steps"]
    return [
        Arm(name, seed, lr, placed(name, count, steps, seed), count=count if name != "every" else steps)
        for name in ("every", *PLACEMENTS)
        for lr in setting["rates"]
    ]


def trigger_search(setting: Line, searched: Sequence[Line]) -> list[Arm]:
    """Return the triggers of the search, at thresholds that the even schedule exceeds as often as it averages."""
    count, arms = setting["search_count"], []
    for name in TRIGGERS:
        for lr in setting["rates"]:
            (even,) = (line for line in searched if line["arm"] == "even" and line["lr"] == lr)
            threshold = threshold_for(values_of(even, name), count)
            arms.append(Arm(name, setting["search_seed"], lr, threshold=threshold, count=count))
    return arms


def chosen(searched: Iterable[Line], name: str) -> Line:
    """Return the training of an arm with the lowest loss in the search; a divergence is above all losses."""
    return min((line for line in searched if line["arm"] == name), key=lambda line: (last_loss(line), line["lr"]))


def last_loss(line: Line) -> float:
    """Return the validation loss after the last step of a training; infinite if it diverged."""
    loss = float(line["losses"][-1][1])
    return float("inf") if math.isnan(loss) else loss


def triggers(setting: Line, searched: Sequence[Line], seed: int) -> list[Arm]:
    """Return both triggers at thresholds that their own search trainings exceeded as often as the counts say."""
    best = {name: chosen(searched, name) for name in TRIGGERS}
    return [
        Arm(
            name, seed, line["lr"], threshold=threshold_for(values_of(line, name), count), count=count,
        )
        for name, line in best.items()
        for count in setting["counts"]
    ]  # fmt: skip


def matched(setting: Line, searched: Sequence[Line], triggered: Sequence[Line], seed: int) -> list[Arm]:
    """Return the placements with as many averages as the triggers made with this seed, and ``every``.

    The even schedule follows both triggers, the others follow ``trigger``.
    """
    steps = setting["steps"]
    arms = [Arm("every", seed, chosen(searched, "every")["lr"], placed("every", steps, steps, seed), count=steps)]
    for line in triggered:
        if line["seed"] == seed:
            followers = PLACEMENTS if line["arm"] == "trigger" else ("even",)
            averages = max(len(line["averaged"]), 1)
            arms += [
                Arm(name, seed, chosen(searched, name)["lr"], placed(name, averages, steps, seed), count=line["count"],
                    follows=line["arm"])
                for name in followers
            ]  # fmt: skip
    return arms
