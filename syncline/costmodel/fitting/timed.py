"""Collectives and messages that were timed, and what each cost of gloo's software is multiplied by in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.gloo_costs import GlooCosts, tensor_bytes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError

SEND = "send"
"""A message from one worker to another, beside the collectives."""


class TimedCall(NamedTuple):
    """A collective, or a message, that was timed.

    Attributes:
        kind: one of ``COLLECTIVES``, or ``send``.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.
        seconds: from when all have come to it until the last worker is through.
        link: as configured, where that is known.
    """

    kind: str
    workers: int
    nbytes: float
    seconds: float
    link: Link | None = None


def check_times(of: Sequence[TimedCall]) -> None:
    """Refuse what took no time.

    Raises:
        SpecError: a time that is not above 0.
    """
    for one in of:
        if not one.seconds > 0:
            raise SpecError("measured.seconds", one.seconds, "a time above 0")


def cost_columns(of: Sequence[TimedCall], workers: Sequence[int], kinds: Sequence[str]) -> Floats:
    """What each cost per call, by P, and per byte, by collective, is multiplied by, ``(N, costs)``."""
    return np.array([
        [
            *(float(one.kind != SEND and one.workers == p) for p in workers),
            *(float(tensor_bytes(one.kind, one.workers, one.nbytes)) * (one.kind == kind) for kind in kinds),
        ]
        for one in of
    ])  # fmt: skip


def costs_of(
    workers: Sequence[int], kinds: Sequence[str], values: Sequence[float], message_s: float = 0.0
) -> GlooCosts:
    """The software's costs from the columns' constants."""
    return GlooCosts(
        message_s,
        tuple(zip(workers, values, strict=False)),
        tuple(zip(kinds, values[len(workers) :], strict=True)),
    )
