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

GridColumns = dict[str, tuple[Indices, tuple[Any, ...]]]
"""By field of a grid, the index of each row's value, and the values; None is a value if some rows have none."""


class Variants(NamedTuple):
    """Variants of methods with different field values, and these values as table columns."""

    methods: tuple[MethodBase, ...]
    columns: GridColumns


def variants_of(methods: Sequence[MethodBase], grids: Sequence[Grid]) -> Variants:
    """Return each method with every combination of the grids' values that apply to it.

    Args:
        methods: methods whose fields the grids change; a grid over ``method`` itself replaces them.
        grids: grids over ``method`` and fields below it; a grid for one method does not change the others.

    Raises:
        SpecError: names the grid: no such method, no method has the field, or a value is invalid for it.
    """
    base_grids = [grid for grid in grids if grid.path == "method"]
    field_grids = [grid for grid in grids if grid.path != "method"]
    bases = [_read_method(value, grid.origin) for grid in base_grids for value in grid.values] or list(methods)
    names = [base.name for base in bases]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(base_grids[0].origin, name, "different names (a method's label is its name)")
    variants: list[MethodBase] = []
    codes_by_variant: list[dict[int, int]] = []  # 1 + the index of the variant's value, by the id of a grid
    for base in bases:
        applicable_grids = [
            grid for grid in field_grids if grid.method in ("", base.name) and _field(grid) in type(base).model_fields
        ]
        for indices in itertools.product(*(range(len(grid.values)) for grid in applicable_grids)):
            grids_and_indices = list(zip(applicable_grids, indices, strict=True))
            variants.append(_changed_method(base, [(grid, grid.values[index]) for grid, index in grids_and_indices]))
            codes_by_variant.append({id(grid): 1 + index for grid, index in grids_and_indices})
    columns: GridColumns = {}
    for grid in field_grids:
        codes = np.array([code_by_grid.get(id(grid), 0) for code_by_grid in codes_by_variant])
        if grid.method and grid.method not in names:
            raise SpecError(grid.origin, grid.method, one_of(names, grid.method))
        if not codes.any():
            field_names = {name for base in bases if grid.method in ("", base.name) for name in type(base).model_fields}
            raise SpecError(
                grid.origin, _field(grid), f"a field that a method here has: {one_of_fields(field_names, _field(grid))}"
            )
        # Another grid may have set the same field of another method; its values come first.
        value_indices, values = columns.get(grid.path, (np.zeros(len(variants), dtype=np.int64), (None,)))
        columns[grid.path] = np.where(codes > 0, codes + len(values) - 1, value_indices), (*values, *grid.shown)
    return Variants(tuple(variants), columns)


def _field(grid: Grid) -> str:
    """Return the name of the method's field that a grid is over."""
    return grid.path.split(".")[1]


def _read_method(value: Any, option: str) -> MethodBase:
    """Return the method that a value of an option describes.

    Raises:
        SpecError: names the option.
    """
    try:
        return method_of(value)
    except SpecError as error:
        raise SpecError(".".join(filter(None, (option, error.path))), error.value, error.expected) from None


def _changed_method(base: MethodBase, values: Sequence[tuple[Grid, Any]]) -> MethodBase:
    """Return a copy of a method whose fields have these values; the grids name the fields."""
    if not values:
        return base
    overrides = [Override(grid.path, value, grid.origin, written=value) for grid, value in values]
    fields = with_overrides({"method": base}, overrides)["method"]
    try:
        with within("method"):
            return method_of(fields)
    except SpecError as error:
        for grid, _ in values:
            if error.path == grid.path or error.path.startswith(f"{grid.path}."):
                raise SpecError(grid.origin, error.value, error.expected) from None
        last_grid, _ = values[-1]
        option = f"{last_grid.origin} ({error.path.removeprefix('method.')})"
        raise SpecError(option, error.value, error.expected) from None


IN_SPECS = {"latency_s": "latency", "bandwidth_bytes_per_s": "bandwidth", "overhead_s": "overhead",
            "upload_bytes_per_s": "upload"}  # fmt: skip
"""Fields of a link: their names in Python, and in specs."""

READ_ONCE = {"latency": "latency_s", "bandwidth": "bandwidth_bytes_per_s", "overhead": "overhead_s",
           "efficiency": "efficiency"}  # fmt: skip
"""Fields that are independent numbers of a link: each value is read once, not for each combination."""

LINK_COLUMNS = ("latency_s", "bandwidth_bytes_per_s")
"""Fields of links with a column in every row."""


class NetworkGrid:
    """Every combination of base networks with values of some of their fields, built some at a time.

    Args:
        networks: base networks if no grid is over ``network`` itself.
        grids: grids over ``network`` and fields below it.

    Raises:
        SpecError: names the grid: a network has no such field, or a value is invalid.
    """

    def __init__(self, networks: Sequence[Network], grids: Sequence[Grid]) -> None:
        """Check every value of each grid on every network, before any is priced."""
        base_grids = [grid for grid in grids if grid.path == "network"]
        self.field_grids = [grid for grid in grids if grid.path != "network"]
        self.bases = [_read_network(value, grid.origin) for grid in base_grids for value in grid.values]
        self.bases = self.bases or list(networks)
        names = [base.name for base in self.bases]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(base_grids[0].origin, name, "different names (a network's 'name' is its name)")
        fields = [_spec_field(grid) for grid in self.field_grids]
        for grid, field in zip(self.field_grids, fields, strict=True):
            if fields.count(field) > 1:
                raise SpecError(grid.origin, grid.path, "each field once")
        self.shape = [len(self.bases), *(len(grid.values) for grid in self.field_grids)]
        self._numbers = [[_link_numbers(base, grid) for grid in self.field_grids] for base in self.bases]
        # Read each value once, beside the first values of the other grids.
        for base_index in range(len(self.bases)):
            for position, grid in enumerate(self.field_grids):
                for value_index in range(len(grid.values)):
                    indices = [0] * len(self.field_grids)
                    indices[position] = value_index
                    self._network_at(base_index, indices)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def part(self, begin: int, end: int) -> tuple[list[Network], GridColumns]:
        """Return the networks with these indices, and table columns of their links' numbers and the grids' values."""
        # A network is a base network with a value from each grid.
        base_indices, *grid_indices = np.unravel_index(np.arange(begin, end), self.shape)
        all_indices = np.stack([base_indices, *grid_indices], axis=1).tolist()
        networks = [self._network_at(base_index, indices) for base_index, *indices in all_indices]
        columns: GridColumns = {
            f"network.{name}": (np.arange(end - begin), tuple(getattr(network, name, None) for network in networks))
            for name in LINK_COLUMNS
        }
        for grid, link_numbers, indices in zip(self.field_grids, self._numbers[0], grid_indices, strict=True):
            if link_numbers is None:
                columns[grid.path] = indices, grid.shown
                continue
            name, values = link_numbers
            if name not in LINK_COLUMNS:  # which have columns already
                columns[f"network.{name}"] = indices, tuple(values)
        return networks, columns

    def _network_at(self, base_index: int, indices: Sequence[int]) -> Network:
        """Return a base network with a value from each grid, chosen by index; the network keeps its name."""
        result, numbers = self.bases[base_index], {}
        for grid, link_numbers, index in zip(self.field_grids, self._numbers[base_index], indices, strict=True):
            if link_numbers is None:
                result = _changed_network(result, grid, grid.values[index])
            else:
                name, values = link_numbers
                numbers[name] = values[index]
        return result.with_numbers(numbers) if isinstance(result, Link) and numbers else result


def _read_network(value: Any, option: str) -> Network:
    """Return the network that a value describes; without a name, its description becomes its name, as in specs."""
    parsed_network = network(value, option)
    named_fields = network_fields(parsed_network)
    if parsed_network.name or not isinstance(named_fields, dict):
        return parsed_network
    return network(named_fields | {"name": parsed_network.describe().replace(" one way", "")})


def _spec_field(grid: Grid) -> str:
    """Return the name in specs of the network's field that a grid is over."""
    name = grid.path.removeprefix("network.")
    return IN_SPECS.get(name, name)


def _link_numbers(base: Network, grid: Grid) -> tuple[str, list[float]] | None:
    """Return the name of the link's number that a grid is over, and its values, or None for any other field."""
    name = READ_ONCE.get(_spec_field(grid))
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
    *parent_keys, last_key = grid.path.split(".")
    path = ".".join([*parent_keys, IN_SPECS.get(last_key, last_key)])
    override = Override(path, value, grid.origin, written=value)
    changed_fields = with_overrides({"network": original_fields}, [override])["network"]
    try:
        return network(changed_fields | {"name": original.name}, "network")
    except SpecError as error:
        option = grid.origin if error.path == path else f"{grid.origin} ({error.path} of {original.name})"
        raise SpecError(option, error.value, error.expected) from None
