"""What gloo's software takes, beside the link: a time per message, one per call, one per byte.

Costs belong to a machine and its libraries. A `Link` can carry them (``Link.gloo``): then whatever times collectives on
it takes them without being told, and gloo's algorithms where none is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

GLOO = {
    "all_reduce": "gloo-ring",
    "all_gather": "gloo-ring",
    "reduce_scatter": "gloo-all-reduce",
    "all_to_all": "gloo-posted",
    "broadcast": "gloo-tree",
    "gather": "gloo-posted",
}
"""What gloo runs for each collective, whatever the size."""


@dataclass(frozen=True)
class GlooCosts:
    """What the software takes, in seconds; it costs nothing unless said otherwise.

    A collective takes ``T(alpha + message_s) + call_s(P) + byte_s N`` with T the form on the bare link, and N the bytes
    of its largest tensor on a worker: n, or P n of what gathers.

    Args:
        message_s: per message and per notice, on top of the latency.
        call_s: per call, as pairs of a number of workers and seconds, by increasing P; in between by straight lines.
        byte_s: per byte of N, as pairs of a collective and seconds; what is not named costs nothing.

    Raises:
        SpecError: a negative time, an unknown collective, or numbers of workers that do not increase.
    """

    message_s: float = 0.0
    call_s: tuple[tuple[int, float], ...] = ()
    byte_s: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, seconds in (("message_s", self.message_s), *self.call_s, *self.byte_s):
            require(np.isfinite(seconds) & (seconds >= 0), f"gloo.{name}", seconds, "seconds, at least 0")
        for kind, _ in self.byte_s:
            if kind not in GLOO:
                raise SpecError("gloo.byte_s", kind, one_of(GLOO, kind))
        workers = [count for count, _ in self.call_s]
        if workers != sorted(set(workers)):
            raise SpecError("gloo.call_s", workers, "numbers of workers that increase")

    def per_call(self, workers: IntOrArray) -> FloatOrArray:
        """Seconds per call among so many workers."""
        if not self.call_s:
            return 0.0
        known, seconds = np.array(self.call_s).T
        return np.interp(workers, known, seconds)

    def per_byte(self, kind: str) -> float:
        """Seconds per byte of a collective."""
        return dict(self.byte_s).get(kind, 0.0)

    def beside_s(self, kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
        """What a call takes beside its messages: ``call_s(P) + byte_s N``."""
        return self.per_call(workers) + self.per_byte(kind) * tensor_bytes(kind, workers, nbytes)


FREE = GlooCosts()

SHAPED = GlooCosts(
    message_s=0.115e-3,
    call_s=((2, 0.20e-3), (4, 0.49e-3)),
    byte_s=(
        ("all_reduce", 0.05e-9),
        ("reduce_scatter", 0.43e-9),
        ("all_gather", 0.40e-9),
        ("all_to_all", 0.11e-9),
    ),
)
"""Of torch 2.13 on two shared x86-64 cores, 2 and 4 processes between network namespaces.

Source: `syncline.costmodel.fitting.gloo` on measurements at 1 Gbit/s and 1 ms, see docs/validation.md.
"""


def tensor_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """N, bytes of the largest tensor that a worker hands to the collective."""
    return nbytes * workers if kind in ("all_gather", "gather") else nbytes
