"""The content of a result for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.checkout import has_replication, import_replication
from syncline.runs.folders.json_values import plain
from syncline.runs.folders.result_files import read_object

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Reported:
    """A result, as the commands print it and as its folder stores it.

    Attributes:
        title: title on the page.
        command: command that made it: ``compare``, ``sweep``, ...
        told: the object that ``--json`` prints.
        tables: tables that the command prints.
        spec: spec of the run; None if it is unknown.
        folder: folder of its files; None if it has none.
        findings: results about its methods from elsewhere: ``title``, and ``claims`` with their ``state``.
    """

    title: str
    command: str
    told: Mapping[str, Any]
    tables: Sequence[Group]
    spec: Any = None
    folder: Path | None = None
    findings: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the result; numbers that are not finite are None."""
        return plain(self.told["rows"])

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


def reported(result: Any, folder_name: str = "") -> Reported:
    """Return a `Result` as a page shows it; the title is its name, or else ``folder_name``, or else its command."""
    shown = Reported("", result.command, result.told, result.tables, result.spec, result.folder, _findings(result))
    name = getattr(result.spec, "name", None) or shown.noted.get("name")
    return replace(shown, title=str(name or folder_name or result.command))


def _findings(result: Any) -> list[dict[str, Any]]:
    """Return the registered claims of the papers of these methods, with a title per paper; nothing in a wheel."""
    if not has_replication():
        return []
    spec = result.spec
    trained = [*(getattr(spec, "methods", None) or ()), getattr(spec, "method", None)]
    names = {str(row.get("method")) for row in result.told["rows"]} | {
        str(getattr(method, "kind", "")) for method in trained
    }
    findings: list[dict[str, Any]] = import_replication("scoreboard.claim_register").findings_of(names)
    return findings


def titled(results: Sequence[Reported]) -> list[Reported]:
    """Return the results with distinct titles: their folders, or numbers, tell equal titles apart."""
    titles = [result.title for result in results]
    return [
        replace(result, title=f"{result.title} ({number if result.folder is None else result.folder.name})")
        if titles.count(result.title) > 1 else result
        for number, result in enumerate(results, start=1)
    ]  # fmt: skip
