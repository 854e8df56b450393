"""Annotations of axes, checked while tests run: each call the first time that a test makes it so.

A training calls the same functions with the same shapes in every step, and a check takes longer than most of them. So
jaxtyping's check is skipped where the same test has passed it with the same function of the same object and with
arguments of the same types, shapes and element types; and functions that name no axes are left as they are, since mypy
checks plain types. On trainings that halves the tests' CPU time.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Hashable
from typing import Any

import jaxtyping
from torch import Tensor
from torch.nn import Parameter

PASSED: set[Hashable] = set()
"""Calls of this test that were found right."""

_jaxtyped = jaxtyping.jaxtyped


def install(*rooms: str) -> None:
    """Check the functions of these rooms; before any of them is imported."""
    jaxtyping.jaxtyped = checked  # the decorator that the hook's modules look up
    jaxtyping.install_import_hook(list(rooms), "beartype.beartype")


def checked(*, typechecker: Any) -> Callable[[Any], Any]:
    def decorated(of: Any) -> Any:
        if inspect.isfunction(of) and not _names_axes(of):
            return of
        every = _jaxtyped(typechecker=typechecker)(of)
        return _first_calls(of, every) if inspect.isfunction(of) else every

    return decorated


def _names_axes(function: Callable[..., Any]) -> bool:
    """Return whether an annotation has axes; most annotations are texts with names of the function's module."""
    for annotation in function.__annotations__.values():
        names = re.findall(r"\w+", annotation) if isinstance(annotation, str) else ()
        if any(_has_axes(one) for one in (annotation, *(function.__globals__.get(name) for name in names))):
            return True
    return False


def _has_axes(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray | jaxtyping.AbstractDtype)


def _first_calls(function: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    is_method = next(iter(inspect.signature(function).parameters), None) == "self"

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        own = id(args[0]) if is_method and args else None
        key = (function, own, *map(_kind, args), *options, *map(_kind, options.values()))
        if key in PASSED:
            return function(*args, **options)
        result = checked(*args, **options)
        PASSED.add(key)
        return result

    return call


def _kind(value: Any) -> Hashable:
    """What an annotation can speak of; of what is in a list or dict the first stands for all, as for beartype."""
    of = type(value)
    if of is Tensor or of is Parameter:
        return of, value.shape, value.dtype
    if of is list or of is tuple:
        return of, len(value), _kind(value[0]) if value else None
    if of is dict:
        return of, *value, _kind(next(iter(value.values()), None))
    return value if of is str else of
