"""The check of the arguments of every public function against the types that its annotations accept.

The specs and questions that are made of the arguments check ranges, names and units.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, get_type_hints

from syncline.errors import SpecError, names_options
from syncline.fields import checked_argument, plain_argument
from syncline.questions.declare import SHELL, Question, flag_of

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments before each call.

    The check turns NumPy's numbers and arrays into Python's, and iterators and views into tuples. It accepts neither
    text nor a truth value as a number. An error names the parameter if a program calls the function, and the option if
    a command calls it.

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
        _with_check(
            function.__name__, signature, hints, flags={}, call=lambda bound: function(*bound.args, **bound.kwargs)
        )
    )


def function_of(question: type[Question], answer: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the public function of a question, such as `sl.project`.

    The function checks its arguments, makes the question of them, and returns the question's answer.

    Args:
        question: class of the question; its fields become the parameters.
        answer: function from a question to a result.
    """
    signature = question.signature()
    flags = {flag_of(declared): declared.name for declared in question.declared(SHELL)}
    call = _with_check(
        question.command,
        signature,
        get_type_hints(question),
        flags,
        call=lambda bound: answer(question(**bound.arguments)),
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
    """Return a function that checks its arguments and passes them to ``call``; errors name parameters.

    Args:
        name: name of the function, for Python's TypeError.
        signature: signature of the function.
        hints: type of each parameter; a parameter without a hint accepts everything.
        flags: the parameter that stands for each option of the command, because errors may name an option.
        call: function of the checked arguments.
    """

    def check_and_call(*args: Any, **options: Any) -> Any:
        """Check the arguments, and return what ``call`` returns."""
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


def _by_parameter(error: SpecError, parameters: Mapping[str, Any], flags: Mapping[str, str]) -> SpecError:
    """Return an error that names the parameter instead of the option: ``nbytes`` instead of ``--bytes``."""
    if not error.path.startswith("--"):
        return error
    head, dot, rest = error.path.partition(".")
    name = head.removeprefix("--").replace("-", "_")
    matches = [candidate for candidate in (flags.get(head, name), f"{name}s") if candidate in parameters]
    return SpecError((matches or [name])[0] + dot + rest, error.value, error.expected)
