"""The configurations of a sweep: a spec with values for some fields, each checked before any training starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syncline.errors import SpecError, one_of
from syncline.runs.training.limits import check_training
from syncline.specs import CompareSpec, Override, RunSpec
from syncline.specs.experiment import MOST_SEEDS
from syncline.specs.grid import Grid, error_of_grid, is_at_or_below, is_below
from syncline.specs.load import load_spec, read_fields, with_overrides

MOST_CONFIGURATIONS = 1_000_000
"""Largest number of configurations, a free choice: checking them takes about an hour."""


@dataclass(frozen=True)
class Configuration:
    """One combination of values for the fields of a sweep's grids.

    Args:
        number: number from 1, in the order of the sweep.
        values: values by path of the field, as tables show them.
    """

    number: int
    values: dict[str, Any]
    spec: RunSpec


@dataclass(frozen=True)
class SweptSpec:
    """The part of a sweep that all its configurations share: a spec's fields, and values that replace some of them.

    A grid is a field of the spec with the values that the sweep gives to it.

    Attributes:
        fields: fields of a spec of kind ``run``; a field may be missing if a grid gives its values.
        overrides: single values that replace fields, as ``--set`` gives them.
        grids: for a spec of kind ``compare``, the grids of its methods and networks, unless another grid or an override
            sets these fields.
    """

    fields: dict[str, Any]
    overrides: list[Override]
    grids: tuple[Grid, ...] = ()
    name: str = field(default="sweep")

    @classmethod
    def from_spec(
        cls, spec: str | Path | Mapping[str, Any] | BaseModel, overrides: Sequence[Override], grids: Sequence[Grid]
    ) -> SweptSpec:
        """Return the shared part of a sweep over ``grids`` with some ``overrides``.

        A comparison becomes a run with two more grids, ``method`` and ``network``. Overrides of fields below
        ``methods`` and ``networks`` apply to the comparison.

        Raises:
            SpecError: the spec is neither a run nor a comparison, or something in it is wrong.
        """
        paths = [*(override.path for override in overrides), *(grid.path for grid in grids)]
        if isinstance(spec, BaseModel):  # the problem stays an object unless a path sets one of its fields
            changes_problem = any(path.startswith("problem.") for path in paths)
            problem = spec.model_dump()["problem"] if changes_problem else getattr(spec, "problem", None)
            fields = spec.model_dump(mode="json", exclude={"problem"}) | {"problem": problem}
        else:
            fields = read_fields(spec)
        name = fields.get("name")
        if not isinstance(name, str) or not name:
            name = "sweep"
        if fields.get("kind") == "run":
            return cls(fields, list(overrides), name=name)
        if fields.get("kind") != "compare":
            load_spec(fields, overrides, RunSpec, CompareSpec)  # raises an error that names the accepted kinds
        run_overrides = [override for override in overrides if override.path.split(".")[0] in ("method", "network")]
        compare_overrides = [override for override in overrides if override not in run_overrides]
        compare_spec = load_spec(fields, compare_overrides, CompareSpec)
        fields = with_overrides(fields, compare_overrides)
        method_names = tuple(method.name for method in compare_spec.methods)
        network_names = tuple(network.name for network in compare_spec.networks)
        comparison_grids = [
            Grid("method", tuple(fields["methods"]), origin="methods", labels=method_names),
            Grid("network", tuple(fields["networks"]), origin="networks", labels=network_names),
        ]
        for field_name in ("methods", "networks", "target_loss"):  # a run has none of these
            fields.pop(field_name, None)
        remaining_grids = tuple(grid for grid in comparison_grids if grid.path not in paths)
        return cls(fields | {"kind": "run"}, run_overrides, remaining_grids, name)

    def spec_with(self, settings: Sequence[tuple[Grid, Any]], seeds: Sequence[int] | None) -> RunSpec:
        """Return the spec with a value for each grid, and with ``seeds`` unless that is None.

        Values are set in this order: overrides, values of the grids, overrides of fields inside a grid's value, seeds.

        Raises:
            SpecError: the spec is wrong; the error names the grid that causes it, or else the configuration.
        """
        overrides: list[Override] = []
        overrides_inside: list[Override] = []
        for override in self.overrides:
            is_inside = any(is_below(override.path, grid.path) for grid, _ in settings)
            if is_inside:
                overrides_inside.append(override)
            else:
                overrides.append(override)
        for grid, value in sorted(settings, key=lambda setting: setting[0].path.count(".")):  # outer fields first
            overrides.append(Override(grid.path, value, grid.origin, written=value))
        overrides += overrides_inside
        if seeds is not None:
            overrides.append(Override("seeds", list(seeds), origin="--seeds", written=list(seeds)))
        try:
            spec = load_spec(self.fields, overrides, RunSpec)
            check_training(spec, spec.method)
        except SpecError as error:
            is_of_override = any(is_at_or_below(error.path, override.path) for override in overrides_inside)
            possible_causes = [] if is_of_override else settings  # no grid caused it
            raise error_of_grid(error, possible_causes, settings) from None
        return spec

    def refuse_field_set_twice(self, grids: Sequence[Grid]) -> None:
        """Refuse two grids, or a grid and an override, that set the same field."""
        for index, grid in enumerate(grids):
            for earlier_grid in grids[:index]:
                share_a_method = grid.method == earlier_grid.method or "" in (grid.method, earlier_grid.method)
                if grid.path == earlier_grid.path and share_a_method:
                    raise SpecError(grid.origin, grid.path, "each field once")
        for override in self.overrides:
            if any(override.path == grid.path for grid in grids):
                raise SpecError(
                    override.origin, override.written, f"no value, as the grid over {override.path} has its values"
                )


def combinations(grids: Sequence[Grid]) -> Iterator[list[tuple[Grid, int]]]:
    """Yield each combination of the grids' values as pairs of a grid and the index of one of its values.

    The value of the last grid changes fastest. Grids that are for a single method come after the others.

    Raises:
        SpecError: there are too many combinations, or a grid is for a method that the grid of methods lacks.
    """
    shared_grids = [grid for grid in grids if not grid.method]
    methods: list[str] = []  # values of the grid over methods, if there is one
    for grid in shared_grids:
        if grid.path == "method":
            methods += map(str, grid.labels)
    for grid in grids:
        if grid.method and not methods:
            raise SpecError(grid.origin, grid.method, "a grid over methods, too")
        if grid.method and grid.method not in methods:
            raise SpecError(grid.origin, grid.method, f"{one_of(methods, grid.method)}, of the grid over methods")
    if math.prod(len(grid.values) for grid in grids) > MOST_CONFIGURATIONS:
        raise SpecError(grids[-1].origin, len(grids[-1].values), f"{MOST_CONFIGURATIONS:,} configurations at most")
    for shared_pairs in _index_product(shared_grids):
        chosen_method = [str(grid.labels[index]) for grid, index in shared_pairs if grid.path == "method"]
        own_grids = [grid for grid in grids if grid.method and grid.method in chosen_method]
        for own_pairs in _index_product(own_grids):
            yield [*shared_pairs, *own_pairs]


def _index_product(grids: Sequence[Grid]) -> Iterator[tuple[tuple[Grid, int], ...]]:
    """Return all combinations of one pair (grid, index of a value) for each grid."""
    pairs_by_grid = [[(grid, index) for index in range(len(grid.values))] for grid in grids]
    return itertools.product(*pairs_by_grid)


def configurations(
    base: SweptSpec, grids: Sequence[Grid], seeds: Sequence[int] | None, first: int = 1
) -> list[Configuration]:
    """Return all configurations of a sweep, numbered from ``first`` on; without a grid a single one.

    Raises:
        SpecError: a configuration cannot be trained; the error names the grid's field.
    """
    base.refuse_field_set_twice(grids)
    all_configurations = []
    for number, pairs in enumerate(combinations(grids), start=first):
        spec = base.spec_with([(grid, grid.values[index]) for grid, index in pairs], seeds)
        shown_values = {grid.path: grid.labels[index] for grid, index in pairs}
        all_configurations.append(Configuration(number, shown_values, spec))
    for grid in grids:
        if grid.path in ("method", "network"):
            _refuse_equal_names(grid, all_configurations)
    return all_configurations


def _refuse_equal_names(grid: Grid, all_configurations: Sequence[Configuration]) -> None:
    """Refuse a grid in which two methods or two networks have the same name."""
    value_of_name: dict[str, Any] = {}
    for configuration in all_configurations:
        name = getattr(configuration.spec, grid.path).name
        value = configuration.values[grid.path]
        if name in value_of_name and value_of_name[name] != value:
            expected = f"different names; {name!r} is named twice (a method's label is its name)"
            raise SpecError(grid.origin, list(grid.labels), expected)
        value_of_name[name] = value


def seeds_of(value: Any) -> tuple[int, ...] | None:
    """Return the seeds that a number or a list means: 3 means 0, 1 and 2. None stays None.

    >>> seeds_of(3), seeds_of([7, 9])
    ((0, 1, 2), (7, 9))
    """
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return tuple(value)
    raise SpecError("--seeds", value, "their number, as in 5, or a list, as in [3, 4]")
