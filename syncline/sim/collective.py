"""One collective by itself: when each worker is through with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.link import Link
from syncline.errors import SpecError, one_of
from syncline.sim.events import run_events
from syncline.sim.lockstep import run_rounds
from syncline.sim.programs import Collective
from syncline.sim.rounds import rounds
from syncline.sim.uplinks import Floats, Uplinks, start_times


def collective_finish_s(
    kind: str,
    workers: int,
    nbytes: float,
    link: Link | Sequence[Link],
    algorithm: str | None = None,
    starts_s: ArrayLike | None = None,
    by: str = "lockstep",
) -> Floats:
    """When each worker is done with a collective: its last message has arrived and its own last has left.

    Args:
        kind: one of `syncline.costmodel.collectives.COLLECTIVES`.
        workers: P, at least 1.
        nbytes: n, with the meaning the closed form gives it.
        link: the link that every worker has, or one per worker.
        algorithm: one of ``ALGORITHMS[kind]`` there, the first unless given.
        starts_s: when each worker enters, ``(P,)`` seconds; at 0 unless given.
        by: ``lockstep`` or ``events``.

    Returns:
        ``(P,)`` seconds; the largest is when the collective is over.

    Raises:
        SpecError: an argument that cannot be used.

    >>> collective_finish_s("all_gather", 3, 4.0, Link(10.0, 1.0), starts_s=[100.0, 0.0, 0.0]).tolist()
    [108.0, 118.0, 128.0]
    """
    of = rounds(kind, workers, nbytes, algorithm)
    if by == "lockstep":
        uplinks = Uplinks.of(link, workers)
        return np.maximum(*run_rounds(of, uplinks, start_times(starts_s, workers)))
    if by != "events":
        raise SpecError("by", by, one_of(("lockstep", "events"), str(by)))
    join = Collective(kind, nbytes, key="", algorithm=algorithm)
    timeline = run_events([[join]] * workers, link, starts_s)
    done = timeline[timeline.stream == "network"]
    finish_s = np.empty(workers)
    finish_s[done.worker] = done.end_s
    return finish_s
