"""``syncline project``: the clock alone, in closed form, on networks with ranks where a placement puts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Link, Network
from syncline.costmodel.layouts.layout import GIVEN, placed_network, placements_of
from syncline.errors import SpecError
from syncline.methods import MethodBase, tensors_of
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.specs import Experiment, ProjectSpec, study_of

SEARCH = "search"

FASTEST = "the fastest of given, stages-inside and replicas-inside"
"""The origin of a placement that was searched for."""


def placed_spec(spec: ProjectSpec) -> ProjectSpec:
    """Return a spec whose networks number the ranks as the spec's ``placement`` demands.

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


FEW = 1000
"""Number of rows up to which thresholds are found by default."""


def project(spec: Experiment) -> list[dict[str, Any]]:
    """Return the rows of a projection, one per method and network, or of a study that needs no training."""
    return list(project_all([spec]))


def project_all(specs: Iterable[Experiment], thresholds: bool | None = None) -> Sequence[dict[str, Any]]:
    """Return the rows of several projections, one after another, or of a study.

    Args:
        specs: specs of projections; or one of a study.
        thresholds: whether to find the bandwidths at which a method is worth it; by default, if there are few rows.

    Raises:
        SpecError: a method cannot serve so many workers, or a network can join none of the numbers of workers.
    """
    specs = list(specs)
    projections = [placed_spec(spec) for spec in specs if isinstance(spec, ProjectSpec)]
    if len(projections) < len(specs):
        return [row for spec in specs for row in study_of(spec).rows(spec, [])]
    check_joined(projections)
    if thresholds is None:
        thresholds = sum(len(spec.methods) * len(spec.networks) for spec in projections) <= FEW
    plans = (ProjectionPlan(group, methods) for group, methods in group_specs(projections))
    return ColumnRows([plan_columns(plan, plan.spec.networks, thresholds) for plan in plans])


def check_joined(specs: Sequence[ProjectSpec]) -> None:
    """Refuse a network that can join none of the numbers of workers; if it joins some, rows of others give a reason.

    Raises:
        SpecError: the error of the network.
    """
    counts: dict[str, tuple[Network, dict[int, None]]] = {}
    for spec in specs:
        for network in spec.networks:
            if not isinstance(network, Link):
                counts.setdefault(network.name, (network, {}))[1][spec.workers] = None
    for network, worker_counts in counts.values():
        refusal: SpecError | None = None
        for workers in worker_counts:
            try:
                if workers > 1:  # a single worker needs no network
                    # `sizes` takes no memory, whatever the number of workers.
                    getattr(network, "sizes", network.among)(workers)
            except SpecError as error:
                refusal = refusal or error
            else:
                break
        else:
            if refusal is not None:
                expected = f"{refusal.expected} (network {network.name!r})"
                raise SpecError(refusal.path, refusal.value, expected)


def group_specs(specs: Sequence[ProjectSpec]) -> Iterator[tuple[list[ProjectSpec], tuple[MethodBase, ...]]]:
    """Yield runs of specs that differ only in workers and computing, with the methods of all of them."""
    tensors: dict[int, Any] = {}
    group: list[ProjectSpec] = []
    methods: tuple[MethodBase, ...] = ()
    shared: tuple[Any, ...] = ()
    for spec in specs:
        if id(spec.model) not in tensors:
            tensors[id(spec.model)] = tuple(tensors_of(spec.model.tensors))
        key = (tensors[id(spec.model)], spec.networks, spec.steps, spec.overlap, spec.bucket_size, spec.algorithm,
               spec.protocol, spec.memory, spec.compute.encode_bandwidth, spec.compute.readback_latency,
               spec.number_format, spec.layout,
               spec.worker_tokens if spec.layout.build().workers > 1 else None)  # fmt: skip
        merged_methods = _longer_list(methods, spec.methods) if group and _same(key, shared) else None
        if group and merged_methods is None:
            yield group, methods
            group, merged_methods = [], spec.methods
        group.append(spec)
        methods, shared = merged_methods or spec.methods, key
    if group:
        yield group, methods


def _same(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two keys are equal; identical items are not compared."""
    return all(value is other_value or value == other_value for value, other_value in zip(key, other, strict=True))


def _longer_list(first: tuple[MethodBase, ...], second: tuple[MethodBase, ...]) -> tuple[MethodBase, ...] | None:
    """Return the list of methods that contains all methods of the other, in its order, or None if neither does."""
    if first is second:
        return first
    for longer, shorter in ((first, second), (second, first)):
        of_longer = iter(longer)
        if all(any(method is candidate for candidate in of_longer) for method in shorter):
            return longer
    return None
