"""Collectives whose times were measured: a table by number of ranks and bytes, interpolated between its points.

    t(n, P)   between two sizes: a power law through both, log t linear in log n
              beyond the largest: the bytes per second of the largest; below the smallest: the time of the smallest
              between two numbers of ranks: log t linear in (P - 1) / P

Here t is the seconds of n bytes among P ranks. Files are CSV with the columns ``gpus``, ``bytes`` and one of
``seconds`` or ``in_place_ns``; if a file has a column ``gpu``, only the rows of one GPU are read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SpecError

COLUMNS = "the columns gpus, bytes and seconds (or in_place_ns), and gpu where there are several"


class Point(NamedTuple):
    """A measured time of a collective; its bytes are counted as those of a `Call`."""

    ranks: int
    nbytes: float
    seconds: float


@dataclass(frozen=True)
class MeasuredTimes:
    """The measured times of a collective by number of ranks and bytes, interpolated between them.

    Args:
        points: measurements, in any order.
        source: origin of the measurements.
    """

    kind: str
    points: tuple[Point, ...] = field(repr=False)
    source: str = ""

    def __post_init__(self) -> None:
        if not self.points:
            raise SpecError(f"collectives.{self.kind}", [], "at least one measurement: ranks, bytes, seconds")
        for point in self.points:
            ranks, nbytes, seconds = point
            if not (ranks >= 2 and 0 < nbytes < float("inf") and 0 < seconds < float("inf")):
                expected = "at least 2 ranks, and a positive number of bytes and of seconds"
                raise SpecError(f"collectives.{self.kind}", list(point), expected)

    def time_s(self, nbytes: ArrayLike, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of ``nbytes`` among ``ranks``, broadcast; NaN outside of the measured numbers of ranks."""
        sizes, counts = np.broadcast_arrays(np.asarray(nbytes, dtype=float), np.asarray(ranks))
        measured_counts = sorted({point.ranks for point in self.points})
        measured_parts = [(count - 1) / count for count in measured_counts]  # log t is linear in (P - 1) / P
        log_s = np.stack([self._log_s(sizes.ravel(), count) for count in measured_counts], axis=1)
        parts = (counts.ravel() - 1) / counts.ravel()
        interpolated = [
            np.interp(part, measured_parts, row, left=np.nan, right=np.nan)
            for part, row in zip(parts, log_s, strict=True)
        ]
        return np.exp(np.array(interpolated)).reshape(sizes.shape)

    def _log_s(self, nbytes: NDArray[np.float64], ranks: int) -> NDArray[np.float64]:
        """Return the logarithm of the seconds of ``nbytes`` among a measured number of ranks."""
        points = sorted((point.nbytes, point.seconds) for point in self.points if point.ranks == ranks)
        sizes, seconds = np.array(points).T
        # Outside the measured sizes `np.interp` returns the time of the nearest one. Above them, times grow with bytes.
        log_growth = np.log(np.maximum(nbytes / sizes[-1], 1.0))
        return np.interp(np.log(nbytes), np.log(sizes), np.log(seconds)) + log_growth


def read_times(file: Path, kind: str, gpu: str | None = None, path: str = "collectives") -> MeasuredTimes:
    """Return the measured times in a CSV file.

    Args:
        file: the CSV file; the module lists its columns.
        kind: name of the collective.
        gpu: GPU whose rows are read if the file has a column ``gpu``.
        path: name of the field in error messages.
    """
    try:
        with file.open(encoding="utf-8", newline="") as text:
            return MeasuredTimes(kind, tuple(_points(csv.DictReader(text), gpu)), str(file))
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(path, str(file), f"a table with {COLUMNS} ({error})") from error


def _points(rows: Iterable[Mapping[str, str]], gpu: str | None) -> Iterable[Point]:
    """Yield the measurements of a GPU in rows of a CSV file; all rows if ``gpu`` is None or there is no such column."""
    for row in rows:
        if gpu is None or row.get("gpu", gpu) == gpu:
            seconds = float(row["seconds"]) if "seconds" in row else 1e-9 * float(row["in_place_ns"])
            yield Point(int(row["gpus"]), float(row["bytes"]), seconds)


@cache
def nvlink_all_reduce(gpu: str) -> MeasuredTimes:
    """Return the times of NCCL's all-reduce among 2, 4 and 8 GPUs of one node, 1 MiB to 1 GiB, in place.

    Args:
        gpu: ``a100`` (SXM, NVSwitch) or ``v100`` (SXM2, a hybrid cube mesh).

    Source: J. Bang et al., "vTrain" (MICRO 2024), github.com/VIA-Research/vTrain, ``trace``; nvlink_all_reduce.md.
    """
    times = read_times(Path(__file__).with_name("nvlink_all_reduce.csv"), "all_reduce", gpu)
    return replace(times, source="J. Bang et al., vTrain (MICRO 2024), github.com/VIA-Research/vTrain, trace")
