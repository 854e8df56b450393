"""Seconds of NCCL's all-reduce among the GPUs of a node, interpolated from measured sizes and numbers of GPUs.

The time is linear between measured sizes. For a number P of GPUs without measurements, the time is linear in 1/P
between the next smaller and the next larger measured number, at the same bytes for each of the node's links,

    T(P, n) = mean of T(p, n'),    n' = n (P - 1) p r(p) / (P (p - 1) r(P)),

where the node's links have room for r(P) rings. Behind switches (A100 with NVSwitch) r(P) is the same for all P. Among
the first P of the eight V100 of a DGX-1 or a p3.16xlarge, r(P) is two, one in each direction, for each Hamiltonian
cycle that shares no link with another. Only one of the first four GPUs has a link to the fifth, so five have no cycle:
data go up and down a chain of two links, n bytes in each direction.

Source: NVIDIA DGX-1 system architecture (the hybrid cube mesh; which pairs have two links); NCCL, src/graph/search.cc
(rings and trees are searched for among a node's links).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.node_times import NodeTimes
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.numerics.measured_times import nvlink_all_reduce
from syncline.errors import SpecError, one_of

TimesBySize: TypeAlias = Mapping[int, Sequence[Floats]]
"""Measured sizes in bytes, increasing, and their seconds, by number of GPUs."""

CUBE_MESH_RINGS = {2: 1.0, 3: 2.0, 4: 4.0, 5: 2 * 2 * (5 - 1) / 5 * 0.92, 6: 2.0, 7: 4.0, 8: 6.0}
"""r by P of a cube mesh's first P GPUs; for five GPUs the rings that take as long as a chain of 0.92 of two links."""

RINGS = {"a100": dict.fromkeys(range(2, 17), 1.0), "v100": CUBE_MESH_RINGS}
"""Number of rings r by GPU and P."""


def nvlink_all_reduce_s(gpu: str, gpus: int, nbytes: float, measured: TimesBySize) -> float:
    """Return the seconds of an all-reduce among GPUs of a node, by the formula of this module.

    Args:
        gpu: one of ``RINGS``.
        gpus: number of GPUs P, at least 2.
        nbytes: bytes n of the tensor, at least 0.
        measured: measured times of nodes with this GPU.

    Raises:
        SpecError: an unknown GPU, an unknown number of GPUs, or no measured times.
    """
    if gpu not in RINGS:
        raise SpecError("gpu", gpu, one_of(RINGS, gpu))
    rings = RINGS[gpu]
    if gpus not in rings:
        raise SpecError("gpus", gpus, f"one of {', '.join(str(count) for count in rings)}")
    require(nbytes >= 0, "bytes", nbytes, "at least 0")
    if not measured:
        raise SpecError("measured", {}, f"times of {gpu}")
    lower = max((count for count in measured if count <= gpus), default=min(measured))
    upper = min((count for count in measured if count >= gpus), default=max(measured))

    def time_s(count: int) -> float:
        """Return T(count, n'), with as many bytes on each of the node's links as n bytes among ``gpus`` put there."""
        equivalent_bytes = nbytes * (gpus - 1) / gpus * count / (count - 1) * rings[count] / rings[gpus]
        return _interpolated_s(equivalent_bytes, *measured[count])

    if lower == upper:
        return time_s(lower)
    weight = (1 / gpus - 1 / upper) / (1 / lower - 1 / upper)
    return weight * time_s(lower) + (1 - weight) * time_s(upper)


@cache
def node_times(gpu: str) -> TimesBySize:
    """Return the measured times that come with the package, of nodes with a GPU."""
    if gpu not in RINGS:
        raise SpecError("gpu", gpu, one_of(RINGS, gpu))
    points = np.array(sorted(nvlink_all_reduce(gpu).points))
    return {int(count): tuple(points[points[:, 0] == count, 1:].T) for count in np.unique(points[:, 0])}


def is_measured(kind: str, network: Any, workers: IntOrArray) -> bool:
    """Return whether a link, or its star, has measured times of a collective for all these numbers of workers."""
    times: NodeTimes | None = getattr(network, "measured", None)
    if times is None or kind != "all_reduce":
        return False
    return all(count == 1 or count in RINGS[times.gpu] for count in np.unique(workers).tolist())


def measured_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Any) -> FloatOrArray:
    """Return the seconds of an all-reduce by a link's measured times; ``workers`` and ``nbytes`` broadcast.

    Raises:
        NoClosedForm: the link has no measured times for a number of workers.
    """
    if not is_measured("all_reduce", link, workers):
        raise NoClosedForm("all_reduce.algorithm", "measured", "a link inside a node whose times were measured")
    times: NodeTimes = link.measured
    counts, sizes = np.broadcast_arrays(workers, np.asarray(nbytes, dtype=np.float64))
    times_by_size = node_times(times.gpu)
    seconds = [
        nvlink_all_reduce_s(times.gpu, count, size, times_by_size) if count > 1 and size > 0 else 0.0
        for count, size in zip(counts.ravel().tolist(), sizes.ravel().tolist(), strict=True)
    ]
    return times.factor * np.reshape(seconds, counts.shape)[()]


def _interpolated_s(nbytes: float, sizes: Floats, seconds: Floats) -> float:
    """Return the seconds of n bytes between measured sizes; below the smallest its time, above the largest its rate."""
    if nbytes > sizes[-1]:
        return float(seconds[-1] * nbytes / sizes[-1])
    return float(np.interp(nbytes, sizes, seconds))
