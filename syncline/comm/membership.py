"""Membership of workers that leave a simulated training between two steps and come back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.comm.base import check_count
from syncline.errors import SpecError
from syncline.units import is_whole


@dataclass(frozen=True)
class Absence:
    """A worker that is away in the steps from ``start`` to ``stop - 1``.

    Args:
        worker: index of the worker, from 0.
        start: first step without the worker, from 0.
        stop: first step with the worker again; None if the worker does not come back.

    Raises:
        SpecError: a worker or step below 0, or ``stop`` not after ``start``.
    """

    worker: int
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.worker) or self.worker < 0:
            raise SpecError("absence.worker", self.worker, "a worker, from 0")
        if not is_whole(self.start) or self.start < 0:
            raise SpecError("absence.start", self.start, "a step, from 0")
        if self.stop is not None and (not is_whole(self.stop) or self.stop <= self.start):
            raise SpecError("absence.stop", self.stop, f"a step after start ({self.start}), or none")

    def covers(self, step: int) -> bool:
        """Return whether the worker is away in this step."""
        return self.start <= step and (self.stop is None or step < self.stop)


class Membership:
    """The workers of a group of M that take part in each step.

    Args:
        workers: M.
        absences: the absences of workers; overlapping absences of one worker merge.
        joined: by step, workers that start anew with that step, besides the workers that return from an absence.

    Raises:
        SpecError: a worker outside the group, or a step in which no worker is present.

    >>> membership = Membership(3, [Absence(2, 4, 6)])
    >>> membership.present(3), membership.present(5), membership.joining(6)
    ((0, 1, 2), (0, 1), (2,))
    """

    def __init__(
        self, workers: int, absences: Sequence[Absence] = (), joined: Mapping[int, Collection[int]] | None = None
    ) -> None:
        check_count("workers", workers)
        if not isinstance(absences, list | tuple) or not all(isinstance(item, Absence) for item in absences):
            raise SpecError("absences", absences, "a list of syncline.comm.Absence")
        self.workers, self.absences, self.joined = workers, tuple(absences), dict(joined or {})
        for absence in self.absences:
            if absence.worker >= workers:
                raise SpecError("absence.worker", absence.worker, f"a worker from 0 to {workers - 1}")
        for step in sorted({absence.start for absence in self.absences}):  # fewest are present when a worker leaves
            if not self.present(step):
                raise SpecError("absences", self.absences, f"somebody present in step {step}")

    def present(self, step: int) -> tuple[int, ...]:
        """Return the workers that take part in this step."""
        away = {absence.worker for absence in self.absences if absence.covers(step)}
        return tuple(worker for worker in range(self.workers) if worker not in away)

    def away(self, step: int) -> tuple[int, ...]:
        """Return the workers that do not take part in this step."""
        present = set(self.present(step))
        return tuple(worker for worker in range(self.workers) if worker not in present)

    def joining(self, step: int) -> tuple[int, ...]:
        """Return the workers that take part in this step and did not in the step before; no worker joins in step 0."""
        before = set(self.present(step - 1)) - set(self.joined.get(step, ())) if step else set(range(self.workers))
        return tuple(worker for worker in self.present(step) if worker not in before)

    def table(self, steps: int) -> NDArray[np.bool_]:
        """Return whether each worker takes part in each of the first ``steps`` steps, ``(steps, M)``."""
        present = np.ones((steps, self.workers), dtype=bool)
        for absence in self.absences:
            present[absence.start : absence.stop, absence.worker] = False
        return present
