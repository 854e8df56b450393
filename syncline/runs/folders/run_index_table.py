"""Tables of ``syncline runs`` for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group

from syncline.planner.tables.columns import Column, table
from syncline.runs.folders.run_index import RunEntry
from syncline.runs.processes.progress import rough
from syncline.units import format_bytes

if TYPE_CHECKING:
    from syncline.specs.study import Record

MOST_NAMES = 3
"""Largest number of methods or networks that are shown by name."""

NOTE = (
    "Whole: finished. Interrupted: by Ctrl-C, with what it had. Failed: a real process died. Killed, partial: left "
    "by a process that was killed. Running: being written.\nTables again: syncline show NAME"
)


def runs_table(entries: Sequence[RunEntry], folder: Path) -> Group:
    """Return a row per folder, the latest first."""
    now_s = time.time()
    rows = [entry.record() | {"age": rough(now_s - entry.written_s)} for entry in entries]
    columns: list[Column] = [
        ("name", lambda row: row["name"]),
        ("kind", lambda row: row["kind"]),
        ("state", lambda row: row["state"]),
        ("age", lambda row: row["age"]),
        ("methods on networks", _methods_on_networks),
        ("size", lambda row: format_bytes(row["size_bytes"])),
    ]
    return table(f"{folder}/", columns, rows, NOTE, text_columns=(0, 1, 2, 4))


def _methods_on_networks(row: Record) -> str:
    networks = f" on {_few(row['networks'])}" if row["networks"] else ""
    return (_few(row["methods"]) or "-") + networks


def _few(names: list[str]) -> str:
    more = f", {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
