"""Docstrings of the functions that make methods: the class that declares a field describes it, once for all."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping


def field_descriptions(spec: type) -> dict[str, str]:
    """Return a description of each field of a method's spec, from the nearest class that describes the field."""
    descriptions: dict[str, str] = {}
    for base in reversed(spec.__mro__):  # the nearest class comes last, and replaces other descriptions
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("\nArgs:\n")
        arguments, _, _ = section.partition("\n\n")
        for argument in re.split(r"\n(?=    \w)", arguments):  # a line with four spaces begins an argument
            name, _, description = argument.strip().partition(": ")
            descriptions[name] = description
    return descriptions


def docstring_with_arguments(spec: type, names: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return the docstring of a method's spec with the descriptions of a function's arguments as its ``Args:``.

    Args:
        spec: class of the method.
        names: names of the arguments; one that is neither a field nor in ``others`` is left out.
        others: descriptions of arguments that are no fields of the spec.
    """
    paragraphs = inspect.cleandoc(spec.__doc__ or "").split("\n\n")
    text = [paragraph for paragraph in paragraphs if not paragraph.startswith(("Args:", "Source:"))]
    sources = [paragraph for paragraph in paragraphs if paragraph.startswith("Source:")]
    descriptions = field_descriptions(spec) | dict(others or {})
    arguments = [f"    {name}: {descriptions[name]}" for name in names if name in descriptions]
    return "\n\n".join([*text, "\n".join(["Args:", *arguments]), *sources])
