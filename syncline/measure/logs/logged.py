"""A measurement in a log: the shape that every format returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from syncline.errors import SpecError, SynclineError

Quantity = Literal["collective", "rate", "round trip"]


class Logged(NamedTuple):
    """A measurement, in the shape that all formats of logs return.

    | quantity     | value                           | setting                                                        |
    |--------------|---------------------------------|----------------------------------------------------------------|
    | `collective` | seconds                         | ``kind``, ``workers``, ``nodes``, ``nbytes``, ``gpu``          |
    | `rate`       | bytes per second of all streams | ``source``, ``target``, ``streams``, ``rtt_s`` (None: unknown) |
    | `round trip` | seconds                         | ``source``, ``target``                                         |

    Attributes:
        quantity: what was measured.
        value: the measured value, in SI units.
        setting: what it was measured on; bytes of a collective as the closed forms count them.
        file: the file.
        line: number of the line, from 1; 0 for a file without lines.
    """

    quantity: Quantity
    value: float
    setting: Mapping[str, Any]
    file: Path
    line: int


def log_error(file: Path, line: int, problem: str) -> SynclineError:
    """Return the error of a line of a log."""
    where = f"{file}, line {line}" if line else str(file)
    return SynclineError(f"measurements: {where}: {problem}")


def positive_number(text: str, name: str, minimum: float = math.ulp(0.0)) -> float:
    """Return a finite number of at least ``minimum`` from its text.

    Raises:
        SpecError: it is none.
    """
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= minimum):
        raise SpecError(name, text, f"a number, at least {minimum:g}" if minimum in (0.0, 1.0) else "a positive number")
    return value


def number_of(text: str, name: str, file: Path, line: int) -> float:
    """Return a positive number.

    Raises:
        SynclineError: it is none; the error names file and line.
    """
    try:
        return positive_number(text, name)
    except SpecError as error:
        raise log_error(file, line, str(error)) from None


def payload_bytes(kind: str, whole_bytes: float, workers: int) -> float:
    """Return the bytes that closed forms count, from those of a benchmark: of gathers, each worker's part.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md, whose sizes of gathers are those of the result.
    """
    return whole_bytes / workers if kind in ("all_gather", "gather") else whole_bytes
