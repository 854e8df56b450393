"""Trainings that failures would stop: refused before they start, if that is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from syncline.costmodel.reliability.rates import group_mtbf_s
from syncline.errors import SpecError
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.sim.failures.outcome import no_progress
from syncline.units import format_seconds

if TYPE_CHECKING:
    from syncline.specs import MethodBase, Training
    from syncline.specs.failures import FailuresSpec

IN_VAIN = math.log(1000)
"""Ratio of the needed time to the time between two failures at which a thousand attempts are made on average."""


def check_progress(spec: Training, method: MethodBase) -> None:
    """Refuse a training that makes no progress, as far as is known: failures faster than restarts, or too few machines.

    The time of a step counts if it is known.

    Raises:
        SpecError: the kind of failures, and the reason.
    """
    failures, asynchronous = spec.failures, asynchronous_of(method)
    if failures is None:
        return
    step_s = spec.compute.seconds or 0.0
    if asynchronous is None and failures.recovery == "elastic":
        mtbf_s, needed_s = failures.mtbf_s(spec.workers), failures.detection_timeout + failures.regroup_time + step_s
        _check_rate(needed_s, mtbf_s, f"something of {spec.workers} workers fails every {format_seconds(mtbf_s)}")
        _check_places(failures, spec.workers, spec.steps * step_s, failures.min_workers, "")
        return
    if asynchronous is None:
        _check_restarts(failures, spec.workers, step_s)
        _check_places(failures, spec.workers, spec.steps * step_s, spec.workers, "")
        return
    own_s = group_mtbf_s(failures.failure_rates(), 1)  # for one worker: a failure of a shared part stops it, too
    _check_rate(failures.restart_time + step_s, own_s, f"a worker of {method.name} fails every {format_seconds(own_s)}")
    _check_places(failures, spec.workers, 0.0, 1, f" for {method.name}")  # the others do not wait for an absent worker


def _check_restarts(failures: FailuresSpec, workers: int, step_s: float) -> None:
    """Check workers that all return to the last checkpoint: they need a restart, loading, and at least one step."""
    checkpoint, mtbf_s = failures.checkpoint, failures.mtbf_s(workers)
    load_s = checkpoint.restore_time if checkpoint.restore_time is not None else checkpoint.write_time or 0.0
    interval = checkpoint.interval
    work_s = max(step_s, interval) if isinstance(interval, float) and step_s else step_s
    _check_rate(
        failures.restart_time + load_s + work_s,
        mtbf_s,
        f"something of {workers} workers fails every {format_seconds(mtbf_s)}",
    )


def _check_rate(needed_s: float, mtbf_s: float, event: str) -> None:
    if needed_s > IN_VAIN * mtbf_s:
        expected = (
            f"less often: no progress possible, as to begin again and make steps takes {format_seconds(needed_s)}"
        )
        raise SpecError("failures.rates", event, expected)


def _check_places(failures: FailuresSpec, workers: int, until_s: float, needed: int, suffix: str) -> None:
    """Check the listed outages: too few workers may be left after machines leave for good."""
    is_away = np.zeros(workers, dtype=bool)
    for outage in sorted(failures.outages, key=lambda event: event.start):
        if outage.end is not None or outage.start > until_s:
            continue
        first, stop = outage.workers(failures.workers_per_node, failures.workers_per_site(workers))
        is_away[first:stop] = True
        num_left = workers - int(is_away.sum()) + failures.spares
        if num_left < needed:
            why = no_progress(outage.start, f"{num_left} workers are left, and {needed} are needed{suffix}")
            expected = f"machines that come back, or spares: {why}"
            raise SpecError("failures.outages", f"{int(is_away.sum())} of {workers} away for good", expected)
