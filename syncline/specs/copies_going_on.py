"""The machines of ``failures:`` as the closed forms have them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from syncline.costmodel.reliability.fault_tolerant import GoingOn

if TYPE_CHECKING:
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
