"""The formats of logs: which one a file has, and its measurements."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from syncline.errors import SpecError
from syncline.measure.logs.line_logs import iperf_log, is_iperf, is_ping, is_region_table, ping_log, region_table
from syncline.measure.logs.logged import Logged
from syncline.measure.logs.nccl_tests import is_nccl_tests, nccl_tests_log
from syncline.measure.logs.torch_comms import is_torch_comms, torch_comms_log


class Format(NamedTuple):
    """A format of logs.

    Attributes:
        name: name for people.
        matches: function that returns whether a text has this format.
        read: function that yields the measurements of a text.
        of_lines: whether these are rates and round trips of lines, to which several files belong together.
    """

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, Path], Iterator[Logged]]
    of_lines: bool = False


def header_of(text: str) -> set[str]:
    """Return the columns that the first line of a CSV file names."""
    return set(next(csv.reader(io.StringIO(text)), ()))


FORMATS = (
    Format("JSON of iperf3 -J", is_iperf, iperf_log, True),
    Format("output of nccl-tests", is_nccl_tests, nccl_tests_log),
    Format("output of DeepSpeed's communication benchmarks", is_torch_comms, torch_comms_log),
    Format("output of ping", is_ping, ping_log, True),
    Format(
        "a table of regions (from, to, gbit_s, rtt_ms)",
        lambda text: is_region_table(header_of(text)),
        region_table,
        True,
    ),
)
"""The formats, in the order in which a file is compared with them."""


def read_text(file: Path, path: str = "measurements") -> str:
    """Return the text of a log.

    Raises:
        SpecError: the file does not exist, or is no text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise SpecError(path, str(file), f"a file that can be read ({reason})") from None


def format_of(text: str) -> Format | None:
    """Return the format of a text; None if it has none of them."""
    return next((log_format for log_format in FORMATS if log_format.matches(text)), None)


def read_log(file: Path, path: str = "measurements") -> list[Logged]:
    """Return the measurements of a log.

    Args:
        file: the file.
        path: the field's name, for the error line.

    Raises:
        SpecError: the file cannot be read, has none of the formats, or no measurement.
        SynclineError: a line cannot be read; the error names file and line.
    """
    text = read_text(file, path)
    log_format = format_of(text)
    if log_format is None:
        raise SpecError(path, str(file), " or ".join(log_format.name for log_format in FORMATS))
    logged = list(log_format.read(text, file))
    if not logged:
        raise SpecError(path, str(file), f"{log_format.name} with a measurement")
    return logged
