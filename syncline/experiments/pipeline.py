"""``syncline pipeline``: a schedule on its links: bubble, delays, memory, a picture, a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.costmodel.pipelines import CLOSED_FORMS, pipeline_s
from syncline.experiments.folder import RunFolder, environment
from syncline.sim.pipeline import PipelineReport, boxes, report, run_pipeline
from syncline.sim.trace import chrome_trace

if TYPE_CHECKING:
    from syncline.sim.timeline import Timeline
    from syncline.specs import PipelineSpec

MOST_DRAWN = 1500
"""Boxes beyond which the picture shows only the first micro-batches."""


def pipeline(spec: PipelineSpec, out: Path, *, exact: bool = False) -> dict[str, Any]:
    """Play a schedule, and write its folder: the spec, ``timeline.parquet``, ``trace.json``, the picture.

    Returns:
        ``rows`` (one), ``folder``.
    """
    from syncline.experiments.tables import timeline_columns

    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        schedule = spec.build_schedule()
        timeline = run_pipeline(
            schedule,
            spec.durations(),
            spec.network,
            stages=spec.stages,
            activation_bytes=spec.sent_bytes(),
            replicas=spec.replicas,
            gradient_bytes=spec.gradient_bytes(),
        )
        told = report(timeline, schedule, spec.stages)
        row = _row(spec, told)
        folder.json("run", environment() | {"seed": spec.seed, "rows": [row]})
        folder.table("timeline", timeline_columns([(spec.schedule, spec.network.name, timeline)]))
        names = [f"replica {w // spec.stages + 1}, " * (spec.replicas > 1) + f"stage {w % spec.stages + 1}"
                 for w in range(timeline.workers)]  # fmt: skip
        folder.trace(chrome_trace(timeline, names))
        _draw(folder, spec, timeline)
    return {"rows": [row], "folder": str(folder.path)}


def _row(spec: PipelineSpec, told: PipelineReport) -> dict[str, Any]:
    return {
        "schedule": spec.schedule,
        "stages": spec.stages,
        "microbatches": spec.microbatches,
        "chunks": spec.chunks,
        "replicas": spec.replicas,
        "network": spec.network.name,
        "makespan_s": told.makespan_s,
        "closed_form_s": closed_form_s(spec),
        "bubble": told.bubble,
        "utilisation": sum(stage.utilisation for stage in told.stages) / len(told.stages),
        "microbatches_per_s": told.microbatches_per_s,
        "per_stage": [
            {
                "stage": number,
                "utilisation": stage.utilisation,
                "delay_steady": stage.delay_steady,
                "delays": list(stage.delays),
                "peak_activations": stage.peak_activations,
                "weight_versions": stage.weight_versions,
            }
            for number, stage in enumerate(told.stages, 1)
        ],
    }


def closed_form_s(spec: PipelineSpec) -> float | None:
    """The makespan with even stages, no jitter and free links; None where stages differ or there is no closed form."""
    forward, backward, weight = spec._stage_seconds()
    even = all(len(set(seconds)) == 1 for seconds in (forward, backward, weight))
    if spec.schedule not in CLOSED_FORMS or not even:
        return None
    return float(
        pipeline_s(
            spec.schedule, spec.stages, spec.microbatches, forward[0], backward[0], weight_s=weight[0],
            chunks=spec.chunks,
        )
    )  # fmt: skip


def _draw(folder: RunFolder, spec: PipelineSpec, timeline: Timeline) -> None:
    from syncline.analysis.figures.pipeline import Box, SchedulePanel, draw_schedules

    tasks = [Box(*box) for box in boxes(timeline, spec.build_schedule()) if box.stage < spec.stages]
    title = f"{spec.schedule}, {spec.stages} stages, {spec.microbatches} micro-batches"
    if len(tasks) > MOST_DRAWN:
        last = max(2 * spec.stages, MOST_DRAWN // (3 * spec.stages))
        end_s = max(box.end_s for box in tasks if box.microbatch < last)
        tasks = [box for box in tasks if box.end_s <= end_s]
        title += f", the first {last}"
    folder.figure("schedule", draw_schedules([SchedulePanel(title, spec.stages, tasks)]))
