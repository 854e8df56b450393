"""The timeline of workers and their servers, of the programs that played them."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.sim.online.gates import GATE
from syncline.sim.online.served import Served
from syncline.sim.timeline import Timeline, Words


def with_servers(timeline: Timeline, served: Served, keep_steps: int | None) -> Timeline:
    """The lanes as one more worker, or as one for each server, of whom what they send is kept.

    Each has a stream for each to whom it sends; the last is the only server, or the one above.
    """
    workers, groups = served.workers, served.groups
    shown = (timeline.worker < workers) | (timeline.what == "send")
    shown &= timeline.what != GATE
    kept = timeline[shown] if keep_steps is None else timeline[shown].head(keep_steps)
    local = [workers + s for s in range(len(groups))]
    last = workers + len(groups)
    who = [*range(workers)]
    who += [server for server, size in zip(local, groups, strict=True) for _ in range(size)] + local
    who += [last] * (len(groups) or workers)
    to = [f"send to {m}" for m in range(workers)] + ["send up"] * len(groups)
    to += [f"send to server {s}" for s in range(len(groups))]
    columns: dict[str, Any] = dict(kept.columns())
    lanes = (kept.worker - workers).tolist()
    columns["stream"] = Words.of(
        stream if lane < 0 else to[lane] for stream, lane in zip(kept.stream.tolist(), lanes, strict=True)
    )
    columns["worker"] = np.array(who, dtype=np.int64)[kept.worker]
    return Timeline.of_columns(columns, last + 1)
