"""A measure, and who asks measures along a training and keeps what they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from syncline.optim.base import Row
from syncline.optim.method import Method


class MeasuredValue(NamedTuple):
    """A value ``(S,)`` of each replica; ``layer`` is empty where it is of all parameters together."""

    measure: str
    value: Tensor
    layer: str = ""


class WatchedValue(NamedTuple):
    """A value of one seed after a number of completed steps."""

    seed: int
    step: int
    measure: str
    layer: str
    value: float


class Measure:
    """A measure of a method during training; each hook returns measured values, by default none.

    Parameters, gradients and states have the worker axis: rows ``(S W, *s)``, replica by replica.
    """

    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure before step ``t`` (from 0); ``p.grad`` are then the gradients of each worker."""
        return ()

    def before_average(
        self, method: Method, rows: list[Row], names: tuple[str, ...], t: int
    ) -> Iterable[MeasuredValue]:
        """Measure after the local update of step ``t``, before the states ``names`` of these rows are averaged."""
        return ()

    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure after step ``t``, including its averages."""
        return ()


class Watch:
    """Measures along one training.

    Args:
        measures: measures to record.
        every: number of steps between records before and after a step; measures before an average are always recorded.
    """

    def __init__(self, measures: Sequence[Measure], every: int = 1) -> None:
        self._measures, self._every = measures, every
        self._found: list[tuple[int, MeasuredValue]] = []

    def before_step(self, method: Method, t: int) -> None:
        """Record measures before a step; call it after the gradients are computed."""
        if (t + 1) % self._every == 0:
            for measure in self._measures:
                self._keep(t, measure.before_step(method, t))

    def before_average(self, method: Method, rows: list[Row], names: tuple[str, ...], t: int) -> None:
        """Ask the measures before an average; the method calls this."""
        for measure in self._measures:
            self._keep(t, measure.before_average(method, rows, names, t))

    def after_step(self, method: Method, t: int) -> None:
        """Record measures after a step; call it before the next gradients are computed."""
        for measure in self._measures:
            values = measure.after_step(method, t)
            if (t + 1) % self._every == 0:
                self._keep(t, values)

    def _keep(self, t: int, values: Iterable[MeasuredValue]) -> None:
        self._found += [(t + 1, value) for value in values]

    def values(self, seeds: Sequence[int]) -> list[WatchedValue]:
        """Return all measured values, in order."""
        return [
            WatchedValue(seed, step, measured.measure, measured.layer, float(value))
            for step, measured in self._found
            for seed, value in zip(seeds, measured.value.tolist(), strict=True)
        ]
