"""Placements by rule: the stages of a replica next to each other, or the replicas of a stage.

Positions are the workers of a network, from 0. On a matrix they are taken place by place, so that neighbours share a
place; places follow each other along the path with the fastest lines, as greedy insertion finds it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.topology import Ints, Network

STAGES_INSIDE, REPLICAS_INSIDE = "stages-inside", "replicas-inside"


def position_count(network: Network, ranks: int) -> int:
    """Return the number of positions on a network: all workers of a matrix's places, or one for each rank."""
    return network.workers if isinstance(network, Matrix) else ranks


def by_place(network: Network, ranks: int, nbytes: float) -> Ints:
    """Return the positions place by place, ``(N,)``, along a path of places between which n bytes are fast.

    Args:
        network: the network.
        ranks: number of ranks.
        nbytes: n, bytes of a message.
    """
    if not isinstance(network, Matrix):
        return np.arange(ranks)
    place = np.array(network.ranks)
    path = place_path(network, nbytes)
    return np.argsort(np.argsort(path)[place], kind="stable")


def place_path(network: Matrix, nbytes: float) -> list[int]:
    """Return all places in an order with fast lines between neighbours.

    Each next place goes where it lengthens the path least: a line is as long as n bytes take on it in both directions.
    """
    count = len(network.places)
    seconds: NDArray[np.float64] = np.zeros((count, count))
    for i, row in enumerate(network.lines):
        for j, line in enumerate(row):
            if i != j and line is not None:
                seconds[i, j] = line.latency_s + nbytes / line.goodput_bytes_per_s
    seconds = seconds + seconds.T
    path = [0]
    for place in range(1, count):
        lengths = []
        for at in range(len(path) + 1):
            before, after = path[at - 1 : at], path[at : at + 1]
            added = sum(seconds[place, near] for near in (*before, *after))
            lengths.append(added - (seconds[before[0], after[0]] if before and after else 0.0))
        path.insert(int(np.argmin(lengths)), place)
    return path


def ruled_positions(rule: str, ordered: Ints, stages: int, replicas: int) -> Ints:
    """Return the position of each rank r K + k by a rule, ``(D K,)``.

    Args:
        rule: ``stages-inside`` or ``replicas-inside``.
        ordered: positions, neighbours next to each other, ``(N,)``.
        stages: K.
        replicas: D.

    >>> [ruled_positions(rule, np.arange(4), 2, 2).tolist() for rule in (STAGES_INSIDE, REPLICAS_INSIDE)]
    [[0, 1, 2, 3], [0, 2, 1, 3]]
    """
    chosen = ordered[: stages * replicas]
    return chosen if rule == STAGES_INSIDE else chosen.reshape(stages, replicas).T.ravel()
