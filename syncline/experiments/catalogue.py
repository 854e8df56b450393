"""What a spec can name, as rows for ``syncline list``. Only the list of problems loads torch."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import yaml

from syncline.costmodel import MODELS, NETWORKS, Link, Model, mean_bytes_per_step
from syncline.errors import SpecError, said
from syncline.experiments.projection.memory import memory_of
from syncline.methods import METHOD_KINDS, METHODS, MethodBase, load_offered, method_of
from syncline.registry import Registry
from syncline.specs import (
    STUDIES,
    bundled,
    bundled_clusters,
    hardware,
    model,
    models,
    named_cluster,
    network,
    network_fields,
)
from syncline.specs.cluster import hardware as machines
from syncline.specs.cluster import links
from syncline.specs.study import study_of_kind

CatalogueRows = list[dict[str, Any]]

Tell = Callable[[str], object]
"""Called with a line for each name that an installed package offers and that cannot be used."""


def _nobody(line: str) -> None:
    """Who is told where nobody wants to know."""


def network_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Networks; latency is one way, bandwidth per direction. Null where a network has links of several kinds."""

    def row(name: str) -> dict[str, Any]:
        made, preset = network(name), NETWORKS.get(name)
        link = made if isinstance(made, Link) else None
        return {
            "latency_s": link and link.latency_s,
            "bandwidth_bytes_per_s": link and link.bandwidth_bytes_per_s,
            "links": made.describe(),
            "fields": network_fields(made),
            "description": preset.description if preset else "",
            "source": preset.source if preset else links.BY_NAME.origin(name),
        }  # fmt: skip

    return _rows_of(links.BY_NAME, row, tell)


def cluster_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Clusters: how many workers of which hardware, and what joins them."""
    made = {name: named_cluster(file) for name, file in bundled_clusters().items()}
    return [
        {
            "name": name,
            "workers": one.workers,
            "hardware": one.hardware and one.hardware.name,
            "links": one.network.describe(),
            "fields": network_fields(one.network),
            "description": one.description,
            "source": one.source,
        }
        for name, one in made.items()
    ]


def hardware_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Hardware."""

    def row(name: str) -> dict[str, Any]:
        one = hardware(name)
        source = one.source or machines.BY_NAME.origin(name)
        memory = f"{one.memory_bytes / 2**30:g} GiB" if one.memory_bytes else "-"
        return dataclasses.asdict(one) | {"name": name, "source": source, "memory": memory}

    return _rows_of(machines.BY_NAME, row, tell)


def model_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Models with their exact parameter counts; a module of which no more is known has nulls."""

    def row(name: str) -> dict[str, Any]:
        shape = model(name)
        sizes = ("layers", "width", "heads", "vocabulary")
        return {
            "parameters": shape.parameters,
            "fp32_bytes": shape.parameter_bytes(),
            "flops_per_token": shape.flops_per_token,
            **{size: getattr(shape, size, None) for size in sizes},
            "sequence": shape.sequence,
            "source": shape.source or models.BY_NAME.origin(name),
        }

    return _rows_of(models.BY_NAME, row, tell)


def schedule_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Pipeline schedules."""
    from syncline.sim.pipelines.schedules import SCHEDULES, schedule_kind

    def row(name: str) -> dict[str, Any]:
        kind = schedule_kind(name)
        described = kind.build.__doc__ or sys.modules[kind.build.__module__].__doc__ or ""
        return {
            "description": first_line(described),
            "takes": [
                what for what, taken in (("chunks", kind.takes_chunks), ("in_flight", kind.takes_limits)) if taken
            ],
            "source": SCHEDULES.origin(name),
        }

    return _rows_of(SCHEDULES, row, tell)


def study_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Studies by the kind of their specs, and the command that takes these."""

    def row(name: str) -> dict[str, Any]:
        study = study_of_kind(name)
        described = first_line(study.spec.__doc__ or "")
        return {"command": study.command, "description": described, "source": STUDIES.origin(name)}

    return _rows_of(STUDIES, row, tell)


def first_line(text: str) -> str:
    """Of a docstring, without the marks of code."""
    return (text.strip().splitlines() or [""])[0].replace("``", "")


def _rows_of(registry: Registry[Any], row: Callable[[str], dict[str, Any]], tell: Tell) -> CatalogueRows:
    """A row for each name that can be used."""
    rows: CatalogueRows = []
    for name in registry.names():
        try:
            rows.append({"name": name} | row(name))
        except Exception as error:  # whatever an installed package raises is told as what is wrong with its offer
            if not registry.origin(name):
                raise
            tell(_unusable(name, error))
    return rows


def _unusable(name: str, error: Exception) -> str:
    if isinstance(error, SpecError) and error.value == name:
        return f"{name} cannot be used; expected {error.expected}"
    return f"{name} cannot be used: {error if isinstance(error, SpecError) else said(error)}"


def method_rows(shape: Model = MODELS["gpt-160m"], workers: int = 8, tell: Tell = _nobody) -> CatalogueRows:
    """Named methods: what they are, what each of so many workers sends and keeps, as a formula and for a model."""
    rows = []
    for name, error in load_offered().items():
        tell(_unusable(name, error))
    found = {name: method_of(name) for name in METHODS}
    for name, spec in sorted(found.items(), key=lambda one: (one[1].family, one[0])):
        try:
            rows.append(_method_row(name, spec, shape, workers))
        except Exception as error:  # as above
            if not METHOD_KINDS.origin(spec.kind):
                raise
            tell(_unusable(name, error))
    return rows


def _method_row(name: str, spec: MethodBase, shape: Model, workers: int) -> dict[str, Any]:
    compressor = getattr(spec, "compressor", None)
    kept = spec.kept_elements(shape.tensors, workers)
    return {
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
        "description": first_line(type(spec).__doc__ or ""),
        "defaults": spec.model_dump(mode="json", exclude_defaults=False, exclude={"label", "kind"}),
    }


def problem_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Problems and their fields."""
    from syncline.problems import PROBLEMS

    def row(name: str) -> dict[str, Any]:
        problem: Any = PROBLEMS[name]
        known = dataclasses.fields(problem) if dataclasses.is_dataclass(problem) else ()
        defaults = {field.name: None if field.default is dataclasses.MISSING else field.default for field in known}
        return {"description": first_line(problem.__doc__ or ""), "fields": defaults, "source": PROBLEMS.origin(name)}

    return _rows_of(PROBLEMS, row, tell)


def spec_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Bundled specs and the command that each is for."""
    from syncline.specs.load import command_of_kind

    rows = []
    for name, path in bundled().items():
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
        command = f"syncline {command_of_kind(fields['kind'])} {name}"
        rows.append({"name": name, "command": command, "description": fields.get("description", "")})
    return rows


def fit_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Published fits of losses: of which methods, what they have seen, how far measured losses are from them."""
    from syncline.costmodel.scaling.published import loss_fits

    return [
        {
            "name": name,
            "methods": list(fit.methods),
            "seen": {field: str(of) for field, of in fit.seen.items()},
            "off": f"{100 * (fit.within.low - 1):.1f}% to +{100 * (fit.within.high - 1):.1f}%",
            "law": dataclasses.asdict(fit.law),
            "family": fit.family,
            "data": fit.data,
            "assumes": fit.assumes,
            "source": fit.source,
        }
        for name, fit in loss_fits().items()
    ]


def price_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Lists of prices that were found, with their dates."""
    from syncline.costmodel.prices import PRICES

    return [dataclasses.asdict(prices) for prices in PRICES.values()]


def failure_rows(tell: Tell = _nobody) -> CatalogueRows:
    """Published rates of failures, each kind on a line."""
    from syncline.costmodel.reliability.rates import FAILURE_RATES

    return [
        {"name": name, "per": rate.per, "mtbf_s": rate.mtbf_s, "shape": rate.shape}
        | {"description": one.description, "source": one.source}
        for name, one in FAILURE_RATES.items()
        for rate in one.rates
    ]


CATALOGUES: dict[str, Callable[..., CatalogueRows]] = {
    "networks": network_rows,
    "clusters": cluster_rows,
    "hardware": hardware_rows,
    "models": model_rows,
    "methods": method_rows,
    "problems": problem_rows,
    "schedules": schedule_rows,
    "studies": study_rows,
    "specs": spec_rows,
    "fits": fit_rows,
    "prices": price_rows,
    "failures": failure_rows,
}
