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
    return wraps(function)(_with_check(function.__name__, inspect.signature(function), hints, call=function))


def function_of(question: type[Question], answer: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the public function of a question, such as `sl.project`.

    The function checks its arguments, makes the question of them, and returns the question's answer.

    Args:
        question: class of the question; its fields become the parameters.
        answer: function from a question to a result.
    """
    signature = question.signature()
    name_by_flag = {flag_of(field): field.name for field in question.declared(SHELL)}

    def call(**fields: Any) -> Any:
        return answer(question(**fields))

    function = _with_check(question.command, signature, get_type_hints(question), call, name_by_flag)
    function.__name__ = function.__qualname__ = question.command
    function.__doc__, function.__module__ = question.docstring(), "syncline"
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _with_check(
    name: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    call: Callable[..., R],
    name_by_flag: Mapping[str, str] | None = None,
) -> Callable[..., R]:
    """Return a function that checks its arguments and passes them to ``call``; errors name parameters.

    Args:
        name: name of the function, for Python's TypeError.
        signature: signature of the function.
        hints: type of each parameter; a parameter without a hint accepts everything.
        call: function that gets the checked arguments by name; ``**fields`` is one argument, a mapping.
        name_by_flag: the parameter for each option of a command, because an error may name the option.
    """

    def check_and_call(*args: Any, **options: Any) -> R:
        try:
            arguments = signature.bind(*args, **options).arguments
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        try:
            for parameter, value in arguments.items():
                if signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD:
                    arguments[parameter] = {key: plain_argument(key, item) for key, item in value.items()}
                else:
                    arguments[parameter] = checked_argument(parameter, value, hints.get(parameter, Any))
            return call(**arguments)
        except SpecError as error:
            flag, dot, inner_path = error.path.partition(".")
            if called_by_command.get() or not flag.startswith("--"):
                raise
            parameter = (name_by_flag or {}).get(flag, flag.removeprefix("--").replace("-", "_"))
            raise SpecError(parameter + dot + inner_path, error.value, error.expected) from None

    return check_and_call
