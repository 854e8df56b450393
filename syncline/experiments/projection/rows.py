"""Numbers of some of a projection's settings: what is an array has them along its first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime
from syncline.costmodel.arrays import Indices
from syncline.experiments.bounds import Factors


def factors_of(factors: Factors, rows: Indices) -> Factors:
    """Those of some settings, where communication has one for each."""
    of = factors.communication
    return factors._replace(communication=of[rows] if isinstance(of, np.ndarray) and np.ndim(of) == 2 else of)


def axes_of(network: Network) -> int:
    """Of the arrays of what is priced there."""
    return max([1, *map(np.ndim, network.arrays.values())]) if isinstance(network, Link) else 1


def along_rows(values: Any, rows: Indices, ndim: int) -> Any:
    """A number, or those of the rows of an array, along the first of so many axes."""
    return values[rows].reshape(-1, *(1,) * (ndim - 1)) if isinstance(values, np.ndarray) else values


def links_of_rows(network: Network, rows: Indices) -> Network:
    """The links of some settings, where there is one for each."""
    if not isinstance(network, Link):
        return network
    return network.with_numbers({name: value[rows] for name, value in network.arrays.items() if len(value) > 1})


def joined_rows(parts: Sequence[tuple[Indices, StepTime]], count: int, ndim: int) -> StepTime:
    """One for all settings; nothing where a method is left out."""
    names = [field.name for field in fields(StepTime)]
    told: dict[str, NDArray[np.float64]] = {}
    for name in names:
        pieces = [(rows, np.asarray(getattr(step, name), dtype=np.float64)) for rows, step in parts]
        shape = np.broadcast_shapes((1,) * (ndim - 1), *(piece.shape[1:] for _, piece in pieces))
        told[name] = np.zeros((count, *shape))
        for rows, piece in pieces:
            told[name][rows] = piece
    return StepTime(**told)
