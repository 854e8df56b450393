"""A fit of gloo's software costs to measurements, with latency and bandwidth as configured.

The model is `gloo_s`: ``T(alpha + m) + g_P + e_kind N``, where T is the closed form on a link of latency alpha, and N
the bytes of a worker's largest tensor. One m (``GlooCosts.message_s``) holds for all messages, one g (``call_s``) for
each number of workers P, and one e (``byte_s``) for each collective. A second fit keeps m and gives each collective its
own g for each P, because above the largest measured P the collectives grow at different rates. The fit minimises the
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
    """Return the relative error of the prediction for each call, ``model / measured - 1``."""
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
        form_s, slope = _forms_and_slopes(calls, unknown[0])
        residuals = 1 - (form_s + linear @ unknown[1:]) / measured_s
        matrix = np.column_stack([slope, linear]) / measured_s[:, None] * scale
        unknown = _reweighted_step(matrix, residuals, unknown / scale) * scale
    message_s, *values = unknown.tolist()
    costs = costs_of(workers, kinds, values, message_s)
    for kind in kinds:
        costs = _with_own_calls(costs, kind, [call for call in calls if call.kind == kind], rounds)
    return costs


def _with_own_calls(costs: GlooCosts, kind: str, calls: Sequence[TimedCall], rounds: int) -> GlooCosts:
    """Return costs with one collective's own seconds per call, by number of workers, and per byte.

    Args:
        costs: costs of the first fit.
        kind: the collective.
        calls: measurements of the collective.
        rounds: number of reweighted least-squares iterations.
    """
    measured_s = np.array([call.seconds for call in calls])
    form_s = _forms_s(calls, GlooCosts(costs.message_s))
    workers = sorted({call.workers for call in calls})
    linear = cost_columns(calls, workers, [kind])
    scale = np.array([SCALE_S] * len(workers) + [SCALE_BYTE_S])
    unknown = np.array([float(costs.per_call(kind, count)) for count in workers] + [costs.per_byte(kind)])
    for _ in range(rounds):
        residuals = 1 - (form_s + linear @ unknown) / measured_s
        unknown = _reweighted_step(linear / measured_s[:, None] * scale, residuals, unknown / scale) * scale
    *call_s, byte_s = unknown.tolist()
    return replace(
        costs,
        call_of_s=(*costs.call_of_s, (kind, tuple(zip(workers, call_s, strict=True)))),
        byte_s=tuple((name, byte_s if name == kind else cost_s) for name, cost_s in costs.byte_s),
    )


def _reweighted_step(matrix: Floats, residuals: Floats, unknown: Floats) -> Floats:
    """Return the unknowns, at least 0, after one weighted least-squares step; large residuals weigh less."""
    weight = 1 / np.sqrt(np.maximum(np.abs(residuals), NOISE))
    return non_negative(matrix * weight[:, None], (residuals + matrix @ unknown) * weight)


def _forms_s(calls: Sequence[TimedCall], costs: GlooCosts) -> Floats:
    """Return the seconds that `gloo_s` predicts for each call.

    Raises:
        SpecError: a measurement without a link.
    """
    seconds = []
    for call in calls:
        if call.link is None:
            raise SpecError("measured.link", None, "the link that it was measured on")
        seconds.append(float(gloo_s(call.kind, call.workers, call.nbytes, call.link, costs)))
    return np.array(seconds)


def _forms_and_slopes(calls: Sequence[TimedCall], message_s: float) -> tuple[Floats, Floats]:
    """Return the predicted seconds of each call with only a cost per message, and their derivatives by this cost."""
    step_s = 1e-6
    seconds = _forms_s(calls, GlooCosts(message_s))
    return seconds, (_forms_s(calls, GlooCosts(message_s + step_s)) - seconds) / step_s
