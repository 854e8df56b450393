"""Rows of a projection as columns: arrays of numbers, and texts by their places in a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


class Coded(NamedTuple):
    """A column of few different values.

    Attributes:
        codes: the place of each row's value.
        values: texts, or others, None among them.
    """

    codes: NDArray[np.integer[Any]]
    values: tuple[Any, ...]

    def listed(self) -> list[Any]:
        """The values, row by row."""
        return list(map(self.values.__getitem__, self.codes.tolist()))


RowColumn: TypeAlias = NDArray[Any] | Coded
"""Numbers, nan where there is none."""

Columns: TypeAlias = dict[str, RowColumn]


class ColumnRows(Sequence[dict[str, Any]]):
    """Rows that are kept as columns, and made when they are asked for.

    Args:
        parts: columns of the same names, one below the other.
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
        """Plain rows, with None for what is no number."""
        if self._rows is None:
            self._rows = []
            for part in self.parts:
                names, columns = list(part), [_listed(column) for column in part.values()]
                self._rows += [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        return self._rows

    def as_plain(self) -> list[dict[str, Any]]:
        """Rows of one's own."""
        return [dict(row) for row in self.tolist()]

    def frame(self) -> pd.DataFrame:
        """The same as a data frame."""
        import pandas as pd

        frames = [pd.DataFrame({name: _for_pandas(one) for name, one in part.items()}) for part in self.parts]
        return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Plain rows of the same names as columns: numbers where all are, or none; else values by their places."""
    columns: Columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        if any(isinstance(one, str | bool) for one in values) or all(one is None for one in values):
            known = {value: place for place, value in enumerate(dict.fromkeys(values))}
            columns[name] = Coded(np.array([known[value] for value in values]), tuple(known))
        else:
            columns[name] = np.array([np.nan if one is None else one for one in values])
    return columns


def length(columns: Mapping[str, RowColumn]) -> int:
    """How many rows there are."""
    first = next(iter(columns.values()))
    return len(first.codes if isinstance(first, Coded) else first)


def _listed(column: RowColumn) -> list[Any]:
    if isinstance(column, Coded):
        return column.listed()
    listed = column.tolist()
    if column.dtype.kind == "f" and not (finite := np.isfinite(column)).all():
        for index in np.flatnonzero(~finite).tolist():
            listed[index] = None
    return listed


def _for_pandas(column: RowColumn) -> Any:
    """The column, of the type that pandas gives to values that it has."""
    import pandas as pd

    if not isinstance(column, Coded):
        return column
    used, codes = np.unique(column.codes, return_inverse=True)
    return pd.Series([column.values[code] for code in used.tolist()]).take(codes).reset_index(drop=True)
