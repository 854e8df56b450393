"""Timed collectives and messages, and the coefficients of gloo's software costs in their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.gloo_costs import GlooCosts, tensor_bytes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError

SEND = "send"
"""Kind of a message from one worker to another."""


class TimedCall(NamedTuple):
    """A timed collective or message.

    Attributes:
        kind: one of ``COLLECTIVES``, or ``send``.
        workers: number of workers.
        nbytes: payload bytes, as in the closed form of the collective.
        seconds: time from the arrival of the last worker to the end of the last worker.
        link: configured link; None if unknown.
    """

    kind: str
    workers: int
    nbytes: float
    seconds: float
    link: Link | None = None


def check_times(calls: Sequence[TimedCall]) -> None:
    """Refuse measurements whose time is not positive.

    Raises:
        SpecError: a time that is not above 0.
    """
    for call in calls:
        if not call.seconds > 0:
            raise SpecError("measured.seconds", call.seconds, "a time above 0")


def cost_columns(calls: Sequence[TimedCall], workers: Sequence[int], kinds: Sequence[str]) -> Floats:
    """Return the coefficients of each cost per call, by workers, then per byte, by kind, in the time of each call."""
    rows = []
    for call in calls:
        per_call = [float(call.kind != SEND and call.workers == count) for count in workers]
        nbytes = float(tensor_bytes(call.kind, call.workers, call.nbytes))
        rows.append([*per_call, *(nbytes * (call.kind == kind) for kind in kinds)])
    return np.array(rows)


def costs_of(
    workers: Sequence[int], kinds: Sequence[str], values: Sequence[float], message_s: float = 0.0
) -> GlooCosts:
    """Return the software costs from the unknowns of `cost_columns`: seconds per call, then seconds per byte."""
    return GlooCosts(
        message_s, tuple(zip(workers, values, strict=False)), tuple(zip(kinds, values[len(workers) :], strict=True))
    )
