"""Tables of the rows of a staleness study."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from replication.studies.staleness.spec import StalenessSpec
from syncline.planner.tables.columns import RATE, Column, count_of, digits_of, seconds_of, table, text_of, times_of
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group


def staleness_tables(rows: list[Record], spec: StalenessSpec) -> list[Group]:
    """Return a table of losses over the delays, then a table per network of times to the target."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    target = rows[0]["target_loss"]
    to_target = "to target" if target is None else f"to loss\n{target:.4g}"
    first_network_rows = [row for row in rows if row["network"] == networks[0]]
    columns: list[Column] = [
        text_of("method"),
        count_of("stages"),
        ("effective\ndelay", digits_of("effective_delay", ".2f")),
        RATE,
        ("loss", lambda row: _loss(row["loss"])),
        ("lowest\nseed", lambda row: _loss(row["loss_min"])),
        ("highest\nseed", lambda row: _loss(row["loss_max"])),
        (f"steps\n{to_target}", lambda row: f"{row['steps_to_target']:,.0f}" if _reaches_target(row) else "-"),
        ("slowdown", times_of("slowdown")),
    ]
    seeds = f"{len(spec.seeds)} seeds" if len(spec.seeds) > 1 else "one seed"
    tables = [
        table(
            f"{spec.name}: {spec.steps:,} steps",
            columns,
            first_network_rows,
            f"Median and range of {seeds}.",
            (0,),
            "method",
        )
    ]
    if spec.clock is None:
        return tables
    timed: list[Column] = [
        text_of("method"),
        count_of("stages"),
        ("update", seconds_of("update_s")),
        (to_target, seconds_of("time_to_target_s")),
        ("update,\nsynchronous", seconds_of("sync_update_s")),
        (f"{to_target},\nsynchronous", seconds_of("sync_time_to_target_s")),
        ("asynchronous\nsooner", times_of("speedup")),
    ]
    workload = (
        f"{spec.clock.model.name}, {spec.clock.tokens_per_batch:,} tokens" if spec.clock.model else spec.problem.name
    )
    note = f"The clock is of {workload} a batch on {spec.clock.hardware.name}; a synchronous batch is cut into {{}}."
    return tables + [
        table(
            f"{network.name}: {network.describe()}",
            timed,
            [row for row in rows if row["network"] == network.name],
            note.format(spec.clock.microbatches) if network is spec.clock.networks[-1] else "",
            (0,),
            "method",
        )
        for network in spec.clock.networks
    ]


def _reaches_target(row: Record) -> bool:
    return row["steps_to_target"] is not None and math.isfinite(row["steps_to_target"])


def _loss(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "diverged"
