"""Methods with every combination of values of their own fields."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.numerics.arrays import Indices
from syncline.errors import SpecError, one_of, within
from syncline.fields import one_of_fields
from syncline.methods import MethodBase, method_of
from syncline.specs import Override
from syncline.specs.grid import Grid
from syncline.specs.load import with_overrides

GridPlaces = dict[str, tuple[Indices, tuple[Any, ...]]]
"""Index of each item's value, and the values, by field of a grid; None is a value if some items have none."""


class Variants(NamedTuple):
    """Methods, and the value that each has of each grid's field."""

    methods: tuple[MethodBase, ...]
    places: GridPlaces


def variants_of(methods: Sequence[MethodBase], grids: Sequence[Grid]) -> Variants:
    """Return every method with every combination of values, for those fields below ``method`` that it has.

    Args:
        methods: base methods if no grid is over ``method`` itself.
        grids: grids over ``method`` and fields below it; a grid for one method does not change the others.

    Raises:
        SpecError: names the grid: no such method, no method has the field, or a value is invalid for it.
    """
    of_all = [grid for grid in grids if grid.path == "method"]
    field_grids = [grid for grid in grids if grid.path != "method"]
    bases = [_read(value, grid.origin) for grid in of_all for value in grid.values] or list(methods)
    names = [base.name for base in bases]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(of_all[0].origin, name, "different names (a method's label is its name)")
    variants: list[MethodBase] = []
    choices: list[dict[int, int]] = []
    for base in bases:
        own_grids = [
            grid for grid in field_grids if grid.method in ("", base.name) and _field(grid) in type(base).model_fields
        ]
        for indices in itertools.product(*(range(len(grid.values)) for grid in own_grids)):
            variants.append(
                _changed(base, [(grid, grid.values[i]) for grid, i in zip(own_grids, indices, strict=True)])
            )
            choices.append({id(grid): 1 + i for grid, i in zip(own_grids, indices, strict=True)})
    places: GridPlaces = {}
    for grid in field_grids:
        codes = np.array([choice.get(id(grid), 0) for choice in choices])
        if grid.method and grid.method not in names:
            raise SpecError(grid.origin, grid.method, one_of(names, grid.method))
        if not codes.any():
            field_names = {name for base in bases if grid.method in ("", base.name) for name in type(base).model_fields}
            raise SpecError(
                grid.origin, _field(grid), f"a field that a method here has: {one_of_fields(field_names, _field(grid))}"
            )
        before, values = places.get(grid.path, (np.zeros(len(variants), dtype=np.int64), (None,)))
        places[grid.path] = np.where(codes > 0, codes + len(values) - 1, before), (*values, *grid.shown)
    return Variants(tuple(variants), places)


def _field(grid: Grid) -> str:
    return grid.path.split(".")[1]


def _read(value: Any, option: str) -> MethodBase:
    try:
        return method_of(value)
    except SpecError as error:
        raise SpecError(".".join(filter(None, (option, error.path))), error.value, error.expected) from None


def _changed(base: MethodBase, values: Sequence[tuple[Grid, Any]]) -> MethodBase:
    """Return the method with these values."""
    if not values:
        return base
    options = {grid.path.removeprefix("method."): grid.origin for grid, _ in values}
    overrides = [Override(grid.path, value, grid.origin, value) for grid, value in values]
    fields = with_overrides({"method": base}, overrides)["method"]
    try:
        with within("method"):
            return method_of(fields)
    except SpecError as error:
        path = error.path.removeprefix("method.")
        where = next((name for field, name in options.items() if path == field or path.startswith(f"{field}.")), None)
        raise SpecError(where or f"{values[-1][0].origin} ({path})", error.value, error.expected) from None
