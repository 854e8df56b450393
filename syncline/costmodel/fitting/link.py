"""A fit of an unknown network's latency, bandwidth and software costs to times of collectives and single messages.

The model is `gloo_s` for collectives, and `gloo_message_s` for a message whose two ends start together:

    send:         2 alpha + n / B
    a collective: T(P, n; alpha, B) + g_P + e_kind N

with one alpha and one B for all calls, one g for each number of workers, and one e for each collective but the
broadcast. All are at least 0. `syncline.costmodel.fitting.least_squares.relative_fit` fits them together and gives a
few disturbed measurements little weight.

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

NOTHING = 1e-3
"""Share of every measurement's time below which a fitted cost is set to 0."""

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
    """Return the seconds of a collective or of a message.

    Args:
        kind: one of ``COLLECTIVES``, or ``send``.
        workers: P; broadcasts with n and the fields of the link.
        nbytes: n, payload bytes.
        link: each worker's link.
        costs: costs of gloo's software.
        library: ``gloo``, or ``textbook`` for each collective's first algorithm and messages without a handshake.
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
    rest = [START_CALL_S] * len(workers) + [START_BYTE_S] * len(kinds)
    starts = [[*start, *rest] for start in _starts(calls)]
    measured_s = np.array([call.seconds for call in calls])
    fit = relative_fit(_model(calls, linear, library), measured_s, starts, scale=SCALE)
    alpha, rate, *costs_s = fit.constants.tolist()
    shares = (linear * np.array(costs_s) / measured_s[:, None]).max(axis=0, initial=0.0)
    values = np.where(shares > NOTHING, costs_s, 0.0).tolist()
    costs = costs_of(workers, kinds, values)
    costs = replace(costs, byte_s=tuple(entry for entry in costs.byte_s if entry[1]))
    names = ["latency", "bandwidth", *(f"call.{p}" for p in workers), *(f"byte.{kind}" for kind in kinds)]
    is_used = [True, True, *(value > 0 for value in values)]
    spread = {name: float(s) for name, s, used in zip(names, fit.spread, is_used, strict=True) if used}
    fitted = Link(alpha, rate)
    return LinkFit(fitted, costs, _errors(calls, fitted, costs, library), spread)


def _errors(calls: Sequence[TimedCall], link: Link, costs: GlooCosts, runs: str) -> Floats:
    return np.array([
        float(predicted_s(call.kind, call.workers, call.nbytes, link, costs, runs)) / call.seconds - 1 for call in calls
    ])  # fmt: skip


def _starts(calls: Sequence[TimedCall]) -> list[tuple[float, float]]:
    """Return initial (latency, bandwidth) pairs from the smallest and largest messages, and broadcasts."""
    starts = []
    for kind in BARE:
        bare = [call for call in calls if call.kind == kind]
        smallest, largest = (pick((call.nbytes for call in bare), default=0.0) for pick in (min, max))
        smallest_s, largest_s = (
            float(np.median([call.seconds for call in bare if call.nbytes == n] or [0])) for n in (smallest, largest)
        )
        if largest > smallest and largest_s > smallest_s:
            starts.append((smallest_s / 2, (largest - smallest) / (largest_s - smallest_s)))
    if not starts:
        expected = "messages ('send') or broadcasts of two sizes, larger ones longer: nothing else tells the bandwidth"
        raise SpecError("measured", ", ".join(sorted({call.kind for call in calls})) or "nothing", expected)
    return starts


def _model(calls: Sequence[TimedCall], linear: Floats, runs: str) -> Callable[[Floats], Floats]:
    """Return the function from constants, ``(n, B, 1)``, to predictions, ``(B, N)``, which groups calls by kind."""
    kinds = np.array([call.kind for call in calls])
    workers, nbytes = np.array([call.workers for call in calls]), np.array([call.nbytes for call in calls], dtype=float)
    groups = [(str(kind), np.flatnonzero(kinds == kind)) for kind in np.unique(kinds)]

    def predict(constants: Floats) -> Floats:
        link = Link(constants[0], constants[1])
        seconds = np.tensordot(constants[2:, ..., 0].T, linear.T, 1)
        for kind, rows in groups:
            seconds[:, rows] += predicted_s(kind, workers[rows], nbytes[rows], link, library=runs)
        return seconds

    return predict
