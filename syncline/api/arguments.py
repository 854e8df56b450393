"""The check of the arguments of every public function, called from a program or from a command.

A function's annotations say which types it accepts. The specs and questions built from the arguments check ranges,
names and units.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from syncline.errors import SpecError, names_options
from syncline.fields import plain_argument
from syncline.questions.declare import SHELL, Question, flag_of

P = ParamSpec("P")
R = TypeVar("R")

LARGEST = 2**63
"""The bound on whole numbers: tables hold smaller ones only."""

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    Path: "a path",
    Sequence: "a list",
    Iterable: "a list",
    Mapping: "fields, as in {field: value}",
    Callable: "a function",
}
"""Description of the accepted values of an annotation, for error messages."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments.

    Error messages name Python's parameters if a program calls the function, and options if a command calls it.

    The check turns NumPy's numbers and arrays into Python's, and iterators and views into tuples. It accepts neither
    text nor a truth value as a number.

    >>> @checked
    ... def twice(steps: int) -> int:
    ...     return 2 * steps
    >>> twice(3.0)
    6
    >>> twice("3")
    Traceback (most recent call last):
    syncline.errors.SpecError: steps: got '3'; expected a whole number
    """
    texts = {name: text for name, text in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=texts), function.__globals__)
    signature = inspect.signature(function)
    return wraps(function)(
        _with_check(function.__name__, signature, hints, {}, lambda bound: function(*bound.args, **bound.kwargs))
    )


def function_of(question: type[Question], answer: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function of a question: it checks the arguments, makes the question, and returns its answer.

    Args:
        question: the question's class; its fields become the parameters.
        answer: function from a question to a result.
    """
    signature = question.signature()
    flags = {flag_of(declared): declared.name for declared in question.declared(SHELL)}
    call = _with_check(
        question.command, signature, get_type_hints(question), flags, lambda bound: answer(question(**bound.arguments))
    )
    call.__name__ = call.__qualname__ = question.command
    call.__doc__, call.__module__ = question.docstring(), "syncline"
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _with_check(
    name: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    flags: Mapping[str, str],
    call: Callable[[inspect.BoundArguments], Any],
) -> Callable[..., Any]:
    """Return a function that checks its arguments, calls ``call`` with them, and names parameters in errors.

    Args:
        name: name of the function, for errors of Python.
        signature: signature of the function.
        hints: type of each parameter; a parameter without a hint accepts everything.
        flags: parameter by the option of a command, as errors may name it.
        call: function of the checked arguments.
    """

    def check_and_call(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        try:
            for parameter, value in bound.arguments.items():
                bound.arguments[parameter] = (
                    {field: plain_argument(field, other) for field, other in value.items()}
                    if signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD
                    else checked_argument(parameter, value, hints.get(parameter, Any))
                )
            return call(bound)
        except SpecError as error:
            raise error if names_options.get() else _by_parameter(error, signature.parameters, flags) from None

    return check_and_call


def checked_argument(name: str, value: Any, annotation: Any) -> Any:
    """Return an argument as a plain value of the annotation's type.

    Raises:
        SpecError: the value does not have this type, or cannot be read.
    """
    return _typed(name, plain_argument(name, value), annotation)


def _typed(path: str, value: Any, annotation: Any) -> Any:
    """Return a plain value converted to the type of an annotation.

    Raises:
        SpecError: the value does not have the annotation's type.
    """
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    # A quantity is text with a unit or a number: its parser checks it and has better error messages.
    if Any in options or {str, float} <= set(options):
        return value
    if Path in options and isinstance(value, str) and "\0" in value:
        raise SpecError(path, value, "a path, which has no NUL")
    for option in options:
        if not _is_of(value, option):
            continue
        inner = get_args(option)
        if isinstance(value, list | tuple | range) and inner:
            return [_typed(f"{path}.{i}", item, inner[0]) for i, item in enumerate(value)]
        if isinstance(value, dict) and inner:
            return {_typed(path, key, inner[0]): _typed(f"{path}.{key}", item, inner[1]) for key, item in value.items()}
        return int(value) if option is int else value
    kinds = [get_origin(option) or option for option in options if option is not type(None)]
    raise SpecError(path, value, " or ".join(WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}") for kind in kinds))


def _is_of(value: Any, option: Any) -> bool:
    """Return whether a value is of one of the types that an annotation allows; whole floats are integers."""
    kind = get_origin(option) or option
    if kind is Callable:
        return callable(value)
    if kind in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and _is_finite(value) and (kind is float or (value == int(value) and abs(value) < LARGEST))
    if kind in (Sequence, Iterable):
        return isinstance(value, list | tuple | range)
    return isinstance(value, kind)


def _is_finite(number: float) -> bool:
    """Return whether a number is finite and small enough for a float."""
    try:
        return math.isfinite(number)
    except OverflowError:  # the whole number is too large for a float
        return False


def _by_parameter(error: SpecError, parameters: Mapping[str, Any], flags: Mapping[str, str]) -> SpecError:
    """Return an error about an option as an error about its parameter, by name or by ``flags``: ``--bytes``."""
    if not error.path.startswith("--"):
        return error
    head, dot, rest = error.path.partition(".")
    name = head.removeprefix("--").replace("-", "_")
    matches = [candidate for candidate in (flags.get(head, name), f"{name}s") if candidate in parameters]
    return SpecError((matches or [name])[0] + dot + rest, error.value, error.expected)
