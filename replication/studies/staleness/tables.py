"""Tables of the rows of a staleness study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.staleness.spec import StalenessSpec
from syncline.planner.tables.table import table
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group


def staleness_tables(rows: list[Record], spec: StalenessSpec) -> list[Group]:
    """Return a table of losses over the delays, then a table per network of times to the target."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    target = rows[0]["target_loss"]
    first_network_rows = [row for row in rows if row["network"] == networks[0]]
    columns = "method stages effective_delay lr loss loss_min loss_max steps_to_target slowdown"
    seeds = f"{len(spec.seeds)} seeds" if len(spec.seeds) > 1 else "one seed"
    reached = "" if target is None else f" Target: a loss of {target:.4g}."
    note = f"Median and range of {seeds}.{reached}"
    tables: list[Group] = [
        table(f"{spec.name}: {spec.steps:,} steps", columns, first_network_rows, note=note, section="method")
    ]
    if spec.clock is None:
        return tables
    timed = "method stages update_s time_to_target_s sync_update_s sync_time_to_target_s speedup"
    workload = (
        f"{spec.clock.model.name}, {spec.clock.tokens_per_batch:,} tokens" if spec.clock.model else spec.problem.name
    )
    note = f"The clock is of {workload} a batch on {spec.clock.hardware.name}; a synchronous batch is cut into {{}}."
    note += " Speedup: of the asynchronous pipeline over the synchronous one."
    return tables + [
        table(
            f"{network.name}: {network.describe()}",
            timed,
            [row for row in rows if row["network"] == network.name],
            note=note.format(spec.clock.microbatches) if network is spec.clock.networks[-1] else "",
            section="method",
        )
        for network in spec.clock.networks
    ]
