"""The timeline of workers and their servers, made from that of their programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.sim.online.gates import GATE
from syncline.sim.online.server_interface import ServerSettings
from syncline.sim.program.timeline import Timeline, Words


def with_servers(timeline: Timeline, served: ServerSettings, keep_steps: int | None) -> Timeline:
    """Return the timeline with the lanes as further workers, one per server, with only their sends.

    Each server has a stream for each receiver; the last worker is the only server or the server above.
    """
    workers, groups = served.workers, served.groups
    shown = (timeline.worker < workers) | (timeline.what == "send")
    shown &= timeline.what != GATE
    spans = timeline[shown] if keep_steps is None else timeline[shown].head(keep_steps)
    local = [workers + s for s in range(len(groups))]
    last = workers + len(groups)
    worker_of = [*range(workers)]
    worker_of += [server for server, size in zip(local, groups, strict=True) for _ in range(size)] + local
    worker_of += [last] * (len(groups) or workers)
    stream_names = [f"send to {m}" for m in range(workers)] + ["send up"] * len(groups)
    stream_names += [f"send to server {s}" for s in range(len(groups))]
    columns: dict[str, Any] = dict(spans.columns())
    lanes = (spans.worker - workers).tolist()
    columns["stream"] = Words.from_words(
        stream if lane < 0 else stream_names[lane] for stream, lane in zip(spans.stream.tolist(), lanes, strict=True)
    )
    columns["worker"] = np.array(worker_of, dtype=np.int64)[spans.worker]
    return Timeline.from_columns(columns, last + 1)
