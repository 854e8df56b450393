"""Closed-form parameters of a group that goes on after failures, from a ``failures:`` spec."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from syncline.costmodel.reliability.fault_tolerant import GoingOn

if TYPE_CHECKING:
    from syncline.specs.failures import FailuresSpec


def has_formula(failures: FailuresSpec) -> bool:
    """Return whether a closed form holds: exponential rates, equal repair times or spares, and no listed outages."""
    rates = failures.failure_rates()
    if failures.outages or any(rate.shape != 1 for rate in rates):
        return False
    return bool(failures.spares) or len({rate.repair_s for rate in rates}) <= 1


def down_s(failures: FailuresSpec) -> float:
    """Return the seconds from a failure until processes start: the repair time, or at least the timeout.

    With spares a replica does not wait for a repair.
    """
    waited_s = 0.0 if failures.spares else max((rate.repair_s for rate in failures.failure_rates()), default=0.0)
    return max(failures.timeout, waited_s)


def group_going_on(
    failures: FailuresSpec, workers: int, load_s: float, step_s: float, copies: int | None = None, period: int = 1
) -> GoingOn:
    """Return the parameters of a training whose present replicas go on while others are down.

    Args:
        failures: failures of the machines.
        workers: number of workers, P.
        load_s: seconds until a returning replica has loaded the state.
        step_s: seconds of a step.
        copies: number of model replicas, each on equally many workers; P by default.
        period: number of steps from one exchange to the next.
    """
    copies = workers if copies is None else copies
    copy_workers = -(-workers // copies)
    per_s = sum(
        max(copy_workers / rate.width(workers, failures.node, failures.sites), 1.0) / rate.mtbf_s
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
