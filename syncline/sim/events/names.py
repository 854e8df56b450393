"""Names in programs: streams, labels and steps of spans, keys of collectives and marks, and choices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SynclineError
from syncline.sim.program.instructions import Collective, First
from syncline.sim.program.timeline import COMPUTING, Words

Told = tuple[int, int, int, int]
"""The names of a span as numbers: its stream, what, label and step."""

NOTHING: Told = 0, 0, 0, 0

Operation = tuple[int, int, int, int, int, float]
"""An operation: its code, whether it has an effect, three numbers, and seconds or bytes."""


class Choice(NamedTuple):
    """A `First` with the number of each option's message, -1 for an option that waits for none."""

    first: First
    messages: list[int]


class ChosenOption(NamedTuple):
    """The result of a `First`: the chosen option, and the operation to return to."""

    first: First
    option: int
    back: int


class Names:
    """A numbering of strings, in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """Return the number of a string."""
        return self.numbers.setdefault(name, len(self.numbers))

    def words(self, numbers: NDArray[np.int64]) -> Words:
        """Return the strings of these numbers."""
        used = np.zeros(len(self.numbers), dtype=bool)
        used[numbers] = True
        table = [name for name, is_used in zip(self.numbers, used.tolist(), strict=True) if is_used]
        return Words((np.cumsum(used, dtype=np.int32) - 1)[numbers], np.array(table, dtype=np.str_))


class WorkerNames:
    """The keys, streams and marks that a worker's program has named so far."""

    __slots__ = ("joined", "lane", "marks", "parts", "sends", "streams")

    def __init__(self) -> None:
        self.parts: dict[Hashable, int] = {}
        self.joined: dict[Hashable, Collective] = {}
        self.sends: set[str] = set()
        self.streams: set[str] = set()
        self.marks: dict[Hashable, int] = {}
        self.lane = COMPUTING  # the stream that is being assembled

    def check(self, worker: int) -> None:
        """Refuse messages on a stream of collectives."""
        for stream in sorted(self.sends & self.streams):
            raise SynclineError(f"worker {worker} sends on {stream!r}; expected another stream than its collectives'")
