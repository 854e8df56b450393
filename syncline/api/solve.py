"""Inverse projections: the setting that meets a target."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.api.projection import projection_options
from syncline.api.result import Result, later
from syncline.api.spec_arguments import warn_lines
from syncline.planner.projection.projections import left_out
from syncline.planner.solving.assumptions import solve_assumptions
from syncline.planner.solving.inputs import InverseInputs
from syncline.planner.solving.solver import solve_rows
from syncline.questions.solve import Solve
from syncline.specs import Experiment


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
    rows = solve_rows(problem)
    assumptions = [assumption.record() for assumption in solve_assumptions(rows, problem)]
    answer = {"sought": problem.variable, "assumptions": assumptions, "rows": rows}
    return Result(
        "solve", answer, specs[0], tables=later("syncline.planner.solving.tables:solve_tables", rows, problem)
    )
