"""What a page is told of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.experiments.plain import plain
from syncline.experiments.replicating.kept import stage_in
from syncline.experiments.result_files import read_object

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Reported:
    """A result, as the commands print it and as its folder keeps it.

    Attributes:
        title: what it is called on the page.
        command: which command made it: ``compare``, ``sweep``, ...
        told: what ``--json`` prints.
        tables: what the command prints.
        spec: what was run; None where that is not known.
        folder: where its files are; None of what leaves none.
        findings: what was found about its methods elsewhere: ``title``, and ``claims`` with their ``state``.
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
        """Its rows, with what is not finite as None."""
        return plain(self.told["rows"])

    @cached_property
    def noted(self) -> dict[str, Any]:
        """What ``run.json`` or ``sweep.json`` of its folder says, of a replication its finals; nothing without them."""
        for name in ("run.json", "sweep.json"):
            path = self.folder / name if self.folder is not None else None
            if path is not None and path.is_file():
                return read_object(path)
        stages = [path for path in map(self.file, ("finals.parquet", "search.parquet")) if path is not None]
        return dict(stage_in(stages[0])[1].about) if self.command == "replicate" and stages else {}

    def file(self, name: str) -> Path | None:
        """A file of its folder; None if it has none of this name."""
        path = self.folder / name if self.folder is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def methods(self) -> list[str]:
        """Its methods in the order of its rows, scripts of a trace among them."""
        return list(dict.fromkeys(str(row["method"]) for row in self.rows if row.get("method") is not None))

    @property
    def paths(self) -> list[str]:
        """The fields that a sweep sweeps; none of what is no sweep."""
        return [str(path) for name in ("grids", "tuned") for path in self.noted.get(name) or {}]
