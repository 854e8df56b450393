"""Bounds of projected times for all settings on all networks at once, see `syncline.planner.bounds`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel import Network, StepTime
from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.bounds import FactorBounds, Factors, StepTimesAtBounds
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import PriceCache, by_link, links_of_rows, price_ndim, value_per_spec


def computing_bounds(plan: ProjectionPlan) -> FactorBounds:
    """Return the uncertainty of computing in each setting of a plan."""
    return _factor_bounds(
        value_per_spec(plan.specs, lambda spec: spec.compute.uncertainty(spec.width, experts=spec.kernel_experts))
    )


def communication_bounds(plan: ProjectionPlan, networks: Sequence[Network]) -> FactorBounds:
    """Return the uncertainty of communication on each network."""
    return _factor_bounds([communication_uncertainty(network, plan.spec.algorithm_on(network)) for network in networks])


def _factor_bounds(uncertainties: Sequence[Uncertainty]) -> FactorBounds:
    low = np.array([uncertainty.low for uncertainty in uncertainties])
    high = np.array([uncertainty.high for uncertainty in uncertainties])
    return FactorBounds(low, high, [uncertainty.basis for uncertainty in uncertainties])


def step_time_variants(
    plan: ProjectionPlan,
    method_index: int,
    network: Network,
    cache: PriceCache,
    step: StepTime,
    computing: FactorBounds,
    communication: FactorBounds,
) -> StepTimesAtBounds:
    """Return a method's step times at the lower and upper bounds of computing and communication, ``(S, n)`` each.

    Args:
        plan: plan of S settings that prices the methods.
        network: a link whose fields are arrays of n links, or another network (n = 1).
        computing: factors of computing, by setting.
        communication: factors of communication, by link.
    """
    # If no communication overlaps with computing or runs inside replicas, a step is computing plus communication.
    if not np.any(step.hidden_communication_s) and not np.any(step.inside_s):
        busy_s, waiting_s = by_link(step.computing_s), by_link(step.communication_s)
        return StepTimesAtBounds(
            less_computing=busy_s * computing.low[:, None] + waiting_s,
            more_computing=busy_s * computing.high[:, None] + waiting_s,
            less_communication=busy_s + waiting_s * communication.low,
            more_communication=busy_s + waiting_s * communication.high,
        )
    count = len(plan.specs)
    settings = np.tile(np.arange(count), 4)  # all four variants are priced at once, as if they were settings
    same_computing, same_communication = np.ones_like(computing.low), np.ones_like(communication.low)
    computing_factors = np.concatenate([computing.low, computing.high, same_computing, same_computing])
    variant_factors = [same_communication, same_communication, communication.low, communication.high]
    communication_factors = np.repeat(variant_factors, count, axis=0)
    if price_ndim(network) == 1:  # the prices have no axis of links
        communication_factors = communication_factors[:, 0]
    factors = Factors(computing_factors, communication_factors)
    variants = plan.step(method_index, links_of_rows(network, settings), settings, cache, factors)
    return StepTimesAtBounds(*by_link(variants.step_time_s).reshape(4, count, -1))


def threshold_bounds(
    computing: FactorBounds, communication: FactorBounds, settings: Indices, networks: Indices
) -> tuple[Floats, Floats]:
    """Return the lower and the upper factor of communication relative to computing, ``(E, 1)`` each.

    A bandwidth at which two methods are equally fast depends only on this ratio. A factor k on computing acts as 1/k on
    communication: the upper bound of computing belongs to the lower bound of the ratio. The two errors are independent,
    and their logarithms add in quadrature.

    Args:
        computing: factors of computing, by setting.
        communication: factors of communication, by network.
        settings: ``(E,)``, index of the setting of each threshold.
        networks: ``(E,)``, index of the network of each threshold.
    """
    low = np.exp(-np.hypot(np.log(communication.low[networks]), np.log(computing.high[settings])))
    high = np.exp(np.hypot(np.log(communication.high[networks]), np.log(computing.low[settings])))
    return low[:, None], high[:, None]
