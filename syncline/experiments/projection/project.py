"""``syncline project``: the clock alone, in closed form. NumPy and pydantic; no torch, no training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from syncline.costmodel import Link, Network
from syncline.errors import SpecError
from syncline.experiments.projection.columns import ColumnRows
from syncline.experiments.projection.plan import ProjectionPlan
from syncline.experiments.projection.plan_columns import plan_columns
from syncline.methods import MethodBase, tensors_of
from syncline.specs import Experiment, ProjectSpec, study_of

FEW = 1000
"""Rows whose thresholds are looked for where nobody says whether."""


def project(spec: Experiment) -> list[dict[str, Any]]:
    """The rows of a projection, one per method and network; of a study that answers at once, its own."""
    return list(project_all([spec]))


def project_all(specs: Iterable[Experiment], thresholds: bool | None = None) -> Sequence[dict[str, Any]]:
    """The rows of several projections, one after another, or of a study.

    Args:
        specs: of projections; or one of a study.
        thresholds: whether to say at which bandwidths a method is worth it; unless given, where there are few rows.

    Raises:
        SpecError: a method cannot serve so many workers, or a network can join none of the numbers of workers.
    """
    specs = list(specs)
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    if len(projections) < len(specs):
        return [row for spec in specs for row in study_of(spec).rows(spec, [])]
    check_joined(projections)
    if thresholds is None:
        thresholds = sum(len(spec.methods) * len(spec.networks) for spec in projections) <= FEW
    plans = (ProjectionPlan(group, methods) for group, methods in alike(projections))
    return ColumnRows([plan_columns(plan, plan.spec.networks, thresholds) for plan in plans])


def check_joined(specs: Sequence[ProjectSpec]) -> None:
    """Refuse a network that can join none of the numbers of workers; where it can some, rows of others say why not.

    Raises:
        SpecError: as the network does.
    """
    counts: dict[str, tuple[Network, dict[int, None]]] = {}
    for spec in specs:
        for network in spec.networks:
            if not isinstance(network, Link):
                counts.setdefault(network.name, (network, {}))[1][spec.workers] = None
    for network, asked in counts.values():
        refused: SpecError | None = None
        for workers in asked:
            try:
                if workers > 1:  # one by itself needs no network
                    # What sizes tell takes no memory, whatever the number of workers.
                    getattr(network, "sizes", network.among)(workers)
            except SpecError as error:
                refused = refused or error
            else:
                break
        else:
            if refused is not None:
                expected = f"{refused.expected} (network {network.name!r})"
                raise SpecError(refused.path, refused.value, expected)


def alike(specs: Sequence[ProjectSpec]) -> Iterator[tuple[list[ProjectSpec], tuple[MethodBase, ...]]]:
    """Neighbours that differ in workers and in what computes alone, with the methods of all of them."""
    tensors: dict[int, Any] = {}
    group: list[ProjectSpec] = []
    methods: tuple[MethodBase, ...] = ()
    shared: tuple[Any, ...] = ()
    for spec in specs:
        if id(spec.model) not in tensors:
            tensors[id(spec.model)] = tuple(tensors_of(spec.model.tensors))
        key = (tensors[id(spec.model)], spec.networks, spec.steps, spec.overlap, spec.bucket, spec.algorithm, spec.rule,
               spec.memory, spec.compute.encode, spec.compute.readback, spec.number_format, spec.layout,
               spec.tokens_per_worker if spec.layout.made().workers > 1 else None)  # fmt: skip
        most = _most(methods, spec.methods) if group and _same(key, shared) else None
        if group and most is None:
            yield group, methods
            group, most = [], spec.methods
        group.append(spec)
        methods, shared = most or spec.methods, key
    if group:
        yield group, methods


def _same(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(one is another or one == another for one, another in zip(key, other, strict=True))


def _most(one: tuple[MethodBase, ...], other: tuple[MethodBase, ...]) -> tuple[MethodBase, ...] | None:
    """Of two lists the one that has all of the other's methods, in its order; None if neither has."""
    if one is other:
        return one
    for longer, shorter in ((one, other), (other, one)):
        of_longer = iter(longer)
        if all(any(method is each for each in of_longer) for method in shorter):
            return longer
    return None
