"""What programs name: streams, labels and steps of spans, collectives and marks by key, and choices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SynclineError
from syncline.sim.programs import Collective, First
from syncline.sim.timeline import COMPUTING, Words

Told = tuple[int, int, int, int]
"""What a span is called: its stream, what, label and step."""

NOTHING: Told = 0, 0, 0, 0

Operation = tuple[int, int, int, int, int, float]
"""An operation: its code, whether it has an effect, three numbers, and seconds or bytes."""


class Choice(NamedTuple):
    """A `First`: the message of each option, -1 for one that waits for none."""

    first: First
    messages: list[int]


class Taken(NamedTuple):
    """What a `First` came to: which option, and the operation behind it."""

    first: First
    option: int
    back: int


class Names:
    """Numbers of strings."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """The number of a string."""
        return self.numbers.setdefault(name, len(self.numbers))

    def words(self, numbers: NDArray[np.int64]) -> Words:
        """The strings of these numbers."""
        used = np.zeros(len(self.numbers), dtype=bool)
        used[numbers] = True
        table = [name for name, is_used in zip(self.numbers, used.tolist(), strict=True) if is_used]
        return Words((np.cumsum(used, dtype=np.int32) - 1)[numbers], np.array(table, dtype=np.str_))


class Named:
    """What a worker's program has named so far."""

    __slots__ = ("joined", "lane", "marks", "parts", "sends", "streams")

    def __init__(self) -> None:
        self.parts: dict[Hashable, int] = {}
        self.joined: dict[Hashable, Collective] = {}
        self.sends: set[str] = set()
        self.streams: set[str] = set()
        self.marks: dict[Hashable, int] = {}
        self.lane = COMPUTING  # which stream is being assembled

    def check(self, worker: int) -> None:
        """Refuse messages on a stream of collectives."""
        for stream in sorted(self.sends & self.streams):
            raise SynclineError(f"worker {worker} sends on {stream!r}; expected another stream than its collectives'")
