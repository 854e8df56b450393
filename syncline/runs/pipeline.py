"""The command ``syncline pipeline``: simulated schedules of a pipeline on networks, with a figure and a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group

from syncline.costmodel import Link, Network
from syncline.costmodel.bases import EXACT, PIPELINES_ON_LINES, computing_uncertainty
from syncline.costmodel.layouts.pipelines import CLOSED_FORMS, gpipe_s, pipeline_s
from syncline.costmodel.network.software_costs import messages_ahead
from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainties
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

LEAST_TASKS_DRAWN, MOST_TASKS_DRAWN = 1500, 20_000
"""Fewest and most tasks of a schedule in the figure; between them it has twice the square of the stages."""

MAX_TRACED_SPANS = 500_000
"""Largest number of spans in the trace, about 100 MB; of more it has the first micro-batches."""

MOST_STAGES_DRAWN = 256
"""Largest number of rows of the figure; further panels are left out, except for the first."""

MOST_STAGES = 16
"""Largest number of stages in the table; of more it has half of this number from each end."""


def largest_of_stages(field: str) -> Callable[[Record], int]:
    """Return a function that takes a schedule's row and returns the largest value of a field among its stages."""
    return lambda row: max(stage[field] for stage in row["per_stage"])


COLUMNS = (
    "schedule makespan_s closed_form_s bubble utilisation microbatches_per_s most_delay most_activations most_versions"
)
LARGEST_OF_STAGES: dict[str, Any] = {
    "most_delay": largest_of_stages("delay_steady"), "most_activations": largest_of_stages("peak_activations"),
    "most_versions": largest_of_stages("weight_versions"),
}  # fmt: skip
"""Columns of a schedule that its stages decide."""

CLOSED_FORM_NOTE = (
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
    """A simulated pipeline schedule: its name, the name of the network that joins its stages, and the timeline."""

    name: str
    network: str
    timeline: Timeline


def pipeline(spec: PipelineSpec, out: Path, *, exact: bool = False, figures: bool = True) -> dict[str, Any]:
    """Simulate a pipeline's schedules on its networks, and write the folder with spec, timelines, trace and figure.

    Returns:
        ``rows`` (sorted by network, then schedule), ``folder``, ``interrupted``.
    """
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        simulated, rows = [], []
        for network in spec.links:
            for schedule in spec.schedules:
                placed = run_placed(spec, schedule, network)
                simulated.append(SimulatedSchedule(schedule, network=network.name, timeline=placed.timeline))
                schedule_report = report(placed.timeline, spec.build_schedule(schedule), spec.stages)
                row = schedule_row(spec, schedule, network=network.name, report=schedule_report)
                row |= {"placement": placed.placement, "ranks": placed.ranks}
                candidates = placed.candidates.items()
                row["placements"] = [{"placement": name, "makespan_s": seconds} for name, seconds in candidates]
                rows.append(row | bounds_columns(spec, schedule, placed))
        folder.json("run", environment() | {"interrupted": False, "rows": rows})
        folder.table("timeline", timeline_columns(simulated))
        timeline, worker_names = _joined_timeline(spec, simulated)
        folder.trace(chrome_trace(timeline, worker_names))
        if figures:
            _draw(folder, spec, simulated)
    return {"rows": rows, "folder": str(folder.path), "interrupted": False}


def schedule_row(spec: PipelineSpec, schedule: str, network: str, report: PipelineReport) -> dict[str, Any]:
    """Return the row of a schedule on a network: its makespan, its bubble, and the delays and memory of each stage.

    Args:
        network: name of the network; if the spec lacks it, the closed form has free links.
    """
    networks = {link.name: link for link in spec.links}
    chunks = spec.chunks_of(schedule)
    activation_bytes, weights_bytes = spec.stored_activation_bytes(chunks), spec.weights_bytes(chunks)
    per_stage = []
    for index, stage in enumerate(report.stages):
        stage_row = {
            "stage": index + 1, "utilisation": stage.utilisation, "delay_steady": stage.delay_steady,
            "delay_mean": sum(stage.delays) / len(stage.delays), "delays": list(stage.delays),
            "peak_activations": stage.peak_activations, "weight_versions": stage.weight_versions,
            "activations_bytes": None, "weights_bytes": None,
        }  # fmt: skip
        if activation_bytes is not None:
            stage_row["activations_bytes"] = stage.peak_activations * activation_bytes[index]
        if weights_bytes is not None:
            stage_row["weights_bytes"] = stage.weight_versions * weights_bytes[index]
        per_stage.append(stage_row)
    return {
        "schedule": schedule, "network": network, "stages": spec.stages, "microbatches": spec.microbatches,
        "chunks": chunks, "replicas": spec.replicas, "flushes": spec.flushes, "averaging": spec.averaging,
        "makespan_s": report.makespan_s,
        "closed_form_s": makespan_closed_form_s(spec, schedule, networks.get(network, FREE)),
        "bubble": report.bubble,
        "utilisation": sum(stage.utilisation for stage in report.stages) / len(report.stages),
        "microbatches_per_s": report.microbatches_per_s,
        "per_stage": per_stage,
    }  # fmt: skip


def makespan_closed_form_s(spec: PipelineSpec, schedule: str, network: Network) -> float | None:
    """Return the seconds of a schedule in closed form; None if stages differ or the schedule has no closed form.

    Jitter and averaging between replicas are not included. Messages are included for GPipe on equal links only.
    """
    has_limits = schedule_kind(schedule).takes_limits and spec.max_in_flight is not None  # no closed form has them
    if schedule not in CLOSED_FORMS or has_limits:
        return None
    stage_seconds = spec.stage_seconds(schedule)
    for values_by_stage in (*stage_seconds, spec.update):
        if len(set(values_by_stage)) > 1:
            return None
    forward_s, backward_s, weight_s = (values_by_stage[0] for values_by_stage in stage_seconds)
    update_s = spec.update[0]
    if spec.flushes > 1 and schedule not in ("gpipe", "1f1b"):  # flushes of other schedules overlap
        return None
    if update_s and schedule == "async-1f1b":  # its updates take place within the schedule
        return None
    has_filled_bubble = spec.microbatches >= spec.stages and weight_s <= backward_s <= forward_s + weight_s
    if schedule == "zb-h1" and not has_filled_bubble:  # the form assumes a bubble full of weight gradients
        return None
    if schedule == "gpipe" and isinstance(network, Link) and network.duplex == "full":
        nbytes = spec.pipeline(schedule).activation_bytes
        flush_s = gpipe_s(
            spec.stages, spec.microbatches, forward_s, backward_s,
            message_s=network.overhead_s + nbytes / network.goodput_bytes_per_s, latency_s=network.latency_s,
            ahead=messages_ahead(network, nbytes),
        )  # fmt: skip
    else:
        flush_s = pipeline_s(
            schedule, spec.stages, spec.microbatches, forward_s, backward_s,
            weight_s=weight_s, chunks=spec.chunks_of(schedule),
        )  # fmt: skip
    return float(spec.flushes * flush_s + update_s)


def _joined_timeline(spec: PipelineSpec, simulated: Sequence[SimulatedSchedule]) -> tuple[Timeline, list[str]]:
    """Return one timeline with the stages of all schedules as workers, and the workers' names.

    It has at most about `MAX_TRACED_SPANS` spans, those of the first micro-batches.
    """
    num_spans = sum(len(schedule.timeline) for schedule in simulated)
    traced_microbatches = spec.microbatches
    if num_spans > MAX_TRACED_SPANS:
        traced_microbatches = max(1, int(spec.microbatches * (MAX_TRACED_SPANS / num_spans)))
    names = []
    for schedule, replica, stage in product(simulated, range(spec.replicas), range(spec.stages)):
        replica_name = f"replica {replica + 1}, " if spec.replicas > 1 else ""
        names.append(f"{_title(spec, schedule)}, {replica_name}stage {stage + 1}")
    return Timeline.side_by_side(schedule.timeline.head(traced_microbatches) for schedule in simulated), names


def _title(spec: PipelineSpec, schedule: SimulatedSchedule) -> str:
    """Return the name of a simulated schedule, with its network if the spec has several."""
    return f"{schedule.name}, {schedule.network}" if len(spec.networks) > 1 else schedule.name


def _draw(folder: RunFolder, spec: PipelineSpec, simulated: Sequence[SimulatedSchedule]) -> None:
    """Draw the beginnings of the schedules into the folder; schedules on one network share a time axis."""
    from syncline.analysis import save  # only here: matplotlib is slow to load
    from syncline.analysis.timelines import SchedulePanel, draw_schedules

    panels = []
    most_panels = max(1, MOST_STAGES_DRAWN // spec.stages)  # the first schedule is drawn however many stages it has
    for network, group in groupby(simulated[:most_panels], key=lambda schedule: schedule.network):
        schedules = list(group)
        # Only the first replica is drawn.
        timelines = [schedule.timeline[schedule.timeline.worker < spec.stages] for schedule in schedules]
        # All panels of a network end at the same time, at which none has too many tasks yet.
        end_of_axis_s = min(_drawn_until_s(timeline, spec.stages) for timeline in timelines)
        for schedule, timeline in zip(schedules, timelines, strict=True):
            spans = task_spans(timeline, spec.build_schedule(schedule.name), end_of_axis_s)
            title = _title(spec, schedule)
            num_tasks = (timeline.computes & (timeline.what != UPDATE)).sum()  # an update is no task of a schedule
            if len(spans) < num_tasks:
                title += " (its beginning)"
            panels.append(SchedulePanel(title, spec.stages, tasks=spans, group=network))
    save(draw_schedules(panels), folder.figure("schedules"))


def _drawn_until_s(timeline: Timeline, stages: int) -> float:
    """Return the end of a schedule's figure in seconds; infinite if all tasks can be drawn.

    For K stages the figure has the ``2 K^2`` tasks of K micro-batches, but at least `LEAST_TASKS_DRAWN` and at most
    `MOST_TASKS_DRAWN` tasks.
    """
    num_tasks = min(max(LEAST_TASKS_DRAWN, 2 * stages**2), MOST_TASKS_DRAWN)
    ends_s = timeline.end_s[timeline.computes]
    if len(ends_s) <= num_tasks:
        return math.inf
    first_end_not_drawn_s = np.partition(ends_s, num_tasks)[num_tasks]
    return float(first_end_not_drawn_s)


def pipeline_tables(rows: list[Record], spec: PipelineSpec) -> list[Group]:
    """Return a table of the schedules on each network, then a table of the stages on the first network."""
    tables = []
    columns, note = COLUMNS, CLOSED_FORM_NOTE + NOTE
    if all(row["closed_form_s"] is None for row in rows):
        columns, note = COLUMNS.replace("closed_form_s ", ""), NOTE
    for network in spec.links:
        network_rows = [row for row in rows if row["network"] == network.name]
        is_last = network is spec.links[-1]  # the note stands once, below the last table
        tables.append(
            table(
                _table_title(spec, network), columns, network_rows, note=note if is_last else "",
                bounds=("makespan_s",), values=LARGEST_OF_STAGES,
            )
        )  # fmt: skip
        tables += _placement_tables(network_rows)
    return [*tables, _stage_table(rows, spec)]


def _stage_table(rows: list[Record], spec: PipelineSpec) -> Group:
    """Return a table of the stages on the first network; of more than `MOST_STAGES`, without those in the middle."""
    first_network = spec.links[0].name
    has_all_stages = spec.stages <= MOST_STAGES
    stage_rows = []
    for row in rows:
        if row["network"] != first_network:
            continue
        stages = row["per_stage"]
        shown = stages if has_all_stages else stages[: MOST_STAGES // 2] + stages[-MOST_STAGES // 2 :]
        stage_rows += [{"schedule": row["schedule"]} | stage for stage in shown]
    columns = STAGE_COLUMNS + (" activations_bytes weights_bytes" if spec.model else "")
    title = "Stages" if len(spec.links) == 1 else f"Stages, on {first_network}"
    note = STAGE_NOTE + ("" if has_all_stages else "\nStages in the middle: --json.")
    return table(title, columns, stage_rows, note=note, section="schedule")


def _placement_tables(rows: list[Record]) -> list[Group]:
    """Return a table of the placements that were timed for each schedule; no table if each has a single one."""
    table_rows = []
    for row in rows:
        placements = row.get("placements", ())
        makespans_s = {placement["placement"]: placement["makespan_s"] for placement in placements}
        given_s = makespans_s.get("given")  # the network's own placement, see `PLACEMENT_NOTE`
        if given_s is not None and len(placements) > 1:
            for placement in placements:
                saved_share = 1 - placement["makespan_s"] / given_s
                table_rows.append({"schedule": row["schedule"], **placement, "saved": saved_share})
    if not table_rows:
        return []
    columns = "schedule placement makespan_s saved"
    return [table("Placements of the ranks", columns, table_rows, note=PLACEMENT_NOTE, section="schedule")]


def _table_title(spec: PipelineSpec, network: Network) -> str:
    """Return the title of a network's table: the size of the pipeline, and the network, or that links are free."""
    work = f"{spec.stages:,} stages, {spec.microbatches:,} micro-batches"
    if spec.model is not None and spec.hardware is not None:
        work = f"{spec.model.name} on {spec.hardware.name}, {work} of {spec.tokens_per_microbatch:,} tokens"
    if spec.replicas > 1:
        work += f", {spec.replicas:,} replicas"
    if spec.flushes > 1:
        work += f", {spec.flushes:,} flushes"
    if not spec.networks:
        return f"{work}, free links"
    if "," in network.name:  # a network without a name of its own is called by its description
        return f"{work}; {network.describe()}"
    return f"{work}; {network.name}: {network.describe()}"


FREE_MESSAGES = Uncertainty(low=1.0, high=1.0, basis="none, links are free")


def bounds_columns(spec: PipelineSpec, schedule: str, placed: PlacedPipeline) -> dict[str, Any]:
    """Return the columns with the bounds of a schedule's makespan in seconds, and with the measurements behind them.

    Computing times that the user states are exact. Otherwise the pipeline is simulated again with computing at each of
    its bounds. Bounds of messages are factors on the whole makespan, because they are errors of measured makespans.
    """
    if spec.model is None:
        computing = computing_uncertainty(machine=None, width=None)
    else:
        computing = computing_uncertainty(spec.hardware, spec.model.width)
    messages = uncertainties()[PIPELINES_ON_LINES] if spec.networks else FREE_MESSAGES
    makespan_s = placed.timeline.makespan_s

    def makespan_with_computing_s(factor: float) -> float:
        """Return the seconds of the makespan if all computing takes ``factor`` times as long."""
        if computing is EXACT:
            return makespan_s
        pipeline = spec.pipeline(schedule)
        durations = Durations(
            factor * np.asarray(pipeline.durations.forward_s),
            factor * np.asarray(pipeline.durations.backward_s),
            factor * np.asarray(pipeline.durations.weight_s),
        )
        return run_pipeline(replace(pipeline, durations=durations), placed.network).makespan_s

    computing_s = [makespan_with_computing_s(factor) for factor in (computing.low, computing.high)]
    messages_s = [makespan_s * factor for factor in (messages.low, messages.high)]
    low_s, high_s = combined_bounds(np.array(makespan_s), [np.array(seconds) for seconds in computing_s + messages_s])
    basis = basis_text(computing.basis, messages.basis)
    return {"makespan_low_s": float(low_s), "makespan_high_s": float(high_s), "basis": basis}
