"""Arrays of some of a projection's settings, which lie along the first axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime
from syncline.costmodel.collectives.closed_prices import CollectivePrices
from syncline.costmodel.numerics.arrays import Indices
from syncline.planner.bounds import AS_PREDICTED, Factors
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
        factors: factors of computing for all settings of the plan, and of communication for these settings.
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


def factors_of(factors: Factors, rows: Indices) -> Factors:
    """Return the factors of some settings, if communication has one for each setting."""
    communication = factors.communication
    return factors._replace(
        communication=communication[rows]
        if isinstance(communication, np.ndarray) and np.ndim(communication) == 2
        else communication
    )


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
