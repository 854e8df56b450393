"""The columns of all results: name, heading, unit, format, type and meaning, and the columns that each record has.

``columns.csv`` declares each column once, so that a name has the same heading, unit and format in each table, file and
page. ``records.csv`` lists the columns of each kind of row or file (a *record*), with the meaning in this record if it
differs from the general one. The tables in the terminal, the page of ``syncline report``, the metadata of parquet
files, the checks of files that are read, and the tables of docs/records.md are made of these two files.

A format is one of `FORMATS` or a format of Python, as ``.1%``. Without a format the unit decides; other numbers have
four digits. A type is ``text``, ``whole``, ``finite``, ``bool``, ``list`` or ``object``, with ``?`` if a value can be
missing; without a type a column has numbers, which can be missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from syncline.files import read_csv
from syncline.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    import pyarrow as pa

K = TypeVar("K")
V = TypeVar("V")

UNITS = {
    "microbatches_per_s": "1/s", "bytes_per_s": "B/s", "bytes": "B", "bytes_per_worker": "B", "_s": "s",
    "seconds": "s", "s_per_bit": "s", "_ms": "ms", "_j": "J", "_kg": "kg", "_deg": "degrees", "tokens": "tokens",
    "steps": "steps",
}  # fmt: skip
"""Units of columns that are not declared, by the ends of their names."""

MOST_ITEMS = 8
"""Largest number of items of a list that a cell shows."""


def energy_text(joules: float) -> str:
    """Return an energy in kWh, or in MWh from 1000 kWh on."""
    kwh = joules / 3.6e6
    return f"{kwh:,.4g} kWh" if kwh < 1e3 else f"{kwh / 1e3:,.3g} MWh"


def large_text(count: float) -> str:
    """Return a number of tokens or parameters in millions or billions.

    >>> large_text(162_322_944), large_text(1.3e9), large_text(512)
    ('162.3 M', '1.3 B', '512')
    """
    if count >= 1e9:
        return f"{count / 1e9:,.4g} B"
    return f"{count / 1e6:,.4g} M" if count >= 1e6 else f"{count:,.4g}"


def times_text(factor: float) -> str:
    """Return a multiple with three digits, and with two decimals below 10.

    >>> times_text(1.5), times_text(31.25)
    ('1.50x', '31.2x')
    """
    digits_before_point = 1 + int(math.log10(max(factor, 1.0)))
    return f"{factor:.{max(0, 3 - digits_before_point)}f}x"


def share_text(part: float) -> str:
    """Return a share in percent without decimals, except near 0 and 100.

    >>> share_text(0.5), share_text(1e-4), share_text(0.999)
    ('50%', '<0.1%', '99.9%')
    """
    if 0 < part < 0.0005:
        return "<0.1%"
    if 0.9995 < part < 1:
        return ">99.9%"
    needs_decimal = 0 < part < 0.005 or 0.995 < part < 1
    return f"{part:.1%}" if needs_decimal else f"{part:.0%}"


def four_digits(value: float) -> str:
    """Return a number with four significant digits, including zeros."""
    return format(value, "#.4g")


def first_of(names: Iterable[str], limit: int, separator: str = ", ") -> str:
    """Return the first names as text, and the number of further ones.

    >>> first_of(["ddp", "diloco"], 2), first_of(["ddp", "diloco", "demo"], 1)
    ('ddp, diloco', 'ddp and 2 more')
    """
    all_names = list(names)
    text = separator.join(all_names[:limit])
    return f"{text} and {len(all_names) - limit} more" if len(all_names) > limit else text


def distinct_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the distinct values of each key; keys and values are in order of appearance.

    >>> distinct_by_key([("a", 1), ("b", 2), ("a", 1), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    values_by_key: dict[K, dict[V, None]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in values_by_key.items()}


FORMATS: dict[str, Callable[[Any], str]] = {
    "s": format_seconds, "B": format_bytes, "memory": format_bytes, "B/s": lambda rate: f"{format_bytes(rate)}/s",
    "bandwidth": format_bandwidth, "FLOP/s": lambda rate: f"{rate / 1e12:.4g} TFLOP/s", "loss": four_digits,
    "large": large_text, "share": share_text, "times": times_text, "energy": energy_text,
    "money": lambda value: f"{value:,.0f}",
}  # fmt: skip
"""Functions from a number to its text, by the name of a format or of a unit."""


class Column(NamedTuple):
    """A column of results.

    Attributes:
        name: name in ``--json`` and in files.
        header: heading in tables for people.
        unit: unit of the numbers; empty for names, shares and counts.
        format: how a table writes a number.
        type: type of the values.
        meaning: what the values are.
    """

    name: str
    header: str
    unit: str = ""
    format: str = ""
    type: str = ""
    meaning: str = ""

    @property
    def is_text(self) -> bool:
        """Return whether the values are words or lists, which tables align to the left."""
        return self.type.startswith(("text", "list", "object"))

    def text(self, value: Any) -> str:
        """Return a value as a table shows it; "-" for None and numbers that are not finite."""
        if isinstance(value, list | tuple):
            texts = [self.text(item) for item in value[:MOST_ITEMS]]
            return ", ".join([*texts, "..."] if len(value) > MOST_ITEMS else texts)
        if isinstance(value, dict):
            texts = []
            for key, item in value.items():
                text = "null" if item is None else self.text(item)
                texts.append(f"{key}=[{text}]" if isinstance(item, list | tuple) else f"{key}={text}")
            return ", ".join(texts)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if not isinstance(value, Real) or not math.isfinite(value):
            return "-" if value is None or isinstance(value, Real) else str(value)
        if (self.format or self.unit) in FORMATS:
            return FORMATS[self.format or self.unit](value)
        return format(value, self.format or ("," if isinstance(value, Integral) else ".4g"))


@cache
def columns() -> dict[str, Column]:
    """Return the declared columns by their names."""
    declared = [Column(**row) for row in read_csv(Path(__file__).with_name("columns.csv"))]
    return {column.name: column._replace(header=column.header or _header(column)) for column in declared}


@cache
def records() -> dict[str, dict[str, str]]:
    """Return the columns of each record, with the meaning of each, in the order of the rows and files."""
    meanings: dict[str, dict[str, str]] = {}
    for row in read_csv(Path(__file__).with_name("records.csv")):
        meanings.setdefault(row["record"], {})[row["column"]] = row["meaning"] or columns()[row["column"]].meaning
    return meanings


def column_of(name: str) -> Column:
    """Return the column of this name; if it is not declared, the end of its name gives its unit.

    >>> column_of("step_time_s").header, column_of("link_latency_s").unit, column_of("link_latency_s").text(0.05)
    ('step time', 's', '50 ms')
    """
    if name in columns():
        return columns()[name]
    # Several endings can match: UNITS has ``microbatches_per_s`` and ``bytes_per_s`` before ``_s``.
    units = [unit for ending, unit in UNITS.items() if name.endswith(ending)]
    column = Column(name, header="", unit=units[0] if units else "")
    return column._replace(header=_header(column))


def is_declared(name: str) -> bool:
    """Return whether a column is declared in ``columns.csv``."""
    return name in columns()


def _header(column: Column) -> str:
    """Return the heading that follows from a column's name: without its unit, in words."""
    endings = {"B/s": "_bytes_per_s", "B": "_bytes", "FLOP/s": "_flops"}
    ending = endings.get(column.unit, f"_{column.unit.lower()}")
    return column.name.removesuffix(ending).replace("_", " ")


def described(schema: pa.Schema, *sources: str) -> pa.Schema:
    """Return the schema of a parquet file with the known units and meanings of its fields as metadata.

    Args:
        schema: the schema; its fields keep the metadata that they have.
        *sources: names of records with the fields, for example ``curves.parquet``; the meaning in the first one counts.
    """
    meanings: dict[str, str] = {}
    for source in reversed(sources):  # later entries replace earlier ones, so the first source comes last
        meanings |= records().get(source, {})
    for index, field in enumerate(schema):
        texts = {"unit": column_of(field.name).unit, "meaning": meanings.get(field.name)}
        metadata = {key.encode(): text.encode() for key, text in texts.items() if text} | (field.metadata or {})
        if metadata:
            schema = schema.set(index, field.with_metadata(metadata))
    return schema
