"""Networks with every combination of values of their fields, made some at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Link, Network
from syncline.errors import SpecError
from syncline.experiments.projection.grid_methods import GridPlaces
from syncline.experiments.sweep.grid import Grid
from syncline.specs import Override, network, network_fields
from syncline.specs.load import with_overrides

IN_SPECS = {"latency_s": "latency", "bandwidth_bytes_per_s": "bandwidth", "overhead_s": "overhead",
            "upload_bytes_per_s": "upload"}  # fmt: skip
"""Fields of a link: their names in Python, and in specs."""

READ_ONCE = {"latency": "latency_s", "bandwidth": "bandwidth_bytes_per_s", "overhead": "overhead_s",
           "efficiency": "efficiency"}  # fmt: skip
"""Those that are a number of a link, whatever the others are: each value is read once, not for each combination."""


ALWAYS_TOLD = ("latency_s", "bandwidth_bytes_per_s")
"""Of links: columns that every row has."""


class NetworkGrid:
    """Networks times values of fields below ``network``.

    Args:
        networks: where no grid is over ``network`` itself.
        grids: over ``network`` and what is below it.

    Raises:
        SpecError: names the grid: there is no such field of a network, or a value cannot be used.
    """

    def __init__(self, networks: Sequence[Network], grids: Sequence[Grid]) -> None:
        of_all = [grid for grid in grids if grid.path == "network"]
        self.below = [grid for grid in grids if grid.path != "network"]
        self.bases = [_named(value, grid.told) for grid in of_all for value in grid.values] or list(networks)
        names = [base.name for base in self.bases]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(of_all[0].told, name, "different names (a network's 'name' is its name)")
        fields = [IN_SPECS.get(path := grid.path.removeprefix("network."), path) for grid in self.below]
        for grid, field in zip(self.below, fields, strict=True):
            if fields.count(field) > 1:
                raise SpecError(grid.told, grid.path, "each field once")
        self.shape = [len(self.bases), *(len(grid.values) for grid in self.below)]
        self._numbers = [[_number(base, grid) for grid in self.below] for base in self.bases]
        for base in range(len(self.bases)):
            for place, grid in enumerate(self.below):
                for i in range(len(grid.values)):
                    self._made(base, [i if each == place else 0 for each in range(len(self.below))])

    def __len__(self) -> int:
        return math.prod(self.shape)

    def part(self, begin: int, end: int) -> tuple[list[Network], GridPlaces]:
        """Some of the networks, and columns: latency and bandwidth of links, and which value each has of each grid."""
        base, *picked = np.unravel_index(np.arange(begin, end), self.shape)
        made = [self._made(row[0], row[1:]) for row in zip(*(one.tolist() for one in (base, *picked)), strict=True)]
        columns: GridPlaces = {
            f"network.{name}": (np.arange(end - begin), tuple(getattr(one, name, None) for one in made))
            for name in ALWAYS_TOLD
        }
        for place, (grid, one) in enumerate(zip(self.below, picked, strict=True)):
            known = self._numbers[0][place]
            if known is None:
                columns[grid.path] = one, grid.shown
            elif known[0] not in ALWAYS_TOLD:
                columns[f"network.{known[0]}"] = one, tuple(known[1])
        return made, columns

    def _made(self, base: int, places: Sequence[int]) -> Network:
        """A network with a value for each grid, by their places; it keeps its name."""
        given, numbers = self.bases[base], {}
        for grid, known, place in zip(self.below, self._numbers[base], places, strict=True):
            if known is not None:
                numbers[known[0]] = known[1][place]
            else:
                given = _changed(given, grid, grid.values[place])
        return given.with_numbers(numbers) if isinstance(given, Link) and numbers else given


def _named(value: Any, told: str) -> Network:
    """The network; one without a name is called by what it is, as in specs."""
    made = network(value, told)
    return made if made.name else _renamed(made, made.describe().replace(" one way", ""))


def _renamed(given: Network, name: str) -> Network:
    fields = network_fields(given)
    return network(fields | {"name": name}) if isinstance(fields, dict) else given


def _number(base: Network, grid: Grid) -> tuple[str, list[float]] | None:
    """The name of a link's number that a grid is over, and its values; None where it is something else."""
    path = grid.path.removeprefix("network.")
    name = READ_ONCE.get(IN_SPECS.get(path, path))
    if not isinstance(base, Link) or name is None:
        return None
    return name, [float(getattr(_changed(base, grid, value), name)) for value in grid.values]


def _changed(given: Network, grid: Grid, value: Any) -> Network:
    """The network with another value for a field, by the name that specs or Python have for it.

    Raises:
        SpecError: names the grid.
    """
    fields = network_fields(given)
    if not isinstance(fields, dict):
        raise SpecError(grid.told, given.name, "networks that are described by fields")
    *above, last = grid.path.split(".")
    path = ".".join([*above, IN_SPECS.get(last, last)])
    changed = with_overrides({"network": fields}, [Override(path, value, grid.told, value)])["network"]
    try:
        return network(changed | {"name": given.name}, "network")
    except SpecError as error:
        told = grid.told if error.path == path else f"{grid.told} ({error.path} of {given.name})"
        raise SpecError(told, error.value, error.expected) from None
