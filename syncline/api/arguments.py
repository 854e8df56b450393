"""The check of the arguments of every public function against the types that its annotations accept.

The specs and questions that are made of the arguments check ranges, names and units.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, get_type_hints

from syncline.errors import SpecError, called_by_command
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
    # The type of the result may be one that only a type checker imports.
    annotations = {name: text for name, text in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__)

    def call(bound: inspect.BoundArguments) -> R:
        return function(*bound.args, **bound.kwargs)

    return wraps(function)(_with_check(function.__name__, inspect.signature(function), hints, flags={}, call=call))


def function_of(question: type[Question], answer: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the public function of a question, such as `sl.project`.

    The function checks its arguments, makes the question of them, and returns the question's answer.

    Args:
        question: class of the question; its fields become the parameters.
        answer: function from a question to a result.
    """
    signature = question.signature()
    name_by_flag = {flag_of(field): field.name for field in question.declared(SHELL)}

    def answer_arguments(bound: inspect.BoundArguments) -> Any:
        return answer(question(**bound.arguments))

    function = _with_check(question.command, signature, get_type_hints(question), name_by_flag, call=answer_arguments)
    function.__name__ = function.__qualname__ = question.command
    function.__doc__, function.__module__ = question.docstring(), "syncline"
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


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
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        try:
            for parameter_name, value in bound.arguments.items():
                if signature.parameters[parameter_name].kind is inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[parameter_name] = {key: plain_argument(key, item) for key, item in value.items()}
                else:
                    bound.arguments[parameter_name] = checked_argument(
                        parameter_name, value, hints.get(parameter_name, Any)
                    )
            return call(bound)
        except SpecError as error:
            if called_by_command.get():
                raise
            raise _error_with_parameter(error, signature.parameters, flags) from None

    return check_and_call


def _error_with_parameter(error: SpecError, parameters: Mapping[str, Any], flags: Mapping[str, str]) -> SpecError:
    """Return an error that names the parameter instead of the option: ``nbytes`` instead of ``--bytes``."""
    if not error.path.startswith("--"):
        return error
    flag, dot, inner_path = error.path.partition(".")
    flag_name = flag.removeprefix("--").replace("-", "_")
    parameter = flags.get(flag, flag_name)
    if parameter not in parameters:  # a parameter for a list may have the plural as its name
        parameter = f"{flag_name}s" if f"{flag_name}s" in parameters else flag_name
    return SpecError(parameter + dot + inner_path, error.value, error.expected)
