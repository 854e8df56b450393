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

    If there are more positions than ranks, those with the slowest lines come last.

    Args:
        network: the network.
        ranks: number of ranks.
        nbytes: n, bytes of a message.
    """
    if not isinstance(network, Matrix):
        return np.arange(ranks)
    place = np.array(network.ranks)
    seconds = _line_seconds(network, nbytes)
    counts = np.bincount(place, minlength=len(seconds))
    for _ in range(network.workers - ranks):  # leave out a worker of the place with the slowest lines to the others
        among = counts - np.eye(len(counts), dtype=np.int64)
        counts[np.argmax(np.where(counts > 0, (among * seconds).sum(axis=1), -1.0))] -= 1
    order = np.argsort(np.argsort(place_path(network, nbytes))[place], kind="stable")
    used = np.zeros(network.workers, dtype=bool)
    for number, count in enumerate(counts.tolist()):
        used[np.flatnonzero(place == number)[:count]] = True
    return np.concatenate([order[used[order]], order[~used[order]]])


def _line_seconds(network: Matrix, nbytes: float) -> NDArray[np.float64]:
    """Return the seconds of n bytes from each place to each and back, ``(S, S)``; 0 where there is no line."""
    one_way_s = np.array(
        [
            [0.0 if line is None else float(line.latency_s + nbytes / line.goodput_bytes_per_s) for line in row]
            for row in network.lines
        ]
    )
    return one_way_s + one_way_s.T


def place_path(network: Matrix, nbytes: float) -> list[int]:
    """Return all places in an order with fast lines between neighbours.

    Each next place goes where it lengthens the path least: a line is as long as n bytes take on it in both directions.
    """
    seconds = _line_seconds(network, nbytes)
    path = [0]
    for place in range(1, len(seconds)):
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
