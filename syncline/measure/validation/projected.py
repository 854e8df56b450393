"""Residuals that projections rest on: of measured collectives and steps, timed in the way of a projection.

| basis                            | measured                                  | predicted                       |
|----------------------------------|-------------------------------------------|---------------------------------|
| `DATA_SHEET_LINKS`               | NCCL's all-reduces on AWS, links as are   | a ring on the data sheet's link |
| `SET_LINKS`                      | NCCL's all-reduces on AWS, of a set rate  | a ring on that link             |
| `GLOO_FORMS`                     | gloo's all-reduces and broadcasts on AWS  | its forms, software for nothing |
| `GLOO_MEASURED`                  | gloo's collectives over our shaped links  | forms and costs of one setting  |
| `LARGE_PRESETS`, `SMALL_PRESETS` | steps of GPTs on A100 in one node         | FLOPs at the preset's use       |
| `MEASURED_STEPS`                 | our own trainings over shaped links       | as `validate` predicts them     |
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from syncline.costmodel import HARDWARE, Link, ModelShape, collective_s, gloo_s
from syncline.costmodel.bases import (
    DATA_SHEET_LINKS,
    GLOO_FORMS,
    GLOO_MEASURED,
    LARGE_PRESETS,
    LARGE_WIDTH,
    MEASURED_STEPS,
    SET_LINKS,
    SMALL_PRESETS,
)
from syncline.costmodel.network.measured_links import CARD_BYTES_PER_S, G6E_BYTES_PER_S, P3
from syncline.measure.validation.cluster_files import COLLECTIVES, DEFAULT, GPT_STEPS, MIB, in_pieces, read_table
from syncline.measure.validation.measured_steps import read_points

OWN_COLLECTIVES, OWN_STEPS = (COLLECTIVES.with_name(name) for name in ("own_collectives.csv", "own_steps.csv"))

DATA_CENTRE_S = float(np.asarray(P3.gloo_delay_s))
"""Seconds one way between nodes of a region, from measured messages between them."""

G6E_CARD_BYTES_PER_S = 20e9 / 8
"""Bytes per second of a g6e.2xlarge. Source: AWS, EC2 instance types (up to 20 Gbit/s)."""


def projected_residuals() -> dict[str, list[float]]:
    """Return ``predicted / measured - 1`` by basis."""
    residuals: dict[str, list[float]] = {}
    for row in read_table(COLLECTIVES)[1]:
        if row["collective"] in ("all_reduce", "broadcast") and not in_pieces(row):
            basis, predicted_s = _collective(row)
            if basis:
                residuals.setdefault(basis, []).append(1e3 * predicted_s / float(row["time_ms"]) - 1)
    residuals[DATA_SHEET_LINKS].append(G6E_BYTES_PER_S / G6E_CARD_BYTES_PER_S - 1)
    for basis, file in ((GLOO_MEASURED, OWN_COLLECTIVES), (MEASURED_STEPS, OWN_STEPS)):
        residuals[basis] = [float(row["predicted_ms"]) / float(row["measured_ms"]) - 1 for row in _rows(file)]
    return residuals | _computing()


def _collective(row: Mapping[str, str]) -> tuple[str, float]:
    kind, workers, nbytes = row["collective"], int(row["nodes"]), float(row["megabytes"]) * MIB
    is_default = DEFAULT in (row["delay_ms"], row["gbit_s"])
    link = Link(DATA_CENTRE_S, CARD_BYTES_PER_S)
    if not is_default:
        link = Link(float(row["delay_ms"]) / 1e3, float(row["gbit_s"]) * 1e9 / 8)
    if row["backend"] == "gloo":
        return GLOO_FORMS, float(gloo_s(kind, workers, nbytes, link))
    if kind == "all_reduce":
        return (DATA_SHEET_LINKS if is_default else SET_LINKS), float(collective_s(kind, workers, nbytes, link))
    return "", 0.0  # this module has no form of NCCL's chain


def _computing() -> dict[str, list[float]]:
    """Return residuals of steps without tensor parallelism and pipelines, by width; exchange in a node is small."""
    machine = HARDWARE["a100"]
    residuals: dict[str, list[float]] = {}
    for point in read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node"):
        if point.tensor == 1 and point.stages == 1:
            shape = ModelShape("gpt", point.layers, point.width, point.heads, vocabulary=51200, sequence=point.sequence)
            tokens = point.global_batch / point.gpus * point.sequence
            seconds = shape.flops_per_token * tokens / (machine.mfu * machine.peak_flops)
            basis = LARGE_PRESETS if point.width >= LARGE_WIDTH else SMALL_PRESETS
            residuals.setdefault(basis, []).append(seconds / point.measured_s - 1)
    return residuals


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
