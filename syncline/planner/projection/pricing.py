"""Arrays of some of a projection's settings, which lie along the first axis.

Costs of the exchanges of every step, cached, because methods of one layout and similar networks share them.

Cost of a collective without a closed form: its simulation, which is imported when a projection first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import (
    Exchange,
    Link,
    Network,
    StepTime,
)
from syncline.costmodel.collectives.prices import CollectivePrices
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, calls_by_step
from syncline.costmodel.traffic.overlap import Bucket
from syncline.costmodel.traffic.step_time import PricedCall, priced_step
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.registry import lazy_function
from syncline.specs import ProjectSpec

A = TypeVar("A")

Known = dict[Any, CollectivePrices]
"""A cache of priced collectives on one network, for all methods that send the same."""


class PricedSettings(NamedTuple):
    """Some settings of a plan on a network, with all that the prices of their calls share.

    Attributes:
        settings: index of each setting in the plan.
        place: index of each setting in the arrays of its traffic.
        network: the network, or a link whose fields are arrays.
        ndim: number of axes of the prices, of `axes_of`.
        cache: the calls that are priced already.
        factors: factors of computing and of communication for these settings.
    """

    settings: Indices
    place: Indices
    network: Network
    ndim: int
    cache: Known
    factors: Factors = AS_PREDICTED

    def along(self, values: Any) -> Any:
        """Return a number, or the values of these settings from an array of all settings of the plan."""
        return along_rows(values, self.settings, self.ndim)

    @property
    def slower(self) -> Any:
        """Return the factor of computing, a number or along these settings."""
        return along_rows(self.factors.computing, np.arange(len(self.settings)), self.ndim)

    def of_traffic(self, values: Any) -> Any:
        """Return a number, or the values of these settings from an array of their traffic."""
        return along_rows(values, self.place, self.ndim)


def once_each(specs: Sequence[ProjectSpec], value_of: Callable[[ProjectSpec], A]) -> list[A]:
    """Return a value for each spec, computed once for specs of the same model, computing and batch."""
    cache: dict[tuple[int, int, int], A] = {}
    values = []
    for spec in specs:
        key = id(spec.model), id(spec.compute), spec.worker_tokens
        if key not in cache:
            cache[key] = value_of(spec)
        values.append(cache[key])
    return values


def of_rows(factor: Any, rows: Indices | list[int], count: int, ndim: int) -> Any:
    """Return the factor of some of ``count`` settings, if there is one for each along the first of ``ndim`` axes."""
    has_each = isinstance(factor, np.ndarray) and factor.ndim == ndim and len(factor) == count
    return factor[rows] if has_each else factor


def axes_of(network: Network) -> int:
    """Return the number of axes of arrays that are priced on a network."""
    return max([1, *map(np.ndim, network.arrays.values())]) if isinstance(network, Link) else 1


def along_rows(values: Any, rows: Indices, ndim: int) -> Any:
    """Return a number, or the rows of an array, along the first of ``ndim`` axes."""
    return values[rows].reshape(-1, *(1,) * (ndim - 1)) if isinstance(values, np.ndarray) else values


def links_of_rows(network: Network, rows: Indices) -> Network:
    """Return the links of some settings, if there is a link for each setting."""
    if not isinstance(network, Link):
        return network
    return network.with_numbers(
        {name: value[rows] for name, value in network.arrays.items() if len(value) > 1}, same_links=True
    )


def joined_rows(parts: Sequence[tuple[Indices, StepTime]], count: int, ndim: int) -> StepTime:
    """Return the step times of all settings from those of parts; settings without the method have 0."""
    names = [field.name for field in fields(StepTime)]
    columns: dict[str, NDArray[np.float64]] = {}
    for name in names:
        pieces = [(rows, np.asarray(getattr(step, name), dtype=np.float64)) for rows, step in parts]
        shape = np.broadcast_shapes((1,) * (ndim - 1), *(piece.shape[1:] for _, piece in pieces))
        columns[name] = np.zeros((count, *shape))
        for rows, piece in pieces:
            columns[name][rows] = piece
    return StepTime(**columns)


class StepTimeCache:
    """A cache of step times with exchanges in every step, by the costs of their calls, whatever the network.

    Args:
        steps: T, the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._sent: dict[Any, tuple[Sequence[Exchange], list[CallPattern], list[Call]]] = {}
        self._known: dict[Any, StepTime] = {}

    def step_time(
        self,
        buckets: tuple[Bucket, ...],
        step_s: FloatOrArray,
        exchanges: Sequence[Exchange],
        timed: Callable[[Call], list[PricedCall]],
        trigger_s: FloatOrArray = 0.0,
        optimizer_s: FloatOrArray = 0.0,
    ) -> StepTime:
        """Return the step time that `priced_step` gives, from the cache if possible.

        Args:
            buckets: buckets in which gradients travel.
            step_s: seconds of computing in a step.
            exchanges: exchanges of every step.
            timed: prices a call, equally for calls with the same `cost_key`.
            trigger_s: see `syncline.costmodel.traffic.step_time.mean_step`.
            optimizer_s: likewise.
        """
        sent = buckets, *map(id, exchanges)  # the cache keeps the exchanges, so that their ids stay unique
        if sent not in self._sent:
            patterns = calls_by_step(exchanges, self.steps)
            calls = {cost_key(call): call for pattern in patterns for call in pattern.calls}
            self._sent[sent] = exchanges, patterns, list(calls.values())
        _, patterns, different = self._sent[sent]
        parts = [part for call in different for part in timed(call)]
        if any(part.after_idling is not None for part in parts):
            return priced_step(step_s, exchanges, patterns, self.steps, timed, trigger_s, optimizer_s)
        costs = (number for part in parts for number in (part.cost_s, part.encode_s))
        numbers = [step_s, trigger_s, optimizer_s, *costs]
        key = sent, *(np.asarray(number, dtype=np.float64).tobytes() for number in numbers)
        if key not in self._known:
            self._known[key] = priced_step(step_s, exchanges, patterns, self.steps, timed, trigger_s, optimizer_s)
        return self._known[key]


def cost_key(call: Call) -> Any:
    """Return the key of a call that determines its cost, at whatever step it is due."""
    sizes = (call.payload_bytes, call.encoded_bytes)
    return (
        call.collective,
        call.group,
        *(size.tobytes() if isinstance(size, np.ndarray) else size for size in sizes),
    )


simulated_s = lazy_function("syncline.sim.clocks.single_collective:simulated_s")
"""Return the seconds of a collective and the evaluator, see `syncline.sim.clocks.single_collective.simulated_s`."""
