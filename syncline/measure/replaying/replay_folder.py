"""The run folder of replays: the same files as a comparison has, with scripts in the place of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.costmodel.traffic.call import columns_of
from syncline.measure.replaying.clocks import (
    TimedReplay,
    TraceRecord,
    bytes_by_step,
    ledger_of,
    losses_by_step,
    trailing_means,
)
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.result_files import CURVES, read_parquet
from syncline.runs.training.results import summary_table, with_units
from syncline.runs.training.tables import side_by_side_trace, timeline_columns

LOSS_LABEL = "training loss"

KEPT_STEPS = 50
"""Number of steps whose timeline a folder has, the same as for other commands."""

NOT_IN_SUMMARY = (
    "hardware",
    "scale_bandwidth",
    "scale_latency",
    "scale_compute",
    "overlap",
    "compiled",
    "async_tp",
    "host",
    "last_loss",
)
"""Fields of a row that are no columns of other summaries."""


def write_replays(
    folder: RunFolder, replays: Sequence[TimedReplay], rows: Sequence[Mapping[str, Any]], question: ReplayedOn
) -> None:
    """Write ledger, timeline, trace, curves, summary and the figure."""
    records = list({timed_replay.record.name: timed_replay.record for timed_replay in replays}.values())
    folder.table("ledger", ledger_table(records))
    fields = {
        "loss_label": LOSS_LABEL,
        "networks": {network.name: network.describe() for network in question.networks},
        "target_loss": rows[0]["target_loss"],
    }
    folder.long_table("curves", (with_units(table, fields | {"every_steps": 1}) for table in curve_tables(replays)))
    summary = summary_table([
        {"method": row["method"], "network": row["network"], "seed": 0}
        | {name: value for name, value in row.items() if name not in NOT_IN_SUMMARY}
        for row in rows
    ])  # fmt: skip
    folder.long_table("summary", [with_units(summary, fields)])
    timelines = []
    for timed_replay in replays:
        timeline = timed_replay.replayed.timeline
        first_steps = timeline if timed_replay.record.steps <= KEPT_STEPS else timeline.head(KEPT_STEPS)
        timelines.append((timed_replay.record.name, timed_replay.on.name, first_steps))
    folder.table("timeline", timeline_columns(timelines))
    folder.trace(side_by_side_trace(timelines))
    if any(np.isfinite(losses_by_step(record)).any() for record in records):
        from syncline.analysis import save
        from syncline.runs.training.results import figure_of_file

        save(figure_of_file(folder.working), folder.figure("loss_against_clock"))


def ledger_table(records: Sequence[TraceRecord]) -> dict[str, list[Any]]:
    """Return each collective and message of each script as columns, one script below the other."""
    columns: dict[str, list[Any]] = {"method": []}
    for record in records:
        calls = ledger_of(record)
        columns["method"] += [record.name] * len(calls)
        for name, values in columns_of(calls).items():
            columns.setdefault(name, []).extend(values)
    sizes = {record.name: len(record.ranks) for record in records}
    columns["group_size"] = [
        sizes[name] if size is None else size
        for name, size in zip(columns["method"], columns["group_size"], strict=True)
    ]
    return columns


def curve_tables(replays: Sequence[TimedReplay]) -> Iterator[pa.Table]:
    """Yield the loss against the clock for each replay, networks before scripts; row 0 is before the first step."""
    for timed_replay in replays:
        losses, steps = losses_by_step(timed_replay.record), timed_replay.record.steps
        sent_bytes = np.cumsum(bytes_by_step(timed_replay.record))[:steps]
        yield pa.table({
            "method": pa.array([timed_replay.record.name] * (steps + 1)).dictionary_encode(),
            "network": pa.array([timed_replay.on.name] * (steps + 1)).dictionary_encode(),
            "seed": np.zeros(steps + 1, dtype=np.int64),
            "step": np.arange(steps + 1),
            "seconds": np.concatenate([[0.0], timed_replay.clock.step_end_s]),
            "bytes": np.concatenate([[0.0], sent_bytes]),
            "loss": _with_leading_null(trailing_means(losses)),
            "train_loss": _with_leading_null(losses),
        })  # fmt: skip


def _with_leading_null(losses: np.ndarray) -> pa.Array:
    """Return the losses behind a first null; a loss that is not a number is null."""
    values = np.concatenate([[np.nan], losses])
    return pa.array(values, mask=np.isnan(values))


def read_losses(folder: Path) -> list[dict[str, Any]]:
    """Return the losses by step in a folder's curves, of its first network."""
    names = ["method", "network", "step", "train_loss", "loss"]
    rows = read_parquet(folder / "curves.parquet", CURVES, names).to_pylist()
    first = rows[0]["network"] if rows else None
    return [
        {name: row[name] for name in names if name != "network"}
        for row in rows
        if row["step"] and row["network"] == first
    ]
