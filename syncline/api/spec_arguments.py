"""Specs and links made of the arguments of a function, and warnings about them."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from syncline import costmodel
from syncline.api.arguments import checked
from syncline.errors import SpecError, called_by_command
from syncline.fields import kind_of_model
from syncline.questions.declare import PYTHON, SHELL, Question, flag_of
from syncline.specs import STUDIES, Experiment, Override, load_spec, network, study_of


def changes_of(
    question: Question, names: Collection[str] = (), paths: Mapping[str, str] | None = None
) -> list[Override]:
    """Return the changes of spec fields that a command's options or a function's arguments ask for, in order.

    Args:
        question: the question; its ``fields`` are texts of ``--set``, or values by path.
        names: the fields of the spec that fields of the question replace; a value of None changes nothing.
        paths: path in the spec, by the question's field, for fields whose name is not their path.
    """
    changes, by_command = [], called_by_command.get()
    # A command has other fields than the function, and its errors name options instead of arguments.
    for field in question.declared(SHELL if by_command else PYTHON):
        value, path = getattr(question, field.name), (paths or {}).get(field.name, field.name)
        if field.name not in names or value is None:
            continue
        if path == "network" and isinstance(value, list):  # other commands take several networks
            if len(value) > 1:
                expected = "one network, as this trains on one; 'syncline compare' takes several"
                raise SpecError("--network", value, expected)
            (value,) = value
        changes.append(Override.option(flag_of(field) if by_command else path, path, value))
    field_values: Any = question.fields or ()  # type: ignore[attr-defined]
    if not isinstance(field_values, Mapping):  # texts of --set, over which the options have precedence
        return [*map(Override.parse, field_values), *changes]
    return changes + [Override.option(path, path, value) for path, value in field_values.items() if value is not None]


def spec_of(
    question: Question, names: Collection[str], *classes: type[Experiment], kind: str,
    paths: Mapping[str, str] | None = None, studies_of: str = "", scale: str | None = None,
) -> Any:  # fmt: skip
    """Return the spec of a question, and warn of settings that are probably mistakes.

    Args:
        question: the question; a spec object without changes is returned as it is, without warnings.
        names: see `changes_of`.
        classes: the accepted classes of specs.
        kind: kind, and default of the name, of a spec that is made of the question's fields alone.
        paths: see `changes_of`.
        studies_of: command whose studies are also accepted as specs; empty for none.
        scale: one of the spec's ``scales``.
    """
    base_spec: Any = question.spec  # type: ignore[attr-defined]
    changes = changes_of(question, names, paths)
    if isinstance(base_spec, Experiment):
        spec_kind = kind_of_model(type(base_spec))
        is_accepted_study = spec_kind in STUDIES and study_of(base_spec).command == studies_of
        if not (isinstance(base_spec, classes) or is_accepted_study):
            raise SpecError("spec", base_spec.name, f"a spec of kind {kind}; this one is of kind {spec_kind}")
        if not changes:
            return base_spec
        base_spec = dict(base_spec)
    source = {"kind": kind, "name": kind} if base_spec is None else base_spec
    spec = load_spec(source, changes, *classes, studies_of=studies_of, scale=scale)
    warn_lines(spec.warnings())
    return spec


def warn_lines(lines: list[str]) -> None:
    """Print each line as a warning of a command; in Python, warn at the line outside Syncline that called."""
    if called_by_command.get():
        for line in lines:
            print(f"warning: {line}", file=sys.stderr)
        return
    # Go up the stack to the first caller outside Syncline; ``stacklevel`` 2 is the caller of this function.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("syncline."):
        level, frame = level + 1, frame.f_back
    for line in lines:
        warnings.warn(line, stacklevel=level)


@checked
def Link(latency: str | float, bandwidth: str | float, name: str | None = None) -> costmodel.Link:
    """Return a network in which each worker has one link.

    Args:
        latency: one-way latency: ``"20 ms"``, or seconds.
        bandwidth: ``"1 Gbit/s"`` (bits), ``"125 MB/s"`` (bytes), or bytes per second.
        name: name of the network in tables; by default latency and bandwidth.

    Returns:
        A network that every ``networks=`` accepts; for its other fields, see `syncline.costmodel.Link`.

    Raises:
        SpecError: a number has an unknown unit, or is out of range.

    >>> Link("20 ms", "1 Gbit/s").describe()
    '20 ms one way, 1 Gbit/s'
    >>> Link(0.02, 125e6, name="dsl") == Link("20 ms", "125 MB/s", name="dsl")
    True
    """
    try:
        link = network({"latency": latency, "bandwidth": bandwidth}, "")
    except SpecError as error:
        raise SpecError(error.path.strip("."), error.value, error.expected) from None
    assert isinstance(link, costmodel.Link)
    return link if name is None else dataclasses.replace(link, name=name)
