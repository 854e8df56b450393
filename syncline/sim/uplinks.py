"""What each worker sends over: its link to the network, one value per worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.link import Link
from syncline.errors import SpecError

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Uplinks:
    """The links of all workers as columns.

    A message of n bytes that worker i starts at s leaves its link free at ``s + n / B_i`` and arrives at
    ``s + n / B_i + alpha_i``: the latency does not occupy the link. Links are full duplex, and a receiver is never a
    bottleneck.

    Args:
        latency_s: alpha, one way, ``(P,)`` seconds.
        bandwidth_bytes_per_s: B, ``(P,)`` bytes per second.
    """

    latency_s: Floats
    bandwidth_bytes_per_s: Floats

    @classmethod
    def of(cls, links: Link | Sequence[Link], workers: int) -> Uplinks:
        """The columns of one link that all workers have, or of one link per worker.

        Raises:
            SpecError: the number of links is not the number of workers.
        """
        each = [links] * workers if isinstance(links, Link) else list(links)
        if len(each) != workers:
            raise SpecError("links", len(each), f"one link, or one for each of the {workers} workers")
        return cls(
            np.array([link.latency_s for link in each], dtype=np.float64),
            np.array([link.bandwidth_bytes_per_s for link in each], dtype=np.float64),
        )

    @property
    def workers(self) -> int:
        """P."""
        return len(self.latency_s)


def start_times(starts_s: ArrayLike | None, workers: int) -> Floats:
    """When each worker begins, ``(P,)`` seconds: 0 unless given, one time for all or one for each.

    Raises:
        SpecError: a time that is negative or not finite, or a wrong number of times.
    """
    try:
        starts = np.broadcast_to(np.asarray(0.0 if starts_s is None else starts_s, dtype=np.float64), (workers,))
    except ValueError:
        raise SpecError("starts_s", starts_s, f"one time, or one for each of the {workers} workers") from None
    if not np.all(np.isfinite(starts) & (starts >= 0)):
        raise SpecError("starts_s", starts_s, "seconds, finite and at least 0")
    return starts
