"""Settings that meet targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from syncline.api.projection import projection_options, with_steps_of_tokens
from syncline.api.result import Result, deferred
from syncline.api.spec_arguments import warn_lines
from syncline.planner.assumptions import option_origins
from syncline.planner.projection.projections import left_out, names_of
from syncline.planner.solving.question import DEFAULT_METHODS, InverseInputs
from syncline.planner.solving.solver import solve_assumptions, solve_rows
from syncline.planner.transfer import refuse_transfers, transfers_of
from syncline.questions.projections import Solve
from syncline.specs import Experiment


def answer_solve(question: Solve) -> Result:
    """Return for each method the value of the question's variable that meets its targets."""
    inputs = InverseInputs(question)
    inputs.targets()  # refuse wrong targets before anything is read
    has_own_spec = question.spec != Solve.spec  # the methods of the default spec are not the user's choice
    specs: Sequence[Experiment]
    if isinstance(question.spec, list | tuple):
        specs = question.spec
    else:
        specs = inputs.specs(*projection_options(question), own_methods=has_own_spec)
        warn_lines(left_out(specs))
    problem = inputs.problem(question.variable, specs, own_methods=bool(question.methods))
    if specs is not question.spec:  # specs that the user gives as objects keep their steps
        specs_with_steps: Any = with_steps_of_tokens(problem.specs, question)
        problem = replace(problem, specs=specs_with_steps)
    transfers = transfers_of(problem.specs)
    refuse_transfers(transfers, question.strict)
    rows = solve_rows(problem)
    methods = names_of(question.methods or ()) or ([] if has_own_spec else DEFAULT_METHODS)
    origins = option_origins(methods, sequence=question.sequence, batch_tokens=question.batch_tokens)
    assumptions = solve_assumptions(rows, problem, origins)
    records = [assumption.record() for assumption in assumptions]
    transferred = [transfer.record() for transfer in transfers]
    answer = {"sought": problem.variable, "transferred": transferred, "assumptions": records, "rows": rows}
    tables = deferred("syncline.planner.solving.tables:solve_tables", rows, problem, assumptions)
    return Result("solve", answer, problem.specs[0], tables=tables, transfers=transfers)
