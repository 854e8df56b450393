"""The projection of the settings, as a spec that ``syncline project`` accepts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import yaml

from syncline.costmodel import NETWORKS
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError
from syncline.methods import method_of, named
from syncline.planner.explore.settings import BASELINE, BY_NAME, line_between_places, sizes_of_sites, to_query
from syncline.planner.projection.projections import refusal_of, with_steps_for
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.questions.explore import COMPRESSIONS, OWN, SITES, PageSettings
from syncline.specs import ProjectSpec, load_spec
from syncline.specs.cluster.networks import network_fields
from syncline.units import format_bandwidth, format_seconds

TENSOR = 8
"""Degree of tensor parallelism where a site has no nodes."""

COMPRESSED: dict[str, dict[str, Any]] = {
    "bf16": {"wire": "bf16"},
    "8 bit": {"compressor": {"kind": "lp", "bits": 8}},
    "4 bit": {"compressor": {"kind": "lp", "bits": 4}},
    "top 1 %": {"compressor": {"kind": "top-k", "fraction": 0.01}},
}
assert set(COMPRESSED) == set(COMPRESSIONS) - {OWN}


@dataclass(frozen=True)
class ExploredSpec:
    """The projection that settings make.

    Attributes:
        fields: fields of the projection, as in a file.
        spec: the spec made of these fields.
        notes: a line per method that is omitted, or that a setting does not change.
    """

    fields: dict[str, Any]
    spec: ProjectSpec
    notes: tuple[str, ...]


@lru_cache(maxsize=64)
def explored_spec(settings: PageSettings) -> ExploredSpec:
    """Return the projection of the settings.

    Raises:
        SpecError: settings that do not go together.
    """
    layout = replica_layout(settings)
    workers = sum(sizes_of_sites(settings))
    replicas = workers // Layout(**layout).workers
    notes: list[str] = []
    methods = []
    for name in (BASELINE, *settings.methods):
        method = _with_settings(name, settings, notes)
        refused = refusal_of(method_of(method), max(replicas, 1)) if method else None
        if refused is not None:
            notes.append(f"{name} is left out: {refused}")
        elif method:
            methods.append(method)
    fields = {
        "kind": "project",
        "name": "explored",
        "description": "Made by syncline explore.",
        "source": f"?{to_query(settings)}",
        "model": settings.model,
        **({"tokens_per_worker": settings.batch} if settings.batch else {}),
        "workers": workers,
        "steps": 1,
        "methods": methods,
        "networks": [network_of(settings)],
        "compute": {"hardware": settings.hardware},
        **({"layout": layout} if layout else {}),
    }
    spec = load_spec(fields, (), ProjectSpec)
    assert isinstance(spec, ProjectSpec)
    timed = with_steps_for(spec, settings.tokens)
    assert isinstance(timed, ProjectSpec)
    return ExploredSpec(fields | {"steps": timed.steps}, timed, tuple(notes))


def failures_of_settings(settings: PageSettings) -> dict[str, Any] | None:
    """Return the failures as ``syncline advise`` and ``project`` accept them; None if nothing fails."""
    if not settings.mtbf:
        return None
    texts = {name: BY_NAME[name].write(getattr(settings, name)) for name in ("mtbf", "restart", "storage")}
    return {"rates": texts["mtbf"], "restart_time": texts["restart"], "checkpoint": {"bandwidth": texts["storage"]}}


def failure_options(settings: PageSettings) -> list[str]:
    """Return the failures as options of a command."""
    failures = failures_of_settings(settings)
    if failures is None:
        return []
    rate, restart = str(failures["rates"]), str(failures["restart_time"])
    return ["--failures", rate, "--restart", restart, "--bandwidth", str(failures["checkpoint"]["bandwidth"])]


def spec_text(settings: PageSettings) -> str:
    """Return the projection as a file with which ``syncline project`` computes the same numbers.

    Raises:
        SpecError: settings that do not go together.
    """
    return yaml.safe_dump(explored_spec(settings).fields, sort_keys=False, allow_unicode=True, width=120)


def _with_settings(name: str, settings: PageSettings, notes: list[str]) -> dict[str, Any] | None:
    """Return a method's fields with the period and the compression of the settings, where the method has them."""
    fields = named(name)
    method = method_of(fields)
    if settings.period and name != BASELINE and getattr(method, "period", 1) > 1:
        fields["period"] = settings.period
    if settings.compression != OWN and name != BASELINE:
        more = COMPRESSED[settings.compression]
        if "compressor" in more and "compressor" not in type(method).model_fields:
            notes.append(f"{name} is sent as it is: it takes no compressor")
        else:
            fields |= more
    try:
        method_of(fields)
    except SpecError as error:
        notes.append(f"{name} is left out: {error}")
        return None
    return fields


def node_of(settings: PageSettings) -> int:
    """Return the number of workers of a node, over which tensor parallelism splits a matrix."""
    inside = NETWORKS[settings.inside].network if settings.network == SITES else None
    return min(*sizes_of_sites(settings), inside.per_node if isinstance(inside, TwoLevel) else TENSOR)


def replica_layout(settings: PageSettings) -> dict[str, int]:
    """Return the layout of a replica; an empty one if it is one worker.

    Raises:
        SpecError: a replica of a whole site where the sites differ in size.
    """
    node, sizes = node_of(settings), sizes_of_sites(settings)
    if len(set(sizes)) > 1 and "site" in settings.replica:
        expected = f"worker or node, as {settings.network} has sites of {', '.join(map(str, sizes))} workers"
        raise SpecError("replica", settings.replica, expected)
    degrees = {
        "worker": {},
        "node": {"tensor": node},
        "site": {"data": sizes[0]},
        "nodes in a site": {"tensor": node, "data": sizes[0] // node},
    }[settings.replica]
    return {name: count for name, count in degrees.items() if count > 1}


def line_of(settings: PageSettings) -> dict[str, Any]:
    """Return a site's line to the others."""
    name = f"{format_bandwidth(settings.bandwidth)} and {format_seconds(settings.latency)}"
    texts = {field: BY_NAME[field].write(getattr(settings, field)) for field in ("latency", "bandwidth")}
    return texts | {"name": name}


def network_of(settings: PageSettings) -> Any:
    """Return the network that joins all workers, as in a spec.

    Raises:
        SpecError: the site has a node that is not full.
    """
    narrowest = line_between_places(settings)
    if narrowest is not None:
        link_between = replace(at_bandwidth(narrowest.link, settings.bandwidth), latency_s=settings.latency)
        return network_fields(narrowest.with_link(link_between))
    inside, line = NETWORKS[settings.inside].network, line_of(settings)
    if settings.workers == 1:
        return line
    levels: list[dict[str, Any]]
    if isinstance(inside, TwoLevel) and settings.workers > inside.per_node:
        if settings.workers % inside.per_node:
            expected = f"a multiple of {inside.per_node}, as a node of {settings.inside} has"
            raise SpecError("workers", settings.workers, expected)
        if settings.sites == 1:
            return settings.inside
        levels = [{"preset": settings.inside, "units": settings.workers // inside.per_node}]
    else:
        link = inside.inner.name if isinstance(inside, TwoLevel) else settings.inside
        if settings.sites == 1:
            return link
        levels = [{"units": settings.workers, "link": link}]
    return {"name": "sites", "levels": [*levels, {"units": settings.sites, "link": line, "rails": 1}]}
