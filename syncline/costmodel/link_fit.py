"""Fits of gloo's software costs, and of a link's latency and bandwidth, to times of collectives and single messages.

**Software costs** (`fit_costs`), with latency and bandwidth as configured. The model is `gloo_s`:
``T(alpha + m) + g_P + e_kind N``, where T is the closed form on a link of latency alpha, and N the bytes of a worker's
largest tensor. One m (``GlooCosts.message_s``) holds for all messages, one g (``call_s``) for each number of workers P,
and one e (``byte_s``) for each collective. A second fit keeps m and gives each collective its own g for each P, because
above the largest measured P the collectives grow at different rates. The fit minimises the absolute values of the
relative residuals ``1 - model / measured`` by iteratively reweighted least squares, so that a few disturbed
measurements count little. All costs are at least 0.

**Latency, bandwidth and software costs** (`fit_link`) of an unknown network. The model is `gloo_s` for collectives, and
`gloo_message_s` for a message whose two ends start together:

    send:         2 alpha + n / B
    a collective: T(P, n; alpha, B) + g_P + e_kind N

with one latency alpha and one bandwidth B for all calls, one g for each number of workers P, and one e for each
collective but the broadcast. `syncline.costmodel.least_squares.relative_fit` fits all constants together and gives a
few disturbed measurements little weight.

Measurements cannot separate some costs. Latency and the software cost per message only appear as a sum, which this
module calls latency. With one number of workers, the costs per byte of the wire and of the software also appear only as
a sum. So the fit needs messages or broadcasts, which copy and add nothing: it attributes all their cost per byte to the
wire, which defines B. If latency and bandwidth are known, `fit_costs` fits the other costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.gloo import gloo_message_s, gloo_s
from syncline.costmodel.least_squares import Predict, non_negative, relative_fit
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.software_costs import FREE, GLOO, GlooCosts, tensor_bytes
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

SEND = "send"
"""Kind of a message from one worker to another."""


class TimedCall(NamedTuple):
    """A timed collective or message.

    Attributes:
        kind: one of ``COLLECTIVES``, or ``send``.
        nbytes: payload bytes, as in the closed form of the collective.
        seconds: time from the arrival of the last worker at the call to the last worker's end.
        link: link on which the call ran; None if unknown.
    """

    kind: str
    workers: int
    nbytes: float
    seconds: float
    link: Link | None = None


def check_times(calls: Sequence[TimedCall]) -> None:
    """Raise ``SpecError`` for a measurement whose time is not positive."""
    for call in calls:
        require(call.seconds > 0, "measured.seconds", call.seconds, "a time above 0")


def cost_columns(calls: Sequence[TimedCall], workers: Sequence[int], kinds: Sequence[str]) -> Floats:
    """Return the coefficients of software costs in the time of each of N calls, ``(N, W + K)``.

    The columns are the cost per call for each of W numbers of workers, then the cost per byte for each of K
    collectives. A message has no cost per call.
    """
    rows = []
    for call in calls:
        call_columns = [float(call.kind != SEND and call.workers == count) for count in workers]
        nbytes = float(tensor_bytes(call.kind, call.workers, call.nbytes))
        byte_columns = [nbytes if call.kind == kind else 0.0 for kind in kinds]
        rows.append(call_columns + byte_columns)
    return np.array(rows)


def gloo_costs(
    workers: Sequence[int], kinds: Sequence[str], values: Sequence[float], message_s: float = 0.0
) -> GlooCosts:
    """Return the software costs with fitted values, in the order of the columns of `cost_columns`.

    Args:
        workers: W numbers of workers.
        kinds: K collectives.
        values: ``(W + K,)``, seconds per call by number of workers, then seconds per byte by collective.
        message_s: seconds per message.
    """
    call_s = tuple(zip(workers, values[: len(workers)], strict=True))
    byte_s = tuple(zip(kinds, values[len(workers) :], strict=True))
    return GlooCosts(message_s, call_s, byte_s)


NOISE = 2e-3
"""Relative residuals below this are noise and have the same weight."""

ITERATIONS = 60
"""Number of iterations of reweighted least squares."""

TYPICAL_S, TYPICAL_BYTE_S = 1e-4, 1e-10
"""Typical costs of software: seconds per message or call, and seconds per byte.

`fit_costs` takes them as units of its unknowns, `fit_link` as initial values."""


def gloo_errors(calls: Iterable[TimedCall], costs: GlooCosts = FREE) -> Floats:
    """Return the relative error of gloo's closed form for each collective on its link, ``model / measured - 1``."""
    calls = list(calls)
    return _gloo_calls_s(calls, costs) / np.array([call.seconds for call in calls]) - 1


def fit_costs(calls: Sequence[TimedCall]) -> GlooCosts:
    """Return the software costs that fit these measurements of collectives best.

    Each collective needs measurements of several sizes, which separate the cost per byte from that per call.
    """
    if not calls:
        raise SpecError("measured", "nothing", "at least one measurement")
    check_times(calls)
    workers = sorted({call.workers for call in calls})
    kinds = sorted({call.kind for call in calls})
    measured_s = np.array([call.seconds for call in calls])
    columns = cost_columns(calls, workers, kinds)
    units = np.array([TYPICAL_S] * (1 + len(workers)) + [TYPICAL_BYTE_S] * len(kinds))
    unknowns = np.zeros(len(units))  # seconds per message, then the costs of `cost_columns`
    step_s = 1e-6  # step of a finite difference
    for _ in range(ITERATIONS):
        message_s = unknowns[0]
        links_s = _gloo_calls_s(calls, GlooCosts(message_s))  # without the costs of `cost_columns`
        slopes = (_gloo_calls_s(calls, GlooCosts(message_s + step_s)) - links_s) / step_s
        residuals = 1 - (links_s + columns @ unknowns[1:]) / measured_s
        unknowns = _reweighted_step(np.column_stack([slopes, columns]), measured_s, residuals, unknowns, units)
    message_s, *values = unknowns.tolist()
    costs = gloo_costs(workers, kinds, values, message_s)
    for kind in kinds:  # a second fit gives each collective its own seconds per call
        costs = _with_own_costs(costs, kind, [call for call in calls if call.kind == kind])
    return costs


def _with_own_costs(costs: GlooCosts, kind: str, calls: Sequence[TimedCall]) -> GlooCosts:
    """Return costs with the seconds per call and per byte of one collective fitted to its measurements alone.

    Args:
        costs: costs that were fitted to all collectives; their seconds per message stay.
    """
    measured_s = np.array([call.seconds for call in calls])
    links_s = _gloo_calls_s(calls, GlooCosts(costs.message_s))  # without the costs of `cost_columns`
    workers = sorted({call.workers for call in calls})
    columns = cost_columns(calls, workers, [kind])
    units = np.array([TYPICAL_S] * len(workers) + [TYPICAL_BYTE_S])
    start_call_s = [float(costs.seconds_per_call(kind, count)) for count in workers]
    unknowns = np.array([*start_call_s, costs.seconds_per_byte(kind)])
    for _ in range(ITERATIONS):
        residuals = 1 - (links_s + columns @ unknowns) / measured_s
        unknowns = _reweighted_step(columns, measured_s, residuals, unknowns, units)
    *call_s, byte_s = unknowns.tolist()
    calls_of_kind = kind, tuple(zip(workers, call_s, strict=True))
    per_byte = tuple((name, byte_s if name == kind else cost_s) for name, cost_s in costs.byte_s)
    return replace(costs, call_of_s=(*costs.call_of_s, calls_of_kind), byte_s=per_byte)


def _reweighted_step(slopes: Floats, measured_s: Floats, residuals: Floats, unknowns: Floats, units: Floats) -> Floats:
    """Return the unknowns, at least 0, after one weighted least-squares step; large residuals weigh less.

    Args:
        slopes: derivatives of the predicted seconds by the unknowns, ``(N, n)``.
        measured_s: measured seconds, ``(N,)``.
        residuals: ``1 - predicted / measured``, ``(N,)``.
        unknowns: unknowns so far, ``(n,)``.
        units: units in which the step solves for the unknowns, ``(n,)``.
    """
    matrix = slopes / measured_s[:, None] * units
    weights = 1 / np.sqrt(np.maximum(np.abs(residuals), NOISE))
    # The unknowns times the matrix are added, so that the solution is the new unknowns instead of their change.
    return non_negative(matrix * weights[:, None], (residuals + matrix @ (unknowns / units)) * weights) * units


def _gloo_calls_s(calls: Sequence[TimedCall], costs: GlooCosts) -> Floats:
    """Return the seconds that `gloo_s` predicts for each call with these software costs, ``(N,)``."""
    seconds = []
    for call in calls:
        if call.link is None:
            raise SpecError("measured.link", None, "the link that it was measured on")
        seconds.append(float(gloo_s(call.kind, call.workers, call.nbytes, call.link, costs)))
    return np.array(seconds)


WIRE_ONLY = (SEND, "broadcast")
"""Calls in which the software has no cost per byte."""

NEGLIGIBLE = 1e-3
"""Fraction of every measurement's time below which a fitted cost is set to 0."""

ERROR_SCALE = 0.03
"""Relative error above which a measurement counts less than its square, because a busy machine disturbs some."""


class LinkFit(NamedTuple):
    """A link and software costs that were fitted to measurements.

    Attributes:
        link: link with the fitted latency and bandwidth.
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
    """Return the seconds of a collective or of a message.

    The library ``textbook`` runs the default algorithm of each collective, and its senders do not wait until the
    receiver is ready. The other arguments are those of `gloo_s`.
    """
    if library != "gloo":
        return link.transfer_s(nbytes) if kind == SEND else collective_s(kind, workers, nbytes, link)
    return gloo_message_s(nbytes, link, costs) if kind == SEND else gloo_s(kind, workers, nbytes, link, costs)


def fit_link(calls: Sequence[TimedCall], link: Link | None = None, library: str = "gloo") -> LinkFit:
    """Return the link and the software costs that fit timed messages and collectives best.

    Args:
        calls: timed messages or broadcasts of several sizes, and other collectives of several sizes.
        link: link of known latency and bandwidth; then only software costs are fitted, including that per message.
        library: library that was measured: ``gloo``, or ``textbook`` for one without a model of its software, such
            as NCCL; then only latency and bandwidth are fitted.
    """
    for call in calls:
        if call.kind != SEND and call.kind not in GLOO:
            raise SpecError("measured.kind", call.kind, one_of((SEND, *GLOO), str(call.kind)))
    check_times(calls)
    if link is not None:
        collectives = [call._replace(link=link) for call in calls if call.kind != SEND]
        costs = fit_costs(collectives) if library == "gloo" else FREE
        return LinkFit(link, costs, _link_errors(calls, link, costs, library), spread={})
    # Only gloo has a model of its software, whose costs depend on the number of workers and on the collective.
    workers = sorted({call.workers for call in calls if call.kind != SEND and library == "gloo"})
    kinds = sorted({call.kind for call in calls if call.kind not in WIRE_ONLY and library == "gloo"})
    columns = cost_columns(calls, workers, kinds)
    cost_starts = [TYPICAL_S] * len(workers) + [TYPICAL_BYTE_S] * len(kinds)
    starts = [[*start, *cost_starts] for start in _link_starts(calls)]
    measured_s = np.array([call.seconds for call in calls])
    fit = relative_fit(_prediction_of(calls, columns, library), measured_s, starts, scale=ERROR_SCALE)

    # Software costs that decide no measurement's time are 0.
    latency_s, bandwidth, *fitted_costs_s = fit.constants.tolist()
    largest_fractions = (columns * np.array(fitted_costs_s) / measured_s[:, None]).max(axis=0, initial=0.0)
    costs_s = np.where(largest_fractions > NEGLIGIBLE, fitted_costs_s, 0.0).tolist()
    costs = gloo_costs(workers, kinds, costs_s)
    costs = replace(costs, byte_s=tuple((kind, seconds) for kind, seconds in costs.byte_s if seconds))

    names = ["latency", "bandwidth", *(f"call.{count}" for count in workers), *(f"byte.{kind}" for kind in kinds)]
    fitted_values = zip(names, [latency_s, bandwidth, *costs_s], fit.spread.tolist(), strict=True)
    spread = {name: error for name, value, error in fitted_values if value > 0}
    fitted_link = Link(latency_s, bandwidth)
    return LinkFit(fitted_link, costs, _link_errors(calls, fitted_link, costs, library), spread)


def _link_errors(calls: Sequence[TimedCall], link: Link, costs: GlooCosts, library: str) -> Floats:
    """Return the relative error of a fitted link for each timed call, ``predicted / measured - 1``."""
    seconds = [predicted_s(call.kind, call.workers, call.nbytes, link, costs, library) for call in calls]
    return np.array(seconds, dtype=float) / np.array([call.seconds for call in calls]) - 1


def _link_starts(calls: Sequence[TimedCall]) -> list[tuple[float, float]]:
    """Return initial pairs of latency and bandwidth, one from the messages, and one from the broadcasts."""
    starts = []
    for kind in WIRE_ONLY:
        seconds_by_size: dict[float, list[float]] = {}
        for call in calls:
            if call.kind == kind:
                seconds_by_size.setdefault(call.nbytes, []).append(call.seconds)
        if len(seconds_by_size) < 2:  # one size does not tell latency from bandwidth
            continue
        smallest, largest = min(seconds_by_size), max(seconds_by_size)
        smallest_s = float(np.median(seconds_by_size[smallest]))
        largest_s = float(np.median(seconds_by_size[largest]))
        if largest_s > smallest_s:
            # A message takes two latencies, and its bytes over the bandwidth.
            starts.append((smallest_s / 2, (largest - smallest) / (largest_s - smallest_s)))
    if not starts:
        expected = "messages ('send') or broadcasts of two sizes, of which the larger takes longer; "
        expected += "otherwise the bandwidth is unknown"
        raise SpecError("measured", ", ".join(sorted({call.kind for call in calls})) or "nothing", expected)
    return starts


def _prediction_of(calls: Sequence[TimedCall], columns: Floats, library: str) -> Predict:
    """Return the function that predicts the seconds of N calls from B sets of n constants, see `Predict`.

    The constants are latency, bandwidth, and the n - 2 costs whose ``columns`` `cost_columns` returns for the calls.
    """
    kinds = np.array([call.kind for call in calls])
    workers = np.array([call.workers for call in calls])
    nbytes = np.array([call.nbytes for call in calls], dtype=float)
    rows_by_kind = {str(kind): np.flatnonzero(kinds == kind) for kind in np.unique(kinds)}

    def predict(constants: Floats) -> Floats:
        link = Link(latency_s=constants[0], bandwidth_bytes_per_s=constants[1])
        software_costs = constants[2:, ..., 0].T  # (B, n - 2); the constants are (n, B, 1)
        seconds = np.tensordot(software_costs, columns.T, 1)
        for kind, rows in rows_by_kind.items():  # the closed forms without software costs
            seconds[:, rows] += predicted_s(kind, workers[rows], nbytes=nbytes[rows], link=link, library=library)
        return seconds

    return predict
