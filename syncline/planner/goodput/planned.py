"""Expected goodput of failing machines in closed form, and goodput of a planned training.

A training whose workers exchange in every step restarts from the last checkpoint. Replicas that exchange less often
each have a complete model, so the remaining replicas continue. ``recovery`` of the failures selects either way for
every training that allows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from syncline.costmodel.failures import FaultTolerantGroup, expected_wall_s, until_all_work_s
from syncline.planner.goodput.goodput import FailingTraining, Goodput
from syncline.sim.failures.costs import (
    MAX_FAILURES_IN_A_ROW,
    CheckpointTimes,
    FailureCosts,
    SavedSteps,
    equal_step_ends,
)
from syncline.sim.failures.outages import Outage
from syncline.sim.failures.trainings import ElasticTraining, RestartedTraining
from syncline.specs.failures import (
    FailuresSpec,
    Recovery,
    check_workers,
    downtime_s,
    fault_tolerant_group,
    has_closed_form,
)
from syncline.units import format_seconds


def restarted_goodput(
    failures: FailuresSpec,
    workers: int,
    checkpoints: CheckpointTimes,
    interval_s: float | None,
    work_s: float | None = None,
) -> float | None:
    """Return the goodput of a training in which all workers restart from the last checkpoint; None if no formula holds.

    Args:
        interval_s: seconds of work between checkpoints; None: the only checkpoint is at the end.
        work_s: seconds of work in the whole training, if known.
    """
    # The checkpoint at the end costs no goodput, because a training without failures writes it too.
    stop_s, interval_s = (0.0, work_s) if interval_s is None else (checkpoints.stop_s, interval_s)
    if not has_closed_form(failures, workers) or checkpoints.lag_s or interval_s is None:
        return None
    restart_s = failures.restart_time + checkpoints.reload_s
    mtbf_s = failures.mtbf_s(workers)
    repair_s = 0.0 if failures.spares else failures.repair_s()
    down_s = max(downtime_s(failures), until_all_work_s(repair_s, mtbf_s))
    wall_s = expected_wall_s(1.0, interval_s, stop_s, restart_s, mtbf_s, down_s)  # for a second of work
    return 1 / wall_s


def reformed_goodput(
    failures: FailuresSpec,
    workers: int,
    group: FaultTolerantGroup,
    checkpoints: CheckpointTimes,
    interval_s: float | None,
    work_s: float | None = None,
) -> float | None:
    """Return the goodput of a training that continues with the remaining workers; None if no formula holds.

    Args:
        interval_s: seconds of work between checkpoints; None: there are no checkpoints.
        work_s: seconds of work in the whole training, if known.
    """
    if not has_closed_form(failures, workers) or checkpoints.lag_s or failures.min_workers > 1:
        return None
    mtbf_s = group.total_loss_mtbf_s
    # The checkpoint at the end costs no goodput, because a training without failures writes it too.
    stop_s, interval_s = (0.0, work_s) if interval_s is None else (checkpoints.stop_s, interval_s)
    if interval_s is None:  # without checkpoints, losing all copies ends a training of unknown length
        return group.useful_share if math.isinf(mtbf_s) else None
    wall_s = expected_wall_s(1.0, interval_s, stop_s, group.restart_s, mtbf_s, group.down_s)  # for a second of work
    return group.useful_share / wall_s


NUM_SEEDS = 5
"""Number of simulations where no formula holds."""


def estimate_goodput(failures: FailuresSpec, training: FailingTraining) -> Goodput:
    """Return the recovery, checkpoint interval and goodput of a training; simulate if no formula holds.

    Args:
        failures: failure model of the machines; an explicit ``recovery`` applies to every training that allows it.

    Raises:
        SpecError: the failures name workers that do not exist.
    """
    check_workers(failures, training.workers)
    requested = failures.recovery if "recovery" in failures.model_fields_set else None
    # Replicas that exchange in every step form a new group only on request.
    can_regroup = training.copies > 1 and (requested == "elastic" or training.exchanges_every > 1)
    recovery: Recovery = "elastic" if can_regroup and requested != "restart" else "restart"
    failures = failures.model_copy(update={"recovery": recovery})
    repair_s, spares = failures.repair_s(), failures.spares
    if not math.isfinite(training.step_s) or training.step_s <= 0:  # unknown: a goodput of 1 changes no time
        rejoin_s = training.rejoin_s or 0.0
        return Goodput(recovery, None, goodput=1.0, repair_s=repair_s, spares=spares, rejoin_s=rejoin_s)
    checkpoints, work_s = _checkpoint_times(failures, training), training.step_s * training.steps
    interval_s = None  # the only checkpoint is at the end
    if checkpoints.every is not None and checkpoints.every <= training.steps:
        interval_s = checkpoints.every * training.step_s
    if recovery == "restart":
        goodput = restarted_goodput(failures, training.workers, checkpoints, interval_s, work_s)
    else:
        group = fault_tolerant_group(
            failures, training.workers, load_s=checkpoints.join_s, step_s=training.step_s, copies=training.copies,
            period=training.exchanges_every,
        )  # fmt: skip
        goodput = reformed_goodput(failures, training.workers, group, checkpoints, interval_s, work_s)
    stuck = _stuck_reason(failures, training, checkpoints, interval_s)
    if stuck is not None:
        goodput = 0.0
    elif goodput is None:
        goodput, stuck = simulated_goodput(failures, training, NUM_SEEDS)
    return Goodput(
        recovery, interval_s, goodput=goodput, repair_s=repair_s, spares=spares, rejoin_s=checkpoints.join_s,
        stuck=stuck,
    )  # fmt: skip


def simulated_goodput(failures: FailuresSpec, training: FailingTraining, seeds: int = 1) -> tuple[float, str | None]:
    """Return the simulated goodput, a mean over seeds, and None; or 0 and the reason why there is no progress."""
    checkpoints, steps = _checkpoint_times(failures, training), max(1, round(training.steps))
    goodputs = []
    for seed in range(seeds):
        outages = failures.outages_of(training.workers, seed)
        if failures.recovery == "elastic":
            costs = _simulate_copies(failures, training, checkpoints, steps, outages)
        else:
            work = SavedSteps(steps, equal_step_ends(training.step_s), checkpoints)
            costs = RestartedTraining(failures.failing_group(training.workers), work, outages).simulate()
        if costs.stuck is not None:
            return 0.0, costs.stuck
        goodputs.append(costs.goodput)
    return sum(goodputs) / seeds, None


def _simulate_copies(
    failures: FailuresSpec, training: FailingTraining, checkpoints: CheckpointTimes, steps: int,
    outages: Iterable[Outage],
) -> FailureCosts:  # fmt: skip
    """Return the costs of failures in a simulated training: if some model copies fail, the others continue."""
    copy_workers = math.ceil(training.workers / training.copies)
    min_copies = math.ceil(failures.min_workers / copy_workers)
    group = failures.model_copy(update={"min_workers": min_copies}).failing_group(training.copies)
    # A single remaining copy may have to do the steps of all; the rest is a margin.
    max_steps = steps * training.copies + MAX_FAILURES_IN_A_ROW
    work = SavedSteps(max_steps, equal_step_ends(training.step_s), checkpoints)
    # An outage of workers is an outage of the model copies that have them.
    copies_down = (
        outage._replace(first=outage.first // copy_workers, stop=math.ceil(outage.stop / copy_workers))
        for outage in outages
    )
    return ElasticTraining(
        group, steps, work_of=lambda copies: work, outages=copies_down, period=training.exchanges_every
    ).simulate()


def _checkpoint_times(failures: FailuresSpec, training: FailingTraining) -> CheckpointTimes:
    return failures.checkpoint_costs(
        training.step_s, training.workers, training.state_bytes, training.copies, training.rejoin_s
    )


def _stuck_reason(
    failures: FailuresSpec, training: FailingTraining, checkpoints: CheckpointTimes, interval_s: float | None
) -> str | None:
    """Return the reason if `MAX_FAILURES_IN_A_ROW` attempts in a row are expected to fail, else None.

    An attempt of t seconds succeeds with probability ``exp(-t / mtbf)``, so ``exp(t / mtbf)`` attempts are expected.
    """
    if not has_closed_form(failures, training.workers):
        return None
    mtbf_s = failures.mtbf_s(training.workers)
    if failures.recovery == "restart":
        work_s = interval_s if interval_s is not None else training.step_s * training.steps
        repair_s = 0.0 if failures.spares else failures.repair_s()
        needed_s = repair_s + failures.restart_time + checkpoints.reload_s + work_s + checkpoints.stop_s
        phase = "a restart and the steps to a checkpoint"
        if repair_s:
            phase = f"a repair, {phase}"
    else:
        needed_s = failures.detection_timeout + failures.regroup_time + training.step_s
        phase = "forming a group and a step"
    if needed_s <= mtbf_s * math.log(MAX_FAILURES_IN_A_ROW):
        return None
    needed_text, mtbf = format_seconds(needed_s), format_seconds(mtbf_s)
    return f"no progress possible: {phase} take {needed_text}, and something fails every {mtbf}"
