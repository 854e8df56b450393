"""Projections whose ranks lie on a matrix where a rule puts them, or the fastest of the rules."""

from __future__ import annotations

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.layouts.placements import GIVEN, placed_network, placements_of
from syncline.planner.projection.plan import ProjectionPlan
from syncline.specs import ProjectSpec

SEARCH = "search"

FASTEST = "the fastest of given, stages-inside and replicas-inside"
"""The origin of a placement that was searched for."""


def placed_spec(spec: ProjectSpec) -> ProjectSpec:
    """Return a spec whose networks have its ranks where its ``placement`` puts them.

    A search becomes the rule that it finds, unless it finds different rules for several networks.
    """
    if spec.placement == GIVEN:
        return spec
    layout = spec.layout.build()
    rules = [
        fastest_placement(spec, network) if spec.placement == SEARCH else spec.placement for network in spec.networks
    ]
    networks = tuple(
        placed_network(network, rule, layout, spec.workers) for network, rule in zip(spec.networks, rules, strict=True)
    )
    rule = rules[0] if len(set(rules)) == 1 else spec.placement
    return spec.model_copy(update={"networks": networks, "placement": rule})


def fastest_placement(spec: ProjectSpec, network: Network) -> str:
    """Return the rule that gives the first method the fastest step on a network; ties keep the first."""
    layout = spec.layout.build()
    rules = placements_of(network, layout, spec.workers)
    if len(rules) == 1:
        return rules[0]
    plan = ProjectionPlan([spec.model_copy(update={"methods": spec.methods[:1]})])
    steps_s = [
        plan.step(0, placed_network(network, rule, layout, spec.workers), cache={}).step_time_s for rule in rules
    ]
    seconds = np.array([float(np.reshape(step_s, (-1,))[0]) for step_s in steps_s])
    return rules[int(np.argmin(np.nan_to_num(seconds, nan=np.inf)))]
