"""One communication: what a worker hands to a collective.

Closed forms produce these values, communicators note them in their ledger, clocks consume them. There is no other shape
of a communication.
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
from syncline.errors import SpecError, one_of

Ranks = range | tuple[int, ...]
"""Ranks that take part in a collective, in their order."""


class Call(NamedTuple):
    """A collective as one worker calls it. It is made by the hundred thousand, so `check` is a step of its own.

    Attributes:
        step: training step whose end it follows, from 0.
        collective: one of ``COLLECTIVES``.
        payload_bytes: encoded bytes that the worker puts in, whatever algorithm carries them. For ``all_to_all`` and
            ``reduce_scatter`` that is what it holds for all workers together; for ``all_gather`` and ``gather`` its own
            part; for ``broadcast`` the root's tensor.
        group: the ranks that take part; all workers if none.
        algorithm: that carries it; chosen by whoever times the call if none.
        encoded_bytes: fp32 bytes that are encoded into the payload, and decoded at the end; 0 if it travels as it is.
        wait_steps: steps until its result is needed; 0: before the next step.
        in_backward: whether parts of it are ready during the backward pass, as a gradient's are.
        ready: part of the step's compute time after which it can start, from 0 to 1.
        label: what is sent, for people; no number depends on it.
        needed: part of the step's compute time that cannot begin without its result, from ``ready`` to 1: a worker
            waits there; 1: at the end of the step. Of no account with ``wait_steps``.

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

    @property
    def group_size(self) -> int | None:
        """How many take part; None if it is all."""
        return None if self.group is None else len(self.group)

    @classmethod
    def of(cls, fields: Iterable[Any]) -> Call:
        """The call of these fields in their order, as a file has them: its group is a list of ranks."""
        call = cls(*fields)
        return call if call.group is None else call._replace(group=tuple(call.group))

    def check(self, path: str) -> None:
        """Refuse a field that no call can have; ``path`` says whose it is.

        Raises:
            SpecError: with the field and what is accepted.
        """
        if self.collective not in COLLECTIVES:
            raise SpecError(f"{path}.collective", self.collective, one_of(COLLECTIVES, self.collective))
        if not _is_size(self.payload_bytes):
            raise SpecError(f"{path}.payload_bytes", self.payload_bytes, "a finite number of bytes, at least 0")
        if not _is_size(self.encoded_bytes):
            raise SpecError(f"{path}.encoded_bytes", self.encoded_bytes, "a finite number of bytes, at least 0")
        if self.wait_steps != int(self.wait_steps) or self.wait_steps < 0:
            raise SpecError(f"{path}.wait_steps", self.wait_steps, "a whole number of steps, at least 0")
        if not 0 <= self.ready <= 1:
            raise SpecError(f"{path}.ready", self.ready, "a part of the compute time, from 0 to 1")
        if not self.ready <= self.needed <= 1:
            raise SpecError(f"{path}.needed", self.needed, f"a part of the compute time, from {self.ready:g} to 1")
        if self.group is not None and not isinstance(self.group, range | tuple):
            raise SpecError(f"{path}.group", self.group, "a range or a tuple of ranks, or none for all workers")


def _is_size(nbytes: Any) -> bool:
    """Whether it is a number of bytes; a projection's, for many numbers of workers, is an array."""
    if isinstance(nbytes, np.ndarray):
        return bool(np.all(np.isfinite(nbytes) & (nbytes >= 0)))
    return math.isfinite(nbytes) and nbytes >= 0


@lru_cache(maxsize=256)
def ranks_of_part(group: Ranks | None, workers: int) -> tuple[int, ...] | None:
    """The ranks of a group; None where it is all P workers in their order.

    Raises:
        SpecError: ranks that P different workers do not have.
    """
    if group is None or group == range(workers):
        return None
    ranks = tuple(group)
    if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(workers)):
        raise SpecError("calls.group", group, f"different workers from 0 to {workers - 1}, or none, which means all")
    return None if ranks == tuple(range(workers)) else ranks


def parts_like(part: range, workers: int) -> list[range]:
    """All parts of P workers that are like one: blocks of neighbours, or those with the same place in each block.

    Args:
        part: ``range(0, g)``: the first of the blocks of g; ``range(0, P, g)``: the first of each block.
        workers: P, a multiple of g.

    >>> parts_like(range(2), 6), parts_like(range(0, 6, 2), 6)
    ([range(0, 2), range(2, 4), range(4, 6)], [range(0, 6, 2), range(1, 6, 2)])
    """
    if part.step == 1:
        return [range(first, first + len(part)) for first in range(0, workers, len(part))]
    return [range(first, workers, part.step) for first in range(part.step)]


def bytes_of_worker(calls: Iterable[Call], workers: int) -> float:
    """Payload bytes that one of P workers hands to these calls, on average over the workers."""
    return sum((call.payload_bytes * ((call.group_size or workers) / workers) for call in calls), start=0.0)


class CallsByStep:
    """The calls of each step, in their order; all are checked. It is two lists, as there can be millions of steps.

    Args:
        calls: of all steps.
        steps: T.

    Raises:
        SpecError: a call of no step of these, or with a field that no call can have.
    """

    def __init__(self, calls: Iterable[Call], steps: int) -> None:
        counts = array("q", bytes(8 * (steps + 1)))
        self.calls = list(calls)
        for index, call in enumerate(self.calls):
            if not 0 <= call.step < steps:
                raise SpecError(f"calls[{index}].step", call.step, f"a step from 0 to {steps - 1}")
            call.check(f"calls[{index}]")
            counts[int(call.step) + 1] += 1
        self.calls.sort(key=attrgetter("step"))
        self._begins = array("q", accumulate(counts))

    def __getitem__(self, step: int) -> list[Call]:
        """Those of one step."""
        return self.calls[self._begins[step] : self._begins[step + 1]]


def columns_of(calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Calls as columns of a table: what a ledger tells, with the size of each group in place of its ranks."""
    names = ("step", "label", "collective", "payload_bytes", "group_size", "encoded_bytes", "wait_steps", "in_backward")
    return {name: [getattr(call, name) for call in calls] for name in names}
