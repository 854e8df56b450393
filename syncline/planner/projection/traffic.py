"""Traffic and states of a method for many numbers of workers at once, as exchanges whose bytes are arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, Network, TensorShape, calls_by_step
from syncline.costmodel.numerics.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.methods import MethodBase

SIZES = ("payload_bytes", "encoded_bytes")
"""Fields of an exchange that may differ between numbers of workers; any other difference makes separate traffic."""


class Traffic(NamedTuple):
    """The traffic of some settings: exchanges that are due at the same steps.

    Attributes:
        place: ``(S,)``: index of each setting in arrays of sizes; -1 if the setting has other traffic.
        exchanges: exchanges whose sizes are numbers, or arrays with one entry per index.
        patterns: call patterns of `calls_by_step`.
        buckets: buckets of gradients that travel during the backward pass.
    """

    place: Indices
    exchanges: list[Exchange]
    patterns: list[CallPattern]
    buckets: tuple[Bucket, ...] = WHOLE

    @property
    def settings(self) -> Indices:
        """Return the indices of the settings with this traffic, in order."""
        return np.flatnonzero(self.place >= 0)

    def on(self, network: Network) -> Traffic:
        """Return the traffic with the buckets of `buckets_on`."""
        return self._replace(buckets=tuple(buckets_on(network, self.buckets)))


class KeptNumbers(NamedTuple):
    """Numbers that a worker keeps beyond its parameters, one for all settings or one for each."""

    state: IntOrArray
    errors: IntOrArray


def traffic_of(
    method: MethodBase,
    tensors: Sequence[TensorShape],
    workers: Indices,
    mask: NDArray[np.bool_],
    steps: int,
    exchanges_of: Callable[[int], list[Exchange]] | None = None,
) -> list[Traffic]:
    """Return the traffic of a method in S settings, one item for all settings with exchanges of one structure.

    Args:
        method: the method.
        tensors: the parameters' shapes.
        workers: ``(S,)``: P, the number of workers.
        mask: ``(S,)``: mask of the settings that include the method.
        steps: T, the number of steps.
        exchanges_of: returns the exchanges among a number of workers, in place of the method's own.

    Raises:
        SpecError: the method cannot serve so many workers.
    """
    counts = distinct(workers[mask])
    several = [count for count in counts if count > 1]
    if exchanges_of is None:
        sent = _by_count(several, method, lambda p: method.exchanges(tensors, p))
    else:
        sent = {count: exchanges_of(count) for count in several}
    counts_by_structure: dict[Any, list[int]] = {}
    for count in counts:
        counts_by_structure.setdefault(_structure(sent.get(count, [])), []).append(count)
    traffics = []
    for members in counts_by_structure.values():
        index = np.minimum(np.searchsorted(members, workers), len(members) - 1)
        row = np.where(mask & (np.array(members)[index] == workers), index, -1)
        settings = np.flatnonzero(row >= 0)
        place = np.full(len(workers), -1)
        place[settings] = np.arange(len(settings))
        exchanges = _joined([sent.get(count, []) for count in members], row[settings])
        traffics.append(Traffic(place, exchanges, calls_by_step(exchanges, steps) if exchanges else []))
    return traffics


def distinct(counts: Indices) -> list[int]:
    """Return the distinct counts, in order.

    ``np.unique`` would import masked arrays, which takes as long as a projection.
    """
    return sorted(set(counts.tolist()))


def state_numbers(
    method: MethodBase, tensors: Sequence[TensorShape], workers: Indices, mask: NDArray[np.bool_]
) -> KeptNumbers:
    """Return the numbers that a method keeps in each setting; in settings outside ``mask`` they are arbitrary."""
    counts = distinct(workers[mask])

    def per_setting(ask: Callable[[int], int]) -> IntOrArray:
        by_count = _by_count(counts, method, ask)
        if len(set(by_count.values())) <= 1:
            return next(iter(by_count.values()), 0)
        column = np.zeros(len(workers), dtype=np.int64)
        for count, number in by_count.items():
            column[workers == count] = number
        return column

    errors = per_setting(lambda p: method.error_feedback_elements(tensors, p))
    return KeptNumbers(per_setting(lambda p: method.kept_elements(tensors, p)) - errors, errors)


def _by_count(counts: Sequence[int], method: MethodBase, ask: Callable[[int], Any]) -> dict[int, Any]:
    """Return the answer for each number of workers; if it is the same for all, ask only for the first and the last."""
    if len(counts) > 2 and method.same_for_any_group and (answer := ask(counts[0])) == ask(counts[-1]):
        return dict.fromkeys(counts, answer)
    return {count: ask(count) for count in counts}


_names = [field.name for field in dataclasses.fields(Exchange) if field.name not in SIZES]


def _structure(exchanges: Sequence[Exchange]) -> tuple[Any, ...]:
    """Return the key that determines when calls are due, and which calls join."""
    return tuple(tuple(getattr(exchange, name) for name in _names) for exchange in exchanges)


def _joined(alike: Sequence[list[Exchange]], row: Indices) -> list[Exchange]:
    """Return exchanges of several numbers of workers as one list, with a size for each setting if sizes differ."""
    exchanges = []
    for several in zip(*alike, strict=True):
        sizes: dict[str, Any] = {}
        for name in SIZES:
            values = [getattr(exchange, name) for exchange in several]
            if any(value != values[0] for value in values):
                sizes[name] = np.array(values, dtype=np.float64)[row]
        exchanges.append(dataclasses.replace(several[0], **sizes) if sizes else several[0])
    return exchanges
