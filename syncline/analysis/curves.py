"""Curves of a training run: loss against steps and against the clock of each network, over one seed or several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SpecError

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class SeedSeries:
    """A quantity over the steps of a run, for one seed or several.

    Args:
        step: (n,) the steps at which it was evaluated, increasing.
        values: (n,) for one seed, or (S, n) for S seeds.

    Raises:
        SpecError: the shapes do not fit, or the steps do not increase.
    """

    label: str
    step: NDArray[Any]
    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", _increasing_array(f"{self.label}.step", self.step))
        object.__setattr__(self, "values", _with_seed_axis(f"{self.label}.values", self.values, self.step.size))


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss of one method at its evaluated steps, and the time at which each network's clock reaches them.

    Args:
        step: (n,) evaluated steps, increasing.
        loss: (n,) for one seed, or (S, n) for S seeds; NaN or infinity once a seed has diverged.
        clock_s: network -> (n,) seconds since the start at those steps.
        diverged_at: the step at which the run diverged. If None, it is read from the loss: the first evaluated step
            at which the median over the seeds is not finite, if any.

    Raises:
        SpecError: the shapes do not fit, or the steps or a clock do not increase.
    """

    label: str
    step: NDArray[Any]
    loss: FloatArray
    clock_s: Mapping[str, FloatArray] = field(default_factory=dict)
    diverged_at: float | None = None

    def __post_init__(self) -> None:
        """Make arrays of the fields, refuse shapes that do not fit, and find the divergence."""
        object.__setattr__(self, "step", _increasing_array(f"{self.label}.step", self.step))
        object.__setattr__(self, "loss", _with_seed_axis(f"{self.label}.loss", self.loss, self.step.size))
        clocks = {}
        for name, clock in self.clock_s.items():
            path = f"{self.label}.clock_s.{name}"
            clocks[name] = _increasing_array(path, clock, strictly=False)
            if clocks[name].size != self.step.size:
                raise SpecError(path, clocks[name].size, f"one time per step, {self.step.size}")
        object.__setattr__(self, "clock_s", clocks)
        median, _, _ = median_and_range(self.loss)
        if self.diverged_at is None and not np.isfinite(median).all():
            first_divergence = int(np.argmin(np.isfinite(median)))
            object.__setattr__(self, "diverged_at", self.step[first_divergence].item())

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Return the mask (n,) of the evaluated steps at which the run had not diverged yet."""
        median, _, _ = median_and_range(self.loss)
        is_finite = np.isfinite(median)
        return is_finite if self.diverged_at is None else is_finite & (self.step < self.diverged_at)


def median_and_range(values: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the median over all seeds, with a diverged seed counted as the worst, and the range of the finite seeds.

    The median takes a value that is not finite as plus infinity, so it is finite while more than half of the seeds are.
    The range is that of the seeds that are finite; ``lost_seeds`` counts the others.

    Args:
        values: (S, n), or (n,) for one seed.

    Returns:
        median, lowest and highest, each (n,); infinite where no seed is finite.
    """
    values_by_seed = np.atleast_2d(np.asarray(values, dtype=float))
    is_finite = np.isfinite(values_by_seed)
    sorted_values = np.sort(np.where(is_finite, values_by_seed, np.inf), axis=0)
    num_seeds = len(sorted_values)
    # The two middle rows are one row if the number of seeds is odd.
    median = (sorted_values[(num_seeds - 1) // 2] + sorted_values[num_seeds // 2]) / 2
    highest = np.where(is_finite, values_by_seed, -np.inf).max(axis=0)
    return median, sorted_values[0], np.where(is_finite.any(axis=0), highest, np.inf)


def lost_seeds(values: ArrayLike) -> int:
    """Return the number of seeds that have a value that is not finite, for values of shape (S, n) or (n,)."""
    return int((~np.isfinite(np.atleast_2d(np.asarray(values, dtype=float)))).any(axis=1).sum())


def time_to_target_s(clock_s: ArrayLike, loss: ArrayLike, target: float) -> float:
    """Return the seconds at which the loss first reaches the target, interpolated linearly between evaluations.

    With i the first point whose loss is at or below the target,
    ``t = t_{i-1} + (t_i - t_{i-1}) (L_{i-1} - target) / (L_{i-1} - L_i)``. It is t_i itself where no finite point comes
    before it. The loss between two evaluations is unknown, so evaluate often where it matters.

    Args:
        clock_s: (n,) seconds (or steps, for steps to target).
        loss: (n,) the loss at those times; NaN never reaches a target.
        target: the loss to reach.

    Returns:
        seconds, infinite if the target is never reached.
    """
    times, losses = np.asarray(clock_s, dtype=float), np.asarray(loss, dtype=float)
    if times.ndim != 1 or times.shape != losses.shape:
        raise SpecError("loss", losses.shape, f"one value per time, shape {times.shape}")
    reached = losses <= target
    if not reached.any():
        return math.inf
    i = int(np.argmax(reached))
    if i == 0 or not np.isfinite(losses[i - 1 : i + 1]).all():
        return float(times[i])
    share = (losses[i - 1] - target) / (losses[i - 1] - losses[i])
    return float(times[i - 1] + (times[i] - times[i - 1]) * share)


def _increasing_array(path: str, values: ArrayLike, *, strictly: bool = True) -> NDArray[Any]:
    """Return an array (n,) of finite numbers that increase, n > 0; raise ``SpecError`` with ``path`` for any other."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise SpecError(path, f"array of shape {array.shape}", "a non-empty row of finite numbers")
    gaps = np.diff(array)
    out_of_order = gaps <= 0 if strictly else gaps < 0
    if out_of_order.any():
        i = int(np.argmax(out_of_order))
        order = "strictly increasing" if strictly else "non-decreasing"
        raise SpecError(f"{path}[{i + 1}]", array[i + 1].item(), f"{order} values, after {array[i].item()}")
    return array


def _with_seed_axis(path: str, values: ArrayLike, num_steps: int) -> FloatArray:
    """Return values of S seeds at n steps as (S, n), from (n,) or (S, n); raise ``SpecError`` for other shapes."""
    array = np.atleast_2d(np.asarray(values, dtype=float))
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] != num_steps:
        raise SpecError(path, np.shape(values), f"shape ({num_steps},) or (seeds, {num_steps}), one value per step")
    return array
