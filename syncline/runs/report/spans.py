"""Charts of a folder's timelines (a round of each method, or schedules of a pipeline) and of its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from syncline.runs.folders.result_files import LEDGER, TIMELINE, read_parquet
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


LEAST_STEPS, MOST_STEPS = 32, 256
"""Limits of the number of steps shown, which are otherwise two rounds of the method that sends least often."""

MOST_NAMED = 4
"""Largest number of kinds of calls of a step that are named."""


def spans_chart(path: Path, key: str = "worker") -> dict[str, Any] | None:
    """Return the timelines of a folder.

    Args:
        path: a ``timeline.parquet``.
        key: name of a lane: ``worker``, or ``stage``.

    Returns:
        ``choices``: each with its ``lanes``, ``kinds``, and columns of ``spans``; None if there is nothing to draw.
    """
    choices, drawn, num_skipped = [], 0, 0
    for method, network, timeline in _timelines(path):
        if drawn >= MOST_OF_A_PAGE:
            num_skipped += 1
            continue
        strip = _of_a_pipeline(timeline) if key == "stage" else _of_a_training(timeline)
        if strip is not None:
            shown, title = strip
            choices.append({"name": f"{method} on {network}", "told": title, **_columns(shown, key)})
            drawn += len(shown)
    if not choices:
        return None
    longest = max(range(len(choices)), key=lambda n: (choices[n].pop("steps"), n))  # a round of many steps shows most
    stacked = key == "stage" and len(choices) <= MOST_STACKED
    return {"kind": "spans", "choices": choices, "left": num_skipped, "first": longest, "stacked": stacked}


def _timelines(path: Path) -> Iterator[tuple[str, str, Timeline]]:
    """Yield the method, the network and the timeline of each training or schedule."""
    table = read_parquet(path, TIMELINE)
    named = table.select(["method", "network"]).group_by(["method", "network"], use_threads=False).aggregate([])
    names = ("worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step")
    for method, network in (tuple(pair.values()) for pair in named.to_pylist()):
        part = table.filter(pc.and_(pc.equal(table["method"], method), pc.equal(table["network"], network)))
        columns = {name: part[name].to_numpy(zero_copy_only=False) for name in names}
        yield method, network, Timeline.from_columns(columns, int(columns["worker"].max()) + 1)


def _of_a_training(timeline: Timeline) -> tuple[Timeline, str] | None:
    """Return the spans of the first collectives, of as many workers as can be drawn, and a title."""
    strip = strip_of(timeline)
    if strip is None:
        return None
    few, title = strip
    for workers in range(STRIP_WORKERS, 0, -1):
        few = strip[0][strip[0].worker < workers]
        if len(few) <= MOST_SPANS:
            break
    return _first(few, title)


def _of_a_pipeline(timeline: Timeline) -> tuple[Timeline, str]:
    """Return the first tasks of a pipeline's stages, and a title."""
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
    steps = shown.step.tolist()
    kinds = [_kind(stream, kind_name) for stream, kind_name in zip(streams, kind_names, strict=True)]
    texts = []
    for kind_name, label, step in zip(kind_names, labels, steps, strict=True):
        named = f", {label}" if label and label != kind_name else ""
        texts.append(f"{kind_name}, micro-batch {step + 1}" if key == "stage" else f"{kind_name}{named}, step {step}")
    lanes = np.unique(shown.worker)
    kinds_there = list(dict.fromkeys(kinds))
    place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    begin = np.round((shown.start_s - start_s) / tick_s)
    return {
        "steps": len(np.unique(shown.step)),
        "tick": tick_s,
        "from": start_s,
        "lanes": [f"{key} {lane + 1 if key == 'stage' else lane}" for lane in lanes.tolist()],
        "kinds": kinds_there,
        "words": list(place_of),
        "numbers": [str(step + 1) for step in steps] if key == "stage" else [],
        "lane": np.searchsorted(lanes, shown.worker).tolist(),
        "kind": [kinds_there.index(kind) for kind in kinds],
        "word": [place_of[text] for text in texts],
        "start": begin.astype(int).tolist(),
        "length": np.maximum(np.round((shown.end_s - start_s) / tick_s) - begin, 0).astype(int).tolist(),
    }


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


def placement_chart(path: Path, styles: Sequence[str]) -> dict[str, Any] | None:
    """Return for each method the collectives of its first steps, with the bytes that a worker sends in each.

    Args:
        path: a ``ledger.parquet``.
        styles: the page's methods, in the order of their colours.
    """
    table = read_parquet(path, LEDGER, LEDGER)
    if not len(table):
        return None
    last = int(pc.max(table["step"]).as_py()) + 1
    gaps = []
    methods = table["method"].unique().to_pylist()
    for method in methods:
        steps = np.unique(table.filter(pc.equal(table["method"], method))["step"].to_numpy())
        gaps.append(int(np.diff(steps).max()) if len(steps) > 1 else int(steps[0]) + 1)
    count = min(last, max(LEAST_STEPS, min(2 * max(gaps) + 1, MOST_STEPS)))
    shown = table.filter(pc.less(table["step"], count))
    words: dict[str, int] = {}
    lanes = []
    for method in methods:
        by_step: dict[int, dict[str, list[float]]] = {}
        for row in shown.filter(pc.equal(shown["method"], method)).to_pylist():
            sizes = by_step.setdefault(row["step"], {}).setdefault(f"{row['collective']} of {row['label']}", [])
            sizes.append(row["payload_bytes"])
        lanes.append({
            "name": method,
            "style": styles.index(method),
            "steps": list(by_step),
            "bytes": [round(sum(map(sum, calls.values()))) for calls in by_step.values()],
            "words": [words.setdefault(_calls_text(calls), len(words)) for calls in by_step.values()],
        })  # fmt: skip
    return {"kind": "placement", "steps": count, "all": last, "lanes": lanes, "words": list(words)}


def _calls_text(calls: dict[str, list[float]]) -> str:
    """Return the collectives of a step as text, with the number of each."""
    named = [name + (f", {len(sizes)} times" if len(sizes) > 1 else "") for name, sizes in calls.items()]
    more = len(named) - MOST_NAMED
    return "; ".join([*named[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
