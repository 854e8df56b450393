"""A problem in a spec: its name or ``module:name`` and its fields; a function that makes it; or an object of Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from syncline.errors import SpecError, one_of
from syncline.fields import refusal
from syncline.registry import PYTHON, called, is_reference, reference_to, specs_are_data

_WRITTEN = "_written"
"""Attribute of a problem that was made so: what the spec said."""


@dataclasses.dataclass(frozen=True)
class LostProblem:
    """The name of a problem that cannot be made here: an object of Python, of which a file keeps no more; or a user's
    code, where results are read. Whoever trains it is told.
    """

    name: str

    def build(self, *_: Any, **__: Any) -> Any:
        """Nothing.

        Raises:
            SpecError: always.
        """
        expected = f"module:function of a function that makes {self.name!r}, which was an object of Python"
        raise SpecError("problem.target", None, expected)

    module = build


def _problem(value: Any) -> Any:
    """A mapping with a ``kind`` as the problem's dataclass, or what a function returns; an object as it is."""
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
    if specs_are_data() and (kind == PYTHON or is_reference(kind)):
        named = fields.get("name") if kind == PYTHON else kind
        return LostProblem(str(fields.get("target") or named))
    if kind == PYTHON:
        return _made(fields)
    if not isinstance(kind, str):
        raise refusal("kind", kind, one_of([*PROBLEMS, PYTHON], kind))
    try:
        problem = PROBLEMS.get(kind, "kind")
    except SpecError as error:
        raise refusal("kind", kind, error.expected) from None
    if not (isinstance(problem, type) and dataclasses.is_dataclass(problem) and hasattr(problem, "build")):
        expected = "a dataclass with a name and a method build(rows)"
        if callable(problem) and not isinstance(problem, type):
            expected += f"; for a function that returns one, kind: {PYTHON} and target: {kind}"
        raise refusal("kind", kind, expected)
    known = [field.name for field in dataclasses.fields(problem)]
    for field, given in fields.items():
        if field not in known:
            raise refusal(field, given, "no such field here, but " + one_of(["kind", *known], field))
    try:
        return TypeAdapter(problem).validate_python(fields)
    except SpecError as error:
        raise refusal(error.path.removeprefix("problem."), error.value, error.expected) from None


def _made(fields: Mapping[str, Any]) -> Any:
    """What the function returns that ``target`` names, called with the other fields."""
    from syncline.problems import Problem

    target, arguments = fields.get("target"), {name: value for name, value in fields.items() if name != "target"}
    if target is None and list(arguments) == ["name"]:
        return LostProblem(str(arguments["name"]))
    if target is None:
        raise refusal("target", None, "module:function of a function that returns a problem")
    try:
        problem = called(target, arguments)
    except SpecError as error:
        raise refusal(error.path, error.value, error.expected) from error
    if not isinstance(problem, Problem) or isinstance(problem, type):
        raise refusal("target", target, f"a function that returns a problem; it returns {type(problem).__name__}")
    with suppress(AttributeError):  # of a class with slots: it is written by its fields
        object.__setattr__(problem, _WRITTEN, {"kind": PYTHON, **fields})
    return problem


def _dump_problem(problem: Any) -> dict[str, Any]:
    """As it was written where a function made it; else its fields; else its name alone, which cannot be read again."""
    from syncline.problems import PROBLEMS

    written = getattr(problem, _WRITTEN, None)
    if written is not None:
        return dict(written)
    own = type(problem)
    values = [getattr(problem, f.name) for f in dataclasses.fields(own)] if dataclasses.is_dataclass(own) else None
    if values is None or own is LostProblem or not all(map(_is_plain, values)):
        return {"kind": PYTHON, "target": None, "name": problem.name}
    kind = problem.name if problem.name in PROBLEMS and PROBLEMS[problem.name] is own else reference_to(own)
    return {"kind": kind} | dataclasses.asdict(problem)


def check_kept(problem: Any) -> None:
    """Refuse a problem of which a file has kept the name alone, before anything is started for it.

    Raises:
        SpecError: it is one.
    """
    if isinstance(problem, LostProblem):
        problem.build()


def _is_plain(value: Any) -> bool:
    """Whether a file can hold it."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(_is_plain(inner) for inner in value.values())
    return value is None or isinstance(value, bool | int | float | str) or dataclasses.is_dataclass(value)


ProblemField = Annotated[Any, BeforeValidator(_problem), PlainSerializer(_dump_problem)]
"""A problem: a name of ``PROBLEMS`` or ``module:name``, a mapping with ``kind`` and fields, or an object."""
