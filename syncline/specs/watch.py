"""Spec of the measures that are recorded during a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from syncline.fields import Spec, refusal

if TYPE_CHECKING:
    from syncline.optim.watching import Watch


class WatchSpec(Spec):
    """Measures of the workers that a training records in ``watched.parquet``, in addition to its losses.

    Args:
        measures: names of measures: ``rounds``, ``update-vectors``, ``momentum-spread`` (``syncline.optim.watching``).
        every: number of steps between two records, for measures of single steps.
    """

    measures: tuple[Literal["rounds", "update-vectors", "momentum-spread"], ...] = ()
    every: int = Field(default=1, ge=1)

    def build(self) -> Watch | None:
        """Return the recorder of the measures; None without measures."""
        from syncline.optim.watching import MEASURES, Watch

        return Watch([MEASURES[name]() for name in self.measures], self.every) if self.measures else None

    def refuse(self, expected: str, error: Callable[[str, Any, str], Exception] = refusal) -> None:
        """Refuse measures where the spec rules them out.

        Args:
            expected: what would be accepted, for the error line.
            error: makes the exception from the path, the value and ``expected``.

        Raises:
            PydanticCustomError: or another ``error``, with the path from the spec's root.
        """
        if self.measures:
            raise error("watch.measures", self.measures, expected)
