"""Trainings in one process: a comparison of several methods, or one run in detail."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import spec_of
from syncline.questions.compare import Compare
from syncline.questions.run import Run
from syncline.specs import CompareSpec, Experiment, RunSpec


def comparison_spec(question: Compare) -> CompareSpec:
    """Return the spec of a comparison, and warn of settings that are probably mistakes."""
    names = ("problem", "methods", "networks", "workers", "steps", "seeds", "compute")
    text = {} if question.text is None else {"text": "problem.path"}
    spec: CompareSpec = spec_of(question, {name: name for name in names} | text, CompareSpec, kind="compare")
    return spec


def answer_compare(question: Compare, spec: CompareSpec | None = None) -> Result:
    """Return the comparison of a question, or of its spec if it is made already."""
    spec = comparison_spec(question) if spec is None else spec
    from syncline.runs import compare as experiment

    exact, figures = question.exact and question.out is not None, question.out is not None
    with place(question.out, spec.name) as (path, scratch):
        answer = experiment.compare(
            spec, path, exact=exact, jobs=question.jobs, figures=figures, on_progress=question.on_progress
        )
    return comparison_result(spec, answer, scratch)


def comparison_result(spec: CompareSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a comparison from its answer."""
    from syncline.planner.tables.display import compare_tables

    tables = partial(compare_tables, answer["rows"], spec)
    return Result("compare", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


def training_spec(question: Run) -> Experiment:
    """Return the spec of a training or of a study, and warn of settings that are probably mistakes."""
    names = ("problem", "method", "network", "workers", "steps", "seeds", "compute")
    fields = {name: name for name in names}
    spec: Experiment = spec_of(question, fields, RunSpec, kind="run", studies_of="run", scale=question.scale)
    return spec


def answer_run(question: Run, spec: Experiment | None = None) -> Result:
    """Return the training of a question, or of its spec if it is made already."""
    spec = training_spec(question) if spec is None else spec
    from syncline.runs import run as experiment

    exact, figures = question.exact and question.out is not None, question.out is not None
    with place(question.out, spec.name) as (path, scratch):
        answer = experiment.run(spec, path, exact=exact, figures=figures, on_progress=question.on_progress)
    return run_result(spec, answer, scratch)


def run_result(spec: Experiment, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a run, or of a study, from its answer."""
    from syncline.planner.tables.display import run_tables

    tables = partial(run_tables, answer["rows"], spec)
    return Result("run", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)
