"""What failures leave of a training, in closed form where there is one."""

from __future__ import annotations

import math

from syncline.costmodel.reliability.checkpoints import expected_wall_s
from syncline.costmodel.reliability.going_on import GoingOn
from syncline.sim.failures.work import Saving
from syncline.specs.failures import FailuresSpec


def has_formula(failures: FailuresSpec) -> bool:
    """Whether a closed form holds: of rates without bursts, and repairs that all take as long; not of given outages."""
    rates = failures.failure_rates()
    if failures.outages or any(rate.shape != 1 for rate in rates):
        return False
    return bool(failures.spares) or len({rate.repair_s for rate in rates}) <= 1


def down_s(failures: FailuresSpec) -> float:
    """Seconds from a failure until processes start: who waits for a repair is down as long; with spares nobody is."""
    waited_s = 0.0 if failures.spares else max((rate.repair_s for rate in failures.failure_rates()), default=0.0)
    return max(failures.timeout, waited_s)


def restarted_goodput(
    failures: FailuresSpec, workers: int, saving: Saving, interval_s: float | None, work_s: float | None = None
) -> float | None:
    """Of a training whose workers all go back to the last checkpoint; None where no formula holds.

    Args:
        failures: of which machines.
        workers: P.
        saving: how the state is kept.
        interval_s: of work between checkpoints; None: never, but at the end.
        work_s: of the whole training, where that is known.
    """
    # That the end is saved counts for nothing: where nothing fails it is, too.
    stop_s = 0.0 if interval_s is None else saving.stop_s
    interval_s = work_s if interval_s is None else interval_s
    if not has_formula(failures) or saving.lag_s or interval_s is None:
        return None
    again_s = failures.restart + saving.load_s
    return 1 / expected_wall_s(1.0, interval_s, stop_s, again_s, failures.mtbf_s(workers), down_s(failures))


def group_going_on(
    failures: FailuresSpec, workers: int, load_s: float, step_s: float, copies: int | None = None, period: int = 1
) -> GoingOn:
    """The copies of a training that goes on with those who are there.

    Args:
        failures: of which machines.
        workers: P.
        load_s: until who comes back has the state.
        step_s: of a step.
        copies: of the model, each on as many workers; P of one worker each unless given.
        period: steps from one exchange to the next.
    """
    copies = workers if copies is None else copies
    each = -(-workers // copies)
    per_s = sum(
        max(each / rate.width(workers, failures.node, failures.sites), 1.0) / rate.mtbf_s
        for rate in failures.failure_rates()
    )
    return GoingOn(
        copies,
        1 / per_s if per_s else math.inf,
        failures.mtbf_s(workers),
        failures.all_lost_mtbf_s(workers),
        step_s,
        failures.timeout + 2 * failures.reform,
        failures.restart + load_s,
        down_s(failures),
        period,
    )


def reformed_goodput(
    failures: FailuresSpec, on: GoingOn, saving: Saving, interval_s: float | None, work_s: float | None = None
) -> float | None:
    """Of a training that goes on with those who are there; None where no formula holds.

    Args:
        failures: of which machines.
        on: the copies of the model.
        saving: how the state is kept.
        interval_s: of work between checkpoints; None: never.
        work_s: of the whole training, where that is known.
    """
    if not has_formula(failures) or saving.lag_s or failures.at_least > 1:
        return None
    lost_s, stop_s = on.lost_mtbf_s, 0.0 if interval_s is None else saving.stop_s
    interval_s = work_s if interval_s is None else interval_s
    if interval_s is None:
        return on.share if math.isinf(lost_s) else None
    return on.share / expected_wall_s(1.0, interval_s, stop_s, on.restart_s, lost_s, on.down_s)
