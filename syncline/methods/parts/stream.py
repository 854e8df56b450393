"""The spec of streaming a model in fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from syncline.costmodel import Exchange, TensorShape, balanced_parts
from syncline.fields import Spec, refusal

if TYPE_CHECKING:
    pass


class StreamSpec(Spec):
    """Streaming of a model: fragments of each state are averaged in turn while the workers train on.

    Args:
        fragments: number of fragments into which each state is cut.
        tau: number of steps between the start of a fragment's average and its merge into the workers' state.
        alpha: weight of the workers' own values when they merge the average, as in `streaming`.
    """

    fragments: int = Field(default=4, ge=1)
    tau: int = Field(default=1, ge=0)
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5

    def check(self, periods: Iterable[int]) -> None:
        """Refuse a delay that is as long as a period."""
        if self.tau >= min(periods):
            raise refusal("stream.tau", self.tau, f"less than every period, at most {min(periods) - 1}")

    def exchanges(
        self,
        tensors: Sequence[TensorShape],
        periods: dict[str, int],
        count: Callable[[str, Sequence[TensorShape]], int],
        plain: Callable[..., Exchange],
    ) -> list[Exchange]:
        """Return one exchange per state and fragment.

        Each exchange has its own offset within the period and its own call, and may take ``tau`` steps.
        """
        parts = balanced_parts([tensor.elements for tensor in tensors], self.fragments)
        return [
            plain(
                sent,
                period,
                f"{state} {f + 1}/{self.fragments}",
                offset=f * period // self.fragments,
                joins=False,
                wait_steps=self.tau,
            )
            for state, period in periods.items()
            for f, part in enumerate(parts)
            if (sent := count(state, [tensors[i] for i in part]))
        ]
