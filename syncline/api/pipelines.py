"""Simulated schedules of a pipeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import spec_of
from syncline.questions.pipeline import Pipeline
from syncline.specs import PipelineSpec


def pipeline_spec(question: Pipeline) -> PipelineSpec:
    """Return the spec of a pipeline, and warn of settings that are probably mistakes."""
    names = (
        "schedules", "stages", "microbatches", "forward", "backward", "backward_weight", "chunks", "max_in_flight",
        "networks", "activation_bytes", "replicas", "jitter", "seed",
    )  # fmt: skip
    spec: PipelineSpec = spec_of(question, {name: name for name in names}, PipelineSpec, kind="pipeline")
    return spec


def answer_pipeline(question: Pipeline, spec: PipelineSpec | None = None) -> Result:
    """Return the simulated schedules of a question, or of its spec if it is made already."""
    spec = pipeline_spec(question) if spec is None else spec
    from syncline.runs import pipeline as experiment

    exact, figures = question.exact and question.out is not None, question.out is not None
    with place(question.out, spec.name) as (path, scratch):
        answer = experiment.pipeline(spec, path, exact=exact, figures=figures)
    return pipeline_result(spec, answer, scratch)


def pipeline_result(spec: PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of schedules that were simulated."""
    from syncline.runs.pipeline import pipeline_tables

    tables = partial(pipeline_tables, answer["rows"], spec)
    return Result("pipeline", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)
