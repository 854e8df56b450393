"""A projection of every combination of values: any number of rows, computed some at a time.

Fields of the spec make settings, those below ``network`` networks, those below ``method`` methods. Rows are sorted by
settings, then networks, then methods. Among settings, the fields priced as arrays change fastest, and the number of
workers last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Model, ModelShape
from syncline.errors import SpecError
from syncline.planner.periods import methods_at_period
from syncline.planner.projection.columns import Columns
from syncline.planner.projection.grid_axes import GridPlaces, NetworkGrid, variants_of
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.planner.projection.project import group_specs
from syncline.planner.projection.projections import (
    Options,
    counts_of,
    layout_of,
    names_of,
    refusals,
    refused_by,
    with_workers,
)
from syncline.questions.projections import Project
from syncline.specs import Experiment, Override, ProjectSpec, load_spec, study_of
from syncline.specs.grid import Grid, blamed

ROWS_AT_A_TIME = 1 << 17
"""Number of rows that are in memory while a file is written."""

MOST_ROWS = 100_000_000
"""Limit on the rows, by choice: they take some gigabytes, and an hour."""

AS_ARRAYS = ("model", "compute", "hardware", "tokens_per_worker", "sequence", "workers")
"""Fields whose values are priced together, in the order in which they change faster; all others change first."""

COLUMNS = ("layout", "model", "hardware", "compute.hardware", "workers", "overlap", "precision")
"""Fields that have a column in every projection."""


def grids_of(options: Options) -> list[Grid]:
    """Return the options as grids, one per field."""
    list_options = {"model": options.models, "hardware": options.hardware}
    single_options = {"overlap": options.overlap, "algorithm": options.algorithm, "sequence": options.sequence}
    single_options["precision"] = options.precision
    grids = [Grid(path, tuple(names_of(values)), f"--{path}") for path, values in list_options.items() if values]
    grids += [Grid(path, (value,), f"--{path}") for path, value in single_options.items() if value is not None]
    if options.methods:
        methods = methods_at_period(names_of(options.methods), options.period)
        grids.append(Grid("method", tuple(methods), "--method"))
    if options.layouts:
        grids.append(Grid("layout", tuple(dict(layout_of(layout)) for layout in options.layouts), "--layout"))
    return grids + ([Grid("workers", tuple(counts_of(options.workers)), "--workers")] if options.workers else [])


class ProjectedGrid:
    """Every combination of values of a projection's fields.

    Args:
        spec: the projection whose fields change.
        grids: a field and its values each; ``hardware`` is that of ``compute``, ``sequence`` that of the model.

    Raises:
        SpecError: names a grid's field: it does not exist, a value is invalid, or there are too many rows.
    """

    def __init__(self, spec: ProjectSpec, grids: Sequence[Grid]) -> None:
        """Sort the grids by what they vary: methods, networks or other fields; refuse a field twice."""
        for grid, other_grid in itertools.combinations(grids, 2):
            if grid.path == other_grid.path and (
                grid.method == other_grid.method or "" in (grid.method, other_grid.method)
            ):
                raise SpecError(other_grid.origin, other_grid.path, "each field once")
        by_part: dict[str, list[Grid]] = {"method": [], "network": [], "": []}
        for grid in grids:
            first = grid.path.split(".")[0]
            if first in ("methods", "networks"):
                raise SpecError(grid.origin, grid.path, f"{first[:-1]}, which stands for each of them")
            if grid.method and first != "method":
                raise SpecError(grid.origin, grid.method, f"nothing before {grid.path}, which is no field of a method")
            by_part[first if first in by_part else ""].append(grid)
        setting_grids = sorted(by_part[""], key=_rank)
        self.spec = spec
        self.counts: Sequence[int] = next((grid.values for grid in setting_grids if grid.path == "workers"), ())
        self.own = [grid for grid in setting_grids if grid.path != "workers"]
        self._models: dict[tuple[int, int], Model] = {}
        self._check(setting_grids)
        self.methods, self._of_methods = variants_of(spec.methods, by_part["method"])
        self.networks = NetworkGrid(spec.networks, by_part["network"])
        self.shape = [len(grid.values) for grid in self.own]
        self.rows = math.prod([*self.shape, len(self.counts) or 1, len(self.networks), len(self.methods)])
        if self.rows > MOST_ROWS:
            raise SpecError(grids[-1].origin, len(grids[-1].values), f"{MOST_ROWS:,} rows at most, not {self.rows:,}")
        self.refused = refused_by(self.methods, self.counts) if len(self.counts) > 1 else []

    def _check(self, grids: Sequence[Grid]) -> None:
        """Read every value once, so that errors come before the first row; of whole numbers read only the extremes."""
        for grid in grids:
            values = grid.values
            if all(type(value) is int for value in values):
                values = (min(values), max(values))
            for value in values:
                self._read(
                    [
                        (checked_grid, value if checked_grid is grid else checked_grid.values[0])
                        for checked_grid in grids
                    ]
                )

    def _read(self, chosen: Sequence[tuple[Grid, Any]]) -> ProjectSpec:
        """Return the spec with a value for each grid."""
        overrides = []
        by_field = [
            (replace(grid, path="compute.hardware") if grid.path == "hardware" else grid, value)
            for grid, value in chosen
        ]
        outer_first = sorted(by_field, key=lambda pair: pair[0].path.count("."))  # a field before the fields inside it
        for grid, value in outer_first:
            if grid.path == "compute.hardware":
                for replaced in ("seconds", "batch_times"):
                    overrides.append(Override(f"compute.{replaced}", None, grid.origin, written=None))
            if grid.path != "sequence":
                overrides.append(Override(grid.path, value, grid.origin, written=value))
        try:
            spec = load_spec(dict(self.spec), overrides, ProjectSpec)
        except SpecError as error:
            raise blamed(error, by_field, by_field) from None
        for grid, value in by_field:
            if grid.path == "sequence":
                return spec.model_copy(update={"model": self._with_sequence(spec.model, value, grid.origin)})
        return spec

    def _with_sequence(self, model: Model, sequence: Any, option: str) -> Model:
        """Return a transformer with another sequence length, from a cache.

        Raises:
            SpecError: names the option: the model is no transformer, or the length is invalid.
        """
        key = id(model), sequence
        if key not in self._models:
            if not isinstance(model, ModelShape):
                raise SpecError(option, sequence, f"none, as {model.name} is a module, with inputs of its own")
            if type(sequence) is not int:
                raise SpecError(option, sequence, "whole numbers of tokens")
            try:
                self._models[key] = replace(model, sequence=sequence)
            except SpecError as error:
                raise SpecError(option, sequence, error.expected) from None
        return self._models[key]

    def left_out(self) -> list[str]:
        """Return lines that name methods without rows for some numbers of workers, and why these were refused."""
        methods_and_groups = zip(self.methods, self.refused, strict=True) if self.refused else ()
        return [
            line for method, refused_groups in methods_and_groups for line in refusals(method, sorted(refused_groups))
        ]

    def specs(self) -> Iterator[ProjectSpec]:
        """Yield the projection of each setting, on all networks."""
        networks, _ = self.networks.part(0, len(self.networks))
        for specs, _ in self._settings(ROWS_AT_A_TIME):
            yield from (spec.model_copy(update={"networks": tuple(networks)}) for spec in specs)

    def parts(self, thresholds: bool = False) -> Iterator[Columns]:
        """Yield the rows as columns, some at a time.

        Args:
            thresholds: whether to find the bandwidths at which a method is worth it.

        Raises:
            SpecError: a number of workers that no network can join.
        """
        chunk = max(1, ROWS_AT_A_TIME // (len(self.networks) * len(self.methods)))
        for specs, of_settings in self._settings(chunk):
            first = 0
            for group, _ in group_specs(specs):
                plan, rows = ProjectionPlan(group, self.methods), slice(first, first + len(group))
                first += len(group)
                extra: dict[str, Any] = {
                    name: (places[rows, None, None], values) for name, (places, values) in of_settings.items()
                }
                methods_per_part = max(1, ROWS_AT_A_TIME // (len(group) * len(self.methods)))
                for start in range(0, len(self.networks), methods_per_part):
                    networks, of_networks = self.networks.part(start, min(start + methods_per_part, len(self.networks)))
                    extra |= {name: (places[:, None], values) for name, (places, values) in of_networks.items()}
                    yield plan_columns(plan, networks, thresholds, extra_columns=extra | self._of_methods)

    def _settings(self, count: int) -> Iterator[tuple[list[ProjectSpec], GridPlaces]]:
        """Yield up to ``count`` specs at a time, with the value of each grid that has no column of its own."""
        specs: list[ProjectSpec] = []
        all_indices: list[tuple[int, ...]] = []
        for indices in itertools.product(*map(range, self.shape)):
            spec = self._read([(grid, grid.values[i]) for grid, i in zip(self.own, indices, strict=True)])
            spec = spec.model_copy(update={"methods": self.methods})
            for begin in range(0, max(len(self.counts), 1), count):
                counts = self.counts[begin : begin + count]
                new_specs = with_workers(spec, counts, self.refused) if counts else [spec]
                if specs and len(specs) + len(new_specs) > count:
                    yield specs, self._places(all_indices)
                    specs, all_indices = [], []
                specs += new_specs
                all_indices += [indices] * len(new_specs)
        yield specs, self._places(all_indices)

    def _places(self, chosen: Sequence[tuple[int, ...]]) -> GridPlaces:
        """Return the indices and the values of the grids that have no column of their own, by field."""
        columns = zip(self.own, zip(*chosen, strict=True), strict=True) if self.own else ()
        return {
            "asked_algorithm" if grid.path == "algorithm" else grid.path: (np.array(places), grid.shown)
            for grid, places in columns
            if grid.path not in COLUMNS
        }


def _rank(grid: Grid) -> int:
    """Return the place of a grid's field in `AS_ARRAYS`, or -1 for any other field, which changes first."""
    first = grid.path.split(".")[0]
    return AS_ARRAYS.index(first) if first in AS_ARRAYS else -1


BESIDE_GRID = ("csv", "plot", "tokens", "target_loss", "prices", "batch_tokens", "columns", "failures")
"""Fields that a question with a grid cannot have."""


def grid_of_question(question: Project, spec: Experiment, options: Options) -> ProjectedGrid:
    """Return the grid of a question, with its other options as grids of one value or several.

    Raises:
        SpecError: an option that a grid rules out, a spec without these fields, or as `ProjectedGrid`.
    """
    for name in BESIDE_GRID:
        if (value := getattr(question, name)) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise SpecError(flag, str(value), "nothing beside --grid, whose rows are in a parquet file")
    texts = question.grid or ()
    if not isinstance(spec, ProjectSpec):
        raise SpecError("--grid", texts[0], f"no such option for a {study_of(spec).kind}; --set changes its fields")
    return ProjectedGrid(spec, [*grids_of(options), *map(Grid.parse, texts)])
