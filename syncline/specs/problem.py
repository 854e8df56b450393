"""Spec field of a problem: a name or ``module:name`` with fields, a function that returns it, or a Python object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from syncline.errors import SpecError, one_of
from syncline.fields import refusal, refusals
from syncline.registry import PYTHON, call_reference, is_reference, reference_to, specs_are_data

_SPEC_FIELDS = "_spec_fields"
"""Attribute of a problem that a function returned; it holds the fields of the spec."""


@dataclasses.dataclass(frozen=True)
class UnavailableProblem:
    """A placeholder with the name of a problem that cannot be built; building it is an error.

    Either a file holds only the name of a Python object, or results are read without running user code.
    """

    name: str

    def build(self, *_: Any, **__: Any) -> Any:
        """Refuse to build the problem: it was a Python object, which a spec file cannot hold."""
        expected = f"module:function of a function that makes {self.name!r}, which was an object of Python"
        raise SpecError("problem.target", None, expected)

    module = build  # a caller of ``module`` gets the same error


def _parse_problem(value: Any) -> Any:
    """Return the problem of a name, a mapping with a ``kind``, or a function call; return a problem unchanged."""
    from pydantic import TypeAdapter

    from syncline.problems import PROBLEMS, Problem

    if isinstance(value, str):
        value = {"kind": value}
    if isinstance(value, Problem) and not isinstance(value, type):
        return value
    if not isinstance(value, dict):
        raise refusal("", value, f"fields, as in {{field: value}}, or {one_of(PROBLEMS, value)}")
    fields = dict(value)
    kind = fields.pop("kind", None)
    is_user_code = kind == PYTHON or is_reference(kind)
    if is_user_code and specs_are_data():  # results are read without running code
        problem_name = fields.get("name") if kind == PYTHON else kind
        return UnavailableProblem(str(fields.get("target") or problem_name))
    if kind == PYTHON:
        return _problem_of_call(fields)
    if not isinstance(kind, str):
        raise refusal("kind", kind, one_of([*PROBLEMS, PYTHON], kind))
    with refusals():
        problem_class = PROBLEMS.get(kind, "kind")
    is_class = isinstance(problem_class, type)
    if not (is_class and dataclasses.is_dataclass(problem_class) and hasattr(problem_class, "build")):
        expected = "a dataclass with a name and a method build(rows)"
        if callable(problem_class) and not is_class:
            expected += f"; for a function that returns one, kind: {PYTHON} and target: {kind}"
        raise refusal("kind", kind, expected)
    field_names = [field.name for field in dataclasses.fields(problem_class)]
    for field, field_value in fields.items():
        if field not in field_names:
            raise refusal(field, field_value, "no such field here, but " + one_of(["kind", *field_names], field))
    with refusals("problem."):
        return TypeAdapter(problem_class).validate_python(fields)


def _problem_of_call(fields: Mapping[str, Any]) -> Any:
    """Return the problem that the function ``target`` returns for the other fields as arguments."""
    from syncline.problems import Problem

    arguments = dict(fields)
    target = arguments.pop("target", None)
    if target is None:
        if list(arguments) == ["name"]:  # as `_dump_problem` writes an object of Python
            return UnavailableProblem(str(arguments["name"]))
        raise refusal("target", None, "module:function of a function that returns a problem")
    with refusals():
        problem = call_reference(target, arguments)
    if not isinstance(problem, Problem) or isinstance(problem, type):
        raise refusal("target", target, f"a function that returns a problem; it returns {type(problem).__name__}")
    with suppress(AttributeError):  # a class with slots takes no attribute
        object.__setattr__(problem, _SPEC_FIELDS, {"kind": PYTHON, **fields})
    return problem


def _dump_problem(problem: Any) -> dict[str, Any]:
    """Return the fields that describe a problem in a file.

    They are the spec's fields if a function returned the problem, else the problem's own fields. If YAML cannot hold
    these, only the name is written, and the problem cannot be built again.
    """
    from syncline.problems import PROBLEMS

    spec_fields = getattr(problem, _SPEC_FIELDS, None)  # see `_problem_of_call`
    if spec_fields is not None:
        return dict(spec_fields)
    problem_class = type(problem)
    name_alone = {"kind": PYTHON, "target": None, "name": problem.name}
    if not dataclasses.is_dataclass(problem_class) or problem_class is UnavailableProblem:
        return name_alone
    for field in dataclasses.fields(problem_class):
        if not _is_yaml_value(getattr(problem, field.name)):
            return name_alone
    is_registered = problem.name in PROBLEMS and PROBLEMS[problem.name] is problem_class
    return {"kind": problem.name if is_registered else reference_to(problem_class)} | dataclasses.asdict(problem)


def check_available(problem: Any) -> None:
    """Refuse an `UnavailableProblem` before a training starts."""
    if isinstance(problem, UnavailableProblem):
        problem.build()  # raises the error


def _is_yaml_value(value: Any) -> bool:
    """Return whether YAML can hold a value: numbers, texts, dataclasses, and lists and mappings of these."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(_is_yaml_value(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str) or dataclasses.is_dataclass(value)


ProblemField = Annotated[Any, BeforeValidator(_parse_problem), PlainSerializer(_dump_problem)]
"""A problem: a name of ``PROBLEMS`` or ``module:name``, a mapping with ``kind`` and fields, or an object."""
