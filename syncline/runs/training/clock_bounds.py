"""Bounds of a training's simulated times, from the known errors of predicted computing and communication.

The training is timed again with the seconds of computing, or of communication, at one of their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.bounds import AS_PREDICTED, Factors, StepTimesAtBounds, at_bounds, basis_text, combined_bounds
from syncline.sim import Clock


@dataclass(frozen=True)
class BoundedClock:
    """A clock with the bounds of its times.

    Args:
        clock: clock with times as predicted.
        at_bounds_s: mean step times with computing and communication at their bounds.
        basis: text that says from which measurements the bounds come.
    """

    clock: Clock
    at_bounds_s: StepTimesAtBounds
    basis: str

    def bounds(self) -> dict[str, Any]:
        """Return the columns with the bounds of the seconds of a mean step and of all steps, and their ``basis``.

        Nine of ten measured trainings are expected between the bounds.
        """
        clock = self.clock
        low_s, high_s = combined_bounds(np.array(clock.step_time_s), self.at_bounds_s)
        num_steps = clock.wall_s / clock.step_time_s if clock.step_time_s else 0.0
        return {
            "step_time_low_s": float(low_s), "step_time_high_s": float(high_s),
            "wall_clock_low_s": float(low_s) * num_steps, "wall_clock_high_s": float(high_s) * num_steps,
            "basis": self.basis,
        }  # fmt: skip

    def speedup_bounds(self, baseline: BoundedClock) -> dict[str, float]:
        """Return the bounds of a step's speedup over the baseline, if one machine and one network run both.

        The speedup of steps that take no time counts as 1.
        """
        step_time_s = self.clock.step_time_s
        if not step_time_s:
            return {"speedup_low": 1.0, "speedup_high": 1.0}
        # At each bound, the same factors apply to both.
        pairs_s = zip(baseline.at_bounds_s, self.at_bounds_s, strict=True)
        speedups = [baseline_s / step_s for baseline_s, step_s in pairs_s]
        low, high = combined_bounds(np.array(baseline.clock.step_time_s / step_time_s), speedups)
        return {"speedup_low": float(low), "speedup_high": float(high)}


def clock_bounds(
    clock: Clock, retime: Callable[[Factors], Clock | None], computing: Uncertainty, communication: Uncertainty
) -> tuple[StepTimesAtBounds, str]:
    """Return the mean step times with computing and communication at their bounds, and where the bounds come from.

    ``retime`` times the training of ``clock`` again, with factors on the seconds of computing and communication.
    """
    step_times_s = []
    for factors in at_bounds(computing, communication):
        clock_at_bound = clock if factors == AS_PREDICTED else retime(factors)
        assert clock_at_bound is not None  # because the training has ``clock``
        step_times_s.append(np.array(clock_at_bound.step_time_s))
    return StepTimesAtBounds(*step_times_s), basis_text(computing.basis, communication.basis)
