"""What a method sends and keeps among many numbers of workers: exchanges whose bytes are arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, TensorShape, calls_by_step
from syncline.costmodel.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.costmodel.traffic.overlap import WHOLE, Bucket
from syncline.methods import MethodBase

SIZES = ("payload_bytes", "encoded_bytes")
"""Of an exchange: what may differ between numbers of workers. Where anything else does, they are apart."""


class Traffic(NamedTuple):
    """What is sent in some of the settings: exchanges that are due at the same steps.

    Attributes:
        place: ``(S,)``: of each setting where in arrays of sizes it is; -1 where this is not what is sent.
        exchanges: whose sizes are numbers or arrays of one per place.
        patterns: by `calls_by_step`.
        buckets: of gradients that travel during the backward pass.
    """

    place: Indices
    exchanges: list[Exchange]
    patterns: list[CallPattern]
    buckets: tuple[Bucket, ...] = WHOLE

    @property
    def settings(self) -> Indices:
        """Those that it is of, in their order."""
        return np.flatnonzero(self.place >= 0)


class KeptNumbers(NamedTuple):
    """Numbers that a worker keeps beyond its parameters, one for all settings or one for each."""

    state: IntOrArray
    errors: IntOrArray


def traffic_of(
    method: MethodBase,
    tensors: Sequence[TensorShape],
    workers: Indices,
    able: NDArray[np.bool_],
    steps: int,
    exchanges_of: Callable[[int], list[Exchange]] | None = None,
) -> list[Traffic]:
    """What a method sends in settings of so many workers each.

    Args:
        method: it.
        tensors: the parameters' shapes.
        workers: ``(S,)``: P.
        able: ``(S,)``: whether it is asked for.
        steps: T.
        exchanges_of: what is sent in its place among so many.

    Raises:
        SpecError: it cannot serve so many workers.
    """
    asked = distinct(workers[able])
    several = [count for count in asked if count > 1]
    if exchanges_of is None:
        sent = _by_count(several, method, lambda p: method.exchanges(tensors, p))
    else:
        sent = {count: exchanges_of(count) for count in several}
    groups: dict[Any, list[int]] = {}
    for count in asked:
        groups.setdefault(_structure(sent.get(count, [])), []).append(count)
    found = []
    for members in groups.values():
        at = np.minimum(np.searchsorted(members, workers), len(members) - 1)
        row = np.where(able & (np.array(members)[at] == workers), at, -1)
        here = np.flatnonzero(row >= 0)
        place = np.full(len(workers), -1)
        place[here] = np.arange(len(here))
        exchanges = _joined([sent.get(count, []) for count in members], row[here])
        found.append(Traffic(place, exchanges, calls_by_step(exchanges, steps) if exchanges else []))
    return found


def distinct(counts: Indices) -> list[int]:
    """Each once, in order. ``np.unique`` would import masked arrays, which takes as long as a projection."""
    return sorted(set(counts.tolist()))


def kept_of(
    method: MethodBase, tensors: Sequence[TensorShape], workers: Indices, able: NDArray[np.bool_]
) -> KeptNumbers:
    """What a method keeps in settings of so many workers each; nothing is told where it is not asked for."""
    counts = distinct(workers[able])

    def told(ask: Callable[[int], int]) -> IntOrArray:
        by_count = _by_count(counts, method, ask)
        if len(set(by_count.values())) <= 1:
            return next(iter(by_count.values()), 0)
        column = np.zeros(len(workers), dtype=np.int64)
        for count, number in by_count.items():
            column[workers == count] = number
        return column

    errors = told(lambda p: method.error_feedback_elements(tensors, p))
    return KeptNumbers(told(lambda p: method.kept_elements(tensors, p)) - errors, errors)


def _by_count(counts: Sequence[int], method: MethodBase, ask: Callable[[int], Any]) -> dict[int, Any]:
    """The answer for each number of workers; where it is the same for all, asked for the fewest and the most alone."""
    if len(counts) > 2 and method.same_for_any_group and (told := ask(counts[0])) == ask(counts[-1]):
        return dict.fromkeys(counts, told)
    return {count: ask(count) for count in counts}


_names = [field.name for field in dataclasses.fields(Exchange) if field.name not in SIZES]


def _structure(exchanges: Sequence[Exchange]) -> tuple[Any, ...]:
    """What decides when calls are due, and which of them join."""
    return tuple(tuple(getattr(one, name) for name in _names) for one in exchanges)


def _joined(alike: Sequence[list[Exchange]], row: Indices) -> list[Exchange]:
    """Exchanges of several numbers of workers as one list, with a size for each setting where they differ."""
    exchanges = []
    for several in zip(*alike, strict=True):
        sizes: dict[str, Any] = {}
        for name in SIZES:
            values = [getattr(one, name) for one in several]
            if any(value != values[0] for value in values):
                sizes[name] = np.array(values, dtype=np.float64)[row]
        exchanges.append(dataclasses.replace(several[0], **sizes) if sizes else several[0])
    return exchanges
