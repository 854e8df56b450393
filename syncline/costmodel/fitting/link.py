"""A fit of an unknown network's latency, bandwidth and software costs to times of collectives and single messages.

The model is `gloo_s` for collectives, and `gloo_message_s` for a message whose two ends start together:

    send:         2 alpha + n / B
    a collective: T(P, n; alpha, B) + g_P + e_kind N

with one latency alpha and one bandwidth B for all calls, one g for each number of workers P, and one e for each
collective but the broadcast; N is the bytes of a worker's largest tensor. All constants are at least 0.
`syncline.costmodel.fitting.least_squares.relative_fit` fits all constants together and gives a few disturbed
measurements little weight.

Measurements cannot separate some costs. Latency and the software cost per message only appear as a sum, which this
module calls latency. With one number of workers, the costs per byte of the wire and of the software also appear only as
a sum. So the fit needs messages or broadcasts, which copy and add nothing: it attributes all their cost per byte to the
wire, which defines B. If latency and bandwidth are known, `fit_costs` fits the other costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.gloo.times import FREE, GLOO, GlooCosts, gloo_message_s, gloo_s
from syncline.costmodel.fitting.gloo import fit_costs
from syncline.costmodel.fitting.least_squares import relative_fit
from syncline.costmodel.fitting.timed import SEND, TimedCall, check_times, cost_columns, costs_of
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.errors import SpecError, one_of

BARE = (SEND, "broadcast")
"""Calls whose only cost per byte is the wire."""

START_CALL_S, START_BYTE_S = 1e-4, 1e-10
"""Initial values of software costs in the fit: seconds per call and per byte."""

NEGLIGIBLE = 1e-3
"""Part of every measurement's time below which a fitted cost is set to 0."""

SCALE = 0.03
"""Relative error above which a measurement counts less than its square, because a busy machine disturbs some."""


class LinkFit(NamedTuple):
    """A link and software costs that were fitted to measurements.

    Attributes:
        link: link with alpha and B.
        costs: costs of gloo's software.
        errors: ``predicted / measured - 1`` of each measurement.
        spread: relative standard error of each fitted constant, by name; large if the measurements do not determine it.
    """

    link: Link
    costs: GlooCosts
    errors: Floats
    spread: dict[str, float]


def predicted_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: GlooCosts = FREE, library: str = "gloo"
) -> FloatOrArray:
    """Return the seconds of a collective or of a message; the arguments are those of `gloo_s`.

    The library is ``gloo``, or ``textbook`` for each collective's first algorithm and messages without a handshake.
    """
    if library == "gloo":
        return gloo_message_s(nbytes, link, costs) if kind == SEND else gloo_s(kind, workers, nbytes, link, costs)
    return link.transfer_s(nbytes) if kind == SEND else collective_s(kind, workers, nbytes, link)


def fit_link(calls: Sequence[TimedCall], link: Link | None = None, library: str = "gloo") -> LinkFit:
    """Return the link and the software costs that fit these measurements best.

    Args:
        calls: timed messages or broadcasts of several sizes, and other collectives of several sizes.
        link: link with known alpha and B, which stay fixed; then only software costs are fitted, also that per message.
        library: library that was measured: ``gloo``, or ``textbook`` for one without a model of its software, such
            as NCCL; then only latency and bandwidth are fitted.

    Raises:
        SpecError: no messages and no broadcasts, sizes that do not determine a bandwidth, or a time of 0.
    """
    for call in calls:
        if call.kind != SEND and call.kind not in GLOO:
            raise SpecError("measured.kind", call.kind, one_of((SEND, *GLOO), str(call.kind)))
    check_times(calls)
    if link is not None:
        collectives = [call._replace(link=link) for call in calls if call.kind != SEND]
        costs = fit_costs(collectives) if library == "gloo" else FREE
        return LinkFit(link, costs, _errors(calls, link, costs, library), {})
    workers = sorted({call.workers for call in calls if call.kind != SEND}) if library == "gloo" else []
    kinds = sorted({call.kind for call in calls} - set(BARE)) if library == "gloo" else []
    linear = cost_columns(calls, workers, kinds)
    cost_starts = [START_CALL_S] * len(workers) + [START_BYTE_S] * len(kinds)
    starts = [[*start, *cost_starts] for start in _starts(calls)]
    measured_s = np.array([call.seconds for call in calls])
    fit = relative_fit(_model(calls, linear, library), measured_s, starts, scale=SCALE)
    latency_s, bandwidth, *costs_s = fit.constants.tolist()
    largest_parts = (linear * np.array(costs_s) / measured_s[:, None]).max(axis=0, initial=0.0)
    values = np.where(largest_parts > NEGLIGIBLE, costs_s, 0.0).tolist()
    costs = costs_of(workers, kinds, values)
    costs = replace(costs, byte_s=tuple((kind, seconds) for kind, seconds in costs.byte_s if seconds))
    names = ["latency", "bandwidth", *(f"call.{count}" for count in workers), *(f"byte.{kind}" for kind in kinds)]
    is_fitted = [True, True, *(value > 0 for value in values)]
    spread = {name: float(value) for name, value, used in zip(names, fit.spread, is_fitted, strict=True) if used}
    fitted_link = Link(latency_s, bandwidth)
    return LinkFit(fitted_link, costs, _errors(calls, fitted_link, costs, library), spread)


def _errors(calls: Sequence[TimedCall], link: Link, costs: GlooCosts, library: str) -> Floats:
    """Return ``predicted / measured - 1`` of each call."""
    predictions_s = (predicted_s(call.kind, call.workers, call.nbytes, link, costs, library) for call in calls)
    return np.array([float(seconds) / call.seconds - 1 for seconds, call in zip(predictions_s, calls, strict=True)])


def _starts(calls: Sequence[TimedCall]) -> list[tuple[float, float]]:
    """Return initial (latency, bandwidth) pairs, from the smallest and largest messages and from broadcasts."""
    starts = []
    for kind in BARE:
        seconds_by_size: dict[float, list[float]] = {}
        for call in calls:
            if call.kind == kind:
                seconds_by_size.setdefault(call.nbytes, []).append(call.seconds)
        smallest, largest = min(seconds_by_size, default=0.0), max(seconds_by_size, default=0.0)
        smallest_s, largest_s = (float(np.median(seconds_by_size.get(size, [0]))) for size in (smallest, largest))
        if largest > smallest and largest_s > smallest_s:
            starts.append((smallest_s / 2, (largest - smallest) / (largest_s - smallest_s)))
    if not starts:
        expected = "messages ('send') or broadcasts of two sizes, larger ones longer: nothing else tells the bandwidth"
        raise SpecError("measured", ", ".join(sorted({call.kind for call in calls})) or "nothing", expected)
    return starts


def _model(calls: Sequence[TimedCall], linear: Floats, library: str) -> Callable[[Floats], Floats]:
    """Return the function from B sets of n constants, ``(n, B, 1)``, to the seconds of N calls, ``(B, N)``."""
    kinds = np.array([call.kind for call in calls])
    workers, nbytes = np.array([call.workers for call in calls]), np.array([call.nbytes for call in calls], dtype=float)
    groups = [(str(kind), np.flatnonzero(kinds == kind)) for kind in np.unique(kinds)]

    def predict(constants: Floats) -> Floats:
        link = Link(constants[0], constants[1])
        seconds = np.tensordot(constants[2:, ..., 0].T, linear.T, 1)
        for kind, rows in groups:
            seconds[:, rows] += predicted_s(kind, workers[rows], nbytes[rows], link, library=library)
        return seconds

    return predict
