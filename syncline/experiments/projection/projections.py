"""Several projections at once: every model on every hardware with every number of workers; a CSV file, a figure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from syncline.costmodel import NETWORKS, Link, ModelShape
from syncline.costmodel.traffic.overlap import OVERLAPS
from syncline.errors import SpecError, one_of
from syncline.experiments.projection.plan import ProjectionPlan
from syncline.experiments.projection.project import project, project_all
from syncline.experiments.projection.thresholds import speedups
from syncline.fields import MANY, explain
from syncline.files import whole_file
from syncline.methods import MethodBase, named
from syncline.specs import Experiment, ProjectSpec, hardware, model, study_of, validate
from syncline.specs.clock import ALGORITHM_NAMES, NUMBER_FORMATS, POLICIES
from syncline.specs.layout import LayoutSpec, layout_fields
from syncline.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 6
MOST_LINES = 4
"""About numbers of workers that one method cannot serve."""
POINTS = 161
RANGE = 1.25e6, 1.25e11
"""Bytes per second from and to which speedups are drawn: 10 Mbit/s to 1 Tbit/s, more if a network has less or more."""


@dataclass(frozen=True)
class Options:
    """What is asked of a projection, by the command line or by Python; nothing stands for what the spec has.

    Args:
        workers: numbers, or text with commas between.
        models, hardware, methods: names, each with commas between; fields in braces; or what specs take.
        sequence: T of the models.
        overlap: ``none``, ``ddp`` or ``async``.
        algorithm: the name of an algorithm or of a policy.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        layouts: of a replica, ``tensor=8,pipeline=4`` or fields each.
    """

    workers: str | int | Sequence[int] | None = None
    models: Sequence[Any] = ()
    hardware: Sequence[Any] = ()
    methods: Sequence[Any] = ()
    overlap: str | None = None
    algorithm: str | None = None
    sequence: int | None = None
    precision: str | None = None
    layouts: Sequence[Any] = ()

    def given(self) -> dict[str, Any]:
        """The options that are there, by their names on the command line."""
        options = {"--workers": self.workers, "--model": self.models, "--hardware": self.hardware,
                   "--method": self.methods, "--overlap": self.overlap, "--algorithm": self.algorithm,
                   "--sequence": self.sequence, "--precision": self.precision,
                   "--layout": self.layouts}  # fmt: skip
        return {name: value for name, value in options.items() if value}


def variants(spec: Experiment, options: Options) -> list[Experiment]:
    """The specs that the options ask for: models before hardware before layouts before workers.

    Raises:
        SpecError: names the option that cannot be used.
    """
    given = options.given()
    if not isinstance(spec, ProjectSpec):
        for name, value in given.items():
            raise SpecError(name, value, f"no such option for a {study_of(spec).kind}; --set changes its fields")
        return [spec]
    models = _models(spec, options)
    machines = [hardware(name, "--hardware") for name in names_of(options.hardware)]
    computing = [spec.compute.model_copy(update={"seconds": None, "table": None, "hardware": one}) for one in machines]
    workers = counts_of(options.workers) if options.workers else [spec.workers]
    changed: dict[str, Any] = {}
    if options.methods:
        changed["methods"] = names_of(options.methods)
        for one in changed["methods"]:
            if isinstance(one, str):
                named(one, "--method")
    known: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "overlap": (options.overlap, OVERLAPS),
        "algorithm": (options.algorithm, (*POLICIES, *ALGORITHM_NAMES)),
        "precision": (options.precision, NUMBER_FORMATS),
    }
    for name, (value, choices) in known.items():
        if value is not None and value not in choices:
            raise SpecError(f"--{name}", value, one_of(choices, value))
        if value is not None:
            changed[name] = value
    specs: list[Experiment] = []
    layouts = [layout_of(one) for one in options.layouts] or [spec.layout]
    for shape, compute, layout in product(models, computing or [spec.compute], layouts):
        fields = {"model": shape, "compute": compute, "workers": workers[0], "layout": layout}
        one = validate(ProjectSpec, dict(spec) | changed | fields)
        specs += with_workers(one, workers, refused_by(one.methods, workers)) if len(workers) > 1 else [one]
    return specs


def layout_of(given: Any) -> LayoutSpec:
    """The layout that an option means.

    Raises:
        SpecError: text of another form, or a field that cannot be used.
    """
    if isinstance(given, LayoutSpec):
        return given
    fields = layout_fields(given, "--layout") if isinstance(given, str) else given
    try:
        return LayoutSpec.model_validate(fields)
    except ValidationError as error:
        told = explain(error, lambda _: list(LayoutSpec.model_fields))
        raise SpecError(f"layout.{told.path}".rstrip("."), told.value, told.expected) from None


def _models(spec: ProjectSpec, options: Options) -> list[Any]:
    """Those of the options, or the spec's; with the sequence that is asked for."""
    models = [model(one, "--model") for one in names_of(options.models)] or [spec.model]
    for one in models:
        if sum(one.name == other.name for other in models) > 1:
            raise SpecError("--model", one.name, "different models: two are called so (a config's 'name' changes it)")
    if options.sequence is None:
        return models
    for one in models:
        if not isinstance(one, ModelShape):
            raise SpecError("--sequence", options.sequence, f"none, as {one.name} is a module, with inputs of its own")
    try:
        return [replace(one, sequence=options.sequence) for one in models]
    except SpecError as error:
        raise SpecError("--sequence", options.sequence, error.expected) from None


def with_workers(spec: ProjectSpec, workers: Sequence[int], refused: Sequence[set[int]]) -> list[ProjectSpec]:
    """The spec with each number of workers, without methods that refuse it; `left_out` says which.

    Args:
        spec: of any number.
        workers: one after another.
        refused: by each of the spec's methods, of `refused_by`; nothing by any if it is empty.
    """
    if not any(refused):
        return [spec.model_copy(update={"workers": count}) for count in workers]
    specs = []
    for count in workers:
        able = tuple(method for method, too_many in zip(spec.methods, refused, strict=True) if count not in too_many)
        kept = spec.methods if len(able) == len(spec.methods) else able
        specs.append(spec.model_copy(update={"workers": count, "methods": kept}))
    return specs


def refused_by(methods: Sequence[MethodBase], workers: Sequence[int]) -> list[set[int]]:
    """Those of the numbers of workers that each method cannot serve; of the first, the baseline, none is told."""
    refused: list[set[int]] = [set()]
    for method in methods[1:]:
        same = method.same_for_any_group and refusal_of(method, workers[-1]) is None
        refused.append(set() if same else {one for one in workers if refusal_of(method, one) is not None})
    return refused


def refusal_of(method: MethodBase, workers: int) -> SpecError | None:
    """Why a method cannot serve so many workers; None if it can."""
    try:
        method.exchanges(1, workers)
    except SpecError as error:
        return error
    return None


def left_out(specs: Sequence[Experiment]) -> list[str]:
    """Lines that say which methods some of the specs do not have, as they cannot serve so many workers."""
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    methods = {method.name: method for spec in projections for method in spec.methods}
    lacking: dict[str, dict[int, None]] = {}
    for spec in projections:
        if len(spec.methods) < len(methods):
            names = {one.name for one in spec.methods}
            for name in methods:
                if name not in names:
                    lacking.setdefault(name, {})[spec.workers] = None
    return [line for name, numbers in lacking.items() for line in refusals(methods[name], list(numbers))]


def refusals(method: MethodBase, workers: Sequence[int]) -> list[str]:
    """What a method says to numbers of workers that it cannot serve: a line each, or one for many."""
    if len(workers) <= MOST_LINES:
        return [f"{method.name}: left out for {one:,} workers: {refusal_of(method, one)}" for one in workers]
    return [
        f"{method.name}: left out for {len(workers):,} numbers of workers from {min(workers):,} to {max(workers):,}; "
        f"for {workers[0]:,}: {refusal_of(method, workers[0])}"
    ]


def names_of(given: Iterable[Any]) -> list[Any]:
    """What is between the commas of texts, unless they are in braces, and what is no text, each once."""
    parts = [
        part
        for one in given
        for part in (map(str.strip, one.split(",")) if isinstance(one, str) and "{" not in one else [one])
    ]
    return [one for number, one in enumerate(parts) if one not in parts[:number]]


def counts_of(given: str | int | Sequence[int]) -> list[int]:
    """Numbers of workers, each once."""
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
    counts = [int(part) if str(part).strip().isdecimal() else 0 for part in parts]
    if not (counts and min(counts) >= 1 and max(counts) <= MANY):
        raise SpecError("--workers", given, "whole numbers, at least 1, with commas between: 8,64,512")
    return list(dict.fromkeys(counts))


def projection_rows(specs: Iterable[Experiment], thresholds: bool | None = None) -> Sequence[dict[str, Any]]:
    """The rows of all of them; see `project_all`."""
    return project_all(specs, thresholds)


def write_csv(rows: Sequence[dict[str, Any]], file: Path) -> Path:
    """Write the rows with a line of names above; what is a list is joined by spaces.

    Raises:
        SpecError: a place that cannot be written to.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as working, working.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    except OSError as error:
        raise SpecError("--csv", str(file), f"a place that can be written to ({error.strerror})") from None
    return file


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def plot_projection(specs: Sequence[Experiment], file: Path, rows: Sequence[dict[str, Any]] | None = None) -> Path:
    """Draw `projection_figure` into a file.

    Raises:
        SpecError: a file of no known kind, in a place that cannot be written to, or nothing that can be drawn.
    """
    from syncline.analysis import save  # only here: matplotlib is slow to load

    if file.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise SpecError("--plot", str(file), "a name that ends in .pdf, .svg or .png")
    figure = projection_figure(specs, rows)
    try:
        return save(figure, file)
    except OSError as error:
        raise SpecError("--plot", str(file), f"a place that can be written to ({error.strerror})") from None


def projection_figure(specs: Sequence[Experiment], rows: Sequence[dict[str, Any]] | None = None) -> Figure:
    """A figure of a paper, of its rows if they are there, or speedups against the bandwidth.

    Raises:
        SpecError: nothing that can be drawn.
    """
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    return _speedup_figure(projections) if projections else _study_figure(specs[0], rows)


def _study_figure(spec: Experiment, rows: Sequence[dict[str, Any]] | None) -> Any:
    study = study_of(spec)
    for _, figure in study.figures(spec, [], project(spec) if rows is None else list(rows)):
        return figure
    raise SpecError("--plot", spec.name, f"no figure, as a {study.kind} is a table")


def _speedup_figure(specs: Sequence[ProjectSpec]) -> Any:
    """A panel per projection, the first ones of many; curves at the latency of the first network that is a link."""
    from syncline.analysis.figures.speedup import SpeedupPanel, speedup_over_bandwidth

    links = [network for network in specs[0].networks if isinstance(network, Link)]
    if not links:
        raise SpecError("--plot", specs[0].networks[0].name, "at least one network that is one link to everybody")
    if len(specs[0].methods) < 2:
        raise SpecError("--plot", specs[0].methods[0].name, "two methods, of which the first is the baseline")
    ends = [float(link.bandwidth_bytes_per_s) for link in links]
    bandwidths = np.geomspace(min(RANGE[0], *ends), max(RANGE[1], *ends), POINTS)
    several = {name: len({of(spec) for spec in specs}) > 1 for name, of in LABELS.items()}
    panels = []
    for spec in specs[:MOST_PANELS]:
        plan = ProjectionPlan([spec])
        curves, points = {}, {}
        for number, method in enumerate(spec.methods[1:], start=1):
            curves[method.name] = speedups(plan, number, links[0], bandwidths)
            points[method.name] = [
                (one, float(speedups(plan, number, link, np.array([one]))[0]))
                for link, one in zip(links, ends, strict=True)
            ]
        told = [of(spec) for name, of in LABELS.items() if several[name] or name == "workers"]
        panels.append(
            SpeedupPanel(", ".join([*([] if several["model"] else [spec.model.name]), *told]), curves, points)
        )
    marks = {", ".join(link.name for link, other in zip(links, ends, strict=True) if other == one): one for one in ends}
    for name, preset in NETWORKS.items():
        if isinstance(preset.network, Link):
            marks.setdefault(name, float(preset.network.bandwidth_bytes_per_s))
    latency = format_seconds(float(links[0].latency_s)).replace(" us", " µs")
    label = f"speedup over {specs[0].methods[0].name}"
    left_out = len(specs) - len(panels)
    title = f"lines: at the latency of {links[0].name} ({latency}); points: at each network's own"
    return speedup_over_bandwidth(
        bandwidths, panels, marks, label=label, title=title + (f"; {left_out} more not drawn" if left_out else "")
    )


LABELS = {
    "model": lambda spec: spec.model.name,
    "hardware": lambda spec: spec.compute.hardware.name if spec.compute.hardware else "",
    "layout": lambda spec: spec.layout.made().describe() if spec.layout.made().workers > 1 else "",
    "workers": lambda spec: f"{spec.workers:,} workers",
}
"""What tells projections apart."""
