"""The traffic ledger: what each worker handed to which collective at which step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from syncline.costmodel.traffic.call import Call


class Details(NamedTuple):
    """What a method knows of a call and its communicator does not.

    Attributes:
        wait_steps: steps until the method needs the result.
        in_backward: whether parts of what is sent are ready during the backward pass.
        encoded_bytes: fp32 bytes that the method itself encoded into what it hands over, see `encoded_from`; if none,
            the communicator counts what its wire format encodes.
    """

    wait_steps: int = 0
    in_backward: bool = False
    encoded_bytes: int | None = None


PLAIN = Details()
"""Needed before the next step, ready at the end of this one, and encoded by the communicator if at all."""


class Ledger:
    """The calls of a run, in order. ``step`` is set by the optimizer at the start of each step.

    Attributes:
        records: the calls.
        readbacks: numbers that a worker read back from its device to find out whether to send, by step.
    """

    def __init__(self) -> None:
        self.records: list[Call] = []
        self.readbacks: Counter[int] = Counter()
        self.step = 0
        self._paused = False

    def append(self, call: Call) -> None:
        """Note one call."""
        if not self._paused:
            self.records.append(call)

    def read_back(self, numbers: int) -> None:
        """Note that so many numbers are read back in the current step."""
        if not self._paused:
            self.readbacks[self.step] += numbers

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls inside are not noted: measurements about a training are not traffic of the training."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def payload_bytes(self) -> int:
        """Bytes that one worker handed to collectives in all."""
        return int(sum(call.payload_bytes for call in self.records))

    def __len__(self) -> int:
        return len(self.records)
