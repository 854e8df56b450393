"""Bounds of simulated times: a training is timed again with computing and communication at a bound, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.bases import communication_uncertainty, timed_computing_uncertainty
from syncline.planner.bounds import AS_PREDICTED, Factors, StepTimeVariants, at_bounds, basis_text, combined_bounds
from syncline.sim import Clock
from syncline.specs import Training


def clock_bounds(
    spec: Training, network: Network, clock: Clock, retime: Callable[[Factors], Clock | None], measured: bool
) -> tuple[StepTimeVariants, str]:
    """Return the mean step times at the bounds, and the bases of the bounds.

    Args:
        spec: spec of the training.
        network: network on which it is timed.
        clock: the simulated clock.
        retime: function that times the training with computing and communication varied by factors.
        measured: whether the seconds of computing were measured.
    """
    k = timed_computing_uncertainty() if measured else spec.compute.uncertainty()
    c = communication_uncertainty(network, spec.algorithm_on(network))
    step_times = []
    for factors in at_bounds(k, c):
        timed = clock if factors == AS_PREDICTED else retime(factors)
        step_times.append(np.array((timed or clock).step_time_s))
    return StepTimeVariants(*step_times), basis_text(k.basis, c.basis)


def bounds_record(clock: Clock, varied: StepTimeVariants, basis: str) -> dict[str, Any]:
    """Return the bounds within which nine of ten measured trainings are expected, for a mean step and for all steps."""
    step_s = np.array(clock.step_time_s)
    low_s, high_s = (float(side) for side in combined_bounds(step_s, varied))
    all_steps = clock.wall_s / clock.step_time_s if clock.step_time_s else 0.0
    return {
        "step_time_low_s": low_s,
        "step_time_high_s": high_s,
        "wall_clock_low_s": low_s * all_steps,
        "wall_clock_high_s": high_s * all_steps,
        "basis": basis,
    }


def speedup_bounds(
    clock: Clock, varied: StepTimeVariants, base: Clock, base_varied: StepTimeVariants
) -> dict[str, float]:
    """Return bounds of the speedup of a step over the baseline's, on one machine and one network."""
    if not clock.step_time_s:
        return {"speedup_low": 1.0, "speedup_high": 1.0}
    ratios = [base_s / varied_s for base_s, varied_s in zip(base_varied, varied, strict=True)]
    low, high = combined_bounds(np.array(base.step_time_s / clock.step_time_s), ratios)
    return {"speedup_low": float(low), "speedup_high": float(high)}
