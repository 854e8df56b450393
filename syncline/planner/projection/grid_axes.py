"""Methods and networks with every combination of values of their own fields; networks are built some at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Link, Network
from syncline.costmodel.numerics.arrays import Indices
from syncline.errors import SpecError, one_of, within
from syncline.fields import one_of_fields
from syncline.methods import MethodBase, method_of
from syncline.specs import Override, network, network_fields
from syncline.specs.grid import Grid
from syncline.specs.load import with_overrides

GridPlaces = dict[str, tuple[Indices, tuple[Any, ...]]]
"""Index of each item's value, and the values, by field of a grid; None is a value if some items have none."""


class Variants(NamedTuple):
    """Methods, and the value that each has of each grid's field."""

    methods: tuple[MethodBase, ...]
    places: GridPlaces


def variants_of(methods: Sequence[MethodBase], grids: Sequence[Grid]) -> Variants:
    """Return each method with every combination of the grids' values that apply to it.

    Args:
        methods: methods whose fields the grids change; a grid over ``method`` itself replaces them.
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
                _changed_method(base, [(grid, grid.values[i]) for grid, i in zip(own_grids, indices, strict=True)])
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
        places_before, values = places.get(grid.path, (np.zeros(len(variants), dtype=np.int64), (None,)))
        places[grid.path] = np.where(codes > 0, codes + len(values) - 1, places_before), (*values, *grid.shown)
    return Variants(tuple(variants), places)


def _field(grid: Grid) -> str:
    """Return the name of the method's field that a grid is over."""
    return grid.path.split(".")[1]


def _read(value: Any, option: str) -> MethodBase:
    """Return the method that a value of an option describes.

    Raises:
        SpecError: names the option.
    """
    try:
        return method_of(value)
    except SpecError as error:
        raise SpecError(".".join(filter(None, (option, error.path))), error.value, error.expected) from None


def _changed_method(base: MethodBase, values: Sequence[tuple[Grid, Any]]) -> MethodBase:
    """Return the method with fields set to the values of the grids."""
    if not values:
        return base
    options = {grid.path.removeprefix("method."): grid.origin for grid, _ in values}
    overrides = [Override(grid.path, value, grid.origin, written=value) for grid, value in values]
    fields = with_overrides({"method": base}, overrides)["method"]
    try:
        with within("method"):
            return method_of(fields)
    except SpecError as error:
        path = error.path.removeprefix("method.")
        where = next((name for field, name in options.items() if path == field or path.startswith(f"{field}.")), None)
        raise SpecError(where or f"{values[-1][0].origin} ({path})", error.value, error.expected) from None


IN_SPECS = {"latency_s": "latency", "bandwidth_bytes_per_s": "bandwidth", "overhead_s": "overhead",
            "upload_bytes_per_s": "upload"}  # fmt: skip
"""Fields of a link: their names in Python, and in specs."""

READ_ONCE = {"latency": "latency_s", "bandwidth": "bandwidth_bytes_per_s", "overhead": "overhead_s",
           "efficiency": "efficiency"}  # fmt: skip
"""Fields that are independent numbers of a link: each value is read once, not for each combination."""

LINK_COLUMNS = ("latency_s", "bandwidth_bytes_per_s")
"""Fields of links with a column in every row."""


class NetworkGrid:
    """Networks times values of fields below ``network``.

    Args:
        networks: base networks if no grid is over ``network`` itself.
        grids: grids over ``network`` and fields below it.

    Raises:
        SpecError: names the grid: a network has no such field, or a value is invalid.
    """

    def __init__(self, networks: Sequence[Network], grids: Sequence[Grid]) -> None:
        """Check every value of each grid on every network, before any is priced."""
        of_all = [grid for grid in grids if grid.path == "network"]
        self.below = [grid for grid in grids if grid.path != "network"]
        self.bases = [_named(value, grid.origin) for grid in of_all for value in grid.values] or list(networks)
        names = [base.name for base in self.bases]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(of_all[0].origin, name, "different names (a network's 'name' is its name)")
        field_paths = [IN_SPECS.get(path := grid.path.removeprefix("network."), path) for grid in self.below]
        for grid, field in zip(self.below, field_paths, strict=True):
            if field_paths.count(field) > 1:
                raise SpecError(grid.origin, grid.path, "each field once")
        self.shape = [len(self.bases), *(len(grid.values) for grid in self.below)]
        self._numbers = [[_number(base, grid) for grid in self.below] for base in self.bases]
        for base in range(len(self.bases)):
            for position, grid in enumerate(self.below):
                for i in range(len(grid.values)):
                    self._network_at(base, [i if index == position else 0 for index in range(len(self.below))])

    def __len__(self) -> int:
        return math.prod(self.shape)

    def part(self, begin: int, end: int) -> tuple[list[Network], GridPlaces]:
        """Return some of the networks, and columns: latency and bandwidth of links, and the value of each grid."""
        bases, *grid_indices = np.unravel_index(np.arange(begin, end), self.shape)
        # A network is a base network with a value from each grid.
        bases_and_indices = np.stack([bases, *grid_indices], axis=1).tolist()
        networks = [self._network_at(base, indices) for base, *indices in bases_and_indices]
        columns: GridPlaces = {
            f"network.{name}": (np.arange(end - begin), tuple(getattr(network, name, None) for network in networks))
            for name in LINK_COLUMNS
        }
        for index, (grid, indices) in enumerate(zip(self.below, grid_indices, strict=True)):
            number = self._numbers[0][index]
            if number is None:
                columns[grid.path] = indices, grid.shown
                continue
            name, values = number
            if name not in LINK_COLUMNS:  # which have columns already
                columns[f"network.{name}"] = indices, tuple(values)
        return networks, columns

    def _network_at(self, base: int, indices: Sequence[int]) -> Network:
        """Return a network with a value from each grid, chosen by index; the network keeps its name."""
        result, numbers = self.bases[base], {}
        for grid, number, index in zip(self.below, self._numbers[base], indices, strict=True):
            if number is None:
                result = _changed_network(result, grid, grid.values[index])
            else:
                name, values = number
                numbers[name] = values[index]
        return result.with_numbers(numbers) if isinstance(result, Link) and numbers else result


def _named(value: Any, option: str) -> Network:
    """Return the network; a network without a name is named by its description, as in specs."""
    parsed_network = network(value, option)
    named_fields = network_fields(parsed_network)
    if parsed_network.name or not isinstance(named_fields, dict):
        return parsed_network
    return network(named_fields | {"name": parsed_network.describe().replace(" one way", "")})


def _number(base: Network, grid: Grid) -> tuple[str, list[float]] | None:
    """Return the name of a link's number that a grid is over, and its values, or None if it is anything else."""
    path = grid.path.removeprefix("network.")
    name = READ_ONCE.get(IN_SPECS.get(path, path))
    if not isinstance(base, Link) or name is None:
        return None
    return name, [float(getattr(_changed_network(base, grid, value), name)) for value in grid.values]


def _changed_network(original: Network, grid: Grid, value: Any) -> Network:
    """Return the network with another value of a field, by the field's name in specs or in Python.

    Raises:
        SpecError: names the grid.
    """
    original_fields = network_fields(original)
    if not isinstance(original_fields, dict):
        raise SpecError(grid.origin, original.name, "networks that are described by fields")
    *parent_keys, last = grid.path.split(".")
    path = ".".join([*parent_keys, IN_SPECS.get(last, last)])
    changed_fields = with_overrides({"network": original_fields}, [Override(path, value, grid.origin, written=value)])[
        "network"
    ]
    try:
        return network(changed_fields | {"name": original.name}, "network")
    except SpecError as error:
        option = grid.origin if error.path == path else f"{grid.origin} ({error.path} of {original.name})"
        raise SpecError(option, error.value, error.expected) from None
