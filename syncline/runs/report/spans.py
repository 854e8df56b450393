"""Timelines as a page draws them: the workers' activities in a round of each method, or in a pipeline's schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.runs.folders.result_files import TIMELINE, read_parquet
from syncline.runs.training.figures import STRIP_WORKERS, strip_of
from syncline.sim.program.timeline import WAITING, Timeline, is_computing

MOST_SPANS = 1500
"""Largest number of spans of one timeline: further workers are left out first, then the latest spans."""

MOST_OF_A_PAGE = 9000
"""Number of spans of all timelines of a result after which further timelines are left out."""

MOST_STACKED = 8
"""Largest number of a pipeline's schedules that are drawn one below the other; of more the reader chooses one."""

TICKS = 1_000_000
"""Length of a timeline in ticks: a tick is less than a pixel at any zoom."""

OF_A_STAGE = ("forward", "backward", "weight")


def spans_chart(path: Path, key: str = "worker") -> dict[str, Any] | None:
    """Return the timelines of a folder.

    Args:
        path: a ``timeline.parquet``.
        key: name of a lane: ``worker``, or ``stage``.

    Returns:
        ``choices``: each with its ``lanes``, ``kinds``, and columns of ``spans``; None if there is nothing to draw.
    """
    choices, drawn, num_skipped = [], 0, 0
    for method, network, table in _timelines(path):
        if drawn >= MOST_OF_A_PAGE:
            num_skipped += 1
            continue
        strip = _of_a_pipeline(table) if key == "stage" else _of_a_training(table)
        if strip is not None:
            shown, title = strip
            choices.append({"name": f"{method} on {network}", "told": title, **_columns(shown, key)})
            drawn += len(shown)
    if not choices:
        return None
    longest = max(range(len(choices)), key=lambda n: (choices[n].pop("steps"), n))  # a round of many steps shows most
    stacked = key == "stage" and len(choices) <= MOST_STACKED
    return {"kind": "spans", "choices": choices, "left": num_skipped, "first": longest, "stacked": stacked}


def _timelines(path: Path) -> Iterator[tuple[str, str, pa.Table]]:
    table = read_parquet(path, TIMELINE)
    named = table.select(["method", "network"]).group_by(["method", "network"], use_threads=False).aggregate([])
    for pair in named.to_pylist():
        mask = pc.and_(pc.equal(table["method"], pair["method"]), pc.equal(table["network"], pair["network"]))
        yield pair["method"], pair["network"], table.filter(mask)


def _timeline(table: pa.Table) -> Timeline:
    names = ("worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step")
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in names}
    return Timeline.from_columns(columns, int(columns["worker"].max()) + 1)


def _of_a_training(table: pa.Table) -> tuple[Timeline, str] | None:
    timeline = _timeline(table)
    strip = strip_of(timeline)
    if strip is None:
        return None
    shown, title = strip
    few = shown
    for workers in range(STRIP_WORKERS, 0, -1):
        few = shown[shown.worker < workers]
        if len(few) <= MOST_SPANS:
            break
    return _first(few, title)


def _of_a_pipeline(table: pa.Table) -> tuple[Timeline, str]:
    timeline = _timeline(table)
    tasks = timeline[np.array([kind.split(".")[0] in OF_A_STAGE for kind in timeline.what.tolist()], dtype=bool)]
    return _first(tasks, f"{timeline.workers} stages")


def _first(shown: Timeline, title: str) -> tuple[Timeline, str]:
    """Return the first spans, up to the number that is drawn, and the title."""
    if len(shown) <= MOST_SPANS:
        return shown, title
    until_s = np.partition(shown.start_s, MOST_SPANS)[MOST_SPANS]
    return shown[shown.start_s < until_s], f"{title}, the first {MOST_SPANS:,} spans"


def _columns(shown: Timeline, key: str) -> dict[str, Any]:
    """Return the spans as columns, with times in ticks and each distinct text once."""
    start_s, end_s = float(shown.start_s.min()), float(shown.end_s.max())
    tick_s = (end_s - start_s) / TICKS or 1.0
    kind_names, streams, labels = shown.what.tolist(), shown.stream.tolist(), shown.label.tolist()
    kinds = [_kind(stream, kind_name) for stream, kind_name in zip(streams, kind_names, strict=True)]
    if key == "stage":
        texts = [
            f"{kind_name}, micro-batch {step + 1}"
            for kind_name, step in zip(kind_names, shown.step.tolist(), strict=True)
        ]
    else:
        texts = [
            _span_text(kind_name, label, step)
            for kind_name, label, step in zip(kind_names, labels, shown.step.tolist(), strict=True)
        ]
    lanes = np.unique(shown.worker)
    kinds_there, words = list(dict.fromkeys(kinds)), list(dict.fromkeys(texts))
    begin = np.round((shown.start_s - start_s) / tick_s)
    return {
        "steps": len(np.unique(shown.step)),
        "tick": tick_s,
        "from": start_s,
        "lanes": [f"{key} {lane + 1 if key == 'stage' else lane}" for lane in lanes.tolist()],
        "kinds": kinds_there,
        "words": words,
        "numbers": [str(step + 1) for step in shown.step.tolist()] if key == "stage" else [],
        "lane": np.searchsorted(lanes, shown.worker).tolist(),
        "kind": [kinds_there.index(kind) for kind in kinds],
        "word": _places(texts, words),
        "start": begin.astype(int).tolist(),
        "length": np.maximum(np.round((shown.end_s - start_s) / tick_s) - begin, 0).astype(int).tolist(),
    }


def _places(texts: Sequence[str], words: Sequence[str]) -> list[int]:
    place_of = {word: place for place, word in enumerate(words)}
    return [place_of[word] for word in texts]


def _kind(stream: str, activity: str) -> str:
    """Return the kind of a span, which decides its colour."""
    if not is_computing(stream):
        return "network"
    if activity in WAITING:
        return "wait"
    first, _, chunk = activity.partition(".")
    if first in OF_A_STAGE:
        return f"{first} later" if chunk and int(chunk) % 2 else first
    return activity if activity in ("encode", "trigger", "optimizer") else "compute"


def _span_text(activity: str, label: str, step: int) -> str:
    return f"{activity}{f', {label}' if label and label != activity else ''}, step {step}"
