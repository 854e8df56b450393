"""Parts of a step with their bounds: computing and communication are off by what was measured of their like."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from syncline.costmodel import Network, StepTime
from syncline.costmodel.arrays import FloatOrArray
from syncline.costmodel.network.paths import Floats
from syncline.experiments.bounds import AS_PREDICTED, Factors, at_bounds, between
from syncline.experiments.projection.bounds import by_link, of_networks, of_settings
from syncline.experiments.projection.plan import Known, ProjectionPlan
from syncline.experiments.projection.plan_columns import together
from syncline.experiments.solving.targets import ToldThree
from syncline.specs import ProjectSpec

SHARES: dict[str, Callable[[StepTime], FloatOrArray]] = {
    "exposed": lambda step: step.exposed_communication_s,
    "compute_utilisation": lambda step: step.compute_s,
}
"""What of a step each is a part of it."""


def shares(spec: ProjectSpec, number: int, networks: Sequence[Network]) -> list[dict[str, ToldThree]]:
    """The shares of a method's step on each network: as predicted, at their best and at their worst.

    Args:
        spec: of one setting.
        number: of the method.
        networks: on which.
    """
    plan = ProjectionPlan([spec.model_copy(update={"networks": tuple(networks)})])
    computing, communicating = of_settings(plan), of_networks(plan, networks)
    out: list[dict[str, ToldThree]] = [{} for _ in networks]
    for places, network in together(networks):
        known: Known = {}

        def told(off: Factors, network: Network = network, known: Known = known) -> dict[str, Floats]:
            step = plan.step(number, network, known=known, factors=off)
            whole = by_link(step.step_time_s)
            return {
                name: np.divide(by_link(of(step)), whole, out=np.zeros(whole.shape), where=whole > 0)
                for name, of in SHARES.items()
            }

        here = told(AS_PREDICTED)
        varied = [told(one) for one in at_bounds(computing, communicating.of(places))]
        for name, share in here.items():
            low, high = between(share, [one[name] for one in varied])
            ends = low, np.minimum(high, 1.0)
            best, worst = ends if name == "exposed" else ends[::-1]
            for column, place in enumerate(places):
                out[place][name] = float(share[0, column]), float(best[0, column]), float(worst[0, column])
    return out
