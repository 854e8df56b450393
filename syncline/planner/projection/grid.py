"""A projection of every combination of values: any number of rows, computed some at a time.

Fields of the spec make settings, those below ``network`` networks, those below ``method`` methods. Rows are sorted by
settings, then networks, then methods. From one setting to the next, the number of workers changes fastest.
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
from syncline.planner.projection import projections
from syncline.planner.projection.columns import Columns
from syncline.planner.projection.grid_axes import GridColumns, NetworkGrid, variants_of
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.planner.projection.project import group_specs
from syncline.questions.projections import Project
from syncline.specs import Experiment, Override, ProjectSpec, load_spec, study_of
from syncline.specs.grid import Grid, error_of_grid

ROWS_AT_A_TIME = 1 << 17
"""Number of rows that are in memory while a file is written."""

MOST_ROWS = 100_000_000
"""Limit on the rows, by choice: they take some gigabytes, and an hour."""

PRICED_TOGETHER = ("model", "compute", "hardware", "tokens_per_worker", "sequence", "workers")
"""Fields whose values are priced together as arrays; the last one changes fastest from row to row."""

WITH_COLUMN = ("layout", "model", "hardware", "compute.hardware", "workers", "overlap", "precision")
"""Fields that have a column in every projection."""


def grids_of(options: projections.Options) -> list[Grid]:
    """Return a grid for each field that the options set."""
    values_by_path: dict[str, Sequence[Any]] = {
        "model": projections.names_of(options.models),
        "hardware": projections.names_of(options.hardware),
    }
    for path in ("overlap", "algorithm", "sequence", "precision"):
        value = getattr(options, path)
        values_by_path[path] = [] if value is None else [value]
    if options.methods:
        values_by_path["method"] = methods_at_period(projections.names_of(options.methods), options.period)
    values_by_path["layout"] = [dict(projections.layout_of(layout)) for layout in options.layouts]
    values_by_path["workers"] = projections.counts_of(options.workers) if options.workers else []
    return [Grid(path, tuple(values), f"--{path}") for path, values in values_by_path.items() if values]


class ProjectedGrid:
    """Every combination of values of a projection's fields.

    Args:
        spec: the projection whose fields change.
        grids: fields with their values; ``hardware`` is a field of ``compute``, ``sequence`` a field of the model.
    """

    def __init__(self, spec: ProjectSpec, grids: Sequence[Grid]) -> None:
        """Sort the grids by what they vary: methods, networks or other fields; refuse two grids over one field."""
        for grid, other_grid in itertools.combinations(grids, 2):
            is_same_method = grid.method == other_grid.method or "" in (grid.method, other_grid.method)  # "": all
            if grid.path == other_grid.path and is_same_method:
                raise SpecError(other_grid.origin, other_grid.path, "each field once")
        grids_by_field: dict[str, list[Grid]] = {"method": [], "network": [], "": []}  # "": any other field
        for grid in grids:
            first_field = grid.path.split(".")[0]
            if first_field in ("methods", "networks"):
                expected = f"{first_field.removesuffix('s')}, which stands for each of them"
                raise SpecError(grid.origin, grid.path, expected)
            if grid.method and first_field != "method":
                expected = f"no method before {grid.path}, which is not a field of a method"
                raise SpecError(grid.origin, grid.method, expected)
            grids_by_field[first_field if first_field in grids_by_field else ""].append(grid)
        setting_grids = [
            replace(grid, path="compute.hardware") if grid.path == "hardware" else grid
            for grid in sorted(grids_by_field[""], key=_nesting_order)
        ]
        self.spec = spec
        self.worker_counts: Sequence[int] = next((grid.values for grid in setting_grids if grid.path == "workers"), ())
        self.outer_grids = [grid for grid in setting_grids if grid.path != "workers"]
        self._models: dict[tuple[int, int], Model] = {}
        self._check_values(setting_grids)
        self.methods, self._method_columns = variants_of(spec.methods, grids_by_field["method"])
        self.networks = NetworkGrid(spec.networks, grids_by_field["network"])
        self.shape = [len(grid.values) for grid in self.outer_grids]
        self.rows = math.prod([*self.shape, len(self.worker_counts) or 1, len(self.networks), len(self.methods)])
        if self.rows > MOST_ROWS:
            raise SpecError(grids[-1].origin, len(grids[-1].values), f"{MOST_ROWS:,} rows or fewer, not {self.rows:,}")
        self.refused = projections.refused_by(self.methods, self.worker_counts) if len(self.worker_counts) > 1 else []

    def _check_values(self, grids: Sequence[Grid]) -> None:
        """Make a spec with each value once, so that errors come before the first row."""
        first_values = [(grid, grid.values[0]) for grid in grids]
        for index, grid in enumerate(grids):
            values = grid.values
            if all(type(value) is int for value in values):  # there may be 100,000 of them: try only the extremes
                values = (min(values), max(values))
            for value in values:
                self._spec_with([*first_values[:index], (grid, value), *first_values[index + 1 :]])

    def _spec_with(self, values: Sequence[tuple[Grid, Any]]) -> ProjectSpec:
        overrides = []
        for grid, value in sorted(values, key=lambda grid_and_value: grid_and_value[0].path.count(".")):
            # The sort sets ``memory`` before ``memory.sharding``, because the former would overwrite the latter.
            if grid.path == "compute.hardware":  # drop step times measured on the spec's own hardware
                for name in ("compute.seconds", "compute.batch_times"):
                    overrides.append(Override(name, None, grid.origin, written=None))
            if grid.path != "sequence":
                overrides.append(Override(grid.path, value, grid.origin, written=value))
        try:
            spec = load_spec(dict(self.spec), overrides, ProjectSpec)
        except SpecError as error:
            raise error_of_grid(error, possible_causes=values, settings=values) from None
        for grid, value in values:
            if grid.path == "sequence":  # it changes the model that the spec has built
                return spec.model_copy(update={"model": self._with_sequence(spec.model, value, grid.origin)})
        return spec

    def _with_sequence(self, model: Model, sequence: Any, option: str) -> Model:
        """Return a transformer with another sequence length, from a cache."""
        key = id(model), sequence
        if key not in self._models:
            if type(sequence) is not int and isinstance(model, ModelShape):  # other models refuse any length
                raise SpecError(option, sequence, "whole numbers of tokens")
            self._models[key] = projections.with_sequence(model, sequence, option)
        return self._models[key]

    def left_out(self) -> list[str]:
        """Return lines that name methods without rows for some numbers of workers, and why these were refused."""
        # `refused` is empty if the grid has at most one number of workers.
        methods_and_refusals = zip(self.methods, self.refused, strict=False)
        return [
            line
            for method, counts in methods_and_refusals
            for line in projections.refusal_lines(method, sorted(counts))
        ]

    def specs(self) -> Iterator[ProjectSpec]:
        """Yield the projection of each setting, on all networks."""
        networks, _ = self.networks.part(0, len(self.networks))
        for specs, _ in self._settings(at_a_time=ROWS_AT_A_TIME):
            yield from (spec.model_copy(update={"networks": tuple(networks)}) for spec in specs)

    def parts(self, thresholds: bool = False) -> Iterator[Columns]:
        """Yield the rows as columns, some at a time."""
        settings_at_a_time = max(1, ROWS_AT_A_TIME // (len(self.networks) * len(self.methods)))
        for specs, setting_columns in self._settings(at_a_time=settings_at_a_time):
            first_setting = 0
            for group, _ in group_specs(specs):
                plan, settings = ProjectionPlan(group, self.methods), slice(first_setting, first_setting + len(group))
                first_setting = settings.stop
                extra_columns: dict[str, Any] = {}  # they broadcast to settings, networks and methods
                for name, (indices, values) in setting_columns.items():
                    extra_columns[name] = indices[settings, None, None], values
                networks_at_a_time = max(1, ROWS_AT_A_TIME // (len(group) * len(self.methods)))
                for begin in range(0, len(self.networks), networks_at_a_time):
                    end = min(begin + networks_at_a_time, len(self.networks))
                    networks, network_columns = self.networks.part(begin, end)
                    for name, (indices, values) in network_columns.items():
                        extra_columns[name] = indices[:, None], values
                    yield plan_columns(plan, networks, thresholds, extra_columns=extra_columns | self._method_columns)

    def _settings(self, at_a_time: int) -> Iterator[tuple[list[ProjectSpec], GridColumns]]:
        """Yield up to ``at_a_time`` specs together, with the columns that `_grid_columns` returns for them."""
        specs: list[ProjectSpec] = []
        value_indices: list[tuple[int, ...]] = []
        for indices in itertools.product(*map(range, self.shape)):
            spec = self._spec_with(
                [(grid, grid.values[index]) for grid, index in zip(self.outer_grids, indices, strict=True)]
            )
            spec = spec.model_copy(update={"methods": self.methods})
            for begin in range(0, max(len(self.worker_counts), 1), at_a_time):
                counts = self.worker_counts[begin : begin + at_a_time]  # empty if no grid is over workers
                new_specs = projections.with_workers(spec, counts, self.refused) if counts else [spec]
                if specs and len(specs) + len(new_specs) > at_a_time:
                    yield specs, self._grid_columns(value_indices)
                    specs, value_indices = [], []
                specs += new_specs
                value_indices += [indices] * len(new_specs)
        yield specs, self._grid_columns(value_indices)

    def _grid_columns(self, value_indices: Sequence[tuple[int, ...]]) -> GridColumns:
        """Return a column for each grid over a field that is not a column of projections.

        Args:
            value_indices: for each setting the index of the value in each grid of ``outer_grids``.
        """
        columns: GridColumns = {}
        for position, grid in enumerate(self.outer_grids):
            if grid.path not in WITH_COLUMN:
                # In projections the column ``algorithm`` has the algorithms that the requested policy chose.
                name = "asked_algorithm" if grid.path == "algorithm" else grid.path
                columns[name] = np.array([indices[position] for indices in value_indices]), grid.labels
        return columns


def _nesting_order(grid: Grid) -> int:
    """Return a sort key of a grid: fields that are not priced together come first, and are the outer loops."""
    first_field = grid.path.split(".")[0]
    return PRICED_TOGETHER.index(first_field) if first_field in PRICED_TOGETHER else -1


NOT_WITH_GRID = ("csv", "plot", "tokens", "target_loss", "prices", "batch_tokens", "columns", "failures")
"""Fields that a question with a grid cannot have."""


def grid_of_question(question: Project, spec: Experiment, options: projections.Options) -> ProjectedGrid:
    """Return the grid of a question; its options, such as ``--workers``, count as grids of one value or several."""
    for name in NOT_WITH_GRID:
        value = getattr(question, name)
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise SpecError(flag, str(value), "none with --grid, whose rows are in a parquet file")
    grid_texts = question.grid or ()
    if not isinstance(spec, ProjectSpec):
        expected = f"no such option for a {study_of(spec).kind}; --set changes its fields"
        raise SpecError("--grid", grid_texts[0], expected)
    return ProjectedGrid(spec, [*grids_of(options), *map(Grid.parse, grid_texts)])
