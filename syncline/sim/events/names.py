"""Numbers for the names in programs: of streams, labels, tags, collectives, marks and messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Ints
from syncline.errors import SynclineError
from syncline.sim.program.instructions import Collective, First
from syncline.sim.program.timeline import COMPUTING, Words

SpanNames: TypeAlias = tuple[int, int, int, int]
"""The names of a span as numbers: its stream, what, label and step."""

NO_SPAN: SpanNames = 0, 0, 0, 0


class Operation(NamedTuple):
    """An instruction as a record of the core's table ``operations``.

    Attributes:
        code: kind of the instruction, as in `syncline.sim.events.codes`.
        effect: whether Python calls a function when the instruction is done.
        hidden: whether the timeline leaves out its span.
        number: number of its message, part, mark, choice or error line, or of the operation to which it jumps.
        port: port of the message that it sends.
        route: route of that message.
        amount: seconds of computing, or bytes of the message.
    """

    code: int
    effect: bool = False
    hidden: bool = False
    number: int = 0
    port: int = 0
    route: int = 0
    amount: float = 0.0


class Part(NamedTuple):
    """A collective that a worker's program names, as a record of the core's table ``parts``.

    Attributes:
        kind: number of the collective's kind.
        place: place of the worker in the collective's group, -1 if it is not in the group.
        port: the worker's port on the collective's stream.
        takes_turn: whether the worker's incoming port serves the collective before the worker's next collectives.
        operation: the operation that joins the collective.
    """

    worker: int
    kind: int
    key: int
    place: int
    port: int
    takes_turn: bool
    operation: int


Address: TypeAlias = tuple[int, int, Hashable]
"""A message's sender, receiver and tag."""


class Choice(NamedTuple):
    """A `First` with the number of each option's message, -1 for an option that waits for none."""

    first: First
    messages: list[int]


class ChosenOption(NamedTuple):
    """The result of a `First`: the index of the chosen option, and the operation to return to."""

    first: First
    option: int
    return_to: int


class Numbers(dict[Hashable, int]):
    """A numbering of keys from 0 in the order of their first use; ``numbers[key]`` numbers a new key."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number

    def numbers_of(self, column: Iterable[Hashable]) -> Ints:
        """Return the numbers of a column of keys, ``(N,)``."""
        return np.array(list(map(self.__getitem__, column)), dtype=np.int64)

    def words(self, numbers: NDArray[np.int64]) -> Words:
        """Return the keys of these numbers as a column of strings; all keys must be strings."""
        # The column keeps only the keys that it uses, so they are numbered anew.
        is_used = np.zeros(len(self), dtype=bool)
        is_used[numbers] = True
        used_names = [name for name, used in zip(self, is_used.tolist(), strict=True) if used]
        new_number = np.cumsum(is_used, dtype=np.int32) - 1  # of each used name
        return Words(new_number[numbers], np.array(used_names, dtype=np.str_))


@dataclass(slots=True)
class WorkerNames:
    """The keys, streams and marks that a worker's program has named so far.

    Attributes:
        parts: by the key of a collective, the number of the worker's part in it.
        joined: by the key of a collective, the `Collective` that the worker joins.
        send_streams: network streams on which the worker sends messages.
        collective_streams: network streams on which the worker joins collectives.
        marks: by the key of a mark, its number.
        stream: the computing stream whose instructions are being assembled.
    """

    parts: dict[Hashable, int] = field(default_factory=dict)
    joined: dict[Hashable, Collective] = field(default_factory=dict)
    send_streams: set[str] = field(default_factory=set)
    collective_streams: set[str] = field(default_factory=set)
    marks: dict[Hashable, int] = field(default_factory=dict)
    stream: str = COMPUTING

    def check(self, worker: int) -> None:
        """Raise an error if the worker sends messages on a stream that it also uses for collectives."""
        for stream in sorted(self.send_streams & self.collective_streams):
            raise SynclineError(f"worker {worker} sends on {stream!r}; expected another stream than its collectives'")


class Messages:
    """A numbering of messages by sender, receiver and tag."""

    def __init__(self, workers: int) -> None:
        self.tags = Numbers()
        self._workers = workers
        self._known: dict[Address, int] = {}  # number of each message
        # Messages that `add` has numbered and `by_address` will decode: the first number, and addresses as numbers.
        self._new: list[tuple[int, Ints]] = []

    def add(self, first: int, senders: Ints, receivers: Ints, tags: Ints) -> tuple[Ints, Ints]:
        """Give numbers from ``first`` on to new messages; equal sender, receiver and tag mean the same message.

        Args:
            first: number of the first new message.
            senders: sender of each of N sends and receives, ``(N,)``.
            receivers: receiver of each, ``(N,)``.
            tags: number of each tag, ``(N,)``.

        Returns:
            The receiver of each of M new messages, ``(M,)``, and the message number of each send and receive, ``(N,)``.
        """
        workers = self._workers
        encoded = (tags * workers + senders) * workers + receivers  # an address as one number, which sorts fast
        encoded_addresses, message_index = np.unique(encoded, return_inverse=True)
        self._new.append((first, encoded_addresses))
        return encoded_addresses % workers, first + message_index.ravel()

    def by_address(self) -> dict[Address, int]:
        """Return the number of each message by its sender, receiver and tag."""
        if not self._new:
            return self._known
        tags = list(self.tags)
        for first, encoded_addresses in self._new:
            tags_and_senders, receivers = np.divmod(encoded_addresses, self._workers)
            tag_numbers, senders = np.divmod(tags_and_senders, self._workers)
            columns = senders.tolist(), receivers.tolist(), tag_numbers.tolist()
            for message, (sender, receiver, tag_number) in enumerate(zip(*columns, strict=True), first):
                self._known[sender, receiver, tags[tag_number]] = message
        self._new = []
        return self._known
