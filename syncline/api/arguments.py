"""The check that every public function makes of its arguments, whether a program calls it or a command.

A function's annotations say which types it takes. Ranges, names and units are checked where the question is made, in
the rooms below.
"""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from syncline.errors import SpecError, names_options
from syncline.fields import plain_argument

P = ParamSpec("P")
R = TypeVar("R")

LARGEST = 2**63
"""More than any whole number that a table can hold."""

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
"""What an annotation takes, in an error line."""

RENAMED = {"bytes": ("nbytes",), "for": ("duration", "time")}
"""Parameters whose names are not those of the command's options."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments.

    A program's refusals name parameters of Python, a command's name its options.

    NumPy's numbers and arrays become Python's; iterators and views become tuples. Text is no number, and neither is a
    truth value.

    >>> @checked
    ... def twice(steps: int) -> int:
    ...     return 2 * steps
    >>> twice(3.0)
    6
    >>> twice("3")
    Traceback (most recent call last):
    syncline.errors.SpecError: steps: got '3'; expected a whole number
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        annotations = _annotations(function)
        try:
            positional = [_argument(*pair, annotations) for pair in zip(annotations, args, strict=False)]
            named = {name: _argument(name, value, annotations) for name, value in options.items()}
            return function(*positional, *args[len(positional) :], **named)  # type: ignore[arg-type]
        except SpecError as error:
            raise error if names_options.get() else _by_parameter(error, annotations) from None

    return call


class _Names(dict[str, Any]):
    """Names in an annotation; one that only type checkers import takes anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


@cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotation of each parameter, in order."""
    parameters = inspect.signature(function).parameters.values()
    texts = {name: text for name, text in function.__annotations__.items() if name != "return"}
    names = cast(Any, _Names(function.__globals__))
    hints = get_type_hints(SimpleNamespace(__annotations__=texts), localns=names)
    return {one.name: hints.get(one.name, Any) for one in parameters if one.kind is not one.VAR_KEYWORD}


def _argument(name: str, value: Any, annotations: Mapping[str, Any]) -> Any:
    return _typed(name, plain_argument(name, value), annotations.get(name, Any))


def _typed(path: str, value: Any, annotation: Any) -> Any:
    """Return a plain value as an annotation takes it.

    Raises:
        SpecError: the annotation does not take it.
    """
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    # A quantity is text with a unit or a number: its parser takes anything, and says more.
    if Any in options or {str, float} <= set(options):
        return value
    if Path in options and isinstance(value, str) and "\0" in value:
        raise SpecError(path, value, "a path, which has no NUL")
    for option in options:
        if not _is_of(value, option):
            continue
        inner = get_args(option)
        if isinstance(value, list | tuple | range) and inner:
            return [_typed(f"{path}.{i}", one, inner[0]) for i, one in enumerate(value)]
        if isinstance(value, dict) and inner:
            return {_typed(path, key, inner[0]): _typed(f"{path}.{key}", one, inner[1]) for key, one in value.items()}
        return int(value) if option is int else value
    words = [WORDS.get(get_origin(one) or one, f"a {getattr(one, '__name__', one)}") for one in options if one != _NONE]
    raise SpecError(path, value, " or ".join(words))


_NONE = type(None)


def _is_of(value: Any, option: Any) -> bool:
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
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float can be
        return False


def _by_parameter(error: SpecError, parameters: Mapping[str, Any]) -> SpecError:
    """Return a refusal of an option as one of the parameter: ``--bytes`` is ``nbytes``."""
    if not error.path.startswith("--"):
        return error
    head, dot, rest = error.path.removeprefix("--").partition(".")
    name = head.replace("-", "_")
    known = [one for one in (name, f"{name}s", *RENAMED.get(name, ())) if one in parameters]
    return SpecError((known or [name])[0] + dot + rest, error.value, error.expected)
