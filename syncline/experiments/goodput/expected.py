"""What failures leave of a training, in closed form where there is one."""

from __future__ import annotations

import math

from syncline.costmodel.reliability.checkpoints import expected_wall_s
from syncline.costmodel.reliability.going_on import GoingOn
from syncline.sim.failures.work import Saving
from syncline.specs.copies_going_on import down_s, has_formula
from syncline.specs.failures import FailuresSpec


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
