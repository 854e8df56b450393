"""The heads of the messages that workers send, and the server's checks of them."""

from __future__ import annotations

import itertools
import time
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from syncline.measure.processes.messages import MalformedMessage

HEAD_BYTES, STEP_BYTES, LOSS_BYTES = 1 << 16, 1 << 11, 32
"""Largest size of a head in bytes: a base, an addition for each local step, and one for each loss of a step."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Nanoseconds = Count
Text = Annotated[str, StringConstraints(max_length=200)]


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JoinRequest(_Head):
    """A worker's first message.

    Attributes:
        pid: id of its process.
    """

    pid: Count


class RoundReport(_Head):
    """A worker's report on its local steps since the last model; its update follows.

    Attributes:
        begun_ns: time at which the worker had the model.
        steps: number, place, count, beginning and end of each step.
        losses: losses of each step, for each seed.
        laps: laps of its stopwatch.
    """

    begun_ns: Nanoseconds
    steps: tuple[tuple[Count, Count, Count, Nanoseconds, Nanoseconds], ...]
    losses: tuple[tuple[float, ...], ...]
    laps: tuple[tuple[Text, Text, Text, Nanoseconds, Nanoseconds, Count, Count], ...]

    def check(self, steps: range, drawn: int, seeds: int, zero_ns: int) -> None:
        """Refuse a report on other steps than the worker was granted, or with impossible times.

        Args:
            steps: numbers of the granted steps.
            drawn: number of places that all workers have drawn.
            seeds: number of seeds S.
            zero_ns: time at which the training began.

        Raises:
            MalformedMessage: the part of the report that is wrong.
        """
        if [step[0] for step in self.steps] != list(steps):
            raise MalformedMessage("steps that the worker was not given")
        if len(self.losses) != len(steps) or any(len(losses) != seeds for losses in self.losses):
            raise MalformedMessage("another number of losses")
        places = [step[1] for step in self.steps]
        if any(after <= before for before, after in itertools.pairwise(places)) or places[-1] >= drawn:
            raise MalformedMessage("places that no step has")
        if any(counted > place for _, place, counted, _, _ in self.steps):
            raise MalformedMessage("a count above the place")
        times = [zero_ns, self.begun_ns, *(t for step in self.steps for t in step[3:]), time.monotonic_ns()]
        if times != sorted(times) or any(not lap[3] <= lap[4] <= times[-1] for lap in self.laps):
            raise MalformedMessage("times out of order")


def longest_head(steps: int, seeds: int) -> int:
    """Return the largest number of bytes of the head of a report on this number of local steps."""
    return HEAD_BYTES + steps * (STEP_BYTES + LOSS_BYTES * seeds)


Head = TypeVar("Head", bound=_Head)


def read_head(kind: type[Head], content: bytes) -> Head:
    """Return the head of a message.

    Raises:
        MalformedMessage: the content is not such a head.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise MalformedMessage(f"not a {kind.__name__}: {error.errors()[0]['type']}") from None
