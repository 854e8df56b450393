"""The timeline as a Chrome trace, for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.errors import SpecError
from syncline.sim.program.timeline import STREAMS, Timeline


def chrome_trace(timeline: Timeline, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the timeline in the Chrome trace format: one process per worker, one thread per stream of the worker.

    Times are microseconds on a grid of nanoseconds, on which the slices of a thread do not overlap. Spans that are
    shorter than the grid are left out. Process and thread ids count from 1, because viewers give 0 a special meaning.

    Args:
        timeline: the timeline.
        names: name of each worker; by default ``worker 0`` and so on.

    Returns:
        A dictionary for ``json.dump``.

    Raises:
        SpecError: a wrong number of names.

    Source: "Trace Event Format", Google, the phases X (complete) and M (metadata).
    """
    names = [f"worker {worker}" for worker in range(timeline.workers)] if names is None else names
    if len(names) != timeline.workers:
        raise SpecError("names", list(names), f"a name for each of the {timeline.workers} workers")
    streams = list(dict.fromkeys([*STREAMS, *sorted(set(timeline.stream.tolist()))]))
    index_of = {name: index for index, name in enumerate(streams)}
    stream_index = np.array([index_of[name] for name in timeline.stream.tolist()], dtype=np.int64)
    events: list[dict[str, Any]] = []
    for worker, name in enumerate(names):
        events += [
            _metadata("process_name", worker + 1, 0, {"name": name}),
            _metadata("process_sort_index", worker + 1, 0, {"sort_index": worker}),
        ]
        for stream in np.unique(stream_index[timeline.worker == worker]).tolist():
            events += [
                _metadata("thread_name", worker + 1, stream + 1, {"name": streams[stream]}),
                _metadata("thread_sort_index", worker + 1, stream + 1, {"sort_index": stream}),
            ]
    start_ns, end_ns = (np.rint(times_s * 1e9).astype(np.int64) for times_s in (timeline.start_s, timeline.end_s))
    rows = zip(
        timeline.worker.tolist(), stream_index.tolist(), timeline.what.tolist(), timeline.label.tolist(),
        start_ns.tolist(), end_ns.tolist(), timeline.nbytes.tolist(), timeline.step.tolist(), strict=True,
    )  # fmt: skip
    for worker, stream, kind, label, start, end, nbytes, step in rows:
        if end > start:
            events.append({
                "ph": "X", "name": label or kind, "cat": kind, "pid": worker + 1, "tid": stream + 1,
                "ts": start / 1000, "dur": (end - start) / 1000, "args": {"step": step, "bytes": nbytes},
            })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """Return a metadata event (phase M), which names or orders a process or a thread."""
    return {"ph": "M", "name": name, "cat": "__metadata", "ts": 0, "pid": pid, "tid": tid, "args": args}
