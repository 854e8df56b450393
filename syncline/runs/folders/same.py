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

NOT_COMPARED = {
    "folder": "a path",
    "wall_s": "this machine's time",
    "written": "a time of day",
    "syncline": "the environment",
    "git_commit": "the environment",
    "python": "the environment",
    "machine": "the environment",
    "processor": "the environment",
    "packages": "the environment",
}
"""Names in JSON files whose values differ between runs with equal results, each with the reason."""

UNREAD = ("trace.json", "manifest.json")
"""Files that are not compared, because they are made from other files of the folder."""

SPEC = "spec.yaml"

MOST_ROWS = 30
"""Largest number of rows of the printed table; ``--json`` has all."""


@dataclass(frozen=True)
class Difference:
    """A column in which two folders, a and b, differ.

    Attributes:
        file: path of the column's file in the folders.
        column: name of the column.
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
        specs: lines about fields in which the specs differ, which is no difference between results.
        skipped: names that are not compared, each with its file.
        files: number of compared files.
        cells: number of compared cells.
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


def compare_folders(a: Path, b: Path) -> FolderComparison:
    """Compare all tables, JSON files and specs of two folders; no code that they name is imported or run."""
    files_a, files_b = _files(a), _files(b)
    unmatched = [f"{name} is in {a} alone" for name in sorted(files_a - files_b)]
    unmatched += [f"{name} is in {b} alone" for name in sorted(files_b - files_a)]
    differences: list[Difference] = []
    specs: list[str] = []
    skipped: list[str] = []
    cells = 0
    for name in sorted(files_a & files_b):
        opened_a, opened_b = _opened(a / name), _opened(b / name)
        is_spec = Path(name).name == SPEC
        skipped += [f"{name}: {column}" for column in sorted(opened_a.skipped | opened_b.skipped)]
        lines = [f"{name}: {column} is in {a} alone" for column in opened_a.columns if column not in opened_b.columns]
        lines += [f"{name}: {column} is in {b} alone" for column in opened_b.columns if column not in opened_a.columns]
        for column, kind in opened_a.types.items():
            if kind != opened_b.types.get(column, kind):
                lines.append(f"{name}: {column} has the type {kind} in {a} and {opened_b.types[column]} in {b}")
        for column in (column for column in opened_a.columns if column in opened_b.columns):
            values, others = opened_a.read(column), opened_b.read(column)
            if len(values) != len(others):
                lines.append(f"{name}: {column} has {len(values):,} rows in {a} and {len(others):,} in {b}")
            count = min(len(values), len(others))
            cells += 0 if is_spec else count
            difference = _difference(name, column, a=values[:count], b=others[:count])
            if difference is None:
                continue
            if is_spec:
                lines.append(f"{name}: {column} is {_short(difference.a)} and {_short(difference.b)}")
                continue
            steps = opened_a.read("step") if "step" in opened_a.columns else ()
            step = steps[difference.row] if difference.row < len(steps) else None
            if step is not None and not math.isnan(step):
                difference = replace(difference, step=int(step))
            differences.append(difference)
        (specs if is_spec else unmatched).extend(lines)
    differences.sort(key=lambda item: ("loss" not in item.column, item.file, item.column))
    return FolderComparison(differences, unmatched, specs, skipped, files=len(files_a & files_b), cells=cells)


def comparison_record(comparison: FolderComparison, a: Path, b: Path, tolerance: float) -> dict[str, Any]:
    """Return the differences between two folders as the object that ``syncline same --json`` prints."""
    rows = []
    for difference in comparison.differences:
        row = vars(difference) | {"within": difference.within(tolerance)}
        rows.append({name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()})
    return {
        "a": str(a), "b": str(b), "tolerance": tolerance, "verdict": comparison.verdict(tolerance),
        "files": comparison.files, "cells": comparison.cells, "rows": rows, "unmatched": comparison.unmatched,
        "specs": comparison.specs, "not_compared": comparison.skipped,
    }  # fmt: skip


def comparison_table(comparison: FolderComparison) -> Group:
    """Return a table of the columns that differ, losses first."""
    shown_rows = [vars(difference) for difference in comparison.differences[:MOST_ROWS]]
    note = "Absolute: the largest |a - b|. Relative: the largest |a - b| / max(|a|, |b|). Rows count from 0."
    num_hidden = len(comparison.differences) - len(shown_rows)
    note += f"\n{num_hidden:,} more columns: --json" if num_hidden > 0 else ""
    return table(
        "", "file column different absolute relative first_at there", shown_rows, note=note,
        values={
            "different": lambda row: f"{row['different']:,} of {row['cells']:,}",
            "first_at": lambda row: f"row {row['row']}" + ("" if row["step"] is None else f", step {row['step']}"),
            "there": lambda row: f"{_short(row['a'])} and {_short(row['b'])}",
        },
    )  # fmt: skip


@dataclass(frozen=True)
class _Opened:
    """A file: its columns, a function that reads a column, the stored types, and the names that are not compared."""

    columns: Sequence[str]
    read: Callable[[str], np.ndarray]
    types: dict[str, str]
    skipped: set[str]


def _files(folder: Path) -> set[str]:
    """Return the paths of the tables, JSON files and specs in a folder that are compared."""
    paths = [*folder.rglob("*.parquet"), *folder.rglob("*.json"), *folder.rglob(SPEC)]
    return {str(path.relative_to(folder)) for path in paths if path.is_file() and path.name not in UNREAD}


def _opened(path: Path) -> _Opened:
    """Open a Parquet file, or make columns of the values in a JSON or YAML file, one for each path of keys."""
    try:
        if path.suffix == ".parquet":
            schema = pq.read_schema(path)
            types = {field.name: str(field.type) for field in schema}
            return _Opened(schema.names, lambda column: _read(path, column), types, skipped=set())
        content = read_json(path) if path.suffix == ".json" else parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, pa.ArrowException, SynclineError) as error:
        raise _unreadable(path, error) from None
    columns: dict[str, list[Any]] = {}
    skipped: set[str] = set()
    for name, value in _leaves(content, "", skipped):
        columns.setdefault(name, []).append(value)
    return _Opened(list(columns), lambda column: _array(columns[column]), types={}, skipped=skipped)


def _read(path: Path, column: str) -> np.ndarray:
    """Return a column of a Parquet file: an array of numbers with NaN for missing ones, or else of Python objects."""
    try:
        values = pq.read_table(path, columns=[column]).column(0)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.to_numpy() if not values.null_count else _array(values.to_pylist())
    return _array(values.to_pylist())


def _unreadable(path: Path, error: Exception) -> SpecError:
    """Return the error for a file that cannot be read."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return SpecError("run", str(path), f"a file that can be read ({reason[:120]})")


def _leaves(value: Any, name: str, skipped: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the path of keys and the value of each leaf of nested objects; all items of a list have one path.

    Keys that are not compared are left out and added to ``skipped``.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key in NOT_COMPARED:
                skipped.add(str(key))
            else:
                yield from _leaves(part, f"{name}.{key}" if name else str(key), skipped)
    elif isinstance(value, list) and value:
        for part in value:
            yield from _leaves(part, name, skipped)
    else:
        yield name, value


def _array(values: list[Any]) -> np.ndarray:
    """Return an array of numbers with NaN for None, or else of Python objects."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return np.array([math.nan if value is None else value for value in values], dtype=float)
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _difference(file: str, column: str, a: np.ndarray, b: np.ndarray) -> Difference | None:
    """Return the difference between two columns of equal length; None if all bits are equal, also the sign of zeros."""
    absolute = largest = None
    if object not in (a.dtype, b.dtype):
        x, y = a.astype(float), b.astype(float)
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.abs(x - y)
            unequal = (a != b) & ~(np.isnan(x) & np.isnan(y)) | (x == y) & (np.signbit(x) != np.signbit(y))
            gap[unequal & ~np.isfinite(gap)] = math.inf
            size = np.maximum(np.abs(x), np.abs(y))
            relative = np.where(np.isfinite(gap), gap / np.where(size > 0, size, 1.0), math.inf)
        absolute, largest = (float(sizes[unequal].max(initial=0.0)) for sizes in (gap, relative))
    else:
        unequal = np.array([not _equal(value_a, value_b) for value_a, value_b in zip(a, b, strict=True)], dtype=bool)
    if not unequal.any():
        return None
    row = int(unequal.argmax())
    return Difference(
        file,
        column,
        cells=len(a),
        different=int(unequal.sum()),
        absolute=absolute,
        relative=largest,
        row=row,
        step=None,
        a=a[row],
        b=b[row],
    )


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values have the same type and are equal; NaN equals NaN."""
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return both_nan or (type(a) is type(b) and bool(a == b))


def _short(value: Any) -> str:
    """Return a value as text of at most 24 characters."""
    text = f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."
