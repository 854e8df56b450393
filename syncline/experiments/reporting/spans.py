"""Timelines as what a page draws: who did what when, of a round of each method, or of a pipeline's schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.experiments.figures import STRIP_WORKERS, strip_of
from syncline.experiments.result_files import TIMELINE, read_parquet
from syncline.sim.timeline import WAITING, Timeline, is_computing

MOST_SPANS = 1500
"""Of one timeline: the workers' beyond are left out, and then the latest ones."""

MOST_OF_A_PAGE = 9000
"""Of all timelines of a result; those beyond are left out."""

MOST_STACKED = 8
"""Schedules of a pipeline that are drawn one below the other; of more one is chosen."""

TICKS = 1_000_000
"""A timeline is as many ticks long: less than a pixel however far one looks into it."""

OF_A_STAGE = ("forward", "backward", "weight")


def spans_chart(path: Path, key: str = "worker") -> dict[str, Any] | None:
    """The timelines of a folder.

    Args:
        path: its ``timeline.parquet``.
        key: what a lane is called: ``worker``, or ``stage``.

    Returns:
        ``choices``: each with its ``lanes``, ``kinds``, and columns of ``spans``; None where there is nothing to draw.
    """
    choices, drawn, left = [], 0, 0
    for method, network, table in _timelines(path):
        if drawn >= MOST_OF_A_PAGE:
            left += 1
            continue
        made = _of_a_pipeline(table) if key == "stage" else _of_a_training(table)
        if made is not None:
            shown, told = made
            choices.append({"name": f"{method} on {network}", "told": told, **_columns(shown, key)})
            drawn += len(shown)
    if not choices:
        return None
    longest = max(range(len(choices)), key=lambda n: (choices[n].pop("steps"), n))  # a round of many steps says most
    stacked = key == "stage" and len(choices) <= MOST_STACKED
    return {"kind": "spans", "choices": choices, "left": left, "first": longest, "stacked": stacked}


def _timelines(path: Path) -> Iterator[tuple[str, str, pa.Table]]:
    table = read_parquet(path, TIMELINE)
    named = table.select(["method", "network"]).group_by(["method", "network"], use_threads=False).aggregate([])
    for one in named.to_pylist():
        mask = pc.and_(pc.equal(table["method"], one["method"]), pc.equal(table["network"], one["network"]))
        yield one["method"], one["network"], table.filter(mask)


def _timeline(table: pa.Table) -> Timeline:
    names = ("worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step")
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in names}
    return Timeline.of_columns(columns, int(columns["worker"].max()) + 1)


def _of_a_training(table: pa.Table) -> tuple[Timeline, str] | None:
    timeline = _timeline(table)
    found = strip_of(timeline)
    if found is None:
        return None
    shown, title = found
    few = shown
    for workers in range(STRIP_WORKERS, 0, -1):
        few = shown[shown.worker < workers]
        if len(few) <= MOST_SPANS:
            break
    return _first(few, title)


def _of_a_pipeline(table: pa.Table) -> tuple[Timeline, str]:
    timeline = _timeline(table)
    tasks = timeline[np.array([what.split(".")[0] in OF_A_STAGE for what in timeline.what.tolist()], dtype=bool)]
    return _first(tasks, f"{timeline.workers} stages")


def _first(shown: Timeline, title: str) -> tuple[Timeline, str]:
    """As many spans as are drawn, the first ones."""
    if len(shown) <= MOST_SPANS:
        return shown, title
    until_s = np.partition(shown.start_s, MOST_SPANS)[MOST_SPANS]
    return shown[shown.start_s < until_s], f"{title}, the first {MOST_SPANS:,} spans"


def _columns(shown: Timeline, key: str) -> dict[str, Any]:
    """Numbers in ticks, and words once."""
    start_s, end_s = float(shown.start_s.min()), float(shown.end_s.max())
    tick_s = (end_s - start_s) / TICKS or 1.0
    whats, streams, labels = shown.what.tolist(), shown.stream.tolist(), shown.label.tolist()
    kinds = [_kind(stream, what) for stream, what in zip(streams, whats, strict=True)]
    if key == "stage":
        told = [f"{what}, micro-batch {step + 1}" for what, step in zip(whats, shown.step.tolist(), strict=True)]
    else:
        told = [_told(what, label, step) for what, label, step in zip(whats, labels, shown.step.tolist(), strict=True)]
    lanes = np.unique(shown.worker)
    kinds_there, words = list(dict.fromkeys(kinds)), list(dict.fromkeys(told))
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
        "word": _places(told, words),
        "start": begin.astype(int).tolist(),
        "length": np.maximum(np.round((shown.end_s - start_s) / tick_s) - begin, 0).astype(int).tolist(),
    }


def _places(told: Sequence[str], words: Sequence[str]) -> list[int]:
    known = {word: place for place, word in enumerate(words)}
    return [known[word] for word in told]


def _kind(stream: str, what: str) -> str:
    """The colour of a span."""
    if not is_computing(stream):
        return "network"
    if what in WAITING:
        return "wait"
    first, _, chunk = what.partition(".")
    if first in OF_A_STAGE:
        return f"{first} later" if chunk and int(chunk) % 2 else first
    return what if what in ("encode", "trigger", "optimizer") else "compute"


def _told(what: str, label: str, step: int) -> str:
    return f"{what}{f', {label}' if label and label != what else ''}, step {step}"
