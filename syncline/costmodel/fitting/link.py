"""Latency, bandwidth and software costs of an unknown network, from times of collectives and of single messages.

The model is `gloo_s` for collectives and `gloo_message_s` for a message that both ends come to together:

    send:         2 alpha + n / B
    a collective: T(P, n; alpha, B) + g_P + e_kind N

one alpha and one B for all, one g for each number of workers, one e for each collective but the broadcast. All are at
least 0 and found together by `syncline.costmodel.fitting.least_squares.relative_fit`, in whose sense a few disturbed
measurements count little.

What cannot be told apart: latency and what the software takes per message are one sum, all of which is called latency
here. And with one number of workers bytes on the wire and in the software are one sum, too. So those of messages and
broadcasts, which copy and add nothing, are all the wire's; that is what B means here, and there have to be such. With a
latency and a bandwidth that are given, `fit_costs` finds the rest.
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
"""What costs nothing per byte beside the wire."""

START_CALL_S, START_BYTE_S = 1e-4, 1e-10
"""Where costs start from."""

NOTHING = 1e-3
"""A cost whose largest share of any of its measurements is below this is none."""

SCALE = 0.03
"""Relative errors above this count less than squared: what a busy machine disturbs."""


class LinkFit(NamedTuple):
    """A link as measurements tell it.

    Attributes:
        link: alpha and B.
        costs: of the software.
        errors: ``predicted / measured - 1`` of each measurement.
        spread: relative standard error of each constant that was fitted, by name; large where it is not told.
    """

    link: Link
    costs: GlooCosts
    errors: Floats
    spread: dict[str, float]


def predicted_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: GlooCosts = FREE, runs: str = "gloo"
) -> FloatOrArray:
    """Seconds of a collective or of a message.

    Args:
        kind: one of ``COLLECTIVES``, or ``send``.
        workers: P; it, n and the fields of the link broadcast.
        nbytes: n.
        link: each worker's.
        costs: of gloo's software.
        runs: ``gloo``, or ``textbook``: each collective's first algorithm, and messages that wait for nobody.
    """
    if runs == "gloo":
        return gloo_message_s(nbytes, link, costs) if kind == SEND else gloo_s(kind, workers, nbytes, link, costs)
    return link.transfer_s(nbytes) if kind == SEND else collective_s(kind, workers, nbytes, link)


def fit_link(of: Sequence[TimedCall], link: Link | None = None, runs: str = "gloo") -> LinkFit:
    """The link and the software costs that these measurements tell.

    Args:
        of: messages or broadcasts of several sizes, and other collectives of several sizes.
        link: held as it is, where alpha and B are known; then costs alone are learned, per message as well.
        runs: what was measured: ``gloo``, or ``textbook`` for what has no notices and costs that are not known (NCCL):
            then latency and bandwidth alone are fitted.

    Raises:
        SpecError: no messages and no broadcasts, sizes that tell no bandwidth, or a time of 0.
    """
    for one in of:
        if one.kind != SEND and one.kind not in GLOO:
            raise SpecError("measured.kind", one.kind, one_of((SEND, *GLOO), str(one.kind)))
    check_times(of)
    if link is not None:
        taught = [one._replace(link=link) for one in of if one.kind != SEND]
        costs = fit_costs(taught) if runs == "gloo" else FREE
        return LinkFit(link, costs, _errors(of, link, costs, runs), {})
    workers = sorted({one.workers for one in of if one.kind != SEND}) if runs == "gloo" else []
    kinds = sorted({one.kind for one in of} - set(BARE)) if runs == "gloo" else []
    linear = cost_columns(of, workers, kinds)
    rest = [START_CALL_S] * len(workers) + [START_BYTE_S] * len(kinds)
    starts = [[*start, *rest] for start in _starts(of)]
    measured_s = np.array([one.seconds for one in of])
    found = relative_fit(_model(of, linear, runs), measured_s, starts, scale=SCALE)
    alpha, rate, *costs_s = found.constants.tolist()
    weighs = (linear * np.array(costs_s) / measured_s[:, None]).max(axis=0, initial=0.0)
    values = np.where(weighs > NOTHING, costs_s, 0.0).tolist()
    costs = costs_of(workers, kinds, values)
    costs = replace(costs, byte_s=tuple(of_kind for of_kind in costs.byte_s if of_kind[1]))
    names = ["latency", "bandwidth", *(f"call.{p}" for p in workers), *(f"byte.{kind}" for kind in kinds)]
    told = [True, True, *(value > 0 for value in values)]
    spread = {name: float(s) for name, s, kept in zip(names, found.spread, told, strict=True) if kept}
    fitted = Link(alpha, rate)
    return LinkFit(fitted, costs, _errors(of, fitted, costs, runs), spread)


def _errors(of: Sequence[TimedCall], link: Link, costs: GlooCosts, runs: str) -> Floats:
    return np.array([
        float(predicted_s(one.kind, one.workers, one.nbytes, link, costs, runs)) / one.seconds - 1 for one in of
    ])  # fmt: skip


def _starts(of: Sequence[TimedCall]) -> list[tuple[float, float]]:
    """Latencies and bandwidths to start from: of the smallest and largest messages, and broadcasts."""
    starts = []
    for kind in BARE:
        bare = [one for one in of if one.kind == kind]
        least, most = (f((one.nbytes for one in bare), default=0.0) for f in (min, max))
        least_s, most_s = (
            float(np.median([one.seconds for one in bare if one.nbytes == n] or [0])) for n in (least, most)
        )
        if most > least and most_s > least_s:
            starts.append((least_s / 2, (most - least) / (most_s - least_s)))
    if not starts:
        expected = "messages ('send') or broadcasts of two sizes, larger ones longer: nothing else tells the bandwidth"
        raise SpecError("measured", ", ".join(sorted({one.kind for one in of})) or "nothing", expected)
    return starts


def _model(of: Sequence[TimedCall], linear: Floats, runs: str) -> Callable[[Floats], Floats]:
    """From constants ``(n, B, 1)`` to predictions ``(B, N)``: collectives of one kind at once."""
    kinds = np.array([one.kind for one in of])
    workers, nbytes = np.array([one.workers for one in of]), np.array([one.nbytes for one in of], dtype=float)
    groups = [(str(kind), np.flatnonzero(kinds == kind)) for kind in np.unique(kinds)]

    def predict(constants: Floats) -> Floats:
        link = Link(constants[0], constants[1])
        seconds = np.tensordot(constants[2:, ..., 0].T, linear.T, 1)
        for kind, rows in groups:
            seconds[:, rows] += predicted_s(kind, workers[rows], nbytes[rows], link, runs=runs)
        return seconds

    return predict
