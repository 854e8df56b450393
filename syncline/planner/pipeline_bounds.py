"""Bounds of a simulated pipeline's makespan: computing and communication at their bounds, see `planner.bounds`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel.bases import EXACT, computing_uncertainty, pipeline_uncertainty
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.bounds import basis_text, combined_bounds
from syncline.planner.placement.choice import PlacedPipeline
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.specs import PipelineSpec

FREE_MESSAGES = Uncertainty(1.0, 1.0, 0, "none, links are free")


def bounds_columns(spec: PipelineSpec, schedule: str, placed: PlacedPipeline) -> dict[str, Any]:
    """Return the bounds of the makespan in seconds, and their basis.

    Computing is exact if the user sets its times; else the pipeline is simulated with each bound of the computing. The
    measured makespans of pipelines on lines bound the makespan as a whole.
    """
    machine = spec.hardware if spec.model is not None else None
    computing = computing_uncertainty(machine, None if spec.model is None else spec.model.width)
    lines = pipeline_uncertainty() if spec.networks else FREE_MESSAGES
    makespan_s = placed.timeline.makespan_s
    variants = [makespan_s * factor for factor in (1.0, 1.0, lines.low, lines.high)]
    if computing is not EXACT:
        pipeline = spec.pipeline(schedule)
        for variant, factor in enumerate((computing.low, computing.high)):
            variants[variant] = run_pipeline(_slower(pipeline, factor), placed.network).makespan_s
    low_s, high_s = combined_bounds(np.array(makespan_s), [np.array(value) for value in variants])
    return {
        "makespan_low_s": float(low_s), "makespan_high_s": float(high_s),
        "basis": basis_text(computing.basis, lines.basis),
    }  # fmt: skip


def _slower(pipeline: Pipeline, factor: float) -> Pipeline:
    """Return a pipeline whose tasks take ``factor`` times as long."""
    times = (pipeline.durations.forward_s, pipeline.durations.backward_s, pipeline.durations.weight_s)
    return replace(pipeline, durations=Durations(*(factor * np.asarray(seconds) for seconds in times)))
