"""Methods and networks with every combination of values of their own fields; networks are built some at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

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


def variants_of(methods: Sequence[MethodBase], grids: Sequence[Grid]) -> tuple[tuple[MethodBase, ...], GridColumns]:
    """Return each method with every combination of the grids' values that apply to it, and the values as columns.

    Args:
        methods: methods whose fields the grids change; a grid over ``method`` itself replaces them.
        grids: grids over ``method`` and fields below it; a grid for one method does not change the others.
    """
    base_grids = [grid for grid in grids if grid.path == "method"]
    field_grids = [grid for grid in grids if grid.path != "method"]
    bases = [_read_method(value, grid.origin) for grid in base_grids for value in grid.values] or list(methods)
    names = [base.name for base in bases]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(base_grids[0].origin, name, "different names (a method's label is its name)")
    variants: list[MethodBase] = []
    value_index_by_grid: list[dict[int, int]] = []  # for each variant, by the ids of the grids that change it
    for base in bases:
        applicable_grids = [
            grid
            for grid in field_grids
            if grid.method in ("", base.name) and grid.path.split(".")[1] in type(base).model_fields  # method.FIELD...
        ]
        for indices in itertools.product(*(range(len(grid.values)) for grid in applicable_grids)):
            grids_and_indices = list(zip(applicable_grids, indices, strict=True))
            variants.append(_changed_method(base, [(grid, grid.values[index]) for grid, index in grids_and_indices]))
            value_index_by_grid.append({id(grid): index for grid, index in grids_and_indices})
    columns: GridColumns = {}
    for grid in field_grids:
        grid_indices = np.array([index_by_grid.get(id(grid), -1) for index_by_grid in value_index_by_grid])
        if grid.method and grid.method not in names:
            raise SpecError(grid.origin, grid.method, one_of(names, grid.method))
        if (grid_indices < 0).all():  # no method has the field
            _, field, *_ = grid.path.split(".")
            grid_bases = [base for base in bases if grid.method in ("", base.name)]
            field_names = {field_name for base in grid_bases for field_name in type(base).model_fields}
            expected = f"a field that a method here has: {one_of_fields(field_names, field)}"
            raise SpecError(grid.origin, field, expected)
        # All grids over one field share a column. Its first value, None, is that of variants that no such grid changes.
        value_indices, values = columns.get(grid.path, (np.zeros(len(variants), dtype=np.int64), (None,)))
        value_indices = np.where(grid_indices >= 0, len(values) + grid_indices, value_indices)
        columns[grid.path] = value_indices, (*values, *grid.labels)
    return tuple(variants), columns


def _read_method(value: Any, option: str) -> MethodBase:
    try:
        return method_of(value)
    except SpecError as error:
        raise SpecError(".".join(filter(None, (option, error.path))), error.value, error.expected) from None


def _changed_method(base: MethodBase, values: Sequence[tuple[Grid, Any]]) -> MethodBase:
    """Return a copy of a method with a value of each grid in the field that the grid is over."""
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
        last_grid, _ = values[-1]  # no value is wrong alone; a later one contradicts the others
        option = f"{last_grid.origin} ({error.path.removeprefix('method.')})"
        raise SpecError(option, error.value, error.expected) from None


SPEC_NAMES = {"latency_s": "latency", "bandwidth_bytes_per_s": "bandwidth", "overhead_s": "overhead",
              "upload_bytes_per_s": "upload"}  # fmt: skip
"""Names in specs of a link's fields, by their names in Python."""

INDEPENDENT_NUMBERS = {"latency": "latency_s", "bandwidth": "bandwidth_bytes_per_s", "overhead": "overhead_s",
                       "efficiency": "efficiency"}  # fmt: skip
"""Names in Python of fields that are independent numbers of a link, by their names in specs.

Each of their values is read once, not for each combination with values of other fields."""

LINK_COLUMNS = ("latency_s", "bandwidth_bytes_per_s")
"""Fields of links with a column in every row."""


class NetworkGrid:
    """Every combination of base networks with values of some of their fields, built some at a time.

    Args:
        networks: base networks if no grid is over ``network`` itself.
        grids: grids over ``network`` and fields below it.
    """

    def __init__(self, networks: Sequence[Network], grids: Sequence[Grid]) -> None:
        """Check every value of each grid on every network, so that errors come before the first row."""
        base_grids = [grid for grid in grids if grid.path == "network"]
        self.field_grids = [grid for grid in grids if grid.path != "network"]
        self.bases = [_read_network(value, grid.origin) for grid in base_grids for value in grid.values]
        self.bases = self.bases or list(networks)
        names = [base.name for base in self.bases]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(base_grids[0].origin, name, "different names (a network's 'name' is its name)")
        fields = [_field_name_in_specs(grid) for grid in self.field_grids]
        for grid, field in zip(self.field_grids, fields, strict=True):
            if fields.count(field) > 1:
                raise SpecError(grid.origin, grid.path, "each field once")
        self.shape = [len(self.bases), *(len(grid.values) for grid in self.field_grids)]
        # By base and grid: a link's number and its values, with which a network is copied; None: it is built anew.
        self._link_numbers = [[_independent_number(base, grid) for grid in self.field_grids] for base in self.bases]
        # Make a network of each value once, beside the first values of the other grids: a wrong value raises an error.
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
        # A grid has the same independent number, with the same values, on each base: take those of the first one.
        for grid, name_and_values, indices in zip(self.field_grids, self._link_numbers[0], grid_indices, strict=True):
            if name_and_values is None:
                columns[grid.path] = indices, grid.labels
                continue
            name, values = name_and_values
            if name not in LINK_COLUMNS:  # projections have these columns already
                columns[f"network.{name}"] = indices, tuple(values)
        return networks, columns

    def _network_at(self, base_index: int, indices: Sequence[int]) -> Network:
        """Return a base network with a value from each grid, chosen by index; the network keeps its name."""
        result, numbers = self.bases[base_index], {}
        for grid, name_and_values, index in zip(self.field_grids, self._link_numbers[base_index], indices, strict=True):
            if name_and_values is None:
                result = _changed_network(result, grid, grid.values[index])
            else:
                name, values = name_and_values
                numbers[name] = values[index]
        return result.with_numbers(numbers) if isinstance(result, Link) and numbers else result


def _read_network(value: Any, option: str) -> Network:
    """Return the network that a value describes; without a name, its description is its name, as in specs."""
    parsed_network = network(value, option)
    fields_or_name = network_fields(parsed_network)
    if parsed_network.name or isinstance(fields_or_name, str):
        return parsed_network
    # Specs name such a network ``50 us, 10 Gbit/s``, without the words ``one way`` of the description.
    return network(fields_or_name | {"name": parsed_network.describe().replace(" one way", "")})


def _field_name_in_specs(grid: Grid) -> str:
    """Return the name in specs of the network's field that a grid is over."""
    name = grid.path.removeprefix("network.")
    return SPEC_NAMES.get(name, name)


def _independent_number(base: Network, grid: Grid) -> tuple[str, list[float]] | None:
    """Return the Python name and the values of a grid's field if it is in `INDEPENDENT_NUMBERS`; else None."""
    name = INDEPENDENT_NUMBERS.get(_field_name_in_specs(grid))
    if not isinstance(base, Link) or name is None:
        return None
    changed_links = [_changed_network(base, grid, value) for value in grid.values]  # this parses units
    return name, [float(getattr(link, name)) for link in changed_links]


def _changed_network(original: Network, grid: Grid, value: Any) -> Network:
    """Return the network with another value of a grid's field, which the grid names as in specs or as in Python."""
    original_fields = network_fields(original)
    if not isinstance(original_fields, dict):
        raise SpecError(grid.origin, original.name, "networks that are described by fields")
    *parents, last_name = grid.path.split(".")
    path_in_spec = ".".join([*parents, SPEC_NAMES.get(last_name, last_name)])
    override = Override(path_in_spec, value, grid.origin, written=value)
    changed_fields = with_overrides({"network": original_fields}, [override])["network"]
    try:
        return network(changed_fields | {"name": original.name}, "network")
    except SpecError as error:  # the value is wrong, or contradicts another field
        option = grid.origin if error.path == path_in_spec else f"{grid.origin} ({error.path} of {original.name})"
        raise SpecError(option, error.value, error.expected) from None
