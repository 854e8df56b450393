"""Trainings that failures would not let go on: told before anything is trained, where that can be known."""

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
"""A thousand attempts are made in the mean for one that takes so many times what is between two failures."""


def check_progress(spec: Training, method: MethodBase) -> None:
    """Refuse a training that makes no progress, as far as is known of it: failures faster than restarts, empty places.

    A step is counted where its seconds are given.

    Raises:
        SpecError: which of the failures, and why.
    """
    failures, how = spec.failures, asynchronous_of(method)
    if failures is None:
        return
    step_s = spec.compute.seconds or 0.0
    if how is None and failures.recovery == "reform":
        mtbf_s, needed_s = failures.mtbf_s(spec.workers), failures.timeout + failures.reform + step_s
        _check_rate(needed_s, mtbf_s, f"something of {spec.workers} workers fails every {format_seconds(mtbf_s)}")
        _check_places(failures, spec.workers, spec.steps * step_s, failures.at_least, "")
        return
    if how is None:
        _check_restarts(failures, spec.workers, step_s)
        _check_places(failures, spec.workers, spec.steps * step_s, spec.workers, "")
        return
    own_s = group_mtbf_s(failures.failure_rates(), 1)  # of one worker: what is shared fails it, too
    _check_rate(failures.restart + step_s, own_s, f"a worker of {method.name} fails every {format_seconds(own_s)}")
    _check_places(failures, spec.workers, 0.0, 1, f" for {method.name}")  # who is gone is not waited for


def _check_restarts(failures: FailuresSpec, workers: int, step_s: float) -> None:
    """Of workers who all go back to the last checkpoint: a restart, loading, and a step at least."""
    checkpoint, mtbf_s = failures.checkpoint, failures.mtbf_s(workers)
    load_s = checkpoint.load if checkpoint.load is not None else checkpoint.seconds or 0.0
    given = checkpoint.interval
    work_s = max(step_s, given) if isinstance(given, float) and step_s else step_s
    _check_rate(
        failures.restart + load_s + work_s,
        mtbf_s,
        f"something of {workers} workers fails every {format_seconds(mtbf_s)}",
    )


def _check_rate(needed_s: float, mtbf_s: float, what: str) -> None:
    if needed_s > IN_VAIN * mtbf_s:
        expected = (
            f"less often: no progress possible, as to begin again and make steps takes {format_seconds(needed_s)}"
        )
        raise SpecError("failures.rates", what, expected)


def _check_places(failures: FailuresSpec, workers: int, until_s: float, needed: int, what: str) -> None:
    """Of outages that are given: machines that are away for good before the end, of which too few are left."""
    gone = np.zeros(workers, dtype=bool)
    for outage in sorted(failures.outages, key=lambda one: one.leaves):
        if outage.returns is not None or outage.leaves > until_s:
            continue
        first, stop = outage.workers(failures.node, failures.of_site(workers))
        gone[first:stop] = True
        left = workers - int(gone.sum()) + failures.spares
        if left < needed:
            why = no_progress(outage.leaves, f"{left} workers are left, and {needed} are needed{what}")
            expected = f"machines that come back, or spares: {why}"
            raise SpecError("failures.outages", f"{int(gone.sum())} of {workers} away for good", expected)
