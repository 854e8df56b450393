"""Bounds of projected times for all settings on all networks at once, see `syncline.planner.bounds`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel import Network, StepTime
from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.bounds import Factors, StepTimeVariants, basis_text
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import Known, axes_of, links_of_rows, once_each
from syncline.specs import ProjectSpec


class FactorBounds(NamedTuple):
    """Lower and upper factors of several uncertainties, and the basis of each."""

    low: Floats
    high: Floats
    basis: list[str]

    def select(self, places: Sequence[int]) -> FactorBounds:
        """Return the factors at some positions."""
        return FactorBounds(self.low[places], self.high[places], [self.basis[place] for place in places])


def factor_bounds(uncertainties: Sequence[Uncertainty]) -> FactorBounds:
    """Return the factors of uncertainties as arrays."""
    low, high = (np.array([getattr(uncertainty, name) for uncertainty in uncertainties]) for name in ("low", "high"))
    return FactorBounds(low, high, [uncertainty.basis for uncertainty in uncertainties])


def computing_bounds(plan: ProjectionPlan) -> FactorBounds:
    """Return the uncertainty of computing in each setting."""
    return factor_bounds(once_each(plan.specs, _computing))


def _computing(spec: ProjectSpec) -> Uncertainty:
    return spec.compute.uncertainty(spec.width, experts=spec.kernel_experts)


def communication_bounds(plan: ProjectionPlan, networks: Sequence[Network]) -> FactorBounds:
    """Return the uncertainty of communication on each network."""
    return factor_bounds([communication_uncertainty(network, plan.spec.algorithm_on(network)) for network in networks])


def step_time_variants(
    plan: ProjectionPlan, number: int, network: Network, cache: Known, step: StepTime, k: FactorBounds, c: FactorBounds
) -> StepTimeVariants:
    """Return a method's step times at the lower and upper bounds of computing and communication.

    Args:
        plan: plan that prices the methods.
        number: index of the method.
        network: several links as one, or a network.
        cache: cache of priced calls.
        step: predicted step time.
        k: factors of computing, by setting.
        c: factors of communication, by link.
    """
    if not np.any(step.hidden_communication_s) and not np.any(step.inside_s):  # what is not hidden adds up
        busy, waits = (by_link(part) for part in (step.computing_s, step.communication_s))
        return StepTimeVariants(
            *(busy * f[:, None] + waits for f in (k.low, k.high)), *(busy + waits * f for f in (c.low, c.high))
        )
    count, unchanged = len(plan.specs), np.ones_like(k.low)
    settings = np.tile(np.arange(count), 4)  # all variants at once
    computing = np.concatenate([k.low, k.high, unchanged, unchanged])
    communication = np.repeat([np.ones_like(c.low), np.ones_like(c.low), c.low, c.high], count, axis=0)
    factors = Factors(computing, communication if axes_of(network) == 2 else communication[:, 0])
    step = plan.step(number, links_of_rows(network, settings), settings, cache, factors)
    return StepTimeVariants(*by_link(step.step_time_s).reshape(4, count, -1))


def based_on(k: FactorBounds, c: FactorBounds) -> tuple[Indices, list[str]]:
    """Return the index ``(S, N)`` of each setting's basis text on each network, and the texts."""
    texts: dict[str, int] = {}
    codes = [
        texts.setdefault(basis_text(computing, communication_uncertainty), len(texts))
        for computing in k.basis
        for communication_uncertainty in c.basis
    ]
    return np.array(codes, dtype=np.int64).reshape(len(k.basis), len(c.basis)), list(texts)


def by_link(values: FloatOrArray) -> Floats:
    """Return values of settings and links as ``(S, n)``, from a number or an array that may lack the axis of links."""
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else np.atleast_2d(array)


def threshold_bounds(k: FactorBounds, c: FactorBounds, settings: Indices, places: Indices) -> tuple[Floats, Floats]:
    """Return the bounds of communication's factor relative to computing, ``(E, 1)`` each, as thresholds depend on it.

    Steps scale with both together, so that a factor k on computing is a factor 1/k on communication.
    """
    low = np.exp(-np.hypot(np.log(c.low[places]), np.log(k.high[settings])))
    high = np.exp(np.hypot(np.log(c.high[places]), np.log(k.low[settings])))
    return low[:, None], high[:, None]
