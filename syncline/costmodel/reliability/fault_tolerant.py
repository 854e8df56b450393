"""What failures leave of a group of copies that goes on with those who are there, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.costmodel.numerics.arrays import require


@dataclass(frozen=True)
class GoingOn:
    """R copies of a model, each on some workers: who fails is away, and the others form their group anew.

    Failures are exponential. Of the time of all copies these are there for ``a = e^(-R / m) / (1 + D / m)``, m the mean
    time between failures of one, and where the group forms anew for E in all, in steps of t,
    ``(t / M) / (e^(t / M) - 1) e^(-E / M)`` of that is in steps that count. Of a copy that fails it is lost what it has
    not exchanged. To first order in how many are away at a time.

    Args:
        copies: how many.
        copy_mtbf_s: m, mean seconds between failures of one.
        any_mtbf_s: M, between failures of any, which those who stay have to do something about.
        all_mtbf_s: between failures of all at once.
        step_s: t, of a step, which those who stay lose half of, and who is back waits for half of.
        pause_s: E, from a failure until a group is formed, and again when the copy is back.
        restart_s: R, in which a copy starts and loads, and may fail again.
        down_s: D, before that.
        period: steps from one exchange to the next.

    Raises:
        SpecError: no copies, or a mean time that is not positive.

    >>> rare = GoingOn(8, 1e9, 1e9 / 8, math.inf, step_s=1.0, pause_s=10.0, restart_s=300.0, down_s=60.0)
    >>> round(1 - rare.share, 10)
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
    def here(self) -> float:
        """a: the part of the time for which a copy is there."""
        down_s = self.down_s + self.step_s / 2
        return math.exp(-self.restart_s / self.copy_mtbf_s) / (1 + down_s / self.copy_mtbf_s)

    @property
    def share(self) -> float:
        """Of the copies' time, what is in steps that count, where nothing is saved and not all are away at once."""
        paused = math.exp(-self.pause_s / self.any_mtbf_s) * _kept(self.step_s / self.any_mtbf_s)
        return self.here * paused * _kept((self.period - 1) * self.step_s / self.copy_mtbf_s)

    @property
    def lost_mtbf_s(self) -> float:
        """Mean seconds between instants at which nobody is there, so that a checkpoint is needed; infinite: never.

        ``R a / m (1 - a)^(R - 1)`` of them in a second by chance, besides those in which all fail at once.
        """
        by_chance = self.copies * self.here / self.copy_mtbf_s * (1 - self.here) ** (self.copies - 1)
        per_s = by_chance + 1 / self.all_mtbf_s
        return 1 / per_s if per_s else math.inf


def _kept(x: float) -> float:
    """``x / (e^x - 1)``: of stretches of as much, what is in whole ones."""
    if x > MOST:
        return 0.0
    return x / math.expm1(x) if x else 1.0


MOST = 700.0
"""Beyond it nothing is left."""
