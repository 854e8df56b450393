"""What measures found along trainings: rows of a stage, and what a page says of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from syncline.experiments.columns import four_digits
from syncline.experiments.result_files import read_parquet
from syncline.experiments.sweep.swept import Swept

ALONG = "along "
"""What names of such stages begin with."""

Lines = dict[str, dict[str, dict[int, list[float]]]]
"""Measure -> method -> step -> values of its seeds and layers."""

Layers = dict[str, dict[str, dict[str, list[float]]]]
"""Measure -> method -> layer -> values of its seeds and steps."""


def measured_rows(swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Method, seed, step, measure, layer and value; of what found nothing, as it never averages, no row."""
    rows: list[dict[str, Any]] = []
    for row in swept.rows:
        path = runs / row["run"] / "watched.parquet"
        if path.is_file():
            rows += read_parquet(path, {}).to_pylist()
    return rows


def measured_lines(rows: Sequence[Mapping[str, Any]]) -> Lines:
    """What was found, to be drawn. Of a measure ``match: one bit`` the panel is ``match``, its lines have the rest."""
    lines: Lines = {}
    several = len({row["method"] for row in rows}) > 1
    for row in rows:
        if math.isfinite(row["value"]):
            panel, _, part = row["measure"].partition(": ")
            line = f"{row['method']}, {part}" if part and several else part or row["method"]
            lines.setdefault(panel, {}).setdefault(line, {}).setdefault(row["step"], []).append(row["value"])
    return lines


def measured_layers(rows: Iterable[Mapping[str, Any]]) -> Layers:
    """What was found of layers in the later half of the steps."""
    kept = [row for row in rows if row["layer"] and math.isfinite(row["value"])]
    half = max((row["step"] for row in kept), default=0) / 2
    layers: Layers = {}
    for row in kept:
        if row["step"] >= half:
            of_method = layers.setdefault(row["measure"], {}).setdefault(row["method"], {})
            of_method.setdefault(row["layer"], []).append(row["value"])
    return layers


def layers_figure(name: str) -> str:
    """The file of a stage's second picture."""
    return f"along-{name}-layers.png"


def along_page(name: str, rows: Sequence[Mapping[str, Any]], figure: str) -> Iterator[str]:
    """Tables of the medians of the later half of the steps, and pictures; nothing of trainings that are too short."""
    yield f"## Along a training: {name}\n"
    lines, layers = measured_lines(rows), measured_layers(rows)
    if not lines:
        yield "Nothing was found.\n"
        return
    yield f"![{name}]({figure})\n"
    if layers:
        yield f"![{name} by layer]({layers_figure(name)})\n"
    yield "Medians over the later half of the steps.\n"
    by_lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for panel, found in lines.items():
        by_lines.setdefault(tuple(found), {})[panel] = found
    for heads, panels in by_lines.items():
        yield f"| measure | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}"
        for panel, found in panels.items():
            yield f"| {panel} | {' | '.join(_later(found[head]) for head in heads)} |"
        yield ""
    for measure, methods in layers.items():
        told = [f"{method}: from {_extreme(found, min)} to {_extreme(found, max)}" for method, found in methods.items()]
        yield f"- {measure} by layer, {'; '.join(told)}."
    if layers:
        yield ""


def _extreme(found: Mapping[str, Sequence[float]], which: Callable[..., str]) -> str:
    """The layer whose median is the lowest, or the highest."""
    layer = which(found, key=lambda one: median(found[one]))
    return f"{four_digits(median(found[layer]))} ({layer})"


def _later(found: Mapping[int, list[float]]) -> str:
    half = max(found) / 2
    return four_digits(median(value for step, values in found.items() if step >= half for value in values))
