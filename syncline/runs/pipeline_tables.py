"""Tables of the schedules of a pipeline for people: a table per network, and one of the stages."""

from __future__ import annotations

from rich.console import Group

from syncline.costmodel import Network
from syncline.planner.tables.columns import Column, seconds_of, table
from syncline.specs import PipelineSpec
from syncline.specs.study import Record
from syncline.units import format_bytes

MOST_STAGES = 16
"""Largest number of a schedule's stages that are all shown; otherwise half of this number from each end."""

COLUMNS: list[Column] = [
    ("schedule", lambda row: row["schedule"]),
    ("makespan", seconds_of("makespan_s")),
    ("closed\nform", seconds_of("closed_form_s")),
    ("bubble", lambda row: f"{row['bubble']:.1%}"),
    ("utilisation", lambda row: f"{row['utilisation']:.1%}"),
    ("micro-batches\nper second", lambda row: f"{row['microbatches_per_s']:.4g}"),
    ("delay,\nup to", lambda row: str(_largest_over_stages(row, "delay_steady"))),
    ("activations,\nup to", lambda row: str(_largest_over_stages(row, "peak_activations"))),
    ("weight\nversions", lambda row: str(_largest_over_stages(row, "weight_versions"))),
]
FORM_NOTE = "Closed form: the makespan with equal stages, no jitter and free links; '-' where there is none.\n"
NOTE = (
    "Bubble: the part of the stages' time in which nothing computes.\n"
    "Delay, activations, weight versions: of the stage where they are highest, see below."
)

STAGE_COLUMNS: list[Column] = [
    ("schedule", lambda row: row["schedule"]),
    ("stage", lambda row: str(row["stage"])),
    ("utilisation", lambda row: f"{row['utilisation']:.1%}"),
    ("delay", lambda row: str(row["delay_steady"])),
    ("mean\ndelay", lambda row: f"{row['delay_mean']:.2f}"),
    ("activations", lambda row: str(row["peak_activations"])),
    ("weight\nversions", lambda row: str(row["weight_versions"])),
]
BYTES_COLUMNS: list[Column] = [
    ("activations\n(bytes)", lambda row: format_bytes(row["activations_bytes"])),
    ("weights\n(bytes)", lambda row: format_bytes(row["weights_bytes"])),
]
STAGE_NOTE = (
    "Delay: updates of a stage between a micro-batch's forward and the update by its gradient; of the last "
    "micro-batch, and the mean of all. Activations: most micro-batches (where stages have chunks, in one each) "
    "between forward and last use. Weight versions: most that are needed at once, by those in flight and the next."
)


def pipeline_tables(rows: list[Record], spec: PipelineSpec) -> list[Group]:
    """Return a table per network; then the stages, on the first network."""
    tables = []
    has_closed_form = any(row["closed_form_s"] is not None for row in rows)
    columns, note = (COLUMNS, FORM_NOTE + NOTE) if has_closed_form else ([*COLUMNS[:2], *COLUMNS[3:]], NOTE)
    for network in spec.links:
        network_rows = [row for row in rows if row["network"] == network.name]
        tables.append(table(_title(network, spec), columns, network_rows, note if network is spec.links[-1] else ""))
    first = [row for row in rows if row["network"] == spec.links[0].name]
    stages = [{"schedule": row["schedule"]} | stage for row in first for stage in _ends(row["per_stage"])]
    columns = STAGE_COLUMNS + (BYTES_COLUMNS if spec.model else [])
    title = "Stages" if len(spec.links) == 1 else f"Stages, on {spec.links[0].name}"
    note = STAGE_NOTE + ("" if len(stages) == len(first) * spec.stages else "\nStages in the middle: --json.")
    tables.append(table(title, columns, stages, note, section="schedule"))
    return tables


def _title(network: Network, spec: PipelineSpec) -> str:
    work = f"{spec.stages:,} stages, {spec.microbatches:,} micro-batches"
    if spec.model is not None and spec.hardware is not None:
        work = f"{spec.model.name} on {spec.hardware.name}, {work} of {spec.tokens_per_microbatch:,} tokens"
    if spec.replicas > 1:
        work += f", {spec.replicas:,} replicas"
    if not spec.networks:
        return f"{work}, free links"
    return f"{work}; " + (f"{network.name}: " if "," not in network.name else "") + network.describe()


def _largest_over_stages(row: Record, field: str) -> int:
    return max(stage[field] for stage in row["per_stage"])


def _ends(stages: list[Record]) -> list[Record]:
    half = MOST_STAGES // 2
    return stages if len(stages) <= MOST_STAGES else [*stages[:half], *stages[-half:]]
