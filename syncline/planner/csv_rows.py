"""Rows as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.errors import SpecError
from syncline.files import atomic_path


def write_csv(rows: Sequence[dict[str, Any]], file: Path) -> Path:
    """Write the rows below a line of names, with lists joined by spaces, and return the path.

    Raises:
        SpecError: the path cannot be written to.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as working, working.open("w", newline="", encoding="utf-8") as csv_file:
            writer = csv.DictWriter(csv_file, list(rows[0]))
            writer.writeheader()
            for row in rows:
                lists = {name: " ".join(map(str, cell)) for name, cell in row.items() if isinstance(cell, list | tuple)}
                writer.writerow(row | lists)
    except OSError as error:
        raise SpecError("--csv", str(file), f"a place that can be written to ({error.strerror})") from None
    return file
