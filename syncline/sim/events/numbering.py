"""Numberings of names and of messages, in the order of their first use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias

import numpy as np

from syncline.costmodel.network.topology import Ints

Address: TypeAlias = tuple[int, int, Hashable]
"""A message's sender, receiver and tag."""


class Numbers(dict[Hashable, int]):
    """A numbering of keys from 0, in the order of their first use."""

    def __missing__(self, name: Hashable) -> int:
        number = self[name] = len(self)
        return number

    def numbers_of(self, column: Iterable[Hashable]) -> Ints:
        """Return the numbers of a column."""
        return np.array(list(map(self.__getitem__, column)), dtype=np.int64)


class Messages:
    """A numbering of messages by sender, receiver and tag.

    Args:
        workers: P, number of workers.
    """

    def __init__(self, workers: int) -> None:
        self.tags = Numbers()
        self._workers = workers
        self._known: dict[Address, int] = {}
        self._new: list[tuple[int, Ints]] = []  # first message number, and the encoded address of each message from it

    def add(self, first: int, senders: Ints, receivers: Ints, tags: Ints) -> tuple[Ints, Ints]:
        """Assign numbers to new messages from ``first``; return their receivers, and the message number of each row."""
        workers = self._workers
        addresses, row_to_message = np.unique((tags * workers + senders) * workers + receivers, return_inverse=True)
        self._new.append((first, addresses))
        return addresses % workers, first + row_to_message.ravel()

    def by_address(self) -> dict[Address, int]:
        """Return the messages by sender, receiver and tag."""
        if self._new:
            tags = list(self.tags)
            for first, addresses in self._new:
                rest, receivers = np.divmod(addresses, self._workers)
                numbers, senders = np.divmod(rest, self._workers)
                columns = senders.tolist(), receivers.tolist(), numbers.tolist()
                for m, (sender, receiver, tag) in enumerate(zip(*columns, strict=True), first):
                    self._known[sender, receiver, tags[tag]] = m
            self._new = []
        return self._known
