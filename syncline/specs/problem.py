"""A problem in a spec: its name or ``module:name``, and its fields."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from syncline.errors import SpecError, one_of
from syncline.fields import refusal
from syncline.registry import reference_to


def _problem(value: Any) -> Any:
    """A mapping with a ``kind`` as the problem's dataclass; its other keys are the dataclass's fields."""
    from pydantic import TypeAdapter

    from syncline.problems import PROBLEMS, Problem

    if isinstance(value, str):
        value = {"kind": value}
    if dataclasses.is_dataclass(value) and isinstance(value, Problem):
        return value
    if not isinstance(value, dict):
        raise refusal("", value, f"fields, as in {{field: value}}, or {one_of(PROBLEMS, str(value))}")
    fields = dict(value)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise refusal("kind", kind, one_of(PROBLEMS, str(kind)))
    try:
        problem = PROBLEMS.get(kind, "kind")
    except SpecError as error:
        raise refusal("kind", kind, error.expected) from None
    if not (isinstance(problem, type) and dataclasses.is_dataclass(problem) and hasattr(problem, "build")):
        raise refusal("kind", kind, "a dataclass with a name and a method build(rows)")
    known = [field.name for field in dataclasses.fields(problem)]
    for field, given in fields.items():
        if field not in known:
            raise refusal(field, given, "no such field here, but " + one_of(["kind", *known], field))
    try:
        return TypeAdapter(problem).validate_python(fields)
    except SpecError as error:
        raise refusal(error.path.removeprefix("problem."), error.value, error.expected) from None


def _dump_problem(problem: Any) -> dict[str, Any]:
    from syncline.problems import PROBLEMS

    own = type(problem)
    kind = problem.name if problem.name in PROBLEMS and PROBLEMS[problem.name] is own else reference_to(own)
    return {"kind": kind} | dataclasses.asdict(problem)


ProblemField = Annotated[Any, BeforeValidator(_problem), PlainSerializer(_dump_problem)]
"""A problem: a name of ``PROBLEMS`` or ``module:name``, or a mapping with ``kind`` and the problem's fields."""
