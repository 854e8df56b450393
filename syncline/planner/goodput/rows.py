"""Rows of ``syncline goodput``: simulated and expected goodput for each configuration."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from syncline.fields import MANY
from syncline.planner.goodput.expected import reformed_goodput, restarted_goodput
from syncline.planner.goodput.question import GoodputQuestion
from syncline.sim.failures.elastic import ElasticTraining
from syncline.sim.failures.independent import simulate_independent_workers
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.failures.restarts import RestartedTraining
from syncline.sim.failures.work import CheckpointTimes, SavedSteps, equal_step_ends
from syncline.specs.failures import FailuresSpec, check_workers, fault_tolerant_group

SHARES = ("useful_s", "lost_s", "checkpoint_s", "restart_s", "down_s")
"""Fields of `FailureCosts` that divide up the workers' time."""


def goodput_rows(question: GoodputQuestion) -> list[dict[str, Any]]:
    """Return a row per number of workers, recovery and checkpoint interval, with means over the seeds."""
    return [
        _row(question, question.with_recovery(recovery, interval), workers, recovery)
        for workers in question.workers
        for recovery in question.recoveries
        for interval in (question.intervals if recovery != "alone" else question.intervals[:1])
    ]


def simulate_training(
    question: GoodputQuestion, failures: FailuresSpec, workers: int, recovery: str, saving: CheckpointTimes, seed: int
) -> FailureCosts:
    """Return the costs of the failures that a seed draws, from a simulation of one training."""
    group, outages = failures.failing_group(workers), failures.outages_of(workers, seed)
    steps = MANY if question.steps is None else question.steps
    until_s = question.for_s if question.steps is None else math.inf
    if recovery == "alone":
        return simulate_independent_workers(
            group, steps, question.step_s, question.period, saving.join_s, outages, until_s
        )
    if recovery == "elastic":
        work = SavedSteps(MANY * workers, equal_step_ends(question.step_s), saving)
        return ElasticTraining(group, steps, lambda _: work, outages, until_s, period=question.period).simulate()
    work = SavedSteps(steps, equal_step_ends(question.step_s), saving)
    return RestartedTraining(group, work, outages, until_s).simulate()


def _row(question: GoodputQuestion, failures: FailuresSpec, workers: int, recovery: str) -> dict[str, Any]:
    check_workers(failures, workers)
    saving = failures.checkpoint_costs(question.step_s, workers)
    results = [simulate_training(question, failures, workers, recovery, saving, seed) for seed in range(question.seeds)]
    saves = recovery != "alone"
    interval_s = None if saving.every is None or not saves else saving.every * question.step_s
    if interval_s is not None and interval_s > question.work_s:
        interval_s = None  # the only checkpoint is at the end of the training
    best_s, (low_s, high_s) = failures.best_interval_s(workers), failures.best_intervals_s(workers)
    goodputs = [result.goodput for result in results]

    def mean(name: str) -> float:
        return statistics.fmean(getattr(result, name) for result in results)

    return {
        "workers": workers,
        "recovery": recovery,
        "step_time_s": question.step_s,
        "interval_s": interval_s,
        "checkpoint_stop_s": saving.stop_s if saves else None,
        "mtbf_s": failures.mtbf_s(workers),
        "repair_s": failures.repair_s(),
        "spares": failures.spares,
        "wall_clock_s": mean("wall_s"),
        "steps": mean("steps"),
        "goodput": statistics.fmean(goodputs),
        "goodput_low": min(goodputs),
        "goodput_high": max(goodputs),
        "expected_goodput": _expected(question, failures, workers, recovery, saving),
        "interruptions": mean("interruptions"),
        "lost_steps": mean("lost_steps"),
        **{
            f"{name.removesuffix('_s')}_share": statistics.fmean(result.share(name) for result in results)
            for name in SHARES
        },
        "best_interval_s": best_s if saves else None,
        "best_interval_low_s": low_s if saves else None,
        "best_interval_high_s": high_s if saves else None,
        "stuck": next((result.stuck for result in results if result.stuck), None),
    }


def _expected(
    question: GoodputQuestion, failures: FailuresSpec, workers: int, recovery: str, saving: CheckpointTimes
) -> float | None:
    """Return the expected goodput by a formula, or None if no formula holds."""
    interval_s = None if saving.every is None else saving.every * question.step_s
    if recovery == "restart":
        return restarted_goodput(failures, workers, saving, interval_s)
    if recovery == "alone":
        return None
    group = fault_tolerant_group(failures, workers, saving.join_s, question.step_s, period=question.period)
    return reformed_goodput(failures, group, saving, interval_s, question.work_s)


def notes(question: GoodputQuestion, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the remarks to print below the rows: stuck trainings and missing checkpoint costs."""
    remarks = [f"{row['recovery']} on {row['workers']:,} workers: {row['stuck']}." for row in rows if row["stuck"]]
    if not question.failures.checkpoint.write_s(None) and any(row["recovery"] != "alone" for row in rows):
        remarks.append("Checkpoints take no time, as nobody says what they take.")
    return remarks + question.failures.assumptions()
