"""The content of a result for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.checkout import import_replication
from syncline.runs.folders.result_files import plain, read_object

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Reported:
    """A result, as the commands print it and as its folder stores it.

    Attributes:
        title: title on the page.
        command: command that made it: ``compare``, ``sweep``, ...
        output: the object that ``--json`` prints.
        tables: tables that the command prints.
        spec: spec of the run; None if it is unknown.
        folder: folder of its files; None if it has none.
        findings: results about its methods from elsewhere: ``title``, and ``claims`` with their ``state``.
    """

    title: str
    command: str
    output: Mapping[str, Any]
    tables: Sequence[Group]
    spec: Any = None
    folder: Path | None = None
    findings: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the result; numbers that are not finite are None."""
        return plain(self.output["rows"])

    @cached_property
    def noted(self) -> dict[str, Any]:
        """Return ``run.json`` or ``sweep.json`` of the folder, or facts of a replication's finals, or nothing."""
        for name in ("run.json", "sweep.json"):
            path = self.folder / name if self.folder is not None else None
            if path is not None and path.is_file():
                return read_object(path)
        stages = [path for path in map(self.file, ("finals.parquet", "search.parquet")) if path is not None]
        if self.command != "replicate" or not stages:
            return {}
        return dict(import_replication("replications.stage_tables").stage_in(stages[0])[1].about)

    def file(self, name: str) -> Path | None:
        """Return the path of a file of the folder; None if the folder has no such file."""
        path = self.folder / name if self.folder is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def methods(self) -> list[str]:
        """Return the methods, or a trace's scripts, in the order of the rows."""
        return list(dict.fromkeys(str(row["method"]) for row in self.rows if row.get("method") is not None))

    @property
    def paths(self) -> list[str]:
        """Return the paths of the fields of a sweep; empty for other results."""
        return [str(path) for name in ("grids", "tuned") for path in self.noted.get(name) or {}]
