"""The result of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Swept:
    """The rows of a sweep, with facts about it.

    Attributes:
        name: name of the spec.
        paths: paths of the swept fields.
        rows: one row per configuration and seed that is finished or has failed, in the order of the request.
        folder: folder of the sweep.
        asked: number of requested runs.
        repeated: number of requested runs that were finished before.
        effort: configurations by method; those that differ only on the clock count once.
        interrupted: whether the sweep was stopped; a second call continues it.
    """

    name: str
    paths: Sequence[str]
    rows: list[dict[str, Any]]
    folder: str
    asked: int
    repeated: int
    effort: Mapping[str, int]
    interrupted: bool

    def json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "rows": self.rows, "folder": self.folder, "runs": self.asked, "repeated": self.repeated,
            "effort": dict(self.effort), "interrupted": self.interrupted,
        }  # fmt: skip
