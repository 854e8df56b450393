"""Functions that turn arguments into a spec."""

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
"""A bundled spec's name, a YAML file, a spec's fields, a spec, or None if keywords give all fields."""


def spec_of(
    base_spec: Asked,
    fields: Mapping[str, Any],
    *classes: type[Experiment],
    kind: str,
    studies_of: str = "",
    scale: str | None = None,
) -> Any:
    """Return the requested spec, and warn of settings that are probably mistakes.

    Args:
        base_spec: the spec to begin with. A spec object without ``fields`` is returned unchanged, without warnings.
        fields: values by name, or by path such as ``"methods.1.period"``; a value of None is ignored.
        classes: the accepted classes of specs.
        kind: kind of a spec that is made of fields alone; also its name, unless it has one.
        studies_of: a command whose studies' specs are accepted too.
        scale: one of the spec's ``scales``.

    Raises:
        SynclineError: a value is wrong; one line says which one, and which values are accepted.
    """
    overrides = {path: value for path, value in fields.items() if value is not None}
    if isinstance(base_spec, Experiment):
        spec_kind = kind_of_model(type(base_spec))
        if not (isinstance(base_spec, classes) or (spec_kind in STUDIES and study_of(base_spec).command == studies_of)):
            raise SpecError("spec", base_spec.name, f"a spec of kind {kind}; this one is of kind {spec_kind}")
        if not overrides:
            return base_spec
        base_spec = dict(base_spec)
    spec = load_spec(
        {"kind": kind, "name": kind} if base_spec is None else base_spec,
        overrides,
        *classes,
        studies_of=studies_of,
        scale=scale,
    )
    warn_lines(spec.warnings())
    return spec


def warn_lines(lines: list[str]) -> None:
    """Warn of each line at the place outside this package from which the call came."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("syncline."):
        level, frame = level + 1, frame.f_back
    for line in lines:
        warnings.warn(line, stacklevel=level)


def listed(value: Any) -> list[Any]:
    """Return a list of the value, or of the values if there are several; an empty list for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | range) else [value]
