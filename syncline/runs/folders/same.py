"""The comparison of two result folders, cell by cell: bit-equal, equal within a tolerance, or different."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Group

from syncline.errors import SpecError, SynclineError
from syncline.files import parse_yaml, read_json
from syncline.planner.tables.table import table

NOT_COMPARED = (
    "folder", "wall_s", "written", "syncline", "git_commit", "python", "machine", "processor", "packages",
)  # fmt: skip
"""Names in JSON files whose values differ between runs with equal results: paths, times, and the environment."""

DERIVED_FILES = ("trace.json", "manifest.json")
"""Files that are not compared, because they are made from other files of the folder."""

SPEC_FILE = "spec.yaml"

MOST_ROWS = 30
"""Largest number of rows of the printed table; ``--json`` has all."""


@dataclass(frozen=True)
class Difference:
    """A column in which two folders, a and b, differ.

    Attributes:
        file: path of the column's file in the folders.
        cells: number of compared cells.
        different: number of cells that differ; NaN equals NaN.
        absolute: the largest ``|a - b|``; infinite if one of the two is NaN or infinite, None for text.
        relative: the largest ``|a - b| / max(|a|, |b|)``; infinite or None as ``absolute``.
        row: the first row that differs, counted from 0.
        step: step of that row; None if the file has no steps.
        a: value of the first folder in that row.
        b: value of the second folder in that row.
    """

    file: str
    column: str
    cells: int
    different: int
    absolute: float | None
    relative: float | None
    row: int
    step: int | None
    a: Any
    b: Any

    def within(self, tolerance: float) -> bool:
        """Return whether the relative difference is at most the tolerance; False for text."""
        return self.relative is not None and self.relative <= tolerance


@dataclass(frozen=True)
class FolderComparison:
    """The differences between two folders.

    Attributes:
        differences: the columns that differ, losses first.
        unmatched: lines about files, columns and rows that only one folder has.
        specs: lines about fields in which the specs differ; results may be equal nevertheless.
        skipped: columns in `NOT_COMPARED`, each as ``file: name``.
    """

    differences: list[Difference]
    unmatched: list[str]
    specs: list[str]
    skipped: list[str]
    files: int
    cells: int

    def verdict(self, tolerance: float) -> str:
        """Return ``bit-equal``, ``within tolerance`` or ``different``."""
        if not self.differences and not self.unmatched:
            return "bit-equal"
        is_within = not self.unmatched and all(difference.within(tolerance) for difference in self.differences)
        return "within tolerance" if is_within else "different"


def _lines_about_columns(file_a: _FileColumns, file_b: _FileColumns, folder_a: Path, folder_b: Path) -> list[str]:
    """Return a line for each column that is only in a file of one folder, or has different types in both."""
    lines = [f"{column} is only in {folder_a}" for column in file_a.columns if column not in file_b.columns]
    lines += [f"{column} is only in {folder_b}" for column in file_b.columns if column not in file_a.columns]
    for column in file_a.columns_in_both(file_b):
        type_a, type_b = file_a.types.get(column), file_b.types.get(column)
        if type_a != type_b:
            lines.append(f"{column} has the type {type_a} in {folder_a} and {type_b} in {folder_b}")
    return lines


def _step_of_row(file: _FileColumns, row: int) -> int | None:
    """Return the value of column ``step`` in a row of a file; None without this column, or without a value there."""
    steps = file.read("step") if "step" in file.columns else ()
    if row >= len(steps) or steps[row] is None or math.isnan(steps[row]):
        return None
    return int(steps[row])


def compare_folders(a: Path, b: Path) -> FolderComparison:
    """Compare all tables, JSON files and specs of two folders; no code that they name is imported or run."""
    names_a, names_b = _compared_names(a), _compared_names(b)
    unmatched = [f"{name} is only in {a}" for name in sorted(names_a - names_b)]
    unmatched += [f"{name} is only in {b}" for name in sorted(names_b - names_a)]
    differences: list[Difference] = []
    specs: list[str] = []
    skipped: list[str] = []
    cells = 0
    for name in sorted(names_a & names_b):
        file_a, file_b = _open_columns(a / name), _open_columns(b / name)
        is_spec = Path(name).name == SPEC_FILE
        skipped += [f"{name}: {column}" for column in sorted(file_a.skipped | file_b.skipped)]
        lines = [f"{name}: {line}" for line in _lines_about_columns(file_a, file_b, a, b)]
        for column in file_a.columns_in_both(file_b):
            values_a, values_b = file_a.read(column), file_b.read(column)
            if len(values_a) != len(values_b):
                lines.append(f"{name}: {column} has {len(values_a):,} rows in {a} and {len(values_b):,} in {b}")
            num_common = min(len(values_a), len(values_b))
            cells += 0 if is_spec else num_common
            difference = _difference(name, column, a=values_a[:num_common], b=values_b[:num_common])
            if difference is None:
                continue
            if is_spec:
                lines.append(f"{name}: {column} is {_short_text(difference.a)} and {_short_text(difference.b)}")
                continue
            differences.append(replace(difference, step=_step_of_row(file_a, difference.row)))
        if is_spec:
            specs += lines
        else:
            unmatched += lines
    differences.sort(key=lambda difference: ("loss" not in difference.column, difference.file, difference.column))
    return FolderComparison(differences, unmatched, specs, skipped, files=len(names_a & names_b), cells=cells)


def comparison_record(comparison: FolderComparison, a: Path, b: Path, tolerance: float) -> dict[str, Any]:
    """Return the differences between two folders as the object that ``syncline same --json`` prints."""
    rows = []
    for difference in comparison.differences:
        fields = vars(difference) | {"within": difference.within(tolerance)}
        rows.append({name: value.item() if isinstance(value, np.generic) else value for name, value in fields.items()})
    return {
        "a": str(a), "b": str(b), "tolerance": tolerance, "verdict": comparison.verdict(tolerance),
        "files": comparison.files, "cells": comparison.cells, "rows": rows, "unmatched": comparison.unmatched,
        "specs": comparison.specs, "not_compared": comparison.skipped,
    }  # fmt: skip


def comparison_table(comparison: FolderComparison) -> Group:
    """Return a table of the columns that differ, losses first."""
    rows = []
    for difference in comparison.differences[:MOST_ROWS]:
        step_text = "" if difference.step is None else f", step {difference.step}"
        rows.append({
            "file": difference.file, "column": difference.column,
            "different": f"{difference.different:,} of {difference.cells:,}",
            "absolute": difference.absolute, "relative": difference.relative,
            "first_at": f"row {difference.row}{step_text}",
            "there": f"{_short_text(difference.a)} and {_short_text(difference.b)}",
        })  # fmt: skip
    note = "Absolute: the largest |a - b|. Relative: the largest |a - b| / max(|a|, |b|). Rows count from 0."
    num_hidden = len(comparison.differences) - len(rows)
    if num_hidden > 0:
        note += f"\n{num_hidden:,} more columns: --json"
    return table("", "file column different absolute relative first_at there", rows, note=note)


@dataclass(frozen=True)
class _FileColumns:
    """The columns of a file.

    Attributes:
        read: function that reads the values of a column.
        types: stored types of the columns of a Parquet file; empty for JSON and YAML, which store none.
        skipped: the file's keys in `NOT_COMPARED`.
    """

    columns: Sequence[str]
    read: Callable[[str], np.ndarray]
    types: dict[str, str]
    skipped: set[str]

    def columns_in_both(self, other: _FileColumns) -> list[str]:
        """Return the names of the columns that another file has, too."""
        return [column for column in self.columns if column in other.columns]


def _compared_names(folder: Path) -> set[str]:
    """Return the paths of the tables, JSON files and specs in a folder that are compared."""
    paths = [*folder.rglob("*.parquet"), *folder.rglob("*.json"), *folder.rglob(SPEC_FILE)]
    return {str(path.relative_to(folder)) for path in paths if path.is_file() and path.name not in DERIVED_FILES}


def _open_columns(path: Path) -> _FileColumns:
    """Open a Parquet file, or make columns of the values in a JSON or YAML file, one for each path of keys."""
    try:
        if path.suffix == ".parquet":
            schema = pq.read_schema(path)
            types = {field.name: str(field.type) for field in schema}
            return _FileColumns(schema.names, lambda column: _read_column(path, column), types, skipped=set())
        content = read_json(path) if path.suffix == ".json" else parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, pa.ArrowException, SynclineError) as error:
        raise _unreadable_file(path, error) from None
    columns: dict[str, list[Any]] = {}
    skipped: set[str] = set()
    for name, value in _leaves(content, name="", skipped=skipped):
        columns.setdefault(name, []).append(value)
    return _FileColumns(list(columns), lambda column: _as_array(columns[column]), types={}, skipped=skipped)


def _read_column(path: Path, column: str) -> np.ndarray:
    """Return a column of a Parquet file: an array of numbers with NaN for missing ones, or else of Python objects."""
    try:
        values = pq.read_table(path, columns=[column]).column(0)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable_file(path, error) from None
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return values.to_numpy() if is_number and not values.null_count else _as_array(values.to_pylist())


def _unreadable_file(path: Path, error: Exception) -> SpecError:
    """Return the error for a file that cannot be read; its reason is cut to fit on a line."""
    first_line, _, _ = str(error).partition("\n")
    reason = first_line or type(error).__name__
    return SpecError("run", str(path), f"a file that can be read ({reason[:120]})")


def _leaves(value: Any, name: str, skipped: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the path of keys and the value of each leaf of nested objects; all items of a list have one path.

    Keys that are not compared are left out and added to ``skipped``.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in NOT_COMPARED:
                skipped.add(str(key))
            else:
                yield from _leaves(item, f"{name}.{key}" if name else str(key), skipped)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(item, name, skipped)
    else:
        yield name, value


def _as_array(values: list[Any]) -> np.ndarray:
    """Return an array of numbers with NaN for None, or else of Python objects."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return np.array([math.nan if value is None else value for value in values], dtype=float)
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _difference(file: str, column: str, a: np.ndarray, b: np.ndarray) -> Difference | None:
    """Return the difference between two columns of equal length; None if all bits, also signs of zeros, are equal."""
    largest_absolute = largest_relative = None
    if object not in (a.dtype, b.dtype):
        x, y = a.astype(float), b.astype(float)
        both_nan = np.isnan(x) & np.isnan(y)
        only_signs_differ = (x == y) & (np.signbit(x) != np.signbit(y))  # 0.0 and -0.0
        is_different = ((a != b) & ~both_nan) | only_signs_differ  # x and y round large integers
        with np.errstate(invalid="ignore", over="ignore"):
            absolute = np.abs(x - y)
            absolute[is_different & ~np.isfinite(absolute)] = math.inf
            larger = np.maximum(np.abs(x), np.abs(y))
            relative = np.where(np.isfinite(absolute), absolute / np.where(larger > 0, larger, 1.0), math.inf)
        largest_absolute = float(absolute[is_different].max(initial=0.0))
        largest_relative = float(relative[is_different].max(initial=0.0))
    else:
        is_different = np.array([not _are_equal(x, y) for x, y in zip(a, b, strict=True)], dtype=bool)
    if not is_different.any():
        return None
    row = int(is_different.argmax())
    return Difference(
        file, column, cells=len(a), different=int(is_different.sum()), absolute=largest_absolute,
        relative=largest_relative, row=row, step=None, a=a[row], b=b[row],
    )  # fmt: skip


def _are_equal(a: Any, b: Any) -> bool:
    """Return whether two values have the same type and are equal; NaN equals NaN."""
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return both_nan or (type(a) is type(b) and bool(a == b))


def _short_text(value: Any) -> str:
    """Return a value as text of at most 24 characters."""
    text = f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."
