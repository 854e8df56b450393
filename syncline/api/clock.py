"""Advice on the plans that train a model on a cluster.

Costs of the algorithms of collectives on networks.

Costs of failures, computed without a training.

Losses of large trainings that cannot be repeated here, predicted by published fits.

Inverse projections: the setting that meets a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from syncline.api.projection import projection_options, with_steps_of_tokens
from syncline.api.result import Result, later
from syncline.api.spec_arguments import warn_lines
from syncline.planner.advice.advice import compute_advice
from syncline.planner.advice.plans import first_spec
from syncline.planner.advice.question import advice_question
from syncline.planner.assumptions import option_origins
from syncline.planner.collectives import CostQuestion, costs_figure, transferred_parts
from syncline.planner.collectives import collectives as compute_costs
from syncline.planner.goodput.question import goodput_question, goodput_rows, notes
from syncline.planner.losses_at_scale import loss_rows
from syncline.planner.projection.projections import left_out, names_of
from syncline.planner.solving.question import DEFAULT_METHODS, InverseInputs
from syncline.planner.solving.solver import solve_assumptions, solve_rows
from syncline.planner.transfer import (
    failure_parts,
    refuse_transfers,
    tables_after,
    transfers,
    transfers_of,
)
from syncline.questions.clock import Collectives, Goodput, Loss
from syncline.questions.projections import Advise, Solve
from syncline.specs import Experiment, ProjectSpec, network_fields, resolve_cluster_options


def answer_advise(question: Advise) -> Result:
    """Return the plans of a question, ranked."""
    resolved = advice_question(question)
    transfers = transfers_of([first_spec(resolved)])
    refuse_transfers(transfers, question.strict)
    advice = compute_advice(resolved)
    tables = later("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    record = {"transferred": [transfer.record() for transfer in transfers]} | advice.record()
    return Result("advise", record, tables=partial(tables_after, transfers, tables))


def answer_collectives(question: Collectives) -> Result:
    """Return the costs of algorithms on the networks of a question."""
    networks, _, workers = resolve_cluster_options(question.cluster, question.networks, None, question.workers)
    cost_question = CostQuestion.from_options(
        workers, question.nbytes, networks, question.collectives, question.starts, question.algorithms,
        question.protocol,
    )  # fmt: skip
    return collectives_result(cost_question, strict=question.strict)


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None, strict: bool = False) -> Result:
    """Return the result of a question about collectives; compute the answer unless it is given.

    Raises:
        SpecError: the question is strict, and the answer would be transferred.
    """
    transfers = transferred_parts(question)
    refuse_transfers(transfers, strict)
    answer = compute_costs(question) if answer is None else answer
    tables = later("syncline.planner.collective_tables:collectives_tables", answer["rows"], question)
    fields = dataclasses.asdict(question) | {"networks": [network_fields(network) for network in question.networks]}
    figure = partial(costs_figure, question)
    record = {"transferred": [transfer.record() for transfer in transfers]} | answer
    first = partial(tables_after, transfers, tables)
    return Result("collectives", record, tables=first, figure=figure, asked=lambda: {"question": fields})


def answer_goodput(question: Goodput) -> Result:
    """Return the goodput in each combination of a question's values."""
    resolved = goodput_question(question)
    parts = transfers(failure_parts(resolved.failures))
    refuse_transfers(parts, question.strict)
    rows = goodput_rows(resolved)
    transferred = [transfer.record() for transfer in parts]
    answer = {"transferred": transferred, "rows": rows, "notes": notes(resolved, rows)}
    tables = later("syncline.planner.goodput.question:goodput_tables", rows, answer["notes"])
    failures = resolved.failures.model_dump(mode="json")
    return Result("goodput", answer, tables=partial(tables_after, parts, tables), asked=lambda: {"failures": failures})


def answer_loss(question: Loss) -> Result:
    """Return the loss of each training of a question, or the model that reaches a loss."""
    rows = loss_rows(question)
    return Result("loss", {"rows": rows}, tables=later("syncline.planner.losses_at_scale:loss_tables", rows))


def answer_solve(question: Solve) -> Result:
    """Return the setting of each method that meets the targets of a question."""
    inputs = InverseInputs(question)
    inputs.targets()  # refuse wrong targets before anything is read
    specs: Sequence[Experiment]
    if isinstance(question.spec, list | tuple):
        specs = question.spec
    else:
        own_methods = question.spec != Solve.spec
        specs = inputs.specs(*projection_options(question), own_methods=own_methods)
        warn_lines(left_out(specs))
    problem = inputs.question(question.variable, specs, own_methods=bool(question.methods))
    if specs is not question.spec:
        timed = with_steps_of_tokens(problem.specs, question)
        problem = replace(problem, specs=[spec for spec in timed if isinstance(spec, ProjectSpec)])
    transfers = transfers_of(problem.specs)
    refuse_transfers(transfers, question.strict)
    rows = solve_rows(problem)
    methods = names_of(question.methods or ()) or (DEFAULT_METHODS if question.spec == Solve.spec else ())
    assumptions = solve_assumptions(rows, problem, option_origins(methods, sequence=question.sequence))
    records = [assumption.record() for assumption in assumptions]
    transferred = [transfer.record() for transfer in transfers]
    answer = {"sought": problem.variable, "transferred": transferred, "assumptions": records, "rows": rows}
    tables = later("syncline.planner.solving.tables:solve_tables", rows, problem, assumptions)
    return Result("solve", answer, problem.specs[0], tables=partial(tables_after, transfers, tables))
