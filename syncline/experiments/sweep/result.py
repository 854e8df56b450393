"""What a sweep returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncline.experiments.sweep.ranking import ranked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SweepResult:
    """The rows of a sweep.

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
    rows: Sequence[Mapping[str, Any]]
    folder: str
    asked: int
    repeated: int
    effort: Mapping[str, int] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def summary(self) -> pd.DataFrame:
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def best(self, by: str = "loss") -> pd.DataFrame:
        """One row per configuration, the best first: median, lowest and highest over the seeds."""
        import pandas as pd

        return pd.DataFrame(ranked(self.rows, by))

    def _repr_html_(self) -> str:
        return str(self.summary.to_html())
