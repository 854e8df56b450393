"""Clocks projected in closed form, without a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from syncline.api.result import Result
from syncline.api.spec_arguments import changes_of, spec_of, warn_lines
from syncline.planner.assumptions import OF_ROWS, option_origins, projection_assumptions
from syncline.planner.projection import projections
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.training_totals import WholeTraining, with_training
from syncline.questions.project import Project
from syncline.questions.shared import Projection
from syncline.specs import Experiment, ProjectSpec, resolve_cluster_options
from syncline.specs.failures import failures_of
from syncline.specs.prices import parse_prices
from syncline.units import parse_count

if TYPE_CHECKING:
    from rich.console import Group


def projection_options(
    question: Projection, batch_tokens: Any = None, period: Any = None, studies_of: str = ""
) -> tuple[Experiment, projections.Options]:
    """Return the spec of a question about projections, and the options that make several specs of it."""
    networks, machines, workers = resolve_cluster_options(
        question.cluster, question.networks, question.hardware, question.workers
    )
    question = dataclasses.replace(question, networks=networks)
    spec: Experiment = spec_of(question, {"networks": "networks"}, ProjectSpec, kind="project", studies_of=studies_of)
    options = projections.Options(
        workers, question.model or (), machines or (), question.methods or (), question.overlap, question.algorithm,
        question.sequence, question.precision, question.layout or (), batch_tokens, period,
    )  # fmt: skip
    return spec, options


def projection_specs(question: Project) -> Sequence[Experiment]:
    """Return the specs of a question, one for each combination of its values, and warn of those that are left out."""
    if isinstance(question.spec, list | tuple):
        return question.spec
    specs: Sequence[Experiment] = projections.variants(
        *projection_options(question, question.batch_tokens, question.period, studies_of="project")
    )
    warn_lines(projections.left_out(specs))
    return with_steps_of_tokens(specs, question)


def with_steps_of_tokens(specs: Sequence[Experiment], question: Projection) -> Sequence[Experiment]:
    """Return the specs with as many steps as the tokens of a question take, unless the question sets ``steps``."""
    if question.tokens is None or any(change.path == "steps" for change in changes_of(question, {})):
        return specs
    tokens = parse_count(question.tokens, "tokens")
    return [projections.with_steps_for(spec, tokens) for spec in specs]


def answer_project(question: Project, specs: Sequence[Experiment] | None = None) -> Result:
    """Return the projections of a question, or of its specs if they are made already."""
    specs = projection_specs(question) if specs is None else specs
    training = WholeTraining(
        None if question.tokens is None else parse_count(question.tokens, "tokens"),
        question.target_loss,
        None if question.prices is None else parse_prices(question.prices),
        question.extrapolate,
        failures_of(question),
    )
    origins = option_origins(projections.names_of(question.methods or ()), question.period, question.sequence)
    return projection_result(specs, thresholds=question.thresholds, training=training, origins=origins)


def projection_result(
    specs: Sequence[Experiment],
    rows: Sequence[dict[str, Any]] | None = None,
    thresholds: bool | None = None,
    training: WholeTraining | None = None,
    origins: Mapping[str, str] | None = None,
) -> Result:
    """Return the result of projections; compute the rows unless they are given.

    Args:
        specs: the projections, or the spec of a study.
        rows: rows that are known already.
        thresholds: whether rows have thresholds of the bandwidth; None: with few projections.
        training: options of the whole training.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """

    def tables() -> list[Group]:
        from syncline.planner.projection.tables import project_tables  # lazy import: JSON needs no rich

        return project_tables(list(all_rows), *specs, assumptions=assumptions)

    all_rows = projections.projection_rows(specs, thresholds) if rows is None else rows
    if training is not None and not training.is_nothing:
        all_rows = with_training(all_rows, specs, training)
    assumptions = projection_assumptions(
        [spec for spec in specs if isinstance(spec, ProjectSpec)],
        all_rows.distinct(OF_ROWS) if isinstance(all_rows, ColumnRows) else all_rows,
        origins,
    )
    return Result(
        "project",
        {"spec": specs[0].name, "assumptions": [assumption.record() for assumption in assumptions], "rows": all_rows},
        specs[0],
        tables=tables,
        figure=partial(projections.projection_figure, specs, all_rows),
        asked=lambda: {"specs": [spec.model_dump(mode="json") for spec in specs]},
    )
