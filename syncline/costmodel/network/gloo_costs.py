"""Software costs of gloo on top of the link: seconds per message, per call and per byte.

Costs belong to a machine and its libraries. A `Link` can carry the costs (``Link.gloo``): then every estimate of a
collective on this link includes the costs, and uses gloo's algorithms unless the user names an algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

GLOO = {
    "all_reduce": "gloo-ring",
    "all_gather": "gloo-ring",
    "reduce_scatter": "gloo-all-reduce",
    "all_to_all": "gloo-posted",
    "broadcast": "gloo-tree",
    "gather": "gloo-posted",
    "reduce": "gloo-reduce",
}
"""The algorithm that gloo runs for each collective, at every size."""


Calls: TypeAlias = tuple[tuple[int, float], ...]
"""Costs of a call, as pairs of a number of workers and seconds."""


def connections(kind: str, workers: IntOrArray) -> FloatOrArray:
    """Return c, the number of peers of the busiest of P workers in a collective.

    c is P - 1 if messages are posted to all or have one root, ceil(log2 P) at the root of a tree, 2 in a ring (1 if
    P = 2).
    """
    if GLOO[kind] in ("gloo-posted", "gloo-reduce"):
        return np.subtract(workers, 1.0)
    if GLOO[kind] == "gloo-tree":
        return np.ceil(np.log2(np.maximum(workers, 1)))
    return np.minimum(2.0, np.subtract(workers, 1.0))


@dataclass(frozen=True)
class GlooCosts:
    """Software costs of gloo in seconds; each is 0 by default.

    A collective of P workers takes ``T(alpha (1 + latency_part) + message_s) + call_s(P) + byte_s N``. Here T(alpha) is
    the closed form on a link of latency alpha, and N the bytes of the largest tensor on a worker, see `tensor_bytes`.

    The cost of a call is measured at some numbers of workers P_1 < ... < P_k. Between them it is linear in P. Below
    the first it is constant. Beyond the last it grows with c(P), the connections of the busiest worker, at the slope of
    the last interval, and does not fall:

        call_s(P) = call_s(P_k) + max(0, slope) (c(P) - c(P_k)),   slope between P_(k - 1) and P_k

    Args:
        message_s: seconds per message and per notice, on top of the latency.
        call_s: seconds per call, as pairs of a number of workers and seconds, by increasing P.
        byte_s: seconds per byte of N, as pairs of a collective and seconds; collectives without a pair cost nothing.
        call_of_s: seconds per call of single collectives, as pairs of a collective and its own ``call_s``.
        latency_part: additional wait of messages and notices, as a part of the link's latency.
        connection: the TCP connection that gloo has to each peer; its rate limits rings, the messages of trees and the
            chunks of a reduce, whose windows open. None: a connection carries as much as the link.

    Raises:
        SpecError: a negative time, an unknown collective, or numbers of workers that do not increase.
    """

    message_s: FloatOrArray = 0.0
    call_s: Calls = ()
    byte_s: tuple[tuple[str, float], ...] = ()
    call_of_s: tuple[tuple[str, Calls], ...] = ()
    latency_part: FloatOrArray = 0.0
    connection: Tcp | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("message_s", self.message_s), *self.byte_s):
            require(np.isfinite(seconds) & np.greater_equal(seconds, 0), f"gloo.{name}", seconds, "seconds, at least 0")
        part = self.latency_part
        require(np.isfinite(part) & np.greater_equal(part, 0), "gloo.latency_part", part, "a part, at least 0")
        for field, costs in (("byte_s", self.byte_s), ("call_of_s", self.call_of_s)):
            for kind, _ in costs:
                if kind not in GLOO:
                    raise SpecError(f"gloo.{field}", kind, one_of(GLOO, kind))
        calls_by_field = {"call_s": self.call_s} | {f"call_of_s.{kind}": calls for kind, calls in self.call_of_s}
        for field, calls in calls_by_field.items():
            for count, seconds in calls:
                require(np.isfinite(seconds) & (seconds >= 0), f"gloo.{field}.{count}", seconds, "seconds, at least 0")
            workers = [count for count, _ in calls]
            if workers != sorted(set(workers)):
                raise SpecError(f"gloo.{field}", workers, "numbers of workers that increase")

    def per_call(self, kind: str, workers: IntOrArray) -> FloatOrArray:
        """Return ``call_s(P)``, the seconds per call of a collective."""
        calls = dict(self.call_of_s).get(kind, self.call_s)
        if not calls:
            return 0.0
        measured_workers, seconds = np.array(calls).T
        largest = measured_workers[-1]
        interpolated_s = np.interp(workers, measured_workers, seconds)
        if len(calls) == 1 or not np.any(np.greater(workers, largest)):
            return interpolated_s
        before, last = np.asarray(connections(kind, measured_workers[-2:])).tolist()
        slope_s = max(0.0, (seconds[-1] - seconds[-2]) / (last - before)) if last > before else 0.0
        return interpolated_s + slope_s * np.maximum(0.0, connections(kind, np.maximum(workers, largest)) - last)

    def per_byte(self, kind: str) -> float:
        """Return the seconds per byte of a collective."""
        return dict(self.byte_s).get(kind, 0.0)

    def software_s(self, kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
        """Return the seconds of a call on top of its messages: ``call_s(P) + byte_s N``."""
        return self.per_call(kind, workers) + self.per_byte(kind) * tensor_bytes(kind, workers, nbytes)


FREE = GlooCosts()
"""No software costs."""

SHAPED = GlooCosts(
    message_s=0.114e-3,
    call_s=((2, 0.20e-3), (4, 0.49e-3)),
    byte_s=(
        ("all_reduce", 0.04e-9),
        ("reduce_scatter", 0.44e-9),
        ("all_gather", 0.34e-9),
        ("all_to_all", 0.10e-9),
        ("broadcast", 0.02e-9),
    ),
    call_of_s=(
        ("all_reduce", ((2, 0.15e-3), (4, 0.68e-3))),
        ("reduce_scatter", ((2, 0.20e-3), (4, 0.51e-3))),
        ("all_gather", ((2, 0.23e-3), (4, 0.50e-3))),
        ("all_to_all", ((2, 0.23e-3), (4, 0.50e-3))),
        ("broadcast", ((2, 0.15e-3), (4, 0.28e-3))),
    ),
)
"""Costs of torch 2.13 on two shared x86-64 cores, 2 and 4 processes between network namespaces.

Source: `syncline.costmodel.fitting.gloo` on measurements at 1 Gbit/s and 1 ms, see docs/validation.md.
"""


def tensor_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return N, the bytes of a worker's largest tensor in a collective: P n for a gather or all-gather, else n."""
    return nbytes * workers if kind in ("all_gather", "gather") else nbytes
