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
    return {
        "step_time_s": clock.step_time_s,
        "compute_s": clock.compute_s,
        "encode_s": clock.encode_s,
        "trigger_s": clock.trigger_s,
        "optimizer_s": clock.optimizer_s,
        "communication_s": clock.communication_s,
        "communication_share": clock.communication_s / clock.step_time_s if clock.step_time_s else 0.0,
        "exposed_communication_s": clock.exposed_communication_s,
        "bytes_per_worker": clock.bytes_per_worker,
        "wall_clock_s": clock.wall_s,
        **({} if clock.failed is None else failure_record(clock.failed)),
    }


def failure_record(failed: FailureCosts) -> dict[str, Any]:
    """Return the costs of failures: shares of the time of all workers, which add up to 1 with the goodput."""
    return {
        "goodput": failed.goodput,
        "interruptions": failed.interruptions,
        "lost_steps": failed.lost_steps,
        "lost_share": failed.share("lost_s"),
        "checkpoint_share": failed.share("checkpoint_s"),
        "restart_share": failed.share("restart_s"),
        "down_share": failed.share("down_s"),
        "stuck": failed.stuck,
    }


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
    finals = [final_loss(training)[0] for training in trained if training.history.steps]
    starts = [
        median_and_range(training.history.evaluation["loss"].T)[0][0] for training in trained if training.history.steps
    ]
    learned = [final for final, start in zip(finals, starts, strict=True) if final < start]
    return max(learned) if learned else None


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
