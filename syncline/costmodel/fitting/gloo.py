"""The software costs of gloo from measurements, with latency and bandwidth as configured.

The model is `gloo_s`: ``T(alpha + m) + g_P + e_kind N``, one m for all messages, one g for each number of workers, one
e for each collective. Then, m as it is, a g for each collective and number of workers: beyond the largest number that
was measured they do not grow alike. Relative residuals ``1 - model / measured`` are made small in the sense of their
absolute values (least squares, weighted anew until nothing moves), so that a few disturbed measurements do not count;
costs are at least 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from syncline.costmodel.collectives.gloo.times import FREE, GlooCosts, gloo_s
from syncline.costmodel.fitting.least_squares import non_negative
from syncline.costmodel.fitting.timed import TimedCall, check_times, cost_columns, costs_of
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError

NOISE = 2e-3
"""Relative residuals below this are noise: all weigh the same."""

SCALE_S, SCALE_BYTE_S = 1e-4, 1e-10
"""Sizes of a cost per message or call, and per byte: the unknowns are solved for in these units."""


def errors(of: Iterable[TimedCall], costs: GlooCosts = FREE) -> Floats:
    """Relative errors of the prediction, ``model / measured - 1``."""
    of = list(of)
    return _forms_s(of, costs) / np.array([one.seconds for one in of]) - 1


def fit_costs(of: Sequence[TimedCall], rounds: int = 60) -> GlooCosts:
    """The software costs that these measurements tell.

    Args:
        of: measurements; several sizes of each collective, or the costs per byte and per call are not told apart.
        rounds: how often the weights are found anew.

    Raises:
        SpecError: no measurement, or one of no time.
    """
    if not of:
        raise SpecError("measured", "nothing", "at least one measurement")
    check_times(of)
    workers = sorted({one.workers for one in of})
    kinds = sorted({one.kind for one in of})
    measured_s = np.array([one.seconds for one in of])
    linear = cost_columns(of, workers, kinds)
    scale = np.array([SCALE_S] * (1 + len(workers)) + [SCALE_BYTE_S] * len(kinds))
    unknown = np.zeros(len(scale))
    for _ in range(rounds):
        bare_s, slope = _latencies(of, unknown[0])
        off = 1 - (bare_s + linear @ unknown[1:]) / measured_s
        unknown = _better(np.column_stack([slope, linear]) / measured_s[:, None] * scale, off, unknown / scale) * scale
    message_s, *values = unknown.tolist()
    costs = costs_of(workers, kinds, values, message_s)
    bare_s, _ = _latencies(of, message_s)
    for kind in kinds:
        costs = _with_calls(
            costs, kind, [(one, s) for one, s in zip(of, bare_s, strict=True) if one.kind == kind], rounds
        )
    return costs


def _with_calls(costs: GlooCosts, kind: str, of: Sequence[tuple[TimedCall, float]], rounds: int) -> GlooCosts:
    """With what a call and a byte of this collective take, from measurements of it and what they take without."""
    calls, measured_s = [one for one, _ in of], np.array([one.seconds for one, _ in of])
    bare_s = np.array([seconds for _, seconds in of])
    workers = sorted({one.workers for one in calls})
    linear = cost_columns(calls, workers, [kind])
    scale = np.array([SCALE_S] * len(workers) + [SCALE_BYTE_S])
    unknown = np.array([float(costs.per_call(kind, count)) for count in workers] + [costs.per_byte(kind)])
    for _ in range(rounds):
        off = 1 - (bare_s + linear @ unknown) / measured_s
        unknown = _better(linear / measured_s[:, None] * scale, off, unknown / scale) * scale
    *call_s, byte_s = unknown.tolist()
    return replace(
        costs,
        call_of_s=(*costs.call_of_s, (kind, tuple(zip(workers, call_s, strict=True)))),
        byte_s=tuple((name, byte_s if name == kind else known) for name, known in costs.byte_s),
    )


def _better(matrix: Floats, off: Floats, unknown: Floats) -> Floats:
    """The unknowns, at least 0, with which the residuals are least; large ones weigh less."""
    weight = 1 / np.sqrt(np.maximum(np.abs(off), NOISE))
    return non_negative(matrix * weight[:, None], (off + matrix @ unknown) * weight)


def _forms_s(of: Sequence[TimedCall], costs: GlooCosts) -> Floats:
    """The forms with these costs, ``(N,)`` seconds.

    Raises:
        SpecError: a measurement without its link.
    """
    seconds = []
    for one in of:
        if one.link is None:
            raise SpecError("measured.link", None, "the link that it was measured on")
        seconds.append(float(gloo_s(one.kind, one.workers, one.nbytes, one.link, costs)))
    return np.array(seconds)


def _latencies(of: Sequence[TimedCall], message_s: float) -> tuple[Floats, Floats]:
    """The forms at this cost per message, and by how much they grow with it."""
    step_s = 1e-6
    here = _forms_s(of, GlooCosts(message_s))
    return here, (_forms_s(of, GlooCosts(message_s + step_s)) - here) / step_s
