"""Bounds of a training's simulated times, from the known errors of predicted computing and communication.

The training is timed again with the seconds of computing, or of communication, at one of their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.bases import TIMED_STEPS, communication_uncertainty
from syncline.costmodel.numerics.uncertainty import uncertainties
from syncline.planner.bounds import AS_PREDICTED, Factors, StepTimeVariants, at_bounds, basis_text, combined_bounds
from syncline.sim import Clock
from syncline.specs import Training


def clock_bounds(
    spec: Training, network: Network, clock: Clock, retime: Callable[[Factors], Clock | None], measured: bool
) -> tuple[StepTimeVariants, str]:
    """Return the mean step times with computing and communication at their bounds, and where the bounds come from.

    Args:
        retime: function that times the training again, with factors on the seconds of computing and communication.
        measured: whether the seconds of computing were measured on this machine.
    """
    # Seconds that were measured here are as certain as those of other timed steps.
    computing = uncertainties()[TIMED_STEPS] if measured else spec.compute.uncertainty()
    communication = communication_uncertainty(network, spec.algorithm_on(network))
    step_times_s = []
    for factors in at_bounds(computing, communication):
        clock_at_bound = clock if factors == AS_PREDICTED else retime(factors)
        assert clock_at_bound is not None  # because the training has ``clock``
        step_times_s.append(np.array(clock_at_bound.step_time_s))
    return StepTimeVariants(*step_times_s), basis_text(computing.basis, communication.basis)


def bounds_record(clock: Clock, variants: StepTimeVariants, basis: str) -> dict[str, Any]:
    """Return the columns with the bounds of the seconds of a mean step and of all steps, and their ``basis``.

    Nine of ten measured trainings are expected between the bounds.

    Args:
        basis: text that says from which measurements the bounds come.
    """
    low_s, high_s = combined_bounds(np.array(clock.step_time_s), variants)
    num_steps = clock.wall_s / clock.step_time_s if clock.step_time_s else 0.0
    return {
        "step_time_low_s": float(low_s), "step_time_high_s": float(high_s),
        "wall_clock_low_s": float(low_s) * num_steps, "wall_clock_high_s": float(high_s) * num_steps, "basis": basis,
    }  # fmt: skip


def speedup_bounds(
    clock: Clock, variants: StepTimeVariants, baseline: Clock, baseline_variants: StepTimeVariants
) -> dict[str, float]:
    """Return the bounds of a step's speedup over the baseline, if one machine and one network run both.

    The speedup of steps that take no time counts as 1.
    """
    if not clock.step_time_s:
        return {"speedup_low": 1.0, "speedup_high": 1.0}
    # At each bound, the same factors apply to both.
    speedups = [baseline_s / step_s for baseline_s, step_s in zip(baseline_variants, variants, strict=True)]
    low, high = combined_bounds(np.array(baseline.step_time_s / clock.step_time_s), speedups)
    return {"speedup_low": float(low), "speedup_high": float(high)}
