"""Useful time of a fault-tolerant group of model copies, which continues without failed copies, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.costmodel.numerics.arrays import require


@dataclass(frozen=True)
class FaultTolerantGroup:
    """Copies of a model, each on some workers, which regroup without a copy that fails.

    The times between failures are exponential. A copy is present for the fraction
    ``a = e^(-R / m) / (1 + (D + t / 2) / m)`` of the time, because it returns after D seconds, half a step and R
    seconds of restart. The group spends the fraction ``e^(-E / M) (t / M) / (e^(t / M) - 1)`` of that time in useful
    steps. A copy that fails also loses its steps since the last exchange. The formulas are of first order in the number
    of copies that are absent at a time.

    Args:
        copies: number of copies.
        copy_mtbf_s: m, mean seconds between failures of one copy.
        any_mtbf_s: M, mean seconds between failures of any copy, after which the remaining copies regroup.
        all_mtbf_s: mean seconds between failures of all copies at once.
        step_s: t, seconds of a step; a failure costs the remaining copies half a step, and a returning copy waits for
            half a step.
        pause_s: E, seconds of all pauses per failure: detection, and regrouping after the failure and after the return.
        restart_s: R, seconds in which a copy starts and loads, and may fail again.
        down_s: D, seconds from a failure to the beginning of the restart.
        period: steps between two exchanges.

    Raises:
        SpecError: no copies, or a mean time that is not positive.

    >>> rare = FaultTolerantGroup(8, 1e9, 1e9 / 8, math.inf, step_s=1.0, pause_s=10.0, restart_s=300.0, down_s=60.0)
    >>> round(1 - rare.useful_share, 10)
    4.445e-07
    """

    copies: int
    copy_mtbf_s: float
    any_mtbf_s: float
    all_mtbf_s: float
    step_s: float
    pause_s: float
    restart_s: float
    down_s: float
    period: int = 1

    def __post_init__(self) -> None:
        require(self.copies > 0, "copies", self.copies, "at least one")
        for name in ("copy_mtbf_s", "any_mtbf_s", "all_mtbf_s"):
            require(getattr(self, name) > 0, name.removesuffix("_s"), getattr(self, name), "a positive time")

    @property
    def availability(self) -> float:
        """Return a, the fraction of the time for which a copy is present."""
        down_s = self.down_s + self.step_s / 2
        return math.exp(-self.restart_s / self.copy_mtbf_s) / (1 + down_s / self.copy_mtbf_s)

    @property
    def useful_share(self) -> float:
        """Return the fraction of the copies' time in useful steps, without checkpoints or losses of all copies."""
        in_steps = math.exp(-self.pause_s / self.any_mtbf_s) * _completed_fraction(self.step_s / self.any_mtbf_s)
        return self.availability * in_steps * _completed_fraction((self.period - 1) * self.step_s / self.copy_mtbf_s)

    @property
    def lost_mtbf_s(self) -> float:
        """Return the mean seconds between losses of all copies, which need a checkpoint; infinite without such losses.

        Independent failures of n copies cause ``n a / m (1 - a)^(n - 1)`` losses per second, besides failures of all
        copies at once.
        """
        failures_per_s = self.copies * self.availability / self.copy_mtbf_s
        losses_per_s = failures_per_s * (1 - self.availability) ** (self.copies - 1) + 1 / self.all_mtbf_s
        return 1 / losses_per_s if losses_per_s else math.inf


def _completed_fraction(length: float) -> float:
    """Return ``x / (e^x - 1)``, the fraction of time in completed stretches of x mean times between failures."""
    if length > LONGEST_STRETCH:
        return 0.0
    return length / math.expm1(length) if length else 1.0


LONGEST_STRETCH = 700.0
"""Length of a stretch, in mean times between failures, above which none completes."""
