"""Measures along trainings: the rows of a stage, and the part of a page about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from syncline.columns import four_digits
from syncline.runs.folders.result_files import read_parquet
from syncline.runs.sweep.folder import Swept

MEASURED = "measured "
"""Prefix of the names of such stages."""

Lines = dict[str, dict[str, dict[int, list[float]]]]
"""Measure -> method -> step -> values of its seeds and layers."""

Layers = dict[str, dict[str, dict[str, list[float]]]]
"""Measure -> method -> layer -> values of its seeds and steps."""


def measured_rows(swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Return rows with method, seed, step, measure, layer and value.

    A training without measurements, for example because it never averages, has no rows.
    """
    rows: list[dict[str, Any]] = []
    for row in swept.rows:
        path = runs / row["run"] / "watched.parquet"
        if path.is_file():
            rows += read_parquet(path, {}).to_pylist()
    return rows


def measured_lines(rows: Sequence[Mapping[str, Any]]) -> Lines:
    """Return the measured values as the lines of a figure.

    The measure ``match: one bit`` belongs to the panel ``match``; its lines are named after the rest.
    """
    lines: Lines = {}
    several_methods = len({row["method"] for row in rows}) > 1
    for row in rows:
        if not math.isfinite(row["value"]):
            continue
        panel, _, part = row["measure"].partition(": ")
        line = part or row["method"]
        if part and several_methods:
            line = f"{row['method']}, {part}"
        lines.setdefault(panel, {}).setdefault(line, {}).setdefault(row["step"], []).append(row["value"])
    return lines


def measured_layers(rows: Iterable[Mapping[str, Any]]) -> Layers:
    """Return the measured values of layers in the later half of the steps."""
    finite_rows = [row for row in rows if row["layer"] and math.isfinite(row["value"])]
    half = max((row["step"] for row in finite_rows), default=0) / 2
    layers: Layers = {}
    for row in finite_rows:
        if row["step"] >= half:
            of_method = layers.setdefault(row["measure"], {}).setdefault(row["method"], {})
            of_method.setdefault(row["layer"], []).append(row["value"])
    return layers


def layers_figure(name: str) -> str:
    """Return the file name of a stage's second figure."""
    return f"measured-{name}-layers.png"


def measured_page(name: str, rows: Sequence[Mapping[str, Any]], figure: str) -> Iterator[str]:
    """Yield tables of the medians of the later half of the steps, and figures; a note if no value was measured."""
    yield f"## Along a training: {name}\n"
    lines, layers = measured_lines(rows), measured_layers(rows)
    if not lines:
        yield "Nothing was found.\n"
        return
    yield f"![{name}]({figure})\n"
    if layers:
        yield f"![{name} by layer]({layers_figure(name)})\n"
    yield "Medians over the later half of the steps.\n"
    panels_of_columns: dict[tuple[str, ...], dict[str, Any]] = {}  # panels with the same lines share a table
    for panel, measured in lines.items():
        panels_of_columns.setdefault(tuple(measured), {})[panel] = measured
    for columns, panels in panels_of_columns.items():
        yield f"| measure | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"
        for panel, measured in panels.items():
            yield f"| {panel} | {' | '.join(_later_median(measured[column]) for column in columns)} |"
        yield ""
    for measure, methods in layers.items():
        ranges = []
        for method, values_by_layer in methods.items():
            medians = {layer: median(values) for layer, values in values_by_layer.items()}
            low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
            lowest, highest = f"{four_digits(medians[low])} ({low})", f"{four_digits(medians[high])} ({high})"
            ranges.append(f"{method}: from {lowest} to {highest}")
        yield f"- {measure} by layer, {'; '.join(ranges)}."
    if layers:
        yield ""


def _later_median(values_by_step: Mapping[int, list[float]]) -> str:
    """Return the median of the values in the later half of the steps, as text."""
    half = max(values_by_step) / 2
    later_values = [value for step, values in values_by_step.items() if step >= half for value in values]
    return four_digits(median(later_values))
