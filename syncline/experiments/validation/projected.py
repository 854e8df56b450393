"""What projections rest on: residuals of measured collectives and steps, as a projection would have timed them.

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
from syncline.costmodel.clusters.p3 import CARD_BYTES_PER_S, P3
from syncline.experiments.validation.cluster_files import COLLECTIVES, DEFAULT, GPT_STEPS, MIB, in_pieces, read_table
from syncline.experiments.validation.measured_steps import read_points

OWN_COLLECTIVES, OWN_STEPS = (COLLECTIVES.with_name(name) for name in ("own_collectives.csv", "own_steps.csv"))

DATA_CENTRE_S = float(np.asarray(P3.gloo_delay_s))
"""One way between nodes of a region, as messages between them say."""

G6E_BYTES_PER_S, G6E_MEASURED_BYTES_PER_S = 20e9 / 8, 14.9e9 / 8
"""Of a g6e.2xlarge. Sources: AWS, EC2 instance types (up to 20 Gbit/s); NCCL's all-reduces in diloco-measured."""


def projected_residuals() -> dict[str, list[float]]:
    """``predicted / measured - 1`` by basis."""
    told: dict[str, list[float]] = {}
    for row in read_table(COLLECTIVES)[1]:
        if row["collective"] in ("all_reduce", "broadcast") and not in_pieces(row):
            basis, predicted_s = _collective(row)
            if basis:
                told.setdefault(basis, []).append(1e3 * predicted_s / float(row["time_ms"]) - 1)
    told[DATA_SHEET_LINKS].append(G6E_MEASURED_BYTES_PER_S / G6E_BYTES_PER_S - 1)
    for basis, file in ((GLOO_MEASURED, OWN_COLLECTIVES), (MEASURED_STEPS, OWN_STEPS)):
        told[basis] = [float(row["predicted_ms"]) / float(row["measured_ms"]) - 1 for row in _rows(file)]
    return told | _computing()


def _collective(row: Mapping[str, str]) -> tuple[str, float]:
    kind, workers, nbytes = row["collective"], int(row["nodes"]), float(row["megabytes"]) * MIB
    own = DEFAULT in (row["delay_ms"], row["gbit_s"])
    link = Link(DATA_CENTRE_S, CARD_BYTES_PER_S)
    if not own:
        link = Link(float(row["delay_ms"]) / 1e3, float(row["gbit_s"]) * 1e9 / 8)
    if row["backend"] == "gloo":
        return GLOO_FORMS, float(gloo_s(kind, workers, nbytes, link))
    if kind == "all_reduce":
        return (DATA_SHEET_LINKS if own else SET_LINKS), float(collective_s(kind, workers, nbytes, link))
    return "", 0.0  # nothing here is NCCL's chain


def _computing() -> dict[str, list[float]]:
    """Steps without tensor parallelism and pipelines, by width; what replicas exchange in a node is little."""
    machine = HARDWARE["a100"]
    told: dict[str, list[float]] = {}
    for point in read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node"):
        if point.tensor == 1 and point.stages == 1:
            shape = ModelShape("gpt", point.layers, point.width, point.heads, vocabulary=51200, sequence=point.sequence)
            tokens = point.global_batch / point.gpus * point.sequence
            seconds = shape.flops_per_token * tokens / (machine.mfu * machine.peak_flops)
            basis = LARGE_PRESETS if point.width >= LARGE_WIDTH else SMALL_PRESETS
            told.setdefault(basis, []).append(seconds / point.measured_s - 1)
    return told


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
