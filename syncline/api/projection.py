"""Clocks projected in closed form, without a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from syncline.api.result import Result, deferred
from syncline.api.spec_arguments import changes_of, spec_of, warn_lines
from syncline.planner.assumptions import ASSUMPTION_COLUMNS, option_origins, projection_assumptions
from syncline.planner.projection import projections
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.project import FASTEST, SEARCH, placed_spec, project_all
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.transfer import Transfer, refuse_transfers, transfers_of
from syncline.questions.projections import Project
from syncline.questions.shared import Projection
from syncline.registry import lazy_function
from syncline.specs import Experiment, ProjectSpec, networks_and_workers, resolve_cluster_options
from syncline.specs.cluster.hardware import parse_prices
from syncline.specs.failures import failures_of
from syncline.units import parse_count

# Losses, prices and failures of a whole training are imported only for a question about one.
with_training = lazy_function("syncline.planner.projection.training_totals:with_training")


def projection_options(question: Projection, studies_of: str = "") -> tuple[Experiment, projections.Options]:
    """Return the base spec of a question about projections, and the options that vary it.

    Args:
        question: the question; batch and period are options of `project` only, as `solve` applies them itself.
        studies_of: command whose studies are also accepted as specs; empty for none.
    """
    networks, machines, workers = resolve_cluster_options(
        question.cluster, question.networks, machines=question.hardware, workers=question.workers
    )
    networks, num_workers = networks_and_workers(networks)
    question = dataclasses.replace(question, networks=networks)
    # A matrix of places decides the workers of a bundled spec; a user's own spec states them.
    is_bundled = isinstance(question.spec, str) and not question.spec.endswith(".yaml")
    if workers is None and is_bundled and not any(change.path == "workers" for change in changes_of(question)):
        workers = num_workers
    spec: Experiment = spec_of(question, ("networks", "placement"), ProjectSpec, kind="project", studies_of=studies_of)
    batch_tokens, period = (question.batch_tokens, question.period) if isinstance(question, Project) else (None, None)
    options = projections.Options(
        workers, question.model or (), hardware=machines or (), methods=question.methods or (),
        overlap=question.overlap, algorithm=question.algorithm,
        sequence=question.sequence, precision=question.precision, layouts=question.layout or (),
        batch_tokens=batch_tokens, period=period,
    )  # fmt: skip
    return spec, options


def answer_project(question: Project) -> Result:
    """Return the projected time of each combination of the question's values; warn of combinations left out."""
    specs: Sequence[Experiment]
    if isinstance(question.spec, list | tuple):
        specs = question.spec
    else:
        specs = projections.variants(*projection_options(question, studies_of="project"))
        warn_lines(projections.left_out(specs))
        specs = with_steps_of_tokens(specs, question)
    transfers = transfers_of(specs)
    refuse_transfers(transfers, question.strict)
    searches_placement = any(isinstance(spec, ProjectSpec) and spec.placement == SEARCH for spec in specs)
    specs = [placed_spec(spec) if isinstance(spec, ProjectSpec) else spec for spec in specs]
    tokens = None if question.tokens is None else parse_count(question.tokens, "tokens")
    prices = None if question.prices is None else parse_prices(question.prices)
    training = WholeTraining(tokens, question.target_loss, prices, question.extrapolate, failures_of(question))
    methods = projections.names_of(question.methods or ())
    origins = option_origins(methods, question.period, question.sequence, question.batch_tokens)
    if searches_placement:
        origins["placement"] = FASTEST
    rows = project_all(specs, question.thresholds)
    if not training.is_empty:
        rows = with_training(rows, specs, training)
    return projection_result(specs, rows, transfers, origins)


def with_steps_of_tokens(specs: Sequence[Experiment], question: Projection) -> Sequence[Experiment]:
    """Return the specs with the steps that process the question's tokens, unless the question sets ``steps``."""
    if question.tokens is None or any(change.path == "steps" for change in changes_of(question)):
        return specs
    tokens = parse_count(question.tokens, "tokens")
    return [projections.with_steps_for(spec, tokens) for spec in specs]


def projection_result(
    specs: Sequence[Experiment],
    rows: Sequence[dict[str, Any]],
    transfers: Sequence[Transfer],
    origins: Mapping[str, str] | None = None,
) -> Result:
    """Return the result of projections from their rows.

    Args:
        specs: specs of the projections, or the spec of a study.
        rows: rows of the projections.
        transfers: parts of the projections that rest on measurements of other machines, sizes or scales.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """
    assumptions = projection_assumptions(
        [spec for spec in specs if isinstance(spec, ProjectSpec)],
        rows.distinct(ASSUMPTION_COLUMNS) if isinstance(rows, ColumnRows) else rows,
        origins,
    )
    record = {
        "spec": specs[0].name,
        "transferred": [transfer.record() for transfer in transfers],
        "assumptions": [assumption.record() for assumption in assumptions],
        "rows": rows,
    }
    tables = deferred("syncline.planner.projection.tables:project_tables", rows, *specs, assumptions=assumptions)
    return Result(
        "project", record, specs[0], tables=tables, transfers=transfers,
        figure=partial(projections.projection_figure, specs, rows),
        question=lambda: {"specs": [spec.model_dump(mode="json") for spec in specs], "origins": dict(origins or {})},
    )  # fmt: skip
