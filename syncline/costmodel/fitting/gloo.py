"""A fit of gloo's software costs to measurements, with latency and bandwidth as configured.

The model is `gloo_s`: ``T(alpha + m) + g_P + e_kind N``, with one m for all messages, one g for each number of workers,
and one e for each collective. A second fit keeps m and gives each collective its own g for each number of workers,
because above the largest measured number of workers the collectives grow at different rates. The fit minimises the
absolute values of the relative residuals ``1 - model / measured`` by iteratively reweighted least squares, so that a
few disturbed measurements count little. All costs are at least 0.
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
"""Relative residuals below this are noise and have the same weight."""

SCALE_S, SCALE_BYTE_S = 1e-4, 1e-10
"""Units of the unknowns: seconds per message or call, and seconds per byte."""


def errors(calls: Iterable[TimedCall], costs: GlooCosts = FREE) -> Floats:
    """Return the relative errors of the prediction, ``model / measured - 1``, ``(N,)``."""
    calls = list(calls)
    return _forms_s(calls, costs) / np.array([call.seconds for call in calls]) - 1


def fit_costs(calls: Sequence[TimedCall], rounds: int = 60) -> GlooCosts:
    """Return the software costs that fit these measurements best.

    Args:
        calls: measurements. Each collective needs several sizes, which separate the cost per byte from that per call.
        rounds: number of reweighted least-squares iterations.

    Raises:
        SpecError: no measurement, or a time that is not above 0.
    """
    if not calls:
        raise SpecError("measured", "nothing", "at least one measurement")
    check_times(calls)
    workers = sorted({call.workers for call in calls})
    kinds = sorted({call.kind for call in calls})
    measured_s = np.array([call.seconds for call in calls])
    linear = cost_columns(calls, workers, kinds)
    scale = np.array([SCALE_S] * (1 + len(workers)) + [SCALE_BYTE_S] * len(kinds))
    unknown = np.zeros(len(scale))
    for _ in range(rounds):
        bare_s, slope = _latencies(calls, unknown[0])
        misfit = 1 - (bare_s + linear @ unknown[1:]) / measured_s
        unknown = (
            _better(np.column_stack([slope, linear]) / measured_s[:, None] * scale, misfit, unknown / scale) * scale
        )
    message_s, *values = unknown.tolist()
    costs = costs_of(workers, kinds, values, message_s)
    bare_s, _ = _latencies(calls, message_s)
    for kind in kinds:
        costs = _with_calls(
            costs, kind, [(call, s) for call, s in zip(calls, bare_s, strict=True) if call.kind == kind], rounds
        )
    return costs


def _with_calls(costs: GlooCosts, kind: str, timed: Sequence[tuple[TimedCall, float]], rounds: int) -> GlooCosts:
    """Return costs with a fitted g per number of workers and e of one collective.

    Args:
        costs: costs of the first fit.
        kind: the collective.
        timed: measurements of the collective, each with its predicted seconds without g and e.
        rounds: number of reweighted least-squares iterations.
    """
    calls, measured_s = [call for call, _ in timed], np.array([call.seconds for call, _ in timed])
    bare_s = np.array([seconds for _, seconds in timed])
    workers = sorted({call.workers for call in calls})
    linear = cost_columns(calls, workers, [kind])
    scale = np.array([SCALE_S] * len(workers) + [SCALE_BYTE_S])
    unknown = np.array([float(costs.per_call(kind, count)) for count in workers] + [costs.per_byte(kind)])
    for _ in range(rounds):
        residuals = 1 - (bare_s + linear @ unknown) / measured_s
        unknown = _better(linear / measured_s[:, None] * scale, residuals, unknown / scale) * scale
    *call_s, byte_s = unknown.tolist()
    return replace(
        costs,
        call_of_s=(*costs.call_of_s, (kind, tuple(zip(workers, call_s, strict=True)))),
        byte_s=tuple((name, byte_s if name == kind else cost_s) for name, cost_s in costs.byte_s),
    )


def _better(matrix: Floats, residuals: Floats, unknown: Floats) -> Floats:
    """Return the unknowns, at least 0, after one weighted least-squares step; large residuals weigh less."""
    weight = 1 / np.sqrt(np.maximum(np.abs(residuals), NOISE))
    return non_negative(matrix * weight[:, None], (residuals + matrix @ unknown) * weight)


def _forms_s(calls: Sequence[TimedCall], costs: GlooCosts) -> Floats:
    """Return the seconds that the closed forms predict with these costs, ``(N,)``.

    Raises:
        SpecError: a measurement without a link.
    """
    seconds = []
    for call in calls:
        if call.link is None:
            raise SpecError("measured.link", None, "the link that it was measured on")
        seconds.append(float(gloo_s(call.kind, call.workers, call.nbytes, call.link, costs)))
    return np.array(seconds)


def _latencies(calls: Sequence[TimedCall], message_s: float) -> tuple[Floats, Floats]:
    """Return the predicted seconds at a cost per message, and their derivative by that cost, ``(N,)`` each."""
    step_s = 1e-6
    seconds = _forms_s(calls, GlooCosts(message_s))
    return seconds, (_forms_s(calls, GlooCosts(message_s + step_s)) - seconds) / step_s
