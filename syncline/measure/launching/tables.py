"""The tables of ``syncline launch``: the losses, and the measured clock next to the simulated one."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.planner.tables.display import CLOCK, ages, clock_note, clock_table, network_title, run_tables
from syncline.planner.tables.table import table
from syncline.runs.pipeline import COLUMNS, LARGEST_OF_STAGES, NOTE
from syncline.runs.training.results import failure_record
from syncline.sim.failures.costs import FailureCosts
from syncline.specs import PipelineSpec, RunSpec
from syncline.units import format_seconds

MEASURED_FIELDS = ("step_time_median_s", "optimizer_s")
"""Fields that only a measured row has."""

AGE_FIELDS = ("versions", "age_mean", "age_max", "ages")
"""Fields that have a separate table, for workers at their own pace."""

FAILURE_FIELDS = tuple(failure_record(FailureCosts(1)))
"""Fields that matter only if a process died."""

REPLAYED_NOTE = (
    "Replayed: the makespan by the events with each stage's measured times, the medians, and sends that take no time."
)


def launched_steps(spec: RunSpec | PipelineSpec) -> int:
    """Return the total of a progress bar: steps of all seeds, or tasks of a stage."""
    if isinstance(spec, RunSpec):
        return spec.steps * len(spec.seeds)
    repeats = spec.training.repeats if spec.training else 1
    return repeats * sum(max(map(len, spec.build_schedule(name).orders), default=0) for name in spec.schedules)


def launch_tables(result: dict[str, Any], spec: RunSpec | PipelineSpec) -> list[Group]:
    """Return the tables of a launch: the results of each seed, and the measured next to the simulated clock."""
    if isinstance(spec, PipelineSpec):
        return _pipeline_tables(result, spec)
    rows = result["rows"]
    if not rows:
        return []
    omitted = {*MEASURED_FIELDS, *AGE_FIELDS}
    if not rows[0].get("interruptions"):
        omitted |= set(FAILURE_FIELDS)
    seed_rows = [{name: value for name, value in row.items() if name not in omitted} for row in rows]
    table_of_seeds, *_ = run_tables(seed_rows, spec)  # the other tables are of a simulated clock
    tables = [table_of_seeds]
    if "step_time_s" in rows[0]:
        simulated = result["simulated"] | {"network": f"simulated: {spec.network.name}"}
        clocks = [rows[0], simulated]
        title = network_title(spec.network, spec.workers, rows[0]["steps"])
        note = f"{clock_note(clocks)} Median: of the slowest worker's steps."
        tables.append(clock_table(title, f"world {CLOCK} compute_s optimizer_s step_time_median_s", clocks, note=note))
        if "ages" in rows[0]:
            columns = "world versions age_mean age_max ages contributions"
            note = "Ages of updates: versions of the model since a worker took its own."
            computed = {"ages": ages, "world": lambda row: row["network"]}
            tables.append(
                table("arrivals of updates, and how late they were", columns, clocks, note=note, values=computed)
            )
    return tables


def _pipeline_tables(result: dict[str, Any], spec: PipelineSpec) -> list[Group]:
    """Return the table of a pipeline: each schedule, measured and simulated."""
    simulated = {row["schedule"]: row for row in result["simulated"]}
    rows: list[dict[str, Any]] = []
    for measured in result["rows"]:
        replayed = f"{format_seconds(measured['replayed_s'])}\n({measured['replayed_error']:+.1%})"
        rows += [measured | {"replayed": replayed}, simulated[measured["schedule"]] | {"replayed": None}]
    if not rows:
        return []
    played = f"played {rows[0]['repeats']} times" if rows[0]["repeats"] > 1 else "played once"
    title = f"{spec.stages} stages, {spec.microbatches} micro-batches, {played}"
    note = f"{NOTE}\nMeasured: the repeat with the median duration. Loss: of the last micro-batch.\n{REPLAYED_NOTE}"
    # The columns of a simulated pipeline, with ``replayed`` in place of the closed form. The column ``world`` tells
    # measured rows, whose network has the name "measured", from simulated ones.
    columns = COLUMNS.replace("makespan_s closed_form_s", "world makespan_s replayed") + " optimizer_s loss"
    computed = {"world": lambda row: row["network"], "replayed": lambda row: row["replayed"]} | LARGEST_OF_STAGES
    return [table(title, columns, rows, note=note, section="schedule", values=computed)]
