"""The projection that settings ask for, as a spec that ``syncline project`` takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from syncline.costmodel import NETWORKS
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError
from syncline.methods import method_of, named
from syncline.planner.explore.settings import BASELINE, BY_NAME, COMPRESSIONS, OWN, PageSettings, to_query
from syncline.planner.projection.projections import refusal_of
from syncline.specs import ProjectSpec, load_spec
from syncline.units import format_bandwidth, format_seconds

TENSOR = 8
"""Ways of tensor parallelism where a site is no nodes."""

COMPRESSED: dict[str, dict[str, Any]] = {
    "bf16": {"wire": "bf16"},
    "8 bit": {"compressor": {"kind": "lp", "bits": 8}},
    "4 bit": {"compressor": {"kind": "lp", "bits": 4}},
    "top 1 %": {"compressor": {"kind": "top-k", "fraction": 0.01}},
}
assert set(COMPRESSED) == set(COMPRESSIONS) - {OWN}


@dataclass(frozen=True)
class AskedOf:
    """What settings come to.

    Attributes:
        fields: of the projection, as a file has them.
        spec: the same, read.
        notes: methods that are left out or as they were, a line each.
    """

    fields: dict[str, Any]
    spec: ProjectSpec
    notes: tuple[str, ...]


@lru_cache(maxsize=64)
def ask(settings: PageSettings) -> AskedOf:
    """The projection that is asked for.

    Raises:
        SpecError: settings that do not go together.
    """
    layout = replica_layout(settings)
    replicas = settings.total // Layout(**layout).workers
    notes: list[str] = []
    methods = []
    for name in (BASELINE, *settings.methods):
        told = _with_settings(name, settings, notes)
        refused = refusal_of(method_of(told), max(replicas, 1)) if told else None
        if refused is not None:
            notes.append(f"{name} is left out: {refused}")
        elif told:
            methods.append(told)
    fields = {
        "kind": "project",
        "name": "explored",
        "description": "Made by syncline explore.",
        "source": f"?{to_query(settings)}",
        "model": settings.model,
        "tokens_per_worker": settings.batch,
        "workers": settings.total,
        "steps": settings.steps,
        "methods": methods,
        "networks": [network_of(settings)],
        "compute": {"hardware": settings.hardware},
        **({"layout": layout} if layout else {}),
    }
    return AskedOf(fields, load_spec(fields, (), ProjectSpec), tuple(notes))


def failures_of_settings(settings: PageSettings) -> dict[str, Any] | None:
    """Failures as ``syncline advise`` and ``project`` take them; none where nothing fails."""
    if not settings.mtbf:
        return None
    told = {name: BY_NAME[name].write(getattr(settings, name)) for name in ("mtbf", "restart", "storage")}
    return {"rates": told["mtbf"], "restart": told["restart"], "checkpoint": {"bandwidth": told["storage"]}}


def failing_words(settings: PageSettings) -> list[str]:
    """The same as options."""
    given = failures_of_settings(settings)
    if given is None:
        return []
    rate, again = str(given["rates"]), str(given["restart"])
    return ["--failures", rate, "--restart", again, "--bandwidth", str(given["checkpoint"]["bandwidth"])]


def spec_text(settings: PageSettings) -> str:
    """The projection as a file that ``syncline project`` takes and tells the same numbers of.

    Raises:
        SpecError: settings that do not go together.
    """
    return yaml.safe_dump(ask(settings).fields, sort_keys=False, allow_unicode=True, width=120)


def _with_settings(name: str, settings: PageSettings, notes: list[str]) -> dict[str, Any] | None:
    """A method's fields with the period and the compression that are asked for, where it can have them."""
    fields = named(name)
    own = method_of(fields)
    if settings.period and name != BASELINE and getattr(own, "period", 1) > 1:
        fields["period"] = settings.period
    if settings.compression != OWN and name != BASELINE:
        more = COMPRESSED[settings.compression]
        if "compressor" in more and "compressor" not in type(own).model_fields:
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
    """Workers of a node: those that tensor parallelism shares a matrix among."""
    inside = NETWORKS[settings.inside].network
    return min(settings.workers, inside.per_node if isinstance(inside, TwoLevel) else TENSOR)


def replica_layout(settings: PageSettings) -> dict[str, int]:
    """The layout of a replica; nothing where it is one worker."""
    node = node_of(settings)
    ways = {
        "worker": {},
        "node": {"tensor": node},
        "site": {"data": settings.workers},
        "nodes in a site": {"tensor": node, "data": settings.workers // node},
    }[settings.replica]
    return {name: count for name, count in ways.items() if count > 1}


def line_of(settings: PageSettings) -> dict[str, Any]:
    """A site's line to the others."""
    name = f"{format_bandwidth(settings.bandwidth)} and {format_seconds(settings.latency)}"
    told = {field: BY_NAME[field].write(getattr(settings, field)) for field in ("latency", "bandwidth")}
    return told | {"name": name}


def network_of(settings: PageSettings) -> Any:
    """The network that joins all workers, as a spec has it.

    Raises:
        SpecError: a site of nodes that are not all full.
    """
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
