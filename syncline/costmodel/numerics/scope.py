"""Scopes of measurements: families of machines, ranges of sizes and scales. An answer outside is transferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from syncline.errors import SpecError

Range = tuple[float, float]

RANGES = ("workers", "nbytes", "width")
"""Quantities with a range: numbers of workers, bytes of a collective, widths of a model."""

UNITS = {"workers": "{:,.0f} workers", "nbytes": "{:,.0f} bytes", "width": "a width of {:,.0f}"}


@dataclass(frozen=True)
class Scope:
    """The machines, sizes and scales that the measurements of a basis cover.

    Args:
        families: machine families that were measured; empty: any.
        workers: smallest and largest number of workers; None: any.
        nbytes: smallest and largest number of bytes of a collective; None: any.
        width: smallest and largest width of a model; None: any.

    Raises:
        SpecError: a range that is not two numbers in order.
    """

    families: tuple[str, ...] = ()
    workers: Range | None = None
    nbytes: Range | None = None
    width: Range | None = None

    def __post_init__(self) -> None:
        for name in RANGES:
            value = getattr(self, name)
            if value is not None and not (len(value) == 2 and 0 <= value[0] <= value[1]):
                raise SpecError(f"bounds.{name}", value, "two numbers in order, at least 0")

    def reasons_outside(self, **values: float | None) -> list[str]:
        """Return a reason for each quantity of `RANGES` that is outside of the measured range; None: not known.

        >>> Scope(workers=(2, 64)).reasons_outside(workers=1024, width=512)
        ['1,024 workers where 2 to 64 were measured']
        """
        reasons = []
        for name, value in values.items():
            measured: Range | None = getattr(self, name)
            if measured is not None and value is not None and not measured[0] <= value <= measured[1]:
                low, high = (f"{bound:,.0f}" for bound in measured)
                range_text = f"{low} to {high}" if low != high else "none" if high == "0" else low
                reasons.append(f"{UNITS[name].format(value)} where {range_text} were measured")
        return reasons

    def columns(self) -> dict[str, str]:
        """Return the texts of the scope by column of a table; `from_columns` reads them."""
        ranges = {name: getattr(self, name) for name in RANGES}
        texts = {name: "" if value is None else f"{value[0]:.10g}..{value[1]:.10g}" for name, value in ranges.items()}
        return {"families": "; ".join(self.families)} | texts

    @classmethod
    def from_columns(cls, row: Mapping[str, str]) -> Scope:
        """Return the scope that a row of a table describes."""
        families = tuple(name for name in row["families"].split("; ") if name)
        ranges: dict[str, Any] = {name: tuple(map(float, row[name].split(".."))) for name in RANGES if row[name]}
        return cls(families, **ranges)

    @classmethod
    def of_values(cls, families: Iterable[str] = (), **values: Iterable[float]) -> Scope:
        """Return the scope of measurements from all values of each quantity."""
        columns = {name: list(column) for name, column in values.items()}
        ranges: dict[str, Any] = {name: (min(column), max(column)) for name, column in columns.items() if column}
        return cls(tuple(sorted(set(families))), **ranges)


ANYTHING = Scope()
"""The scope of a basis whose measurements do not limit it."""
