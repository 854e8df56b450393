"""What a sweep leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Swept:
    """The rows of a sweep, and what is to be told of it.

    Attributes:
        name: of the spec.
        paths: the fields that are swept.
        rows: one per configuration and seed that is finished or has failed, in the order asked for.
        folder: where everything is.
        asked: how many runs there were to be.
        repeated: how many of them were finished before.
        effort: configurations by method; what differs on the clock alone counts once.
        interrupted: whether it was stopped; the same again goes on.
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
        """The object that ``--json`` prints."""
        return {
            "rows": self.rows, "folder": self.folder, "runs": self.asked, "repeated": self.repeated,
            "effort": dict(self.effort), "interrupted": self.interrupted,
        }  # fmt: skip
