"""Figures read off stored replications: losses over stages and bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median

from replication.replications.spec import Cell
from replication.scoreboard.trained import RESULTS, replication_of

STAGES = {"1": "on-time", "4": "K4", "8": "K8", "16": ""}
"""Settings of the replication of Basis Rotation by the number of stages."""


def gaps_by_stages() -> dict[str, float]:
    """Return Adam's final loss less rotation's, by the number of stages, on the seed that all depths have."""
    losses = replication_of("basis-rotation").losses()
    return {
        stages: losses[Cell("adam", extra)][0] - losses[Cell("rotation", extra)][0] for stages, extra in STAGES.items()
    }


def steps_to_loss(losses: Mapping[int, float], target: float) -> int:
    """Return the first step at which a loss is at or below the target.

    >>> steps_to_loss({0: 5.0, 20: 3.0, 40: 2.0}, 3.0)
    20
    """
    return min(step for step, loss in losses.items() if loss <= target)


def slowdown_by_method() -> dict[str, float]:
    """Return the steps with 16 stages over those with one, to the loss with which asynchronous Adam ends."""
    evaluations = replication_of("basis-rotation").evaluations()
    target = max(losses[max(losses)] for losses in evaluations[Cell("adam")].values())
    slowdowns = {}
    for name in ("rotation", "adam"):
        delayed, on_time = evaluations[Cell(name)].values(), evaluations[Cell(name, "on-time")].values()
        late_steps = median(steps_to_loss(losses, target) for losses in delayed)
        slowdowns[name] = late_steps / median(steps_to_loss(losses, target) for losses in on_time)
    return slowdowns


def dominated_points() -> int:
    """Return how many of DeMo's points (k 4, 32, 128) another method beats in bytes and loss together."""
    replicated = replication_of("demo")
    losses, sent = replicated.losses(), replicated.last("bytes_per_worker")
    count = 0
    for cell in (Cell("demo", "k-4"), Cell("demo"), Cell("demo", "k-128")):
        nbytes, loss = median(sent[cell].values()), median(losses[cell].values())
        for name in ("ddp-adam", "diloco", "powersgd", "top-k"):
            other = Cell(name)
            if median(sent[other].values()) <= nbytes and median(losses[other].values()) <= loss:
                count += 1
                break
    return count


def printed_model_losses() -> dict[str, float]:
    """Return the last validation loss of MT-DAO's printed 16M model after 800 steps, by method."""
    lines = (RESULTS / "replication" / "mt-dao-16m" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    return {run["method"]: run["losses"][-1][1] for run in map(json.loads, lines)}
