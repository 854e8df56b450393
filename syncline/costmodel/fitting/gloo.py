"""The software costs of gloo from measurements, with latency and bandwidth as configured.

The model is `gloo_s`: ``T(alpha + m) + g_P + e_kind N``, one m for all messages, one g for each number of workers, one
e for each collective. Relative residuals ``1 - model / measured`` are made small in the sense of their absolute values
(least squares, weighted anew until nothing moves), so that a few disturbed measurements do not count; costs are at
least 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.gloo.times import FREE, GlooCosts, gloo_s, tensor_bytes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError

NOISE = 2e-3
"""Relative residuals below this are noise: all weigh the same."""

SCALE_S, SCALE_BYTE_S = 1e-4, 1e-10
"""Sizes of a cost per message or call, and per byte: the unknowns are solved for in these units."""


class Measured(NamedTuple):
    """A collective that was timed.

    Attributes:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.
        link: as configured.
        seconds: from the common start until the last worker is through.
    """

    kind: str
    workers: int
    nbytes: float
    link: Link
    seconds: float


def errors(of: Iterable[Measured], costs: GlooCosts = FREE) -> Floats:
    """Relative errors of the prediction, ``model / measured - 1``."""
    return np.array([
        float(gloo_s(one.kind, one.workers, one.nbytes, one.link, costs)) / one.seconds - 1 for one in of
    ])  # fmt: skip


def fit_costs(of: Sequence[Measured], rounds: int = 60) -> GlooCosts:
    """The software costs that these measurements tell.

    Args:
        of: measurements; several sizes of each collective, or the costs per byte and per call are not told apart.
        rounds: how often the weights are found anew.

    Raises:
        SpecError: no measurement, or one of no time.
    """
    if not of:
        raise SpecError("measured", "nothing", "at least one measurement")
    for one in of:
        if not one.seconds > 0:
            raise SpecError("measured.seconds", one.seconds, "a time above 0")
    workers = sorted({one.workers for one in of})
    kinds = sorted({one.kind for one in of})
    measured_s = np.array([one.seconds for one in of])
    linear = np.array([
        [
            *(float(one.workers == p) for p in workers),
            *(float(tensor_bytes(kind, one.workers, one.nbytes)) * (one.kind == kind) for kind in kinds),
        ]
        for one in of
    ])  # fmt: skip
    scale = np.array([SCALE_S] * (1 + len(workers)) + [SCALE_BYTE_S] * len(kinds))
    unknown = np.zeros(len(scale))
    for _ in range(rounds):
        bare_s, slope = _latencies(of, unknown[0])
        off = 1 - (bare_s + linear @ unknown[1:]) / measured_s
        weight = 1 / np.sqrt(np.maximum(np.abs(off), NOISE))
        matrix = np.column_stack([slope, linear]) / measured_s[:, None] * scale
        target = off + matrix @ (unknown / scale)
        unknown = _non_negative(matrix * weight[:, None], target * weight) * scale
    values = unknown.tolist()
    return GlooCosts(
        values[0],
        tuple(zip(workers, values[1:], strict=False)),
        tuple(zip(kinds, values[1 + len(workers) :], strict=True)),
    )


def _latencies(of: Sequence[Measured], message_s: float) -> tuple[Floats, Floats]:
    """The forms at this cost per message, and by how much they grow with it."""
    step_s = 1e-6

    def at(seconds: float) -> Floats:
        costs = GlooCosts(seconds)
        return np.array([float(gloo_s(one.kind, one.workers, one.nbytes, one.link, costs)) for one in of])

    here = at(message_s)
    return here, (at(message_s + step_s) - here) / step_s


def _non_negative(matrix: Floats, target: Floats) -> Floats:
    """Least squares with unknowns of at least 0: the most negative one is set to 0 until none is."""
    free = np.ones(matrix.shape[1], dtype=np.bool_)
    while True:
        solved = np.zeros(matrix.shape[1])
        solved[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        if not (solved < 0).any():
            return solved
        free[int(np.argmin(solved))] = False
