"""Collectives whose times were measured: a table by number of ranks and bytes, read between its points.

    t(n, P)   between two sizes: a power law through both, log t linear in log n
              beyond the largest: as many bytes per second as there; below the smallest: as long as it takes
              between two numbers of ranks: log t linear in (P - 1) / P, the share that each byte travels

Files are CSV with the columns ``gpus``, ``bytes`` and one of ``seconds`` or ``in_place_ns``; where there is a column
``gpu``, the rows of one of its values are the table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SpecError

COLUMNS = "the columns gpus, bytes and seconds (or in_place_ns), and gpu where there are several"


@dataclass(frozen=True)
class MeasuredTimes:
    """A collective's times.

    Args:
        kind: which collective.
        points: ``(ranks, bytes, seconds)`` of each measurement; bytes with the meaning that the closed form gives them.
        source: where they come from.

    Raises:
        SpecError: no points, or one that is no measurement: fewer than 2 ranks, no bytes, no time.
    """

    kind: str
    points: tuple[tuple[int, float, float], ...] = field(repr=False)
    source: str = ""

    def __post_init__(self) -> None:
        if not self.points:
            raise SpecError(f"collectives.{self.kind}", [], "at least one measurement: ranks, bytes, seconds")
        for point in self.points:
            ranks, nbytes, seconds = point
            if not (ranks >= 2 and 0 < nbytes < float("inf") and 0 < seconds < float("inf")):
                wanted = "at least 2 ranks, and a positive number of bytes and of seconds"
                raise SpecError(f"collectives.{self.kind}", list(point), wanted)

    def time_s(self, nbytes: ArrayLike, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of ``nbytes`` among ``ranks``, broadcast; NaN outside of the measured numbers of ranks."""
        sizes, counts = np.broadcast_arrays(np.asarray(nbytes, dtype=float), np.asarray(ranks))
        rank_counts = sorted({point[0] for point in self.points})
        share = [(count - 1) / count for count in rank_counts]
        logs = np.stack([self._log_s(sizes.ravel(), count) for count in rank_counts])
        requested_share = (counts.ravel() - 1) / counts.ravel()
        out = np.array(
            [np.interp(x, share, column, np.nan, np.nan) for x, column in zip(requested_share, logs.T, strict=True)]
        )
        return np.exp(out).reshape(sizes.shape)

    def _log_s(self, nbytes: NDArray[np.float64], ranks: int) -> NDArray[np.float64]:
        sizes, seconds = np.array(sorted(point[1:] for point in self.points if point[0] == ranks)).T
        beyond = np.log(np.maximum(nbytes / sizes[-1], 1.0))
        return np.interp(np.log(nbytes), np.log(sizes), np.log(seconds)) + beyond


def read_times(file: Path, kind: str, gpu: str | None = None, path: str = "collectives") -> MeasuredTimes:
    """Return the measured times in a CSV file.

    Args:
        file: see the module.
        kind: of the collective.
        gpu: whose rows, where the file has a column of that name.
        path: the field's name, for the error line.

    Raises:
        SpecError: a file that cannot be read, or has no such rows.
    """
    try:
        with file.open(encoding="utf-8", newline="") as text:
            return MeasuredTimes(kind, tuple(_points(csv.DictReader(text), gpu)), str(file))
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(path, str(file), f"a table with {COLUMNS} ({error})") from error


def _points(rows: Iterable[Mapping[str, str]], gpu: str | None) -> Iterable[tuple[int, float, float]]:
    for row in rows:
        if gpu is None or row.get("gpu", gpu) == gpu:
            seconds = float(row["seconds"]) if "seconds" in row else 1e-9 * float(row["in_place_ns"])
            yield int(row["gpus"]), float(row["bytes"]), seconds


@cache
def nvlink_all_reduce(gpu: str) -> MeasuredTimes:
    """NCCL's all-reduce among 2, 4 and 8 GPUs of one node, 1 MiB to 1 GiB, in place.

    Args:
        gpu: ``a100`` (SXM, NVSwitch) or ``v100`` (SXM2, a hybrid cube mesh).

    Source: J. Bang et al., "vTrain" (MICRO 2024), github.com/VIA-Research/vTrain, ``trace``; nvlink_all_reduce.md.
    """
    times = read_times(Path(__file__).with_name("nvlink_all_reduce.csv"), "all_reduce", gpu)
    return replace(times, source="J. Bang et al., vTrain (MICRO 2024), github.com/VIA-Research/vTrain, trace")
