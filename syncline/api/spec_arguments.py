"""From the arguments of a function to a spec."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from syncline.errors import SpecError
from syncline.fields import kind_of_model
from syncline.specs import STUDIES, Experiment, load_spec, study_of

Asked: TypeAlias = str | Path | Mapping[str, Any] | Experiment | None
"""A bundled spec's name, a YAML file, a spec's fields, a spec, or nothing: all is said by keywords."""


def spec_of(
    asked: Asked,
    fields: Mapping[str, Any],
    *classes: type[Experiment],
    kind: str,
    studies_of: str = "",
    scale: str | None = None,
) -> Any:
    """The spec that is asked for, with what is surely not meant told as Python's warnings.

    Args:
        asked: what to begin with. A spec without fields is taken as it is, and warns of nothing.
        fields: values by name, or by path as in ``"methods.1.period"``; None is not given.
        classes: of the specs that will do.
        kind: of a spec that is made of fields alone; also its name, unless it has one.
        studies_of: of this command, the specs of studies too.
        scale: one of the spec's ``scales``.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.
    """
    given = {path: value for path, value in fields.items() if value is not None}
    if isinstance(asked, Experiment):
        own = kind_of_model(type(asked))
        if not (isinstance(asked, classes) or (own in STUDIES and study_of(asked).command == studies_of)):
            raise SpecError("spec", asked.name, f"a spec of kind {kind}; this one is of kind {own}")
        if not given:
            return asked
        asked = dict(asked)
    spec = load_spec(
        {"kind": kind, "name": kind} if asked is None else asked, given, *classes, studies_of=studies_of, scale=scale
    )
    told(spec.warnings())
    return spec


def told(lines: list[str]) -> None:
    """Warn of each line at the place outside this package that called it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("syncline."):
        level, frame = level + 1, frame.f_back
    for line in lines:
        warnings.warn(line, stacklevel=level)


def listed(value: Any) -> list[Any]:
    """Return one or several, as several; none of None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | range) else [value]
