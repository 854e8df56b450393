"""A call of a collective by a worker, and helpers for lists of calls.

Closed forms produce calls, communicators record calls in their ledger, and clocks time calls.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.errors import SpecError, require_one_of

Ranks = range | tuple[int, ...]
"""Ranks that take part in a collective, in order."""

Spans = tuple[tuple[float, float], ...]
"""Parts of a gradient: begin and end of each, as fractions of the elements in the order of the backward pass."""


class Call(NamedTuple):
    """A collective of a training as one worker calls it.

    The constructor does not validate the fields, because a training makes hundreds of thousands of calls; `check` does.

    Attributes:
        step: training step that the call follows, from 0.
        collective: one of ``COLLECTIVES``.
        payload_bytes: encoded bytes that the worker contributes, whatever the algorithm sends. For ``all_to_all`` and
            ``reduce_scatter`` these are the bytes for all workers together; for ``all_gather`` and ``gather`` the
            worker's own part; for ``broadcast`` the root's tensor.
        group: the ranks that take part; None means all workers.
        algorithm: algorithm of the collective; if None, the clock that times the call chooses it.
        encoded_bytes: fp32 bytes that the worker encodes into the payload, and decodes after the call; 0 without an
            encoding.
        wait_steps: steps until the result is needed; 0 means before the next step.
        in_backward: whether parts of the payload are ready during the backward pass, as parts of a gradient are.
        ready: fraction of the step's compute time after which the call can start, from 0 to 1.
        label: name of the payload for display; no number depends on it.
        needed: fraction of the step's compute time at which the worker waits for the result, from ``ready`` to 1; 1
            means the end of the step. ``wait_steps`` above 0 overrides it.
        spans: parts of the gradient that the payload covers if it is sent ``in_backward``, as in
            `syncline.costmodel.Fragment`; empty: all of it.

    >>> Call(3, "all_reduce", 4e6, range(8), label="gradient").group_size
    8
    """

    step: int
    collective: str
    payload_bytes: float
    group: Ranks | None = None
    algorithm: str | None = None
    encoded_bytes: float = 0.0
    wait_steps: int = 0
    in_backward: bool = False
    ready: float = 1.0
    label: str = ""
    needed: float = 1.0
    spans: Spans = ()

    @property
    def group_size(self) -> int | None:
        """Return the number of ranks in the call's group, or None for all workers."""
        return None if self.group is None else len(self.group)

    @classmethod
    def from_fields(cls, fields: Iterable[Any]) -> Call:
        """Return the call with these field values, in the order of the fields; JSON stores lists for tuples."""
        call = cls(*fields)
        call = call._replace(spans=tuple((begin, end) for begin, end in call.spans))
        return call if call.group is None else call._replace(group=tuple(call.group))

    def check(self, path: str) -> None:
        """Raise ``SpecError`` for an invalid field of the call; ``path`` names the call in the error line."""
        require_one_of(f"{path}.collective", self.collective, COLLECTIVES)
        for field, nbytes in (("payload_bytes", self.payload_bytes), ("encoded_bytes", self.encoded_bytes)):
            if not _is_byte_count(nbytes):
                raise SpecError(f"{path}.{field}", nbytes, "a finite number of bytes, at least 0")
        if self.wait_steps != int(self.wait_steps) or self.wait_steps < 0:
            raise SpecError(f"{path}.wait_steps", self.wait_steps, "a whole number of steps, at least 0")
        if not 0 <= self.ready <= 1:
            raise SpecError(f"{path}.ready", self.ready, "a part of the compute time, from 0 to 1")
        if not self.ready <= self.needed <= 1:
            raise SpecError(f"{path}.needed", self.needed, f"a part of the compute time, from {self.ready:g} to 1")
        if not all(0 <= begin < end <= 1 for begin, end in self.spans):
            raise SpecError(f"{path}.spans", self.spans, "pairs of fractions, each from 0 to 1 and ascending")
        if self.group is not None and not isinstance(self.group, range | tuple):
            raise SpecError(f"{path}.group", self.group, "a range or a tuple of ranks, or none for all workers")


def _is_byte_count(nbytes: Any) -> bool:
    """Return whether a value is a finite number, at least 0, or an array of such numbers."""
    if isinstance(nbytes, np.ndarray):
        return bool(np.all(np.isfinite(nbytes) & (nbytes >= 0)))
    return math.isfinite(nbytes) and nbytes >= 0


@lru_cache(maxsize=256)
def group_ranks(group: Ranks | None, workers: int) -> tuple[int, ...] | None:
    """Return the ranks of a group, or None if the group is all P workers in order."""
    if group is None or group == range(workers):  # the usual cases, without a tuple
        return None
    ranks = tuple(group)
    if not ranks or len(set(ranks)) < len(ranks) or min(ranks) < 0 or max(ranks) >= workers:
        raise SpecError("calls.group", group, f"different workers from 0 to {workers - 1}, or none, which means all")
    return None if len(ranks) == workers and ranks == tuple(range(workers)) else ranks


def groups_like(first_group: range, workers: int) -> list[range]:
    """Return the ranks of all groups of P workers, given the first group; the others have the same spacing.

    Args:
        first_group: ranks of the first group: ``range(0, g)`` for groups of g neighbours; ``range(0, b, s)`` for groups
            of every s-th worker in a block of b workers.
        workers: P, a multiple of b, the group's size times its step.

    >>> groups_like(range(2), 6), groups_like(range(0, 6, 2), 6)
    ([range(0, 2), range(2, 4), range(4, 6)], [range(0, 6, 2), range(1, 7, 2)])
    >>> groups_like(range(0, 4, 2), 8)
    [range(0, 4, 2), range(1, 5, 2), range(4, 8, 2), range(5, 9, 2)]
    """
    spacing = first_group.step
    block = len(first_group) * spacing
    groups = []
    for block_start in range(0, workers, block):
        for first_rank in range(block_start, block_start + spacing):
            groups.append(range(first_rank, first_rank + block, spacing))
    return groups


def bytes_of_worker(calls: Iterable[Call], workers: int) -> float:
    """Return the payload bytes that a worker contributes to these calls, as the mean over P workers."""
    total_bytes = 0.0
    for call in calls:
        group_size = workers if call.group is None else len(call.group)
        total_bytes += call.payload_bytes * (group_size / workers)
    return total_bytes


class CallsByStep:
    """The collectives of a training, checked and sorted by step; ``calls_by_step[t]`` is the list of step t.

    One list holds all calls beside an array of the index at which each of the (maybe millions of) steps begins.

    Args:
        steps: T, number of training steps.
    """

    def __init__(self, calls: Iterable[Call], steps: int) -> None:
        """Check the collectives, and sort them by step."""
        num_calls = [0] * (steps + 1)  # entry t + 1 counts the calls of step t
        self.calls = list(calls)
        for index, call in enumerate(self.calls):
            if not 0 <= call.step < steps:
                raise SpecError(f"calls[{index}].step", call.step, f"a step from 0 to {steps - 1}")
            call.check(f"calls[{index}]")
            num_calls[int(call.step) + 1] += 1
        self.calls.sort(key=attrgetter("step"))
        # Entry t is the index at which step t begins. An array takes less memory than a list for millions of steps.
        self._begins = array("q", accumulate(num_calls))

    def __getitem__(self, step: int) -> list[Call]:
        """Return the collectives of one training step, in order."""
        return self.calls[self._begins[step] : self._begins[step + 1]]


def columns_of(calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Return calls of collectives as columns of a table, with the size of each group in place of its ranks."""
    names = ("step", "label", "collective", "payload_bytes", "group_size", "encoded_bytes", "wait_steps", "in_backward")
    return {name: [getattr(call, name) for call in calls] for name in names}
