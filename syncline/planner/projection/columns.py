"""Rows of a projection as columns: arrays of numbers, and categorical columns of codes and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


class Categorical(NamedTuple):
    """A column with few different values.

    Attributes:
        codes: index of each row's value in ``values``.
        values: the different values, of any type.
    """

    codes: NDArray[np.integer[Any]]
    values: tuple[Any, ...]


RowColumn: TypeAlias = NDArray[Any] | Categorical
"""A column: numbers, with nan for a missing one, or a categorical column."""

Columns: TypeAlias = dict[str, RowColumn]


def categorical(values: Sequence[Any]) -> Categorical:
    """Return a list of values, one per row, as a categorical column of codes and distinct values."""
    code_by_value = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return Categorical(np.array([code_by_value[value] for value in values], dtype=np.int64), tuple(code_by_value))


def reshaped(column: RowColumn, *shape: int) -> RowColumn:
    """Return a column whose rows are arranged in another shape."""
    if isinstance(column, Categorical):
        return Categorical(column.codes.reshape(shape), column.values)
    return column.reshape(shape)


def flattened(column: RowColumn, mask: NDArray[np.bool_]) -> RowColumn:
    """Return the rows of a column for which a mask is true; the column is broadcast to the mask's shape first."""
    if isinstance(column, Categorical):
        return Categorical(np.broadcast_to(column.codes, mask.shape)[mask], column.values)
    return np.broadcast_to(column, mask.shape)[mask]


class ColumnRows(Sequence[dict[str, Any]]):
    """Rows that are stored as columns, and built when they are accessed.

    Args:
        parts: columns of the same names, one part below the other.
    """

    def __init__(self, parts: Sequence[Columns]) -> None:
        self.parts = parts
        self._rows: list[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return sum(map(length, self.parts))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self.tolist()[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return self.tolist() == (other.tolist() if isinstance(other, ColumnRows) else other)

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[dict[str, Any]]:
        """Return plain rows, with None for numbers that are not finite."""
        if self._rows is None:
            self._rows = []
            for part in self.parts:
                columns = [_decoded(column) for column in part.values()]
                self._rows += [dict(zip(part, values, strict=True)) for values in zip(*columns, strict=True)]
        return self._rows

    def distinct(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return each combination of values of the named columns once, in order of appearance, without building rows.

        Args:
            names: names of columns; a name that the rows do not have is left out.
        """
        combinations: dict[tuple[Any, ...], dict[str, Any]] = {}
        for part in self.parts:
            columns = {name: part[name] for name in names if name in part}
            # The values of a row are the digits of its code; the base of a digit is its column's number of values.
            combination_codes = np.zeros(length(part), dtype=np.int64)
            for column in columns.values():
                numbers = column.codes if isinstance(column, Categorical) else column
                values, codes = np.unique(numbers, return_inverse=True)
                combination_codes = combination_codes * len(values) + codes
            _, first_rows = np.unique(combination_codes, return_index=True)
            is_first = np.zeros(len(combination_codes), dtype=bool)
            is_first[first_rows] = True
            decoded = [_decoded(flattened(column, is_first)) for column in columns.values()]
            for combination in zip(*decoded, strict=True):
                combinations.setdefault(combination, dict(zip(columns, combination, strict=True)))
        return list(combinations.values())

    def json_rows(self) -> list[dict[str, Any]]:
        """Return copies of the rows as dictionaries."""
        return [dict(row) for row in self.tolist()]

    def frame(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        import pandas as pd

        frames = [pd.DataFrame({name: _series(column) for name, column in part.items()}) for part in self.parts]
        return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Return plain rows of the same names as columns: numbers if all values are numbers or None, else categorical."""
    columns: Columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        if any(isinstance(value, str | bool) for value in values) or all(value is None for value in values):
            columns[name] = categorical(values)
        else:
            columns[name] = np.array([np.nan if value is None else value for value in values])
    return columns


def length(columns: Mapping[str, RowColumn]) -> int:
    """Return the number of rows of some columns."""
    first_column, *_ = columns.values()
    return len(first_column.codes if isinstance(first_column, Categorical) else first_column)


def _decoded(column: RowColumn) -> list[Any]:
    """Return the value of each row, with None for numbers that are not finite."""
    if isinstance(column, Categorical):
        return [column.values[code] for code in column.codes.tolist()]
    values = column.tolist()
    if column.dtype.kind == "f":
        for index in np.flatnonzero(~np.isfinite(column)).tolist():
            values[index] = None
    return values


def _series(column: RowColumn) -> Any:
    """Return the column with the type that pandas gives to its values."""
    import pandas as pd

    if not isinstance(column, Categorical):
        return column
    # Take only the values that rows have, because a None among numbers would make all of them objects.
    used_codes, codes = np.unique(column.codes, return_inverse=True)
    return pd.Series([column.values[code] for code in used_codes.tolist()]).take(codes).reset_index(drop=True)
