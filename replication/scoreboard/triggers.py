"""CurvaDion's trigger against schedules with as many averages: the MLP on digits, four workers, five seeds."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from syncline import optim
from syncline.comm import SimulatedCommunicator
from syncline.methods import CurvaDion, PlacedDion
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of, train

WORKERS, STEPS, SEEDS, RATE, OTHER_RATE = 4, 256, range(5), 0.02, 0.003


class TriggeredRun(NamedTuple):
    """A training's final loss, with the relative momentum change and an averaging flag per step."""

    loss: float
    change: np.ndarray
    averaged: np.ndarray


@cache
def triggered(seed: int, skew: float, threshold: float) -> TriggeredRun:
    """Train CurvaDion with one seed and return its loss and trigger per step."""
    loss, method = _trained(partial(CurvaDion, lr=RATE, threshold=threshold), seed, skew)
    change = np.array([float(record.amax()) for record in method.trigger.records])
    return TriggeredRun(loss, change, change > threshold)


@cache
def scheduled(seed: int, skew: float, count: int, schedule: str) -> float:
    """Return the final loss of Dion that averages ``count`` times, ``evenly`` or in the ``first`` steps."""
    placement = {"evenly": "even", "first": "early"}[schedule]
    return _trained(partial(PlacedDion, lr=RATE, num_averages=count, steps=STEPS, placement=placement), seed, skew)[0]


def _trained(make: Any, seed: int, skew: float) -> tuple[float, Any]:
    comm = SimulatedCommunicator(WORKERS)
    task = Digits(skew=skew).build(rows_of(comm, (seed,)))
    method = make(parameter_groups(task), other_lr=OTHER_RATE, comm=comm, worker_axis=True)
    return float(train(task, method, (seed,), STEPS).evaluation["loss"][-1, 0]), method


def _pairs(skew: float, threshold: float, schedule: str) -> tuple[np.ndarray, np.ndarray]:
    runs = [triggered(seed, skew, threshold) for seed in SEEDS]
    others = [scheduled(seed, skew, int(run.averaged.sum()), schedule) for seed, run in zip(SEEDS, runs, strict=True)]
    return np.array([run.loss for run in runs]), np.array(others)


def trigger_losses(skew: float, threshold: float, schedule: str) -> dict[str, float]:
    """Return the median final losses of the trigger and of a schedule with as many averages per seed."""
    by_trigger, by_schedule = _pairs(skew, threshold, schedule)
    return {"triggered": float(np.median(by_trigger)), schedule: float(np.median(by_schedule))}


def trigger_wins(skew: float, threshold: float, schedule: str) -> int:
    """Return the number of seeds, out of five, on which the trigger has a lower loss than the schedule."""
    by_trigger, by_schedule = _pairs(skew, threshold, schedule)
    return int((by_trigger < by_schedule).sum())


def evenly_losses(skew: float) -> dict[str, float]:
    """Return the median losses of even schedules with as many averages as the trigger at two thresholds."""
    thresholds = {"often": 0.1, "rare": 0.3}
    return {name: float(np.median(_pairs(skew, threshold, "evenly")[1])) for name, threshold in thresholds.items()}


def threshold_ratio(skew: float) -> float:
    """Return the median loss at threshold 0.3 over that at 0.1."""
    rare, often = (np.median([triggered(seed, skew, threshold).loss for seed in SEEDS]) for threshold in (0.3, 0.1))
    return float(rare / often)


def outer_step_on_dion(skew: float, period: int = 32) -> float:
    """Return the final loss of Dion with DiLoCo's outer step over the loss at the start, the median over the seeds."""
    comm = SimulatedCommunicator(WORKERS, replicas=len(SEEDS))
    task = Digits(skew=skew).build(rows_of(comm, tuple(SEEDS)))
    method = optim.Method(
        parameter_groups(task), RATE, optim.MatrixSplit(optim.DionRule(), optim.adam()),
        sync=optim.Periodic({"params": period}), outer_optimizer=optim.Nesterov(), other_lr=OTHER_RATE, comm=comm,
        worker_axis=True,
    )  # fmt: skip
    losses = train(task, method, tuple(SEEDS), STEPS).evaluation["loss"]
    return float(np.nan_to_num(np.median(losses[-1] / losses[0]), nan=np.inf))


def dense_first(skew: float = 0.0, threshold: float = 0.3) -> dict[str, float]:
    """Return the share of steps that average, in the first sixth of the steps and in the rest."""
    averaged = np.array([triggered(seed, skew, threshold).averaged for seed in SEEDS])
    return {"first": float(averaged[:, : STEPS // 6].mean()), "later": float(averaged[:, STEPS // 6 :].mean())}


def momentum_change_over_time(skew: float = 0.0, threshold: float = 0.3) -> dict[str, float]:
    """Return the mean relative momentum change in the first tenth of the steps and in the rest.

    The first tenth excludes step 0.
    """
    change = np.array([triggered(seed, skew, threshold).change for seed in SEEDS])
    finite = np.where(np.isfinite(change), change, np.nan)
    return {
        "first": float(np.nanmean(finite[:, 1 : STEPS // 10])),
        "later": float(np.nanmean(finite[:, STEPS // 10 :])),
    }
