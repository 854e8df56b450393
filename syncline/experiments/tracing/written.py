"""The run folder of replays: the files that a comparison has, with scripts in the place of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.costmodel.traffic.call import columns_of
from syncline.experiments.curves import described, summary_table
from syncline.experiments.folder import RunFolder
from syncline.experiments.result_files import CURVES, read_parquet
from syncline.experiments.tables import side_by_side_trace, timeline_columns
from syncline.experiments.tracing.clocks import (
    TraceRecord,
    bytes_by_step,
    ledger_of,
    losses_by_step,
    trailing_means,
)
from syncline.experiments.tracing.rows import TimedReplay
from syncline.experiments.tracing.scenario import ReplayedOn
from syncline.sim import Timeline

LOSS_LABEL = "training loss"

KEPT_STEPS = 50
"""Of how many steps a folder has the timeline, as other commands keep them."""

NOT_IN_SUMMARY = ("hardware", "scale_bandwidth", "scale_latency", "scale_compute", "overlap", "host", "last_loss")
"""Of a row: what is no column of other summaries."""


def write_replays(
    folder: RunFolder, timed: Sequence[TimedReplay], rows: Sequence[Mapping[str, Any]], question: ReplayedOn
) -> None:
    """Write ledger, timeline, trace, curves, summary and the picture.

    Args:
        folder: where.
        timed: the replays.
        rows: theirs.
        question: on what they were.
    """
    records = list({one.record.name: one.record for one in timed}.values())
    folder.table("ledger", ledger_table(records))
    told = {
        "loss_label": LOSS_LABEL,
        "networks": {on.name: on.describe() for on in question.networks},
        "target_loss": rows[0]["target_loss"],
    }
    folder.long_table("curves", (described(one, told | {"every_steps": 1}) for one in curve_tables(timed)))
    folder.long_table("summary", [described(summary_of(rows), told)])
    timelines = [(one.record.name, one.on.name, first_steps_of(one)) for one in timed]
    folder.table("timeline", timeline_columns(timelines))
    folder.trace(side_by_side_trace(timelines))
    if any(np.isfinite(losses_by_step(record)).any() for record in records):
        from syncline.analysis import save
        from syncline.experiments.curve_figure import figure_of_file

        save(figure_of_file(folder.working), folder.figure("loss_against_clock"))


def ledger_table(records: Sequence[TraceRecord]) -> dict[str, list[Any]]:
    """Each collective and message of each script, one below the other."""
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


def curve_tables(timed: Sequence[TimedReplay]) -> Iterator[pa.Table]:
    """Loss against the clock, networks before scripts; row 0 is before the first step."""
    for one in timed:
        losses, steps = losses_by_step(one.record), one.record.steps
        sent = np.cumsum(bytes_by_step(one.record))[:steps]
        yield pa.table({
            "method": pa.array([one.record.name] * (steps + 1)).dictionary_encode(),
            "network": pa.array([one.on.name] * (steps + 1)).dictionary_encode(),
            "seed": np.zeros(steps + 1, dtype=np.int64),
            "step": np.arange(steps + 1),
            "seconds": np.concatenate([[0.0], one.clock.step_end_s]),
            "bytes": np.concatenate([[0.0], sent]),
            "loss": _known(trailing_means(losses)),
            "train_loss": _known(losses),
        })  # fmt: skip


def _known(losses: np.ndarray) -> pa.Array:
    """Null where there is none, which is also before the first step."""
    values = np.concatenate([[np.nan], losses])
    return pa.array(values, mask=np.isnan(values))


def summary_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows, as the summary of a training with one seed."""
    return summary_table([
        {"method": row["method"], "network": row["network"], "seed": 0}
        | {name: value for name, value in row.items() if name not in NOT_IN_SUMMARY}
        for row in rows
    ])  # fmt: skip


def first_steps_of(one: TimedReplay) -> Timeline:
    """The spans of the first steps."""
    timeline = one.replayed.timeline
    return timeline if one.record.steps <= KEPT_STEPS else timeline.head(KEPT_STEPS)


def read_losses(folder: Path) -> list[dict[str, Any]]:
    """The losses by step that a folder's curves have."""
    names = ["method", "network", "step", "train_loss", "loss"]
    rows = read_parquet(folder / "curves.parquet", CURVES, names).to_pylist()
    first = rows[0]["network"] if rows else None
    return [
        {name: row[name] for name in names if name != "network"}
        for row in rows
        if row["step"] and row["network"] == first
    ]
