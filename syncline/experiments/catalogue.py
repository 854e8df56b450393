"""What a spec can name, as rows for ``syncline list``. Only the list of problems loads torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import yaml

from syncline.costmodel import HARDWARE, MODELS, NETWORKS, Link, ModelShape, mean_bytes_per_step
from syncline.experiments.projection.memory import memory_of
from syncline.methods import METHODS, load_offered, method_of
from syncline.specs import bundled, network_fields

CatalogueRows = list[dict[str, Any]]


def network_rows() -> CatalogueRows:
    """Network presets; latency is one way, bandwidth per direction. Null where a network has links of several kinds."""
    rows = []
    for name, preset in NETWORKS.items():
        link = preset.network if isinstance(preset.network, Link) else None
        rows.append({
            "name": name,
            "latency_s": link and link.latency_s,
            "bandwidth_bytes_per_s": link and link.bandwidth_bytes_per_s,
            "links": preset.network.describe(),
            "fields": network_fields(preset.network),
            "description": preset.description,
            "source": preset.source,
        })  # fmt: skip
    return rows


def hardware_rows() -> CatalogueRows:
    """Hardware presets."""
    return [
        dataclasses.asdict(one) | {"memory": f"{one.memory_bytes / 2**30:g} GiB" if one.memory_bytes else "-"}
        for one in HARDWARE.values()
    ]


def model_rows() -> CatalogueRows:
    """Model shapes with their exact parameter counts."""
    return [
        {
            "name": name,
            "parameters": shape.parameters,
            "fp32_bytes": shape.parameter_bytes(),
            "flops_per_token": shape.flops_per_token,
            "layers": shape.layers,
            "width": shape.width,
            "heads": shape.heads,
            "vocabulary": shape.vocabulary,
            "sequence": shape.sequence,
            "source": shape.source,
        }
        for name, shape in MODELS.items()
    ]


def method_rows(shape: ModelShape = MODELS["gpt-160m"], workers: int = 8) -> CatalogueRows:
    """Named methods: what they are, what each of so many workers sends and keeps, as a formula and for a model."""
    rows = []
    load_offered()
    found = {name: method_of(name) for name in METHODS}
    for name, spec in sorted(found.items(), key=lambda one: (one[1].family, one[0])):
        compressor = getattr(spec, "compressor", None)
        kept = spec.kept_elements(shape.tensors, workers)
        rows.append({
            "name": name,
            "kind": spec.kind,
            "family": spec.family,
            "source": "; ".join([spec.source, *([compressor.source] if compressor else [])]),
            "bytes_per_worker_and_step": spec.traffic_formula(workers),
            "model": shape.name,
            "workers": workers,
            "bytes_per_worker": mean_bytes_per_step(spec.exchanges(shape.tensors, workers)),
            "state_per_parameter": kept / shape.parameters,
            "state_bytes": 4 * kept,
            "memory_bytes": memory_of(spec, shape.tensors, workers).total_bytes,
            "description": (type(spec).__doc__ or "").strip().splitlines()[0].replace("``", ""),
            "defaults": spec.model_dump(mode="json", exclude_defaults=False, exclude={"label", "kind"}),
        })  # fmt: skip
    return rows


def problem_rows() -> CatalogueRows:
    """Problems and their fields."""
    from syncline.problems import PROBLEMS

    return [
        {
            "name": name,
            "description": (problem.__doc__ or "").strip().splitlines()[0],
            "fields": {field.name: field.default for field in dataclasses.fields(problem)},  # type: ignore[arg-type]
        }
        for name in PROBLEMS
        for problem in [PROBLEMS[name]]
    ]


def spec_rows() -> CatalogueRows:
    """Bundled specs and the command that each is for."""
    from syncline.specs.load import command_of_kind

    rows = []
    for name, path in bundled().items():
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
        command = f"syncline {command_of_kind(fields['kind'])} {name}"
        rows.append({"name": name, "command": command, "description": fields.get("description", "")})
    return rows


CATALOGUES: dict[str, Callable[..., CatalogueRows]] = {
    "networks": network_rows,
    "hardware": hardware_rows,
    "models": model_rows,
    "methods": method_rows,
    "problems": problem_rows,
    "specs": spec_rows,
}
