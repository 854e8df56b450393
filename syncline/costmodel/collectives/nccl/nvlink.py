"""NCCL's all-reduce among the GPUs of one node, from measured times: other sizes, other numbers of GPUs.

Between measured sizes the time is a straight line. Another number P of GPUs is taken from the measured numbers on
either side: a straight line in 1/P between their times at the same bytes for each of the node's links,

    T(P, n) = mean of T(p, n'),    n' = n (P - 1) p r(p) / (P (p - 1) r(P)),

with r(P) rings that the node's links have place for. Behind switches (A100 with NVSwitch) that is the same for all P.
Among the first P of the eight V100 of a DGX-1 or a p3.16xlarge it is two, one each way, for each Hamiltonian cycle that
shares no link with another. Of the first four GPUs only one has a link to the fifth, so five have no cycle: data go up
and down a chain of two links, n bytes each way.

Source: NVIDIA DGX-1 system architecture (the hybrid cube mesh; which pairs have two links); NCCL, src/graph/search.cc
(rings and trees are searched for among a node's links).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, one_of

TimesBySize: TypeAlias = Mapping[int, Sequence[Floats]]
"""By number of GPUs: bytes, increasing, and seconds."""

CUBE_MESH_RINGS = {2: 1.0, 3: 2.0, 4: 4.0, 5: 2 * 2 * (5 - 1) / 5 * 0.92, 6: 2.0, 7: 4.0, 8: 6.0}
"""r of a cube mesh's first P GPUs; of five: a chain of two links with 0.92 of them, in rings of as many seconds."""

RINGS = {"a100": dict.fromkeys(range(2, 17), 1.0), "v100": CUBE_MESH_RINGS}
"""r by GPU and P."""


def nvlink_all_reduce_s(gpu: str, gpus: int, nbytes: float, measured: TimesBySize) -> float:
    """Seconds of an all-reduce of n bytes among GPUs of one node.

    Args:
        gpu: one of ``RINGS``.
        gpus: P, at least 2.
        nbytes: n, at least 0.
        measured: of such GPUs.

    Raises:
        SpecError: a GPU or a number of them that is not known, or nothing measured.
    """
    if gpu not in RINGS:
        raise SpecError("gpu", gpu, one_of(RINGS, gpu))
    rings = RINGS[gpu]
    if gpus not in rings:
        raise SpecError("gpus", gpus, f"one of {', '.join(str(count) for count in rings)}")
    require(nbytes >= 0, "bytes", nbytes, "at least 0")
    if not measured:
        raise SpecError("measured", {}, f"times of {gpu}")
    below = max((count for count in measured if count <= gpus), default=min(measured))
    above = min((count for count in measured if count >= gpus), default=max(measured))

    def at(count: int) -> float:
        alike = nbytes * (gpus - 1) / gpus * count / (count - 1) * rings[count] / rings[gpus]
        return _between(alike, *measured[count])

    if below == above:
        return at(below)
    part = (1 / gpus - 1 / above) / (1 / below - 1 / above)
    return part * at(below) + (1 - part) * at(above)


def _between(nbytes: float, sizes: Floats, seconds: Floats) -> float:
    """On the line between measured sizes; beyond them at the end's rate, below the least at its time."""
    if nbytes > sizes[-1]:
        return float(seconds[-1] * nbytes / sizes[-1])
    return float(np.interp(nbytes, sizes, seconds))
