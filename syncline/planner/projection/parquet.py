"""Rows of a projection as a parquet file, with the unit and the meaning of each column in its metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.columns import described
from syncline.errors import SpecError
from syncline.files import atomic_path
from syncline.interrupts import raise_if_interrupted
from syncline.planner.projection.columns import Categorical, ColumnRows, Columns, RowColumn


def write_parquet(
    parts: Iterable[Columns], file: Path, about: Mapping[str, str], done: Callable[[int], None] = lambda rows: None
) -> int:
    """Write rows to a parquet file, which appears once it is complete, or not at all.

    Args:
        parts: columns of the same names, one part below the other.
        about: further entries of its metadata.
        done: called with the number of rows written so far.

    Returns:
        The number of rows.

    Raises:
        SpecError: the path cannot be written to, or the disk is full.
    """
    rows = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as working, ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for part in parts:
                table = pa.table({name: _arrow_array(column) for name, column in part.items()})
                if writer is None:
                    records = "project", "whole-training"  # the kinds of rows that have the columns
                    schema = described(table.schema, *records).with_metadata(dict(about))
                    writer = stack.enter_context(pq.ParquetWriter(working, schema, compression="zstd"))
                writer.write_table(table.cast(writer.schema))
                rows += len(table)
                done(rows)
                raise_if_interrupted()
    except OSError as error:
        raise SpecError("--parquet", str(file), f"a place that can be written to ({error.strerror or error})") from None
    return rows


def write_rows(rows: Sequence[Mapping[str, Any]], file: Path) -> Path:
    """Write the rows of a projection, and return the path.

    Raises:
        SpecError: see `write_parquet`; or the rows are of a paper's table.
    """
    if not isinstance(rows, ColumnRows):
        raise SpecError("--parquet", str(file), "a projection; these are the rows of a paper, which --csv writes")
    write_parquet(rows.parts, file, {})
    return file


def _arrow_array(column: RowColumn) -> pa.Array:
    """Return a column as an array of numbers or booleans, or as a dictionary of texts, with null for missing values."""
    if not isinstance(column, Categorical):
        return pa.array(column, from_pandas=True)
    values = [value for value in column.values if value is not None]
    if values and all(isinstance(value, bool | int | float) for value in values):
        return pa.array(column.values).take(pa.array(column.codes))
    is_missing = np.array([value is None for value in column.values])[column.codes]
    codes = pa.array(column.codes.astype(np.int32), mask=is_missing)
    return pa.DictionaryArray.from_arrays(codes, pa.array([str(value) for value in column.values]))
