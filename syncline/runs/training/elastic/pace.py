"""Durations of each worker's steps, for any number of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.specs import Training


class SampledPace:
    """Seconds of a worker's steps; the first T are drawn as for synchronous workers.

    Args:
        spec: specification of the training.
        base_s: seconds of an undisturbed step.
        work: duration of each worker's step relative to ``base_s``; 1 by default.
    """

    def __init__(self, spec: Training, base_s: float, work: Sequence[float] | None = None) -> None:
        self._spec, self._base_s, self._work = spec, base_s, work
        self._sample(spec.steps)

    def _sample(self, steps: int) -> None:
        times = self._spec.step_times(self._base_s, steps, self._work)
        self._steps, self._times = steps, times
        self._same: list[float] | None = times[0].tolist() if _is_one_row(times) else None

    def any_alike(self) -> bool:
        """Return whether two workers take equally long for each of their first T steps."""
        return len(np.unique(self._times[: self._spec.steps], axis=1).T) < self._spec.workers

    def __call__(self, worker: int, number: int) -> float:
        """Return the seconds of a worker's step ``number``, counted from 0."""
        if self._same is not None:
            return self._same[worker]
        if number >= self._steps:
            self._sample(max(2 * self._steps, number + 1))  # a longer sample begins with the same steps
        return float(self._times[number, worker])


def _is_one_row(times: np.ndarray) -> bool:
    return len(times) > 0 and not times.strides[0]
