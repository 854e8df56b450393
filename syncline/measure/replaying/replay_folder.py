"""The run folder of replays: the same files as a comparison has, with scripts in the place of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.measure.replaying import clocks
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.result_files import CURVES, read_parquet
from syncline.runs.training.results import summary_table, with_units
from syncline.runs.training.tables import ledger_columns, side_by_side_trace, timeline_columns

LOSS_LABEL = "training loss"

KEPT_STEPS = 50
"""Number of steps whose timeline a folder has, the same as for other commands."""

NOT_IN_SUMMARY = (*Changes().columns(), "hardware", "host", "last_loss")
"""Columns of a row of results that summaries of other commands do not have."""


def write_replays(
    folder: RunFolder, replays: Sequence[clocks.TimedReplay], rows: Sequence[Mapping[str, Any]], question: ReplayedOn
) -> None:
    """Write the ledger, timeline, trace, curves, summary and figure of replays into a run folder."""
    records = list({timed.record.name: timed.record for timed in replays}.values())  # each once, not once per network
    folder.table("ledger", ledger_columns((record.name, clocks.list_calls(record)) for record in records))
    fields = {
        "loss_label": LOSS_LABEL,
        "networks": {network.name: network.describe() for network in question.networks},
        "target_loss": rows[0]["target_loss"],
    }
    fields_of_curves = fields | {"every_steps": 1}  # the curves have each step
    folder.long_table("curves", (with_units(table, fields_of_curves) for table in curve_tables(replays)))
    summary_rows = []
    for row in rows:
        columns = {name: value for name, value in row.items() if name not in NOT_IN_SUMMARY}
        # Commands that train have a row for each seed; a record is one run without a known seed.
        summary_rows.append({"method": row["method"], "network": row["network"], "seed": 0} | columns)
    folder.long_table("summary", [with_units(summary_table(summary_rows), fields)])
    timelines = []
    for timed in replays:
        timeline = timed.replayed.timeline
        first_steps = timeline if timed.record.steps <= KEPT_STEPS else timeline.head(KEPT_STEPS)
        timelines.append((timed.record.name, timed.network.name, first_steps))
    folder.table("timeline", timeline_columns(timelines))
    folder.trace(side_by_side_trace(timelines))
    if any(np.isfinite(clocks.losses_by_step(record)).any() for record in records):
        from syncline.analysis import save
        from syncline.runs.training.results import figure_of_file

        save(figure_of_file(folder.working), folder.figure("loss_against_clock"))


def curve_tables(replays: Sequence[clocks.TimedReplay]) -> Iterator[pa.Table]:
    """Yield the loss against the clock for each replay, networks before scripts; row 0 is before the first step."""
    for timed in replays:
        losses, steps = clocks.losses_by_step(timed.record), timed.record.steps
        sent_bytes = np.cumsum(clocks.bytes_by_step(timed.record))[:steps]
        yield pa.table({
            "method": pa.array([timed.record.name] * (steps + 1)).dictionary_encode(),
            "network": pa.array([timed.network.name] * (steps + 1)).dictionary_encode(),
            "seed": np.zeros(steps + 1, dtype=np.int64),
            "step": np.arange(steps + 1),
            "seconds": np.concatenate([[0.0], timed.clock.step_end_s]),
            "bytes": np.concatenate([[0.0], sent_bytes]),
            "loss": _with_leading_null(clocks.trailing_means(losses)),
            "train_loss": _with_leading_null(losses),
        })  # fmt: skip


def _with_leading_null(losses: np.ndarray) -> pa.Array:
    """Return a null for the time before the first step, and then the losses; a loss that is not a number is null."""
    values = np.concatenate([[np.nan], losses])
    return pa.array(values, mask=np.isnan(values))


def read_losses(folder: Path) -> list[dict[str, Any]]:
    """Return rows with the losses of each step from a folder's curves; they are the same on all networks."""
    names = ["method", "network", "step", "train_loss", "loss"]
    rows = read_parquet(folder / "curves.parquet", CURVES, names).to_pylist()
    first_network = rows[0]["network"] if rows else None
    loss_rows = []
    for row in rows:
        if row.pop("network") == first_network and row["step"] > 0:
            loss_rows.append(row)
    return loss_rows
