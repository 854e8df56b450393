"""Bounds of projected times: computing and communication are off by what was measured of their like.

Either is taken at each of its bounds while the other stays, and a step is timed again, overlap and all. What both
change by is added as independent errors are:

    low = T - sqrt((T - T(k_low, 1))^2 + (T - T(1, c_low))^2),   high = T + sqrt(...)

A speedup compares two methods on one machine and one network, so that both are off by the same factors in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import ModelShape, Network, StepTime
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.bases import communicating, computing
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.uncertainty import Uncertainty

if TYPE_CHECKING:
    from syncline.experiments.projection.plan import Known, ProjectionPlan


class Factors(NamedTuple):
    """By what computing and communication are off.

    Attributes:
        computing: of all settings, or of each ``(S,)``; or several such, ``(B, S)``.
        communication: what broadcasts with the seconds of a call; of several, ``(B, 1, n)`` or ``(B, 1)``.
    """

    computing: FloatOrArray = 1.0
    communication: FloatOrArray = 1.0


AS_PREDICTED = Factors()


class Sides(NamedTuple):
    """Lower and upper factors of several uncertainties, and what each rests on."""

    low: Floats
    high: Floats
    basis: list[str]

    def of(self, places: Sequence[int]) -> Sides:
        """Some of them."""
        return Sides(self.low[places], self.high[places], [self.basis[place] for place in places])


def sides(of: Sequence[Uncertainty]) -> Sides:
    """Of uncertainties, as arrays."""
    low, high = (np.array([getattr(one, name) for one in of]) for name in ("low", "high"))
    return Sides(low, high, [one.basis for one in of])


def of_settings(plan: ProjectionPlan) -> Sides:
    """Of computing, in each setting."""
    from syncline.experiments.projection.plan import once_each

    def one(spec: object) -> Uncertainty:
        model, compute = spec.model, spec.compute  # type: ignore[attr-defined]
        given = compute.seconds is not None or compute.table is not None
        width = model.width if isinstance(model, ModelShape) else None
        return computing(None if given else compute.hardware, width, compute.mfu)

    return sides(once_each(plan.specs, one))


def of_networks(plan: ProjectionPlan, networks: Sequence[Network]) -> Sides:
    """Of communication, on each network."""
    return sides([communicating(network, plan.algorithm(network)) for network in networks])


class Varied(NamedTuple):
    """Step times, ``(S, n)`` each, with computing and communication at their bounds, one at a time."""

    less_computing: Floats
    more_computing: Floats
    less_communication: Floats
    more_communication: Floats


def varied(
    plan: ProjectionPlan, number: int, network: Network, known: Known, step: StepTime, k: Sides, c: Sides
) -> Varied:
    """A method's step times at the bounds.

    Args:
        plan: prices the methods.
        number: of the method.
        network: links in one, or a network.
        known: calls that are priced.
        step: as predicted.
        k: of computing, by setting.
        c: of communication, by link.
    """
    if not np.any(step.hidden_communication_s):  # what is not hidden adds up
        busy, waits = (
            by_link(part) for part in (step.compute_s + step.encode_s + step.trigger_s, step.communication_s)
        )
        return Varied(
            *(busy * f[:, None] + waits for f in (k.low, k.high)), *(busy + waits * f for f in (c.low, c.high))
        )
    if len(plan.traffic[number]) == 1 and plan.able[:, number].all():  # all at once
        computing = np.stack([k.low, k.high, np.ones_like(k.low), np.ones_like(k.low)])
        communication = np.stack([np.ones_like(c.low), np.ones_like(c.low), c.low, c.high])
        shape = (4, 1, -1) if np.ndim(step.compute_s) == 2 else (4, -1)
        both = Factors(computing, communication.reshape(shape))
        times_s = np.asarray(plan.step(number, network, known=known, factors=both).step_time_s)
        return Varied(*(by_link(one) for one in times_s))
    ways = [Factors(computing=k.low), Factors(computing=k.high), Factors(1.0, c.low), Factors(1.0, c.high)]
    told = (plan.step(number, network, known=known, factors=one).step_time_s for one in ways)
    return Varied(*(by_link(one) for one in told))


def based_on(k: Sides, c: Sides) -> tuple[Indices, list[str]]:
    """What each setting rests on with each network: the place ``(S, N)`` of a text, and the texts."""
    texts: dict[str, int] = {}
    pairs = [[(one, other) for other in c.basis] for one in k.basis]
    told = [
        [texts.setdefault(f"computing: {one}; communication: {other}", len(texts)) for one, other in row]
        for row in pairs
    ]
    return np.array(told, dtype=np.int64).reshape(len(k.basis), len(c.basis)), list(texts)


def by_link(values: FloatOrArray) -> Floats:
    """Of settings and links, ``(S, n)``, a number or with one axis too few where there is one link."""
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else np.atleast_2d(array)


def between(value: Floats, of: Sequence[NDArray[np.float64]]) -> tuple[Floats, Floats]:
    """Lower and upper bounds of a value from what it is with each of two causes at each of its bounds."""
    down, up = np.zeros_like(value), np.zeros_like(value)
    for one, other in (of[:2], of[2:]):
        down += np.maximum(value - np.minimum(one, other), 0.0) ** 2
        up += np.maximum(np.maximum(one, other) - value, 0.0) ** 2
    return np.maximum(value - np.sqrt(down), 0.0), value + np.sqrt(up)


def of_thresholds(k: Sides, c: Sides, settings: Indices, places: Indices) -> tuple[Floats, Floats]:
    """By what communication is off against computing, which is what a threshold depends on: least and most, ``(E, 1)``.

    Steps scale with both together, so that a factor k on computing is a factor 1/k on communication.
    """
    low = np.exp(-np.hypot(np.log(c.low[places]), np.log(k.high[settings])))
    high = np.exp(np.hypot(np.log(c.high[places]), np.log(k.low[settings])))
    return low[:, None], high[:, None]
