"""The limit on how much of a sweep is trained before it pauses: a number of trainings, or a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from syncline.errors import SpecError


class Allowance:
    """A limit on the trainings that may still start; without a limit all may.

    A training that has started is finished. Under a time limit no training starts that would end after the limit if it
    took as long as the longest so far; the first one always starts.

    Args:
        max_trainings: number of trainings.
        time_s: seconds of this process, from now on.
        now: function that gives the seconds of a monotonic clock.

    Attributes:
        spent: whether a request was refused.

    Raises:
        SpecError: the limit allows no training.
    """

    def __init__(
        self, max_trainings: int | None = None, time_s: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if max_trainings is not None and max_trainings < 1:
            raise SpecError("--most", max_trainings, "at least 1 training")
        if time_s is not None and not time_s > 0:
            raise SpecError("--for", time_s, "a time above 0, as in 10min")
        self._left, self._now, self._end_s = max_trainings, now, None if time_s is None else now() + time_s
        self._begun_s: float | None = None
        self._longest_s = 0.0
        self.spent = False

    def grant(self, requested: int, side_by_side: int) -> int:
        """Return how many of the requested trainings may start now; call it again when they are done."""
        number = requested if self._left is None else min(requested, self._left)
        if self._end_s is not None:
            number = min(number, side_by_side) if self._fits() else 0
        if self._left is not None:
            self._left -= number
        self.spent = self.spent or (requested > 0 and number == 0)
        return number

    def _fits(self) -> bool:
        assert self._end_s is not None
        now_s, before_s = self._now(), self._begun_s
        if before_s is not None:
            self._longest_s = max(self._longest_s, now_s - before_s)
        self._begun_s = now_s
        return before_s is None or now_s + self._longest_s <= self._end_s
