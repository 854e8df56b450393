"""Arrays of some of a projection's settings, which lie along the first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime
from syncline.costmodel.numerics.arrays import Indices
from syncline.planner.bounds import Factors


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
