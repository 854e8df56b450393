"""Placements by rule: the stages of a replica next to each other, or the replicas of a stage.

A *rule* is ``given`` (ranks lie where the network says), ``stages-inside`` (the workers of a replica are neighbours, so
that replicas average across places) or ``replicas-inside`` (the replicas of a stage are neighbours, so that stages send
across places). Positions are the workers of a network, from 0. On a matrix they are taken place by place, so that
neighbours share a place; places follow each other along a path with fast lines, which greedy insertion finds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.topology import Ints, Network

GIVEN, STAGES_INSIDE, REPLICAS_INSIDE = "given", "stages-inside", "replicas-inside"

MESSAGE_BYTES = 8 * 2**20
"""Size of a message by which a path of places is fast where no other size is known: that of an activation."""


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
        for gap in range(len(path) + 1):
            before, after = path[gap - 1 : gap], path[gap : gap + 1]
            added = sum(seconds[place, near] for near in (*before, *after))
            lengths.append(added - (seconds[before[0], after[0]] if before and after else 0.0))
        path.insert(int(np.argmin(lengths)), place)
    return path if path[0] <= path[-1] else path[::-1]


def ruled_positions(rule: str, ordered: Ints, stages: int, replicas: int, width: int = 1) -> Ints:
    """Return the position of each rank by a rule, ``(D K w,)``.

    Rank (r K + k) w + i is worker i of stage k of replica r.

    Args:
        rule: ``stages-inside`` or ``replicas-inside``.
        ordered: positions, neighbours next to each other, ``(N,)``.
        stages: K.
        replicas: D.
        width: w, workers of a stage, which are always neighbours.

    >>> [ruled_positions(rule, np.arange(4), 2, 2).tolist() for rule in (STAGES_INSIDE, REPLICAS_INSIDE)]
    [[0, 1, 2, 3], [0, 2, 1, 3]]
    """
    chosen = ordered[: stages * replicas * width]
    if rule == STAGES_INSIDE:
        return chosen
    return chosen.reshape(stages, replicas, width).swapaxes(0, 1).ravel()


def placed_network(network: Network, rule: str, layout: Layout, workers: int) -> Network:
    """Return a matrix with the ranks of P workers of a layout where a rule puts them; any other network as it is.

    Args:
        network: the network.
        rule: ``given``, ``stages-inside`` or ``replicas-inside``.
        layout: layout of a replica; ``stages-inside`` keeps its workers together.
        workers: P, a multiple of the replica's workers.
    """
    if rule == GIVEN or not isinstance(network, Matrix) or workers > network.workers:
        return network
    width = layout.workers // layout.pipeline
    ordered = by_place(network, workers, MESSAGE_BYTES)
    positions = ruled_positions(rule, ordered, layout.pipeline, workers // layout.workers, width)
    ranks = [network.ranks[position] for position in (*positions, *np.setdiff1d(ordered, positions))]
    return replace(network, ranks=tuple(ranks))


def placements_of(network: Network, layout: Layout, workers: int) -> tuple[str, ...]:
    """Return the rules that place the ranks of a layout differently on a network, ``given`` first."""
    rules: dict[Network, str] = {}
    for rule in (GIVEN, STAGES_INSIDE, REPLICAS_INSIDE):
        rules.setdefault(placed_network(network, rule, layout, workers), rule)
    return tuple(rules.values())
