"""The functions of the compiled core that Python calls, and the sources of the compiled core."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = (*sorted((FOLDER / "core").glob("*.py")), FOLDER / "codes.py", FOLDER / "state.py", Path(__file__))
"""Files on which the compiled code depends."""

ENTRIES = {
    "run_core": "int64 float64 int64",
    "write_starts": "int64 int64 int64",
    "write_shared": "int64 int64 int64 int64 int64 int64 int64 int64 int64",
    "write_routes": "int64 int64 int64 int64 int64 int64 int64 int64 int64 int64 int64 float64",
    "count_entries": "int64 int64 int64 int64 int64 int64",
    "write_plan": "int64 int64 int64 int64 int64 int64 int64 int64 int64",
}
"""Types of the arguments of each function that Python calls; arrays are passed as addresses. Each returns an int64."""
