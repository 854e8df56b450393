"""Step times that others measured: tables of configurations and milliseconds."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.transformer_time import Layouts
from syncline.errors import SpecError, SynclineError

WHERE = (
    "the folder of vTrain's measurements, as github.com/VIA-Research/vTrain has them in 'data': name it by --data, and "
    "its files by --set single_node=ground_truth_single.csv and --set multi_node=ground_truth_multi.csv"
)

COLUMNS = {
    "gpus": "# GPUs",
    "global_batch": "global batch",
    "micro_batch": "micro batch",
    "width": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "sequence": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "stages": "pipeline parallelism",
}
"""The numbers of a configuration, and the names of their columns."""

TIME = "iteration time (ms)"

MOST = 10**9
"""Largest accepted number of a configuration."""

MOST_PASSES = 10**5
"""Largest product of stages and micro-batches of a step: each is a term of the pipeline's time."""


class Point(NamedTuple):
    """A configuration and the measured time of its step."""

    gpus: int
    global_batch: int
    micro_batch: int
    width: int
    heads: int
    layers: int
    sequence: int
    tensor: int
    data: int
    stages: int
    measured_s: float

    @property
    def microbatches(self) -> int:
        """Return the number of micro-batches M of each replica."""
        return self.global_batch // (self.data * self.micro_batch)

    def part(self, parts: int) -> int:
        """Return the index of the point's part among ``parts``, from the SHA-256 of its configuration."""
        text = ",".join(str(number) for number in self[:-1])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % parts


def read_points(folder: str, name: str, field: str) -> list[Point]:
    """Return the points of a file.

    Args:
        field: field of the spec that names it.

    Raises:
        SpecError: the folder or file does not exist; the message says where to get it.
        SynclineError: a line cannot be read.
    """
    if not Path(folder).is_dir():
        raise SpecError("data", folder, WHERE)
    path = Path(folder) / name
    if not path.is_file():
        raise SpecError(field, name, f"the name of a file in {folder}; {WHERE}")
    points = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                numbers = {name: int(float(row[column])) for name, column in COLUMNS.items()}
                point = Point(**numbers, measured_s=float(row[TIME]) / 1e3)
                check_point(point)
            except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError, SpecError) as error:
                raise SynclineError(f"{field}: {path}, line {line} is no measured step: {error}") from None
            if not 0 < point.measured_s < float("inf"):
                raise SynclineError(f"{field}: {path}, line {line} is no measured step: it took {point.measured_s} s")
            points.append(point)
    if not points:
        raise SynclineError(f"{field}: {path} has no measured step")
    return points


def check_point(point: Point) -> None:
    """Refuse a configuration that no training can have.

    Raises:
        SpecError: a number is too small or too large, or there are more stages than layers.
    """
    for name, column in COLUMNS.items():
        if getattr(point, name) > MOST:
            raise SpecError(column, getattr(point, name), f"at most {MOST:,}")
    if point.stages * point.microbatches > MOST_PASSES:
        counts = f"{point.stages} stages, {point.microbatches} micro-batches"
        raise SpecError("global batch", counts, f"at most {MOST_PASSES:,} micro-batches in all stages")
    layouts([point])


def recomputes(points: list[Point], memory_bytes: float) -> bool:
    """Return whether a table's trainings recompute activations: all do if one does not fit into memory otherwise."""
    return bool(points) and bool(np.any(layouts(points).memory_bytes > memory_bytes))


def layouts(points: list[Point], recomputed: bool = False) -> Layouts:
    """Return the points in the form that the cost model takes."""
    columns = {name: np.array([getattr(point, name) for point in points]) for name in COLUMNS if name != "gpus"}
    del columns["global_batch"]
    microbatches = np.array([point.microbatches for point in points])
    return Layouts(microbatches=microbatches, recomputed=recomputed, **columns)


def measured_s(points: list[Point]) -> NDArray[np.float64]:
    """Return the measured seconds of the points, ``(N,)``."""
    return np.array([point.measured_s for point in points])
