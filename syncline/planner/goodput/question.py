"""``syncline goodput``: failing machines without a particular training, the rows of their simulation, and the table."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from syncline.costmodel.failures import FAILURE_RATES, group_mtbf_s, intervals_within
from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.errors import SpecError, require_one_of
from syncline.fields import MANY
from syncline.planner.goodput.planned import reformed_goodput, restarted_goodput
from syncline.planner.tables.table import table
from syncline.questions.clock import Goodput
from syncline.questions.declare import listed
from syncline.sim.failures.costs import CheckpointTimes, FailureCosts, SavedSteps, equal_step_ends
from syncline.sim.failures.trainings import ElasticTraining, RestartedTraining, simulate_independent_workers
from syncline.specs.failures import (
    CHECKPOINT_OPTIONS,
    FAILURE_OPTIONS,
    FailuresSpec,
    Recovery,
    check_workers,
    failures_with,
    fault_tolerant_group,
    interval_or_word,
    parse_failures,
)
from syncline.units import counted, format_seconds, is_whole, parse_seconds

if TYPE_CHECKING:
    from rich.console import Group


RECOVERIES: tuple[str, ...] = (*get_args(Recovery), "alone")
"""Ways in which a training continues; ``alone``: each worker continues by itself, at its own pace."""


@dataclass(frozen=True)
class GoodputQuestion:
    """A training with equally long steps on machines that fail, in every combination of the listed options.

    Args:
        failures: failure model of the machines and their checkpoints.
        step_s: seconds of a step in which nothing fails.
        recoveries: ways to continue after a failure.
        intervals: seconds of work between checkpoints, ``best`` or ``never``.
        for_s: simulated seconds of wall-clock time.
        steps: number of steps to simulate, in place of ``for_s``.
        seeds: number of simulations, each with its own failures.
        period: number of steps between exchanges, for recoveries without restarts.
    """

    failures: FailuresSpec
    workers: Sequence[int]
    step_s: float
    recoveries: Sequence[str]
    intervals: Sequence[Any]
    for_s: float = 30 * 86400.0
    steps: int | None = None
    seeds: int = 1
    period: int = 1

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        for recovery in self.recoveries:
            require_one_of("--recovery", recovery, RECOVERIES)
        counts_and_limits = [] if self.steps is None else [("--steps", self.steps, MANY)]
        counts_and_limits += [("--seeds", self.seeds, MOST_SEEDS), ("--period", self.period, MANY)]
        counts_and_limits += [("--workers", count, MOST_WORKERS) for count in self.workers]
        for name, count, limit in counts_and_limits:
            if not is_whole(count) or not 1 <= count <= limit:
                raise SpecError(name, count, f"a whole number from 1 to {limit:,}")
        for name, time_s in {"--step-time": self.step_s, "--for": self.for_s}.items():
            if not 0 < time_s < math.inf:
                raise SpecError(name, time_s, "a positive time")

    @property
    def work_s(self) -> float:
        """Return an upper limit on the seconds of the training's steps without failures."""
        return self.for_s if self.steps is None else self.steps * self.step_s


def goodput_question(question: Goodput) -> GoodputQuestion:
    """Return the question with every default and unit resolved."""
    failures = parse_failures(question.failures)
    options = {}
    for name in (*FAILURE_OPTIONS, *CHECKPOINT_OPTIONS):
        value = getattr(question, name)
        if name != "recovery" and value is not None:  # the recoveries, one or several, have rows of their own
            options[name] = value
    fields = dict(question.fields or {})
    for name, value in options.items():
        field = FAILURE_OPTIONS.get(name)
        if field in fields:
            raise SpecError(name, value, f"none with {field}, which sets it as well")
    if options or fields:
        failures = failures_with(failures, options | fields)
    intervals = [failures.checkpoint.interval]
    if question.interval is not None:
        intervals = [parse_interval(value) for value in listed(question.interval)]
    return GoodputQuestion(
        failures, listed(question.workers), step_s=parse_seconds(question.step_time, "--step-time"),
        recoveries=[failures.recovery] if question.recovery is None else listed(question.recovery),
        intervals=intervals, for_s=parse_seconds(question.duration, "--for"), steps=question.steps,
        seeds=question.seeds, period=question.period,
    )  # fmt: skip


MOST_SEEDS = 10_000
"""Limit on the number of simulations."""

MOST_WORKERS = 10**7
"""Limit on the number of workers, because failures are drawn for each worker."""


def parse_interval(value: Any) -> Any:
    """Return a checkpoint interval, from ``best``, ``never`` or a time as a user writes it."""
    interval_s = interval_or_word(value, "--interval")
    if not interval_s:
        raise SpecError("--interval", value, "a positive time, best, or never")
    return interval_s


SHARES = ("useful_s", "lost_s", "checkpoint_s", "restart_s", "down_s")
"""Fields of `FailureCosts` that divide up the workers' time."""


def goodput_rows(question: GoodputQuestion) -> list[dict[str, Any]]:
    """Return a row per number of workers, recovery and checkpoint interval, with means over the seeds."""
    rows = []
    for workers, recovery in itertools.product(question.workers, question.recoveries):
        # Workers that continue alone write no checkpoints, so the interval has no effect.
        intervals = question.intervals[:1] if recovery == "alone" else question.intervals
        for interval in intervals:
            checkpoint = question.failures.checkpoint.model_copy(update={"interval": interval})
            recovery_of_spec = "restart" if recovery == "alone" else recovery  # specs do not have "alone"
            changes = {"checkpoint": checkpoint, "recovery": recovery_of_spec}
            rows.append(_row(question, question.failures.model_copy(update=changes), workers, recovery))
    return rows


def simulate_training(
    question: GoodputQuestion,
    failures: FailuresSpec,
    workers: int,
    recovery: str,
    checkpoints: CheckpointTimes,
    seed: int,
) -> FailureCosts:
    """Return the costs of failures in a simulated training, with failures drawn from a seed."""
    group, outages = failures.failing_group(workers), failures.outages_of(workers, seed)
    # Either the steps or the time ends a simulation; the other has no limit.
    steps = MANY if question.steps is None else question.steps
    until_s = question.for_s if question.steps is None else math.inf
    if recovery == "alone":
        costs = simulate_independent_workers(
            group, steps, question.step_s, question.period, load_s=checkpoints.join_s, outages=outages, until_s=until_s
        )
    elif recovery == "elastic":
        # A single remaining worker may have to do the steps of all.
        work = SavedSteps(MANY * workers, equal_step_ends(question.step_s), checkpoints)
        costs = ElasticTraining(
            group, steps, work_of=lambda workers: work, outages=outages, until_s=until_s, period=question.period
        ).simulate()
    else:
        work = SavedSteps(steps, equal_step_ends(question.step_s), checkpoints)
        costs = RestartedTraining(group, work, outages, until_s).simulate()
    if costs.stuck is not None:
        costs.wait_until(until_s)
    return costs


def _row(question: GoodputQuestion, failures: FailuresSpec, workers: int, recovery: str) -> dict[str, Any]:
    """Return the row of a number of workers and a way to recover, with means over the simulations of all seeds."""
    check_workers(failures, workers)
    checkpoints = failures.checkpoint_costs(question.step_s, workers)
    results = [
        simulate_training(question, failures, workers, recovery, checkpoints, seed) for seed in range(question.seeds)
    ]
    interval_s = None if checkpoints.every is None else checkpoints.every * question.step_s
    if interval_s is not None and interval_s > question.work_s:
        interval_s = None  # the only checkpoint is at the end of the training
    stop_s = failures.checkpoint.blocking_s(nbytes=None)
    best_low_s, best_high_s = intervals_within(0.01, stop_s, mtbf_s=failures.rollback_mtbf_s(workers))
    goodputs = [result.goodput for result in results]
    stuck_reasons = [result.stuck for result in results if result.stuck]

    def mean(name: str) -> float:
        return statistics.fmean(getattr(result, name) for result in results)

    row = {
        "workers": workers,
        "recovery": recovery,
        "step_time_s": question.step_s,
        "interval_s": interval_s,
        "checkpoint_stop_s": checkpoints.stop_s,
        "mtbf_s": failures.mtbf_s(workers),
        "repair_s": failures.repair_s(),
        "spares": failures.spares,
        "wall_clock_s": mean("wall_s"),
        "steps": mean("steps"),
        "goodput": statistics.fmean(goodputs),
        "goodput_low": min(goodputs),
        "goodput_high": max(goodputs),
        "expected_goodput": _expected_goodput(question, failures, workers, recovery, checkpoints),
        "interruptions": mean("interruptions"),
        "lost_steps": mean("lost_steps"),
        **{
            f"{name.removesuffix('_s')}_share": statistics.fmean(result.share(name) for result in results)
            for name in SHARES
        },
        "best_interval_s": failures.best_interval_s(workers),
        "best_interval_low_s": best_low_s,
        "best_interval_high_s": best_high_s,
        "stuck": stuck_reasons[0] if stuck_reasons else None,
    }
    if recovery == "alone":  # such workers write no checkpoints
        row |= dict.fromkeys(("interval_s", "checkpoint_stop_s"))
        row |= dict.fromkeys(("best_interval_s", "best_interval_low_s", "best_interval_high_s"))
    return row


def _expected_goodput(
    question: GoodputQuestion, failures: FailuresSpec, workers: int, recovery: str, checkpoints: CheckpointTimes
) -> float | None:
    """Return the expected goodput by a formula, or None if no formula holds."""
    interval_s = None if checkpoints.every is None else checkpoints.every * question.step_s
    if recovery == "restart":
        return restarted_goodput(failures, workers, checkpoints, interval_s)
    if recovery == "alone":  # workers that never wait for each other have no formula
        return None
    group = fault_tolerant_group(failures, workers, checkpoints.join_s, question.step_s, period=question.period)
    return reformed_goodput(failures, workers, group, checkpoints, interval_s, question.work_s)


def goodput_notes(question: GoodputQuestion, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the remarks to print below the rows: trainings without progress, and costs that are 0 by default."""
    remarks = [
        f"{row['recovery']} on {counted(row['workers'], 'workers')}: {row['stuck']}." for row in rows if row["stuck"]
    ]
    failures, recoveries = question.failures, {row["recovery"] for row in rows}
    free = []
    if recoveries != {"alone"} and not failures.checkpoint.write_s(None):
        free.append("checkpoints")
    if "restart" in recoveries and not failures.restart_time:
        free.append("restarts")
    if free:
        subject = " and ".join(free).capitalize()
        remarks.append(f"{subject} take no time, as none is given for them: the goodput is an upper bound.")
    return remarks + question.failures.assumptions()


def failure_parts(failures: FailuresSpec | None) -> Iterable[tuple[str, Uncertainty]]:
    """Yield the uncertainty of a published failure rate on other machines; rates that the user sets count as exact.

    The errors come from a prediction by this rate: the times between failures of the other published clusters.
    """
    rates = [] if failures is None else [(rate.mtbf_s, rate.per) for rate in failures.failure_rates()]
    gpu_mtbfs_s = {}
    for name, published in FAILURE_RATES.items():
        node_gpus = published.node_accelerators
        node_mtbf_s = group_mtbf_s(published.rates, node_gpus, node_gpus)
        gpu_mtbfs_s[name] = node_gpus * node_mtbf_s  # a node of n GPUs, which stop together, fails n times as often
    for name, published in FAILURE_RATES.items():
        if rates == [(rate.mtbf_s, rate.per) for rate in published.rates]:
            others = {other: mtbf_s for other, mtbf_s in gpu_mtbfs_s.items() if other != name}
            errors = [gpu_mtbfs_s[name] / mtbf_s - 1 for mtbf_s in others.values()]
            bounds = uncertainty_of(errors, "published failure rates of other clusters", sorted(others))
            yield "failures", bounds.outside([f"the rates {name!r} are those of another cluster"])


def goodput_tables(rows: Sequence[dict[str, Any]], remarks: Sequence[str]) -> list[Group]:
    """Return a table of the shares of the workers' time, with remarks and best intervals below."""
    columns = (
        "workers recovery interval_s goodput expected_goodput lost_share checkpoint_share restart_share down_share"
    )
    lines = list(remarks)
    for row in rows:
        line = _best_interval_line(row)
        if line and line not in lines:
            lines.append(line)
    return [table("Where the workers' time goes", columns, list(rows), note="\n".join(lines))]


def _best_interval_line(row: dict[str, Any]) -> str:
    """Return the line on the best checkpoint interval; empty if no interval is best."""
    best_s = row["best_interval_s"]
    # If checkpoints cost nothing, the best interval is 0; if nothing fails, it is infinite.
    if row["recovery"] != "restart" or not best_s or math.isinf(best_s):
        return ""
    low, best, high = (
        format_seconds(row[name]) for name in ("best_interval_low_s", "best_interval_s", "best_interval_high_s")
    )
    mtbf = format_seconds(row["mtbf_s"])
    workers = counted(row["workers"], "workers")
    return (
        f"{workers}, a failure in {mtbf}: the best interval is {best}; from {low} to {high} it costs at most 1 % more."
    )
