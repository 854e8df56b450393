"""Shares of a step that computes or waits, with bounds from the measured errors of computing and communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from syncline.costmodel import Network, StepTime
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.planner.bounds import AS_PREDICTED, Factors, at_bounds, combined_bounds
from syncline.planner.projection.bounds import by_link, communication_bounds, computing_bounds
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import network_groups
from syncline.planner.projection.rows import Known
from syncline.planner.solving.targets import BoundedValue
from syncline.specs import ProjectSpec

SHARES: dict[str, Callable[[StepTime], FloatOrArray]] = {
    "exposed": lambda step: step.exposed_communication_s,
    "compute_utilisation": lambda step: step.compute_s,
}
"""Seconds of a step whose share each target limits."""

ROUNDING = 1e-12
"""Share of a step below which waiting is a rounding error of a difference of sums."""


def shares(spec: ProjectSpec, number: int, networks: Sequence[Network]) -> list[dict[str, BoundedValue]]:
    """Return the shares of a method's step on each network: predicted, best case and worst case.

    Args:
        spec: spec of one setting.
        number: index of the method.
        networks: the networks.
    """
    plan = ProjectionPlan([spec.model_copy(update={"networks": tuple(networks)})])
    computing, communicating = computing_bounds(plan), communication_bounds(plan, networks)
    shares_by_network: list[dict[str, BoundedValue]] = [{} for _ in networks]
    for indices, network in network_groups(networks):
        cache: Known = {}

        def step_shares(factors: Factors, network: Network = network, cache: Known = cache) -> dict[str, Floats]:
            step = plan.step(number, network, cache=cache, factors=factors)
            total_s = by_link(step.step_time_s)
            step_parts = {
                name: np.divide(by_link(seconds_of(step)), total_s, out=np.zeros(total_s.shape), where=total_s > 0)
                for name, seconds_of in SHARES.items()
            }
            exposed = step_parts["exposed"]
            return step_parts | {"exposed": np.where(exposed < ROUNDING, 0.0, exposed)}

        predicted = step_shares(AS_PREDICTED)
        varied = [step_shares(factors) for factors in at_bounds(computing, communicating.select(indices))]
        for name, share in predicted.items():
            low, high = combined_bounds(share, [variant[name] for variant in varied])
            ends = low, np.minimum(high, 1.0)
            best, worst = ends if name == "exposed" else ends[::-1]
            for column, index in enumerate(indices):
                values = (float(value[0, column]) for value in (share, best, worst))
                shares_by_network[index][name] = BoundedValue(*values)
    return shares_by_network
