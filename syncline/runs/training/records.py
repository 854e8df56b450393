"""Results as flat records: the rows of ``--json``, whose names are kept stable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.analysis import median_and_range, time_to_target_s
from syncline.costmodel import Network
from syncline.sim import Clock
from syncline.sim.failures.outcome import FailureCosts

if TYPE_CHECKING:
    from syncline.runs.training.trained import Trained


def clock_record(clock: Clock) -> dict[str, float]:
    """Return the parts of the time of a mean step; seconds and bytes, means per worker and step.

    ``bytes_per_worker`` is payload: the bytes that a worker sends to collectives, whatever algorithm carries them.
    """
    parts = ("step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s", "communication_s")
    record = {name: getattr(clock, name) for name in parts}
    record["communication_share"] = clock.communication_s / clock.step_time_s if clock.step_time_s else 0.0
    record |= {name: getattr(clock, name) for name in ("exposed_communication_s", "bytes_per_worker")}
    failures = {} if clock.failed is None else failure_record(clock.failed)
    return record | {"wall_clock_s": clock.wall_s} | failures


def failure_record(failed: FailureCosts) -> dict[str, Any]:
    """Return the costs of failures: shares of the time of all workers, which add up to 1 with the goodput."""
    record = {name: getattr(failed, name) for name in ("goodput", "interruptions", "lost_steps")}
    record |= {f"{part}_share": failed.share(f"{part}_s") for part in ("lost", "checkpoint", "restart", "down")}
    return record | {"stuck": failed.stuck}


def final_loss(trained: Trained) -> tuple[float, float, float]:
    """Return the median, lowest and highest final loss over the seeds; infinite if most seeds diverged."""
    losses = trained.history.last_evaluation().get("loss")
    if losses is None:
        return math.inf, math.inf, math.inf
    lost = np.array([step is not None for step in trained.history.diverged_at])
    last = np.where(lost, np.nan, losses)
    middle, low, high = median_and_range(last[:, None])
    return float(middle[0]), float(low[0]), float(high[0])


def reachable_target(trained: list[Trained]) -> float | None:
    """Return the highest final loss of the methods that learned something: the lowest loss that each of them reached.

    A method whose loss is not below its start, finite or not, sets no target for the others.
    """
    learned = []
    for training in trained:
        if training.history.steps:
            final, start = final_loss(training)[0], median_and_range(training.history.evaluation["loss"].T)[0][0]
            learned += [final] if final < start else []
    return max(learned, default=None)


def eval_clock_s(trained: Trained, clock: Clock) -> np.ndarray:
    """Return the seconds at which each evaluation's step was done, ``(E,)``."""
    return np.concatenate([[0.0], clock.step_end_s])[trained.history.eval_step]


def time_to_target(trained: Trained, clock: Clock, target: float | None) -> float:
    """Return the seconds until the median evaluation loss over the seeds reached the target; infinite if never."""
    if target is None:
        return math.inf
    median, _, _ = median_and_range(trained.history.evaluation["loss"].T)
    return time_to_target_s(eval_clock_s(trained, clock), median, target)


def run_records(trained: Trained, clock: Clock | None, network: Network, workers: int) -> list[dict[str, Any]]:
    """Return one record per seed: the final metrics, and the clock that all seeds share."""
    shared = {"method": trained.method, "network": network.name, "workers": workers}
    timed: dict[str, Any] = dict(clock_record(clock)) if clock else {}
    if trained.asynchronous is not None:
        timed |= trained.asynchronous.record()
    return [shared | row | timed for row in trained.history.final_records()]
