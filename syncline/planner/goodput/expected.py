"""Expected goodput of a training on failing machines, in closed form if there is one."""

from __future__ import annotations

import math

from syncline.costmodel.reliability.checkpoints import expected_wall_s, until_all_work_s
from syncline.costmodel.reliability.fault_tolerant import FaultTolerantGroup
from syncline.sim.failures.work import CheckpointTimes
from syncline.specs.failures import FailuresSpec, downtime_s, has_closed_form


def restarted_goodput(
    failures: FailuresSpec, workers: int, saving: CheckpointTimes, interval_s: float | None, work_s: float | None = None
) -> float | None:
    """Return the goodput of a training in which all workers restart from the last checkpoint; None if no formula holds.

    Args:
        failures: failure model of the machines.
        workers: number of workers.
        saving: cost and timing of checkpoints.
        interval_s: seconds of work between checkpoints; None: the only checkpoint is at the end.
        work_s: seconds of work in the whole training, if known.
    """
    # The checkpoint at the end costs no goodput, because a training without failures writes it too.
    stop_s = 0.0 if interval_s is None else saving.stop_s
    interval_s = work_s if interval_s is None else interval_s
    if not has_closed_form(failures) or saving.lag_s or interval_s is None:
        return None
    restart_s, mtbf_s = failures.restart_time + saving.reload_s, failures.mtbf_s(workers)
    down_s = max(downtime_s(failures), until_all_work_s(0.0 if failures.spares else failures.repair_s(), mtbf_s))
    return 1 / expected_wall_s(1.0, interval_s, stop_s, restart_s, mtbf_s, down_s)


def reformed_goodput(
    failures: FailuresSpec,
    group: FaultTolerantGroup,
    saving: CheckpointTimes,
    interval_s: float | None,
    work_s: float | None = None,
) -> float | None:
    """Return the goodput of a training that continues with the remaining workers; None if no formula holds.

    Args:
        failures: failure model of the machines.
        group: the model copies that continue.
        saving: cost and timing of checkpoints.
        interval_s: seconds of work between checkpoints; None: there are no checkpoints.
        work_s: seconds of work in the whole training, if known.
    """
    if not has_closed_form(failures) or saving.lag_s or failures.min_workers > 1:
        return None
    mtbf_s, stop_s = group.lost_mtbf_s, 0.0 if interval_s is None else saving.stop_s
    interval_s = work_s if interval_s is None else interval_s
    if interval_s is None:
        return group.useful_share if math.isinf(mtbf_s) else None
    return group.useful_share / expected_wall_s(1.0, interval_s, stop_s, group.restart_s, mtbf_s, group.down_s)
