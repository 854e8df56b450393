"""The command ``syncline pipeline``: simulated schedules of a pipeline on networks, with a figure and a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group

from syncline.costmodel import Link, Network
from syncline.costmodel.bases import EXACT, computing_uncertainty, pipeline_uncertainty
from syncline.costmodel.layouts.pipelines import CLOSED_FORMS, gpipe_s, pipeline_s
from syncline.costmodel.network.software_costs import messages_ahead
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.bounds import basis_text, combined_bounds
from syncline.planner.pipeline_placement import PlacedPipeline, run_placed
from syncline.planner.tables.table import table
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.training.tables import timeline_columns
from syncline.sim import PipelineReport, Timeline, chrome_trace, report, task_spans
from syncline.sim.pipelines.pipeline import Durations
from syncline.sim.pipelines.report import UPDATE
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import schedule_kind
from syncline.specs import PipelineSpec
from syncline.specs.pipeline import FREE
from syncline.specs.study import Record

MOST_DRAWN = 1500, 20_000
"""Limits of the number of a schedule's tasks in the figure, which otherwise is twice the square of the stages."""

MOST_TRACED = 500_000
"""Number of spans of all schedules above which the trace has only the first micro-batches: about 100 MB."""

MOST_STAGES_DRAWN = 256
"""Largest number of rows of the figure; further panels are left out, except for the first."""

MOST_STAGES = 16
"""Largest number of stages in the table; of more stages it has half of this number from each end."""


def largest_of_stages(field: str) -> Callable[[Record], int]:
    """Return a function from a schedule's row to the largest value of a field over the stages."""
    return lambda row: max(stage[field] for stage in row["per_stage"])


COLUMNS = (
    "schedule makespan_s closed_form_s bubble utilisation microbatches_per_s most_delay most_activations most_versions"
)
LARGEST: dict[str, Any] = {
    "most_delay": largest_of_stages("delay_steady"), "most_activations": largest_of_stages("peak_activations"),
    "most_versions": largest_of_stages("weight_versions"),
}  # fmt: skip
"""Columns of a schedule that its stages decide."""

FORM_NOTE = (
    "Closed form: the makespan with equal stages, no jitter and free links (of gpipe with its messages on equal "
    "links); '-' where there is none.\n"
)
NOTE = (
    "Bubble: the part of the stages' time in which nothing computes.\n"
    "Delay, activations, weight versions: of the stage where they are highest, see below."
)

STAGE_COLUMNS = "schedule stage utilisation delay_steady delay_mean peak_activations weight_versions"
STAGE_NOTE = (
    "Delay: updates of a stage between a micro-batch's forward and the update by its gradient; of the last "
    "micro-batch, and the mean of all. Activations: most micro-batches (where stages have chunks, in one each) "
    "between forward and last use. Weight versions: most that are needed at once, by those in flight and the next."
)


PLACEMENT_NOTE = (
    "Given: as the network places the ranks. Stages inside: the stages of a replica are neighbours. Replicas inside: "
    "the replicas of a stage are. The other table has the fastest; the place of each rank: --json."
)


class SimulatedSchedule(NamedTuple):
    """A simulated schedule: its name, the network's name, and the timeline."""

    schedule: str
    network: str
    timeline: Timeline


def pipeline(spec: PipelineSpec, out: Path, *, exact: bool = False, figures: bool = True) -> dict[str, Any]:
    """Simulate a pipeline's schedules on its networks, and write the folder with spec, timelines, trace and figure.

    Args:
        out: the folder to write; see ``RunFolder`` for ``exact``.
        figures: whether the folder gets the figure.

    Returns:
        ``rows`` (sorted by network, then schedule), ``folder``, ``interrupted``.
    """
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        simulated, rows = [], []
        for network in spec.links:
            for name in spec.schedules:
                placed = run_placed(spec, name, network)
                simulated.append(SimulatedSchedule(name, network.name, placed.timeline))
                result = report(placed.timeline, spec.build_schedule(name), spec.stages)
                row = schedule_row(spec, name, network=network.name, report=result)
                placement_rows = [
                    {"placement": rule, "makespan_s": seconds} for rule, seconds in placed.candidates.items()
                ]
                row |= {"placement": placed.placement, "ranks": placed.ranks, "placements": placement_rows}
                rows.append(row | bounds_columns(spec, name, placed))
        folder.json("run", environment() | {"interrupted": False, "rows": rows})
        folder.table("timeline", timeline_columns(simulated))
        folder.trace(chrome_trace(*_traced(spec, simulated)))
        if figures:
            _draw(folder, spec, simulated)
    return {"rows": rows, "folder": str(folder.path), "interrupted": False}


def schedule_row(spec: PipelineSpec, name: str, network: str, report: PipelineReport) -> dict[str, Any]:
    """Return the row of a schedule on a network, from the report on its simulation.

    Args:
        network: name of the network; messages take no time if the spec has no network of this name.
    """
    on = next((link for link in spec.links if link.name == network), FREE)
    chunks = spec.chunks_of(name)
    activation_bytes = spec.stored_activation_bytes(chunks)
    weights = spec.weights_bytes(chunks)
    return {
        "schedule": name, "network": network, "stages": spec.stages, "microbatches": spec.microbatches,
        "chunks": chunks, "replicas": spec.replicas, "flushes": spec.flushes, "averaging": spec.averaging,
        "makespan_s": report.makespan_s, "closed_form_s": makespan_closed_form_s(spec, name, on),
        "bubble": report.bubble,
        "utilisation": sum(stage.utilisation for stage in report.stages) / len(report.stages),
        "microbatches_per_s": report.microbatches_per_s,
        "per_stage": [
            {
                "stage": index + 1, "utilisation": stage.utilisation, "delay_steady": stage.delay_steady,
                "delay_mean": sum(stage.delays) / len(stage.delays), "delays": list(stage.delays),
                "peak_activations": stage.peak_activations, "weight_versions": stage.weight_versions,
                "activations_bytes": activation_bytes and stage.peak_activations * activation_bytes[index],
                "weights_bytes": weights and stage.weight_versions * weights[index],
            }
            for index, stage in enumerate(report.stages)
        ],
    }  # fmt: skip


def makespan_closed_form_s(spec: PipelineSpec, name: str, network: Network) -> float | None:
    """Return the seconds of a schedule in closed form; None if stages differ or the schedule has no closed form.

    Jitter and averaging between replicas are not included. Messages are included only of GPipe on equal links.
    """
    if name not in CLOSED_FORMS or (schedule_kind(name).takes_limits and spec.max_in_flight is not None):
        return None
    seconds = spec.stage_seconds(name)
    if any(len(set(stage_values)) > 1 for stage_values in (*seconds, spec.update)):
        return None
    if (spec.flushes > 1 and name not in ("gpipe", "1f1b")) or (spec.update[0] and name == "async-1f1b"):
        return None
    forward, backward, weight = (stage_values[0] for stage_values in seconds)
    if name == "zb-h1" and not (spec.microbatches >= spec.stages and weight <= backward <= forward + weight):
        return None
    chunks = spec.chunks_of(name)
    if name == "gpipe" and isinstance(network, Link) and network.duplex == "full":
        nbytes = spec.pipeline(name).activation_bytes
        flush_s = gpipe_s(
            spec.stages, spec.microbatches, forward, backward,
            message_s=network.overhead_s + nbytes / network.goodput_bytes_per_s, latency_s=network.latency_s,
            ahead=messages_ahead(network, nbytes),
        )  # fmt: skip
    else:
        flush_s = pipeline_s(name, spec.stages, spec.microbatches, forward, backward, weight_s=weight, chunks=chunks)
    return float(spec.flushes * flush_s + spec.update[0])


def _traced(spec: PipelineSpec, simulated: Sequence[SimulatedSchedule]) -> tuple[Timeline, list[str]]:
    """Return one timeline whose workers are the stages of all schedules, and the workers' names, for a trace."""
    workers = spec.stages * spec.replicas
    share = MOST_TRACED / sum(len(schedule.timeline) for schedule in simulated)
    first = spec.microbatches if share >= 1 else max(1, int(spec.microbatches * share))
    parts = [schedule.timeline.head(first).to_columns() for schedule in simulated]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["worker"] = np.concatenate([part["worker"] + workers * index for index, part in enumerate(parts)])
    names = []
    for schedule, replica, stage in product(simulated, range(spec.replicas), range(spec.stages)):
        replica_name = f"replica {replica + 1}, " if spec.replicas > 1 else ""
        names.append(f"{_title(spec, schedule)}, {replica_name}stage {stage + 1}")
    return Timeline.from_columns(columns, workers * len(simulated)), names


def _title(spec: PipelineSpec, schedule: SimulatedSchedule) -> str:
    """Return the name of a schedule, with its network if there are several."""
    return f"{schedule.schedule}, {schedule.network}" if len(spec.networks) > 1 else schedule.schedule


def _draw(folder: RunFolder, spec: PipelineSpec, simulated: Sequence[SimulatedSchedule]) -> None:
    """Draw the beginnings of the schedules into the folder; schedules on one network share a time axis."""
    from syncline.analysis import save  # only here: matplotlib is slow to load
    from syncline.analysis.timelines import SchedulePanel, draw_schedules

    panels = []
    drawn_schedules = simulated[: max(1, MOST_STAGES_DRAWN // spec.stages)]
    for network, group in groupby(drawn_schedules, key=lambda schedule: schedule.network):
        schedules = list(group)
        timelines = [schedule.timeline[schedule.timeline.worker < spec.stages] for schedule in schedules]
        until_s = min(_drawn_until_s(timeline, spec.stages) for timeline in timelines)
        for schedule, timeline in zip(schedules, timelines, strict=True):
            shown_spans = task_spans(timeline, spec.build_schedule(schedule.schedule), until_s)
            cut_note = (
                " (its beginning)" if len(shown_spans) < (timeline.computes & (timeline.what != UPDATE)).sum() else ""
            )
            panels.append(
                SchedulePanel(_title(spec, schedule) + cut_note, spec.stages, tasks=shown_spans, group=network)
            )
    save(draw_schedules(panels), folder.figure("schedules"))


def _drawn_until_s(timeline: Timeline, stages: int) -> float:
    """Return the time until which a schedule is drawn, at which the largest number of drawn tasks has ended."""
    smallest, largest = MOST_DRAWN
    count = min(max(smallest, 2 * stages**2), largest)
    ends_s = timeline.end_s[timeline.computes]
    return float(np.partition(ends_s, count)[count]) if len(ends_s) > count else float("inf")


def pipeline_tables(rows: list[Record], spec: PipelineSpec) -> list[Group]:
    """Return a table of the schedules on each network, then a table of the stages on the first network."""
    tables = []
    has_closed_form = any(row["closed_form_s"] is not None for row in rows)
    columns, note = (COLUMNS, FORM_NOTE + NOTE) if has_closed_form else (COLUMNS.replace("closed_form_s ", ""), NOTE)
    for network in spec.links:
        network_rows = [row for row in rows if row["network"] == network.name]
        tables.append(
            table(
                _table_title(network, spec), columns, network_rows, note=note if network is spec.links[-1] else "",
                bounds=("makespan_s",), values=LARGEST,
            )
        )  # fmt: skip
        tables += _placement_tables(network_rows)
    first = [row for row in rows if row["network"] == spec.links[0].name]
    hidden = slice(MOST_STAGES // 2, -MOST_STAGES // 2) if spec.stages > MOST_STAGES else slice(0)
    stages = []
    for row in first:
        schedule_stages = [{"schedule": row["schedule"]} | stage for stage in row["per_stage"]]
        del schedule_stages[hidden]
        stages += schedule_stages
    columns = STAGE_COLUMNS + (" activations_bytes weights_bytes" if spec.model else "")
    title = "Stages" if len(spec.links) == 1 else f"Stages, on {spec.links[0].name}"
    note = STAGE_NOTE + ("" if len(stages) == len(first) * spec.stages else "\nStages in the middle: --json.")
    tables.append(table(title, columns, rows=stages, note=note, section="schedule"))
    return tables


def _placement_tables(rows: list[Record]) -> list[Group]:
    """Return a table of the placements that were timed for each schedule; no table if each has a single one."""
    lines = []
    for row in rows:
        placements = row.get("placements", ())
        given_s = next(
            (placement_row["makespan_s"] for placement_row in placements if placement_row["placement"] == "given"), None
        )
        if given_s is not None and len(placements) > 1:
            for placement_row in placements:
                lines.append(
                    {"schedule": row["schedule"], **placement_row, "saved": 1 - placement_row["makespan_s"] / given_s}
                )
    if not lines:
        return []
    columns = "schedule placement makespan_s saved"
    return [table("Placements of the ranks", columns, lines, note=PLACEMENT_NOTE, section="schedule")]


def _table_title(network: Network, spec: PipelineSpec) -> str:
    """Return the title of a network's table: the size of the pipeline, and the network."""
    work = f"{spec.stages:,} stages, {spec.microbatches:,} micro-batches"
    if spec.model is not None and spec.hardware is not None:
        work = f"{spec.model.name} on {spec.hardware.name}, {work} of {spec.tokens_per_microbatch:,} tokens"
    if spec.replicas > 1:
        work += f", {spec.replicas:,} replicas"
    if spec.flushes > 1:
        work += f", {spec.flushes:,} flushes"
    if not spec.networks:
        return f"{work}, free links"
    return f"{work}; " + (f"{network.name}: " if "," not in network.name else "") + network.describe()


FREE_MESSAGES = Uncertainty(1.0, 1.0, 0, "none, links are free")


def bounds_columns(spec: PipelineSpec, schedule: str, placed: PlacedPipeline) -> dict[str, Any]:
    """Return the columns with the bounds of the makespan in seconds, and their basis.

    Computing times that the user states are exact. Otherwise the pipeline is simulated again with computing at each of
    its bounds. The known errors of simulated messages are those of measured makespans as a whole.
    """
    machine = spec.hardware if spec.model is not None else None
    computing = computing_uncertainty(machine, None if spec.model is None else spec.model.width)
    messages = pipeline_uncertainty() if spec.networks else FREE_MESSAGES
    makespan_s = placed.timeline.makespan_s
    variants = [makespan_s * factor for factor in (1.0, 1.0, messages.low, messages.high)]
    if computing is not EXACT:
        pipeline = spec.pipeline(schedule)
        times = (pipeline.durations.forward_s, pipeline.durations.backward_s, pipeline.durations.weight_s)
        for variant, factor in enumerate((computing.low, computing.high)):
            durations = Durations(*(factor * np.asarray(seconds) for seconds in times))
            variants[variant] = run_pipeline(replace(pipeline, durations=durations), placed.network).makespan_s
    low_s, high_s = combined_bounds(np.array(makespan_s), [np.array(value) for value in variants])
    basis = basis_text(computing.basis, messages.basis)
    return {"makespan_low_s": float(low_s), "makespan_high_s": float(high_s), "basis": basis}
