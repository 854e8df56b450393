"""The traffic ledger: what each worker handed to which collective at which step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np


class Record(NamedTuple):
    """One collective call.

    Attributes:
        step: training step, from 0.
        label: what was sent (``gradient``, ``params+momentum``).
        collective: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``gather`` or ``broadcast``.
        payload_bytes: encoded bytes that one worker puts in, whatever algorithm carries them. For ``all_to_all`` and
            ``reduce_scatter`` that is what it holds for all workers together; for ``all_gather`` and ``gather`` its own
            part; for ``broadcast`` the root's tensor.
        group_size: workers that take part.
    """

    step: int
    label: str
    collective: str
    payload_bytes: int
    group_size: int


class Ledger:
    """The records of a run, in order. ``step`` is set by the optimizer at the start of each step."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.step = 0
        self._paused = False

    def append(self, label: str, collective: str, payload_bytes: int, group_size: int) -> None:
        """Note one call at the current step."""
        if not self._paused:
            self.records.append(Record(self.step, label, collective, payload_bytes, group_size))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls inside are not recorded: measurements about a training are not traffic of the training."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def payload_bytes(self) -> int:
        """Bytes that one worker handed to collectives in all."""
        return sum(record.payload_bytes for record in self.records)

    def bytes_by_step(self, steps: int) -> np.ndarray:
        """Payload bytes of one worker per step, shape ``(steps,)``."""
        out = np.zeros(steps)
        for record in self.records:
            out[record.step] += record.payload_bytes
        return out

    def columns(self) -> dict[str, list]:
        """The ledger as columns, ready for a table."""
        return {name: [record[i] for record in self.records] for i, name in enumerate(Record._fields)}

    def __len__(self) -> int:
        return len(self.records)
