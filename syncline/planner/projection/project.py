"""``syncline project``: times without training, in closed form, on networks with ranks where a placement puts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from syncline.columns import distinct_by_key
from syncline.costmodel import Link, Network
from syncline.costmodel.layouts.layout import GIVEN, placed_network, placements_of
from syncline.errors import SpecError
from syncline.methods import MethodBase, tensors_of
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.planner.projection.pricing import first_value
from syncline.specs import Experiment, ProjectSpec, study_of

SEARCH = "search"

NO_RECORDS: list[Any] = []
"""The records of a study that needs no training."""

FASTEST = "the fastest of given, stages-inside and replicas-inside"
"""Origin of the placement that a search has found, in words."""


def placed_spec(spec: ProjectSpec) -> ProjectSpec:
    """Return a spec whose networks place the ranks by the spec's placement rule.

    If the spec searches and finds one rule for all networks, this rule is the placement of the returned spec.
    """
    if spec.placement == GIVEN:
        return spec
    layout = spec.layout.build()
    rules, networks = [], []
    for network in spec.networks:
        rule = fastest_placement(spec, network) if spec.placement == SEARCH else spec.placement
        rules.append(rule)
        networks.append(placed_network(network, rule, layout, spec.workers))
    common_rule = rules[0] if len(set(rules)) == 1 else spec.placement
    return spec.model_copy(update={"networks": tuple(networks), "placement": common_rule})


def fastest_placement(spec: ProjectSpec, network: Network) -> str:
    """Return the placement rule with which the first method's step is fastest on a network."""
    layout = spec.layout.build()
    rules = placements_of(network, layout, spec.workers)
    if len(rules) == 1:
        return rules[0]
    plan = ProjectionPlan([spec.model_copy(update={"methods": spec.methods[:1]})])
    placed_networks = [placed_network(network, rule, layout, spec.workers) for rule in rules]
    steps_s = [first_value(plan.step(0, placed).step_time_s) for placed in placed_networks]
    return rules[int(np.argmin(np.nan_to_num(steps_s, nan=np.inf)))]  # nan: an unknown time


def subject_of(spec: ProjectSpec) -> tuple[str, str | None, str | None]:
    """Return the model, the hardware and the layout of a projection as rows name them; None if there is none."""
    layout = spec.layout.build()
    machine = spec.compute.hardware.name if spec.compute.hardware else None
    return spec.model.name, machine, layout.describe() if layout.workers > 1 else None


FEW_ROWS = 1000
"""Number of rows up to which thresholds are found by default."""


def project(spec: Experiment) -> list[dict[str, Any]]:
    """Return the rows of a projection, one per method and network, or of a study that needs no training."""
    return list(project_all([spec]))


def project_all(specs: Iterable[Experiment], thresholds: bool | None = None) -> Sequence[dict[str, Any]]:
    """Return the rows of several projections or studies, in order.

    Args:
        specs: specs of projections, or of studies that need no training.
        thresholds: whether to find the bandwidths at which a method is worth it; by default, if there are few rows.

    Raises:
        SpecError: a method cannot serve so many workers, or a network can join none of the numbers of workers.
    """
    specs = list(specs)
    projections = [placed_spec(spec) for spec in specs if isinstance(spec, ProjectSpec)]
    if len(projections) < len(specs):  # studies, because a command takes specs of one kind
        return [row for spec in specs for row in study_of(spec).rows(spec, NO_RECORDS)]
    check_joined(projections)
    if thresholds is None:
        thresholds = sum(len(spec.methods) * len(spec.networks) for spec in projections) <= FEW_ROWS
    plans = (ProjectionPlan(group, methods) for group, methods in group_specs(projections))
    return ColumnRows([plan_columns(plan, plan.spec.networks, thresholds) for plan in plans])


def check_joined(specs: Sequence[ProjectSpec]) -> None:
    """Refuse a network that can join none of the specs' numbers of workers."""
    pairs = [(network, spec.workers) for spec in specs for network in spec.networks if not isinstance(network, Link)]
    network_by_name = {network.name: network for network, _ in reversed(pairs)}  # the first of each name
    for name, (first, *others) in distinct_by_key((network.name, workers) for network, workers in pairs).items():
        network = network_by_name[name]
        refusal = _refusal_of_network(network, first)
        if refusal is not None and all(_refusal_of_network(network, workers) for workers in others):
            raise SpecError(refusal.path, refusal.value, f"{refusal.expected} (network {name!r})")


def _refusal_of_network(network: Network, workers: int) -> SpecError | None:
    """Return the reason why a network cannot connect so many workers, or None if it can."""
    if workers == 1:  # a single worker needs no network
        return None
    try:
        # Both methods raise an error for too many workers. `sizes` takes less memory, but not all networks have it.
        getattr(network, "sizes", network.among)(workers)
    except SpecError as error:
        return error
    return None


def group_specs(specs: Sequence[ProjectSpec]) -> Iterator[tuple[list[ProjectSpec], tuple[MethodBase, ...]]]:
    """Yield groups of neighbouring specs that differ only in workers and computing, with all methods of each group."""
    tensors_by_model: dict[int, Any] = {}
    group: list[ProjectSpec] = []
    methods: tuple[MethodBase, ...] = ()  # all methods of the group's specs; a spec may leave some out
    group_key: tuple[Any, ...] = ()
    for spec in specs:
        if id(spec.model) not in tensors_by_model:
            tensors_by_model[id(spec.model)] = tuple(tensors_of(spec.model.tensors))
        tensors = tensors_by_model[id(spec.model)]
        # Inside a replica of several workers, the tokens of a worker decide the messages, too.
        key = (tensors, spec.networks, spec.steps, spec.overlap, spec.bucket_size, spec.algorithm, spec.protocol,
               spec.memory, spec.compute.encode_bandwidth, spec.compute.readback_latency, spec.number_format,
               spec.layout, spec.worker_tokens if spec.layout.build().workers > 1 else None)  # fmt: skip
        merged_methods = _longer_list(methods, spec.methods) if key == group_key else None
        if merged_methods is None:  # the spec begins a group
            if group:
                yield group, methods
            group, merged_methods = [], spec.methods
        group.append(spec)
        methods, group_key = merged_methods, key
    if group:
        yield group, methods


def _longer_list(first: tuple[MethodBase, ...], second: tuple[MethodBase, ...]) -> tuple[MethodBase, ...] | None:
    """Return the list of methods that has all methods of the other in the same order; None if neither does.

    Methods are compared by identity: specs that differ only in workers share the objects.
    """
    if first is second:
        return first
    for longer, shorter in ((first, second), (second, first)):
        shorter_ids = [id(method) for method in shorter]
        if [id(method) for method in longer if id(method) in shorter_ids] == shorter_ids:
            return longer
    return None
