"""Several projections at once: every model on every hardware with every number of workers; a CSV file, a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from syncline.columns import distinct_by_key
from syncline.costmodel import NETWORKS, Link, Model, ModelShape
from syncline.costmodel.scaling.published import whole_batch
from syncline.costmodel.traffic.overlap import OVERLAPS
from syncline.errors import SpecError, require_one_of
from syncline.fields import MANY, explain
from syncline.methods import MethodBase
from syncline.planner.periods import methods_at_period
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import NO_RECORDS, project, subject_of
from syncline.planner.projection.thresholds import speedups
from syncline.specs import Experiment, ProjectSpec, hardware, model, study_of, validate
from syncline.specs.clock import ALGORITHM_NAMES, POLICIES, PRODUCT_FORMATS
from syncline.specs.layout import LayoutSpec, layout_fields
from syncline.specs.projection import MOST_TOKENS
from syncline.units import format_seconds, parse_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 4
"""Number of lines about refused numbers of workers, per method."""
MOST_PANELS, POINTS_PER_CURVE = 6, 161
LOWEST_BANDWIDTH, HIGHEST_BANDWIDTH = 1.25e6, 1.25e11
"""Range of bandwidths in a figure, in bytes per second: 10 Mbit/s to 1 Tbit/s, extended to the networks' own."""


@dataclass(frozen=True)
class Options:
    """The options of a projection from the command line or Python; an empty option leaves the value of the spec.

    Args:
        workers: numbers, or text with commas between.
        models, hardware, methods: values that specs take, or texts: names with commas between, or fields in braces.
        sequence: T, the sequence length of the models.
        overlap: ``none``, ``ddp`` or ``async``.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        layouts: layouts of a replica, each a text as ``tensor=8,pipeline=4``, or fields.
        batch_tokens: tokens of all workers in a step, rounded to whole sequences.
        period: steps between exchanges, for methods that do not exchange in every step; ``preset``: each method's own.
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
    batch_tokens: str | float | None = None
    period: str | int | None = None


def variants(spec: Experiment, options: Options) -> Sequence[Experiment]:
    """Return a spec for each combination of the options' models, hardware, layouts and numbers of workers."""
    if not isinstance(spec, ProjectSpec):
        option_values = {
            "--workers": options.workers, "--model": options.models, "--hardware": options.hardware,
            "--method": options.methods, "--overlap": options.overlap, "--algorithm": options.algorithm,
            "--sequence": options.sequence, "--precision": options.precision, "--layout": options.layouts,
            "--batch-tokens": options.batch_tokens, "--period": options.period,
        }  # fmt: skip
        for name, value in option_values.items():
            if value:
                raise SpecError(name, value, f"no such option for a {study_of(spec).kind}; --set changes its fields")
        return [spec]
    models = _models(spec, options)
    computing = []
    for name in names_of(options.hardware):
        # Step times in the spec are measured on the spec's own hardware.
        update = {"seconds": None, "batch_times": None, "hardware": hardware(name, "--hardware")}
        computing.append(spec.compute.model_copy(update=update))
    workers = [spec.workers] if options.workers is None else counts_of(options.workers)
    changed_fields: dict[str, Any] = {}
    if options.methods or options.period is not None:
        changed_fields["methods"] = methods_at_period(names_of(options.methods) or spec.methods, options.period)
    checked_values: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "overlap": (options.overlap, OVERLAPS),
        "algorithm": (options.algorithm, (*POLICIES, *ALGORITHM_NAMES)),
        "precision": (options.precision, PRODUCT_FORMATS),
    }
    for name, (value, choices) in checked_values.items():
        if value is not None:
            require_one_of(f"--{name}", value, choices)
            changed_fields[name] = value
    specs: list[ProjectSpec] = []
    layouts = [layout_of(text) for text in options.layouts] or [spec.layout]
    for shape, compute, layout in product(models, computing or [spec.compute], layouts):
        spec_fields = {"model": shape, "compute": compute, "workers": workers[0], "layout": layout}
        changed_spec = validate(ProjectSpec, dict(spec) | changed_fields | spec_fields)
        if len(workers) > 1:
            specs += with_workers(changed_spec, workers, refused_by(changed_spec.methods, workers))
        else:
            specs.append(changed_spec)
    if options.batch_tokens is None:
        return specs
    batch_tokens = parse_count(options.batch_tokens, "--batch-tokens")
    return [with_batch(projection, batch_tokens) for projection in specs]


def with_batch(spec: ProjectSpec, batch_tokens: float) -> ProjectSpec:
    """Return the spec with a batch of about ``batch_tokens`` tokens, rounded to whole sequences.

    Each group of workers that compute a sequence together has at least one. Without a layout each worker is a group.
    """
    groups, sequence = spec.sequences_at_once, spec.model.sequence
    whole_tokens = max(whole_batch(batch_tokens, groups, sequence), groups * sequence)
    if whole_tokens > MOST_TOKENS * spec.workers:
        raise SpecError("batch_tokens", batch_tokens, f"at most {MOST_TOKENS:,} tokens for each worker")
    return spec.model_copy(update={"tokens_per_worker": math.ceil(whole_tokens / spec.workers)})


def with_steps_for(spec: Experiment, tokens: float) -> Experiment:
    """Return a projection with as many steps as process ``tokens``, rounded and at least one; other specs unchanged.

    Raises:
        SpecError: these are more steps than a spec can have.
    """
    if not isinstance(spec, ProjectSpec):
        return spec
    steps = max(1, round(tokens / spec.batch_tokens))
    if steps > MANY:
        raise SpecError("tokens", tokens, f"at most {MANY:,} steps of {spec.batch_tokens:,} tokens")
    return spec.model_copy(update={"steps": steps})


def layout_of(value: Any) -> LayoutSpec:
    """Return the layout that an option describes."""
    if isinstance(value, LayoutSpec):
        return value
    degrees = layout_fields(value, "--layout") if isinstance(value, str) else value
    try:
        return LayoutSpec.model_validate(degrees)
    except ValidationError as error:
        problem = explain(error, lambda _: list(LayoutSpec.model_fields))
        raise SpecError(f"layout.{problem.path}".rstrip("."), problem.value, problem.expected) from None


def _models(spec: ProjectSpec, options: Options) -> list[Any]:
    """Return the models that the options name, or else the spec's, with the options' sequence length."""
    models = [model(name, "--model") for name in names_of(options.models)] or [spec.model]
    model_names = [shape.name for shape in models]
    for name in model_names:
        if model_names.count(name) > 1:
            expected = "different models: two have this name (the field 'name' of a config changes it)"
            raise SpecError("--model", name, expected)
    if options.sequence is None:
        return models
    return [with_sequence(shape, options.sequence, "--sequence") for shape in models]


def with_sequence(model: Model, sequence: int, option: str) -> ModelShape:
    """Return a transformer with another sequence length."""
    if not isinstance(model, ModelShape):
        raise SpecError(option, sequence, f"none, as {model.name} is a module, which has its own inputs")
    try:
        return replace(model, sequence=sequence)
    except SpecError as error:
        raise SpecError(option, sequence, error.expected) from None


def with_workers(spec: ProjectSpec, workers: Sequence[int], refused: Sequence[set[int]]) -> list[ProjectSpec]:
    """Return the spec for each number of workers, without the methods that refuse that number.

    Args:
        spec: spec with any number of workers.
        refused: for each of the spec's methods the numbers that it refuses, see `refused_by`; empty: none refuses any.
    """
    specs = []
    for count in workers:
        methods = spec.methods
        if any(count in refused_counts for refused_counts in refused):
            methods_and_refusals = zip(methods, refused, strict=True)
            methods = tuple(method for method, refused_counts in methods_and_refusals if count not in refused_counts)
        specs.append(spec.model_copy(update={"workers": count, "methods": methods}))
    return specs


def refused_by(methods: Sequence[MethodBase], workers: Sequence[int]) -> list[set[int]]:
    """Return for each method the numbers of workers that it refuses; none for the baseline, which must accept all."""
    refused: list[set[int]] = [set()]
    for method in methods[1:]:
        # A method with the same exchanges in any group accepts all numbers of workers if it accepts one.
        accepts_all = method.same_for_any_group and refusal_of(method, workers[-1]) is None
        refused.append(set() if accepts_all else {count for count in workers if refusal_of(method, count)})
    return refused


def refusal_of(method: MethodBase, workers: int) -> SpecError | None:
    """Return the error with which a method refuses a number of workers, or None if it accepts it."""
    try:
        method.exchanges(1, workers)  # of a model with one parameter
    except SpecError as error:
        return error
    return None


def left_out(specs: Sequence[Experiment]) -> list[str]:
    """Return lines that name the methods that some specs omit because they refuse that number of workers."""
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    method_by_name = {method.name: method for spec in projections for method in spec.methods}
    omitted = []
    for spec in projections:
        spec_names = {method.name for method in spec.methods}
        omitted += [(name, spec.workers) for name in method_by_name if name not in spec_names]
    counts_by_name = distinct_by_key(omitted)
    return [line for name, counts in counts_by_name.items() for line in refusal_lines(method_by_name[name], counts)]


def refusal_lines(method: MethodBase, workers: Sequence[int]) -> list[str]:
    """Return lines that say for which numbers of workers a method is left out, and why."""
    if len(workers) <= MOST_LINES:
        return [f"{method.name}: left out for {count:,} workers: {refusal_of(method, count)}" for count in workers]
    return [
        f"{method.name}: left out for {len(workers):,} numbers of workers from {min(workers):,} to {max(workers):,}; "
        f"for {workers[0]:,}: {refusal_of(method, workers[0])}"
    ]


def names_of(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values of an option, in order; texts without braces are lists of names with commas between.

    >>> names_of(["ddp,diloco,ddp", "ddp", "{kind: diloco}"])
    ['ddp', 'diloco', '{kind: diloco}']
    """
    names: list[Any] = []
    for value in values:
        items = [value]
        if isinstance(value, str) and "{" not in value:
            items = [item.strip() for item in value.split(",")]
        names += items
    return [name for index, name in enumerate(names) if name not in names[:index]]


def counts_of(value: str | int | Sequence[int]) -> list[int]:
    """Return the distinct numbers of workers in an option's value, in order."""
    if isinstance(value, int):
        value = [value]
    parts = value.split(",") if isinstance(value, str) else value
    texts = [str(part).strip() for part in parts]
    # `int` refuses very long texts.
    if not texts or not all(text.isdecimal() and len(text) < 20 and 1 <= int(text) <= MANY for text in texts):
        raise SpecError("--workers", value, "whole numbers, at least 1, separated by commas: 8,64,512")
    return list(dict.fromkeys(map(int, texts)))


def projection_figure(specs: Sequence[Experiment], rows: Sequence[dict[str, Any]] | None = None) -> Figure:
    """Return a paper's figure, from its rows if available, or a figure of speedups against the bandwidth."""
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    if projections:
        return _speedup_figure(projections)
    spec, study = specs[0], study_of(specs[0])
    study_rows = project(spec) if rows is None else list(rows)
    figures = [figure for _, figure in study.figures(spec, NO_RECORDS, study_rows)]
    if not figures:
        raise SpecError("--plot", spec.name, f"no figure, as a {study.kind} is a table")
    return figures[0]


def _speedup_figure(specs: Sequence[ProjectSpec]) -> Any:
    """Return a figure of speedups against the bandwidth, a panel per projection, at the latency of the first link."""
    from syncline.analysis.costs import SpeedupPanel, speedup_over_bandwidth

    links = [network for network in specs[0].networks if isinstance(network, Link)]
    if not links:
        raise SpecError("--plot", specs[0].networks[0].name, "at least one network with one link for all workers")
    if len(specs[0].methods) < 2:
        raise SpecError("--plot", specs[0].methods[0].name, "two methods, of which the first is the baseline")
    link_bandwidths = [float(link.bandwidth_bytes_per_s) for link in links]
    lowest, highest = min(LOWEST_BANDWIDTH, *link_bandwidths), max(HIGHEST_BANDWIDTH, *link_bandwidths)
    bandwidths = np.geomspace(lowest, highest, POINTS_PER_CURVE)
    labels_of_specs = [_labels(spec) for spec in specs]
    differing = {name for name in labels_of_specs[0] if len({labels[name] for labels in labels_of_specs}) > 1}
    shown_labels = [name for name in labels_of_specs[0] if name in {"model", "workers"} | differing]
    panels = []
    for spec, labels in zip(specs[:MOST_PANELS], labels_of_specs, strict=False):
        plan = ProjectionPlan([spec])
        curves, points = {}, {}
        for method_index, method in enumerate(spec.methods[1:], start=1):
            curves[method.name] = speedups(plan, method_index, link=links[0], bandwidths=bandwidths)
            points[method.name] = [
                (bandwidth, float(speedups(plan, method_index, link, bandwidths=np.array([bandwidth]))[0]))
                for link, bandwidth in zip(links, link_bandwidths, strict=True)
            ]
        panels.append(SpeedupPanel(", ".join(labels[name] for name in shown_labels), curves, points))

    # A mark on the axis for the bandwidth of each link, with the names of all links of this bandwidth.
    names_by_bandwidth = distinct_by_key(zip(link_bandwidths, [link.name for link in links], strict=True))
    marks = {", ".join(names): bandwidth for bandwidth, names in names_by_bandwidth.items()}
    for name, preset in NETWORKS.items():
        if isinstance(preset.network, Link):
            marks.setdefault(name, float(preset.network.bandwidth_bytes_per_s))

    latency = format_seconds(float(links[0].latency_s)).replace(" us", " µs")
    title = f"lines: at the latency of {links[0].name} ({latency}); points: at each network's own"
    if len(specs) > len(panels):
        title += f"; {len(specs) - len(panels)} more not drawn"
    label = f"speedup over {specs[0].methods[0].name}"
    return speedup_over_bandwidth(bandwidths, panels, marks, label=label, title=title)


def _labels(spec: ProjectSpec) -> dict[str, str]:
    """Return the labels of a projection, by field; a label is empty if the projection has no hardware or layout."""
    labels = [label or "" for label in (*subject_of(spec), f"{spec.workers:,} workers")]
    return dict(zip(("model", "hardware", "layout", "workers"), labels, strict=True))
