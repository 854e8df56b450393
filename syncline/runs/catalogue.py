"""The catalogues of ``syncline list``: rows of the names that a spec can use. Only the list of problems loads torch."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from syncline.costmodel import MODELS, NETWORKS, Link, Model, mean_bytes_per_step
from syncline.costmodel.failures import FAILURE_RATES
from syncline.costmodel.prices import PRICES
from syncline.costmodel.scaling.published import loss_fits
from syncline.errors import SpecError, error_text, require_one_of
from syncline.methods import METHOD_KINDS, METHODS, load_plugins, method_of
from syncline.planner.projection.memory_plan import memory_of
from syncline.questions.catalogue import List
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
from syncline.specs.cluster import network_names
from syncline.specs.load import command_of_kind
from syncline.specs.study import study_of_kind

CatalogueRows = list[dict[str, Any]]

ReportLine = Callable[[str], object]
"""A function that is called with a line for each name of an installed package that cannot be used."""


def _network_row(name: str) -> dict[str, Any]:
    """Return a network's row; latency is one way, bandwidth per direction, both None if its links differ."""
    named_network, preset = network(name), NETWORKS.get(name)
    link = named_network if isinstance(named_network, Link) else None
    return {
        "latency_s": None if link is None else link.latency_s,
        "bandwidth_bytes_per_s": None if link is None else link.bandwidth_bytes_per_s,
        "links": named_network.describe(), "fields": network_fields(named_network),
        "description": preset.description if preset else "",
        "source": preset.source if preset else network_names.BY_NAME.origin(name),
    }  # fmt: skip


def cluster_rows() -> CatalogueRows:
    """Return a row per bundled cluster: number of workers, their hardware, and the network that joins them."""
    rows = []
    for name, file in bundled_clusters().items():
        cluster = named_cluster(file)
        rows.append({
            "name": name, "workers": cluster.workers,
            "hardware": None if cluster.hardware is None else cluster.hardware.name,
            "links": cluster.network.describe(), "fields": network_fields(cluster.network),
            "description": cluster.description, "source": cluster.source,
        })  # fmt: skip
    return rows


def _hardware_row(name: str) -> dict[str, Any]:
    """Return all fields of `Hardware`, and the memory as text."""
    machine = hardware(name)
    source = machine.source or machines.BY_NAME.origin(name)
    memory = f"{machine.memory_bytes / 2**30:g} GiB" if machine.memory_bytes else "-"
    return dataclasses.asdict(machine) | {"name": name, "source": source, "memory": memory}


def _model_row(name: str) -> dict[str, Any]:
    """Return a model's row with its exact number of parameters; unknown sizes of a torch module are None."""
    shape = model(name)
    return {
        "parameters": shape.parameters, "fp32_bytes": shape.parameter_bytes(),
        "flops_per_token": shape.flops_per_token,
        **{size: getattr(shape, size, None) for size in ("layers", "width", "heads", "vocabulary")},
        "sequence": shape.sequence, "source": shape.source or models.BY_NAME.origin(name),
    }  # fmt: skip


def schedule_rows(report: ReportLine) -> CatalogueRows:
    """Return a row per pipeline schedule: its description, and the options that it takes."""
    from syncline.sim.pipelines.schedules import SCHEDULES, schedule_kind  # only here: a quick list loads no simulator

    def schedule_row(name: str) -> dict[str, Any]:
        kind = schedule_kind(name)
        docstring = kind.build.__doc__ or sys.modules[kind.build.__module__].__doc__
        takes = ["chunks"] if kind.takes_chunks else []
        takes += ["max_in_flight"] if kind.takes_limits else []
        return {"description": first_line(docstring), "takes": takes, "source": SCHEDULES.origin(name)}

    return _rows_of_registry(SCHEDULES, schedule_row, report)


def _study_row(kind: str) -> dict[str, Any]:
    """Return the row of a study by the kind of its specs, with the command that runs them."""
    study = study_of_kind(kind)
    return {"command": study.command, "description": first_line(study.spec.__doc__), "source": STUDIES.origin(kind)}


def first_line(docstring: str | None) -> str:
    """Return the first line of a docstring without the backquotes of code; an empty text without a docstring."""
    return (docstring or "").strip().partition("\n")[0].replace("``", "")


def _rows_of_registry(
    registry: Registry[Any], row_of_name: Callable[[str], dict[str, Any]], report: ReportLine
) -> CatalogueRows:
    """Return a row for each name of a registry, and report each name of an installed package that has an error."""
    rows: CatalogueRows = []
    for name in registry.names():
        try:
            rows.append({"name": name} | row_of_name(name))
        except Exception as error:  # another package can raise any error
            is_own_name = not registry.origin(name)
            if is_own_name:
                raise
            report(_unusable_line(name, error))
    return rows


def _unusable_line(name: str, error: Exception) -> str:
    """Return a line for users with the reason why a name of an installed package cannot be used."""
    if isinstance(error, SpecError) and error.value == name:
        return f"{name} cannot be used; expected {error.expected}"
    reason = str(error) if isinstance(error, SpecError) else error_text(error)
    return f"{name} cannot be used: {reason}"


def method_rows(report: ReportLine, shape: Model = MODELS["gpt-160m"], workers: int = 8) -> CatalogueRows:
    """Return a row per named method: its traffic as a formula, and its bytes of traffic and memory for a model."""
    rows = []
    for name, error in load_plugins().items():
        report(_unusable_line(name, error))
    specs = {name: method_of(name) for name in METHODS}
    for name, spec in sorted(specs.items(), key=lambda item: (item[1].family, item[0])):
        compressor = getattr(spec, "compressor", None)
        source = spec.source if compressor is None else f"{spec.source}; {compressor.source}"
        try:
            state_elements = spec.kept_elements(shape.tensors, workers)
            rows.append({
                "name": name, "kind": spec.kind, "family": spec.family, "source": source,
                "bytes_per_worker_and_step": spec.traffic_formula(workers),
                "model": shape.name, "workers": workers,
                "bytes_per_worker": mean_bytes_per_step(spec.exchanges(shape.tensors, workers)),
                "state_per_parameter": state_elements / shape.parameters,
                "state_bytes": 4 * state_elements,  # in fp32
                "memory_bytes": memory_of(spec, shape.tensors, workers).total_bytes,
                "description": first_line(type(spec).__doc__),
                "defaults": spec.model_dump(mode="json", exclude={"label", "kind"}),
            })  # fmt: skip
        except Exception as error:  # another package can raise any error
            is_own_method = not METHOD_KINDS.origin(spec.kind)
            if is_own_method:
                raise
            report(_unusable_line(name, error))
    return rows


def problem_rows(report: ReportLine) -> CatalogueRows:
    """Return a row per problem with the defaults of its fields."""
    from syncline.problems import PROBLEMS

    def problem_row(name: str) -> dict[str, Any]:
        problem: Any = PROBLEMS[name]
        defaults = {}
        for field in dataclasses.fields(problem) if dataclasses.is_dataclass(problem) else ():
            defaults[field.name] = None if field.default is dataclasses.MISSING else field.default
        return {"description": first_line(problem.__doc__), "fields": defaults, "source": PROBLEMS.origin(name)}

    return _rows_of_registry(PROBLEMS, problem_row, report)


def spec_rows() -> CatalogueRows:
    """Return a row per bundled spec with the command that runs it."""
    rows = []
    for name, path in bundled().items():
        spec_fields = yaml.safe_load(path.read_text(encoding="utf-8"))
        command = f"syncline {command_of_kind(spec_fields['kind'])} {name}"
        rows.append({"name": name, "command": command, "description": spec_fields.get("description", "")})
    return rows


def fit_rows() -> CatalogueRows:
    """Return a row per published fit of losses: its methods, its law, and its data.

    The column ``seen`` has the range of each field in the data, ``off`` the range of the fit's errors on the data.
    """
    return [
        {
            "name": name, "methods": list(fit.methods),
            "seen": {field: str(values) for field, values in fit.seen_ranges.items()},
            "off": f"{100 * (fit.within.low - 1):.1f}% to +{100 * (fit.within.high - 1):.1f}%",
            "law": dataclasses.asdict(fit.law), "family": fit.family, "data": fit.data, "assumes": fit.assumes,
            "source": fit.source,
        }
        for name, fit in loss_fits().items()
    ]  # fmt: skip


def failure_rows() -> CatalogueRows:
    """Return a row for each kind of failure in each set of published failure rates."""
    rows = []
    for name, published in FAILURE_RATES.items():
        for rate in published.rates:
            rows.append({
                "name": name, "per": rate.per, "mtbf_s": rate.mtbf_s, "shape": rate.shape,
                "description": published.description, "source": published.source,
            })  # fmt: skip
    return rows


CATALOGUES: dict[str, Callable[..., CatalogueRows]] = {
    "networks": partial(_rows_of_registry, network_names.BY_NAME, _network_row),
    "clusters": lambda _: cluster_rows(),
    "hardware": partial(_rows_of_registry, machines.BY_NAME, _hardware_row),
    "models": partial(_rows_of_registry, models.BY_NAME, _model_row),
    "methods": method_rows,
    "problems": problem_rows,
    "schedules": schedule_rows,
    "studies": partial(_rows_of_registry, STUDIES, _study_row),
    "specs": lambda _: spec_rows(),
    "fits": lambda _: fit_rows(),
    "prices": lambda _: [dataclasses.asdict(prices) for prices in PRICES.values()],
    "failures": lambda _: failure_rows(),
}
"""The function of a `ReportLine` that returns the rows of each catalogue; ``method_rows`` also takes a model and a
number of workers.
"""


def rows_of_catalogue(question: List, report: ReportLine) -> CatalogueRows:
    """Return the rows of the catalogue that ``syncline list`` asks for.

    Raises:
        SpecError: there is no such catalogue, or it does not depend on an option that is given.
    """
    catalogue = question.catalogue
    require_one_of("list", catalogue, CATALOGUES)
    if catalogue != "methods":
        for name, value in (("model", question.model), ("workers", question.workers)):
            if value is not None:
                raise SpecError(f"--{name}", value, f"no {name}, as a list of {catalogue} depends on none")
    options: dict[str, Any] = {}
    if question.model is not None:
        options["shape"] = model(question.model, "--model")
    if question.workers is not None:
        options["workers"] = question.workers
    return CATALOGUES[catalogue](report, **options)
