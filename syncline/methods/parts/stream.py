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
    """Streaming of a model: the number of fragments, the delay of a merge in steps, and its weight."""

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
        """One exchange per state and fragment, each on its own schedule, in its own call, and needed ``tau`` later."""
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
