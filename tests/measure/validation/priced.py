"""The predicted rows of the files that ship, which several modules of tests read: all of them take seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from syncline.measure.validation.cluster_files import BUNDLED_FILES, predicted_rows

_predicted_once = cache(predicted_rows)


def priced_rows(path: Path, *network: Any) -> list[dict[str, Any]]:
    """Return the rows of ``predicted_rows(path)``; those of a file that ships are predicted once in a process."""
    if path not in BUNDLED_FILES or network not in ((), (None,)):
        return predicted_rows(path, *network)
    return [dict(row) for row in _predicted_once(path)]


def bundled_rows() -> list[dict[str, Any]]:
    """Return the rows of all files that ship."""
    return [row for path in BUNDLED_FILES for row in priced_rows(path)]
