"""Answers about the clock or the loss that need no training: advice, collectives, goodput, losses, solved settings."""

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
from syncline.planner.transfer import failure_parts, refuse_transfers, tables_after, transfers, transfers_of
from syncline.questions.clock import Collectives, Goodput, Loss
from syncline.questions.projections import Advise, Solve
from syncline.specs import Experiment, ProjectSpec, network_fields, resolve_cluster_options


def answer_advise(question: Advise) -> Result:
    """Return the ranked plans that train a model on a cluster."""
    resolved = advice_question(question)
    transfers = transfers_of([first_spec(resolved)])  # parts that rest on measurements of other machines or sizes
    refuse_transfers(transfers, question.strict)
    advice = compute_advice(resolved)
    tables = later("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    record = {"transferred": [transfer.record() for transfer in transfers]} | advice.record()
    return Result("advise", record, tables=partial(tables_after, transfers, tables))


def answer_collectives(question: Collectives) -> Result:
    """Return the time of each algorithm of the question's collectives on its networks."""
    networks, _, workers = resolve_cluster_options(
        question.cluster, question.networks, machines=None, workers=question.workers
    )
    cost_question = CostQuestion.from_options(
        workers, question.nbytes, networks, question.collectives, question.starts, question.algorithms,
        question.protocol,
    )  # fmt: skip
    return collectives_result(cost_question, strict=question.strict)


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None, strict: bool = False) -> Result:
    """Return the result of a question about collectives.

    Args:
        question: the collectives, sizes and networks.
        answer: ``rows``, ``crossovers`` and ``choices`` of a stored result; computed if None.
        strict: refuse an answer that rests on other machines or sizes than were measured.
    """
    transfers = transferred_parts(question)
    refuse_transfers(transfers, strict)
    answer = compute_costs(question) if answer is None else answer
    tables = later("syncline.planner.collective_tables:collectives_tables", answer["rows"], question)
    question_fields = dataclasses.asdict(question)
    question_fields["networks"] = [network_fields(network) for network in question.networks]
    record = {"transferred": [transfer.record() for transfer in transfers]} | answer
    return Result(
        "collectives", record, tables=partial(tables_after, transfers, tables), figure=partial(costs_figure, question),
        asked=lambda: {"question": question_fields},
    )  # fmt: skip


def answer_goodput(question: Goodput) -> Result:
    """Return the goodput for each combination of the question's workers, recoveries and intervals."""
    resolved = goodput_question(question)
    transferred = transfers(failure_parts(resolved.failures))  # rates that rest on failures of other machines
    refuse_transfers(transferred, question.strict)
    rows = goodput_rows(resolved)
    remarks = notes(resolved, rows)
    record = {"transferred": [transfer.record() for transfer in transferred], "rows": rows, "notes": remarks}
    tables = later("syncline.planner.goodput.question:goodput_tables", rows, remarks)
    failures = resolved.failures.model_dump(mode="json")
    return Result(
        "goodput", record, tables=partial(tables_after, transferred, tables), asked=lambda: {"failures": failures}
    )


def answer_loss(question: Loss) -> Result:
    """Return the predicted loss of each training of the question, or the model that reaches the target loss."""
    rows = loss_rows(question)
    return Result("loss", {"rows": rows}, tables=later("syncline.planner.losses_at_scale:loss_tables", rows))


def answer_solve(question: Solve) -> Result:
    """Return for each method the value of the question's variable that meets its targets."""
    inputs = InverseInputs(question)
    inputs.targets()  # refuse wrong targets before anything is read
    specs: Sequence[Experiment]
    if isinstance(question.spec, list | tuple):
        specs = question.spec
    else:
        own_methods = question.spec != Solve.spec  # the methods of the default spec are not the user's choice
        specs = inputs.specs(*projection_options(question), own_methods=own_methods)
        warn_lines(left_out(specs))
    problem = inputs.question(question.variable, specs, own_methods=bool(question.methods))
    if specs is not question.spec:  # specs that the user gives as objects keep their steps
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
