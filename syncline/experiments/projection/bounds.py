"""Bounds of projected times: of all settings on all networks at once, as `syncline.experiments.bounds` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel import ModelShape, Network, StepTime
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.bases import communicating
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.uncertainty import Uncertainty
from syncline.experiments.bounds import Varied, at_bounds, basis_text
from syncline.experiments.projection.once import once_each
from syncline.experiments.projection.plan import Known, ProjectionPlan
from syncline.specs import ProjectSpec


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
    return sides(once_each(plan.specs, _computing))


def _computing(spec: ProjectSpec) -> Uncertainty:
    return spec.compute.uncertainty(spec.model.width if isinstance(spec.model, ModelShape) else None)


def of_networks(plan: ProjectionPlan, networks: Sequence[Network]) -> Sides:
    """Of communication, on each network."""
    return sides([communicating(network, plan.spec.algorithm_on(network)) for network in networks])


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
    if plan.inside is None and not np.any(step.hidden_communication_s):  # what is not hidden adds up
        busy, waits = (by_link(part) for part in (step.computing_s, step.communication_s))
        return Varied(
            *(busy * f[:, None] + waits for f in (k.low, k.high)), *(busy + waits * f for f in (c.low, c.high))
        )
    told = (plan.step(number, network, known=known, factors=one).step_time_s for one in at_bounds(k, c))
    return Varied(*(by_link(one) for one in told))


def based_on(k: Sides, c: Sides) -> tuple[Indices, list[str]]:
    """What each setting rests on with each network: the place ``(S, N)`` of a text, and the texts."""
    texts: dict[str, int] = {}
    told = [texts.setdefault(basis_text(one, other), len(texts)) for one in k.basis for other in c.basis]
    return np.array(told, dtype=np.int64).reshape(len(k.basis), len(c.basis)), list(texts)


def by_link(values: FloatOrArray) -> Floats:
    """Of settings and links, ``(S, n)``, a number or with one axis too few where there is one link."""
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else np.atleast_2d(array)


def of_thresholds(k: Sides, c: Sides, settings: Indices, places: Indices) -> tuple[Floats, Floats]:
    """By what communication is off against computing, which is what a threshold depends on: least and most, ``(E, 1)``.

    Steps scale with both together, so that a factor k on computing is a factor 1/k on communication.
    """
    low = np.exp(-np.hypot(np.log(c.low[places]), np.log(k.high[settings])))
    high = np.exp(np.hypot(np.log(c.high[places]), np.log(k.low[settings])))
    return low[:, None], high[:, None]
