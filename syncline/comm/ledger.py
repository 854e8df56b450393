"""The traffic ledger: the bytes that each worker handed to each collective at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from syncline.costmodel.traffic.call import Call, Spans


class Details(NamedTuple):
    """Properties of a call that the method knows and the communicator does not.

    Attributes:
        wait_steps: steps until the method needs the result.
        in_backward: whether parts of the payload are ready during the backward pass.
        encoded_bytes: fp32 bytes that the method itself encoded into the payload, see `encoded_from`; if None, the
            communicator counts the bytes that its wire format encodes.
        spans: parts of the gradient that the payload covers if it is sent ``in_backward``; empty: all of it.
    """

    wait_steps: int = 0
    in_backward: bool = False
    encoded_bytes: int | None = None
    spans: Spans = ()


PLAIN = Details()
"""A call whose result is needed before the next step, whose payload is ready at the end of this step, and which the
method does not encode.
"""


class Ledger:
    """The calls of a run, in order; the optimizer sets ``step`` at the start of each step.

    Attributes:
        records: the calls.
        readbacks: by step, the count of numbers that a worker read back from its device to decide whether to send.
    """

    def __init__(self) -> None:
        self.records: list[Call] = []
        self.readbacks: Counter[int] = Counter()
        self.step = 0
        self._paused = False

    def append(self, call: Call) -> None:
        """Note one call, unless the ledger is paused."""
        if not self._paused:
            self.records.append(call)

    def read_back(self, numbers: int) -> None:
        """Note that ``numbers`` numbers are read back from the device in the current step."""
        if not self._paused:
            self.readbacks[self.step] += numbers

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Skip calls made inside the context, because measurements of a training are not its traffic."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def payload_bytes(self) -> int:
        """Return the total bytes that one worker handed to collectives."""
        return int(sum(call.payload_bytes for call in self.records))

    def __len__(self) -> int:
        return len(self.records)
