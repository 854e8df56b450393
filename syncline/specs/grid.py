"""A grid: a field of a spec and the values that it takes; errors in terms of a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncline.errors import SpecError
from syncline.files import parse_yaml

NOT_SWEPT = {
    "seeds": "no seeds, which --seeds gives",
    "kind": "another field: a sweep's runs are all of kind 'run'",
    "name": "a field that changes something",
    "description": "a field that changes something",
    "source": "a field that changes something",
}
"""Fields that cannot be swept, with the field that is expected instead."""


@dataclass(frozen=True)
class Grid:
    """A field and the values that it takes.

    Args:
        path: path of the field, in dots, in the form of ``--set``.
        values: values of the field, in order.
        origin: name of the grid in error messages.
        labels: a short name for each value, for tables; the value itself by default.
        method: name of the only method that the grid is for, from a grid over methods; all methods if empty.
    """

    path: str
    values: tuple[Any, ...]
    origin: str
    labels: tuple[Any, ...] = ()
    method: str = ""

    def __post_init__(self) -> None:
        """Make the texts that tables show; refuse a field that cannot be swept, and a grid without values."""
        first_field, _, _ = self.path.partition(".")
        if not self.path or first_field in NOT_SWEPT:
            expected = NOT_SWEPT.get(first_field, "a field of the spec, as in method.lr=1e-3,3e-3")
            raise SpecError(self.origin, self.path, expected)
        if not self.values:
            raise SpecError(self.origin, [], "at least one value")
        object.__setattr__(self, "labels", self.labels or tuple(map(flat_value, self.values)))

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Return the grid of ``field.path=1,2,3`` or ``field.path=[...]``, a comma list or a YAML list.

        This is the form of ``--grid``; ``mt-dao:field.path=...`` is for that method alone.

        >>> Grid.parse("method.lr=1e-3,3e-3").values, Grid.parse('network=[10gbe, "50us,25Gbit/s"]').values
        ((0.001, 0.003), ('10gbe', '50us,25Gbit/s'))
        """
        path, equals, values_text = text.partition("=")
        if not equals or not path:
            raise SpecError("--grid", text, "field.path=value,value, as in method.lr=1e-3,3e-3")
        option = f"--grid {path}"  # before a method's name is split off
        method, path = split_method(path)
        is_list = values_text.lstrip().startswith("[")
        try:
            values = parse_yaml(values_text if is_list else f"[{values_text}]")
        except ValueError:
            values = None
        if not isinstance(values, list):
            raise SpecError(option, values_text, "values separated by commas, or a list in YAML")
        return cls(path, tuple(values), option, method=method)

    @classmethod
    def from_values(cls, path: str, values: Any) -> Grid:
        """Return a grid over one field, from an iterable of Python objects instead of text.

        ``path`` is the field, with ``METHOD:`` before it if only one method's field is swept.
        """
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise SpecError(f"grid[{path!r}]", values, "a list of values")
        method, field = split_method(path)
        return cls(field, tuple(values), f"grid[{path!r}]", method=method)


def split_method(path: str) -> tuple[str, str]:
    """Return the method that a field is swept for, empty for all methods, and the path of the field.

    >>> split_method("mt-dao:method.period"), split_method("method.lr")
    (('mt-dao', 'method.period'), ('', 'method.lr'))
    """
    method, _, field = path.rpartition(":")
    return method, field


def is_below(path: str, above: str) -> bool:
    """Return whether a field lies inside another one."""
    return path.startswith(f"{above}.")


def is_at_or_below(path: str, other: str) -> bool:
    """Return whether a field is another one or lies inside it."""
    return path == other or is_below(path, other)


def error_of_grid(
    error: SpecError, possible_causes: Sequence[tuple[Grid, Any]], settings: Sequence[tuple[Grid, Any]]
) -> SpecError:
    """Return an error in a configuration as an error of the grid that caused it.

    If no grid caused it, the error text shows the configuration's values.

    Args:
        error: the error; its path is a field of the spec.
        possible_causes: grids that may have caused the error, with their values.
        settings: all grids of the configuration, with their values.
    """
    names_grid = any(error.path == grid.origin for grid, _ in settings)
    if names_grid:
        return error
    innermost_first = sorted(possible_causes, key=lambda setting: setting[0].path.count("."), reverse=True)
    for grid, _ in innermost_first:
        if is_at_or_below(error.path, grid.path):
            return SpecError(grid.origin + error.path.removeprefix(grid.path), error.value, error.expected)
    if not settings:
        return error
    settings_text = ", ".join(f"{grid.path}={flat_value(value)}" for grid, value in settings)
    return SpecError(error.path, error.value, f"{error.expected} (with {settings_text})")


def flat_value(value: Any) -> Any:
    """Return a swept value as a number or text for a table's cell: an object's name or label, or else its JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "name"):
        return value.name
    if isinstance(value, Mapping) and (value.get("label") or value.get("name")):
        return value.get("label") or value["name"]
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)
