"""What failures leave of a training that is planned: how it can go on, how often it saves, what of its time counts.

A training whose workers exchange in every step goes back to the last checkpoint. Where replicas exchange now and then,
each holds the whole model, and those who are there go on; ``recovery`` of the failures asks for one or the other of all
who can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from syncline.costmodel.reliability.going_on import GoingOn
from syncline.experiments.goodput.expected import reformed_goodput, restarted_goodput
from syncline.experiments.goodput.left import FailingTraining, WhatIsLeft
from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MOST_IN_VAIN
from syncline.sim.failures.reforms import play_reforms
from syncline.sim.failures.restarts import play_restarts
from syncline.sim.failures.work import SavedSteps, Saving, steady
from syncline.specs.copies_going_on import group_going_on, has_formula
from syncline.specs.failures import FailuresSpec, Recovery, check_workers
from syncline.units import format_seconds

SEEDS = 5
"""Of failures that are played where no formula holds."""


def what_is_left(failures: FailuresSpec, of: FailingTraining) -> WhatIsLeft:
    """How a training goes on, how often it saves, and what of its time counts: by formula, or played where none holds.

    Args:
        failures: of its machines; a ``recovery`` that is given is that of all who can.
        of: the training.

    Raises:
        SpecError: failures of workers that there are not.
    """
    check_workers(failures, of.workers)
    recovery = recovery_of(failures, of)
    failures = failures.model_copy(update={"recovery": recovery})
    if not math.isfinite(of.step_s) or of.step_s <= 0:
        return WhatIsLeft(recovery, None, 1.0)
    saving, work_s = _saving(failures, of), of.step_s * of.steps
    # Of an interval that is longer than the training its end alone is saved.
    interval_s = None if saving.every is None or saving.every > of.steps else saving.every * of.step_s
    if recovery == "restart":
        goodput = restarted_goodput(failures, of.workers, saving, interval_s, work_s)
    else:
        goodput = reformed_goodput(failures, _going_on(failures, of, saving), saving, interval_s, work_s)
    stuck = _never(failures, of, saving, interval_s)
    if stuck is None and goodput is None:
        goodput, stuck = played_goodput(failures, of, SEEDS)
    return WhatIsLeft(recovery, interval_s, 0.0 if stuck or goodput is None else goodput, stuck)


def recovery_of(failures: FailuresSpec, of: FailingTraining) -> Recovery:
    """How a training goes on: as it is asked for, and as it can."""
    asked = failures.recovery if "recovery" in failures.model_fields_set else None
    able = of.copies > 1 and (asked == "reform" or of.exchanges_every > 1)
    return "reform" if able and asked != "restart" else "restart"


def played_goodput(failures: FailuresSpec, of: FailingTraining, seeds: int = 1) -> tuple[float | None, str | None]:
    """The same by events, a mean over seeds, and why there is no progress.

    Args:
        failures: with the recovery of the training.
        of: the training.
        seeds: with failures of their own.
    """
    saving, steps = _saving(failures, of), max(1, round(of.steps))
    told = []
    for seed in range(seeds):
        outages = failures.outages_of(of.workers, seed)
        if failures.recovery == "reform":
            each = -(-of.workers // of.copies)
            group = failures.model_copy(update={"at_least": -(-failures.at_least // each)}).group(of.copies)
            endless = SavedSteps(steps * of.copies + MOST_IN_VAIN, steady(of.step_s), saving)
            hit = of_copies(outages, each)
            played = play_reforms(group, steps, lambda _, work=endless: work, hit, period=of.exchanges_every)  # type: ignore[misc]
        else:
            work = SavedSteps(steps, steady(of.step_s), saving)
            played = play_restarts(failures.group(of.workers), work, outages)
        if played.stuck is not None:
            return 0.0, played.stuck
        told.append(played.goodput)
    return sum(told) / seeds, None


def of_copies(outages: Iterator[Outage], each: int) -> Iterator[Outage]:
    """The copies, of so many workers each, that outages take away."""
    for one in outages:
        yield one._replace(first=one.first // each, stop=-(-one.stop // each))


def _going_on(failures: FailuresSpec, of: FailingTraining, saving: Saving) -> GoingOn:
    return group_going_on(failures, of.workers, saving.load_s, of.step_s, of.copies, of.exchanges_every)


def _saving(failures: FailuresSpec, of: FailingTraining) -> Saving:
    return failures.saving(of.step_s, of.workers, of.state_bytes, of.copies)


def _never(failures: FailuresSpec, of: FailingTraining, saving: Saving, interval_s: float | None) -> str | None:
    """Why a training makes no progress that a thousand attempts would bring; none where it does."""
    if not has_formula(failures):
        return None
    mtbf_s = failures.mtbf_s(of.workers)
    if failures.recovery == "restart":
        work_s = interval_s if interval_s is not None else of.step_s * of.steps
        needed_s = failures.restart + saving.load_s + work_s + saving.stop_s
        what = "a restart and the steps to a checkpoint"
    else:
        needed_s, what = failures.timeout + failures.reform + of.step_s, "forming a group and a step"
    if needed_s <= mtbf_s * math.log(MOST_IN_VAIN):
        return None
    needed, each = format_seconds(needed_s), format_seconds(mtbf_s)
    return f"no progress possible: {what} take {needed}, and something fails every {each}"
