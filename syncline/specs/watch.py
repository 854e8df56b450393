"""Specs of what is measured along a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from syncline.fields import Spec, refusal

if TYPE_CHECKING:
    from syncline.optim.watching import Watch


class WatchSpec(Spec):
    """What is measured of the workers along a training, beside its losses: ``watched.parquet``.

    Args:
        measures: ``rounds``, ``update-vectors``, ``momentum-spread`` (``syncline.optim.watching``); none by default.
        every: steps from one look to the next, of measures that look at single steps.
    """

    measures: tuple[Literal["rounds", "update-vectors", "momentum-spread"], ...] = ()
    every: int = Field(default=1, ge=1)

    def build(self) -> Watch | None:
        """Who looks; None if there is nothing to look for."""
        from syncline.optim.watching import MEASURES, Watch

        return Watch([MEASURES[name]() for name in self.measures], self.every) if self.measures else None

    def refuse(self, expected: str, error: Callable[[str, Any, str], Exception] = refusal) -> None:
        """Refuse measures where there cannot be any.

        Raises:
            PydanticCustomError: or another ``error``, with the path from the spec's root.
        """
        if self.measures:
            raise error("watch.measures", self.measures, expected)
