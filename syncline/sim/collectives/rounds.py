"""The rounds of a collective, with the senders and receivers of each: one definition for every evaluator.

Under the eager rule **a worker sends its message of a round as soon as all messages of earlier rounds to it have
arrived and its port and the receiver's are free**. No worker waits for a receiver's program. So a homogeneous group
that starts together takes the closed form's time, with every algorithm and number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, RankArray, Round, RoundTable
from syncline.costmodel.collectives.algorithms.base import reversed_rounds
from syncline.costmodel.collectives.algorithms.binomial_tree import broadcast_rounds
from syncline.costmodel.collectives.algorithms.ring import ring_rounds
from syncline.costmodel.collectives.by_places import PlacedAlgorithm
from syncline.costmodel.collectives.cost import wire_bytes
from syncline.costmodel.collectives.direct import DirectAlgorithm
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, Inner, all_sizes, inner_sizes, level_parts
from syncline.costmodel.collectives.table import TABLE, algorithm_name, is_gloo, is_nccl, nccl_on
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.nccl_costs import DEFAULT, NcclCosts
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.places import Places, place_of, places_in_order, places_on
from syncline.costmodel.network.topology import Network, Topology
from syncline.costmodel.numerics.bounded_cache import bounded_cache
from syncline.sim.collectives.by_places import by_places_rounds, ordered_ring_rounds
from syncline.sim.collectives.direct import direct_rounds
from syncline.sim.collectives.gloo import gloo_rounds
from syncline.sim.collectives.nccl import nccl_rounds


def rounds_bytes(schedule: Iterable[Round]) -> float:
    """Return the approximate memory of rounds in bytes; arrays that several rounds share count once."""
    if isinstance(schedule, RoundTable):
        return 600.0 * len(schedule) + 16.0 * len(schedule.senders)
    parts = {id(part): part for round_ in {id(round_): round_ for round_ in schedule}.values() for part in round_}
    return sum(100.0 + np.asarray(part).nbytes for part in parts.values())


def _read_only(rounds_: Iterable[Round]) -> Sequence[Round]:
    """Return the same rounds as a sequence with read-only arrays, which many callers may share."""
    if isinstance(rounds_, RoundTable):
        return rounds_
    round_tuple = tuple(rounds_)
    for round_ in {id(round_): round_ for round_ in round_tuple}.values():
        for part in round_:
            if isinstance(part, np.ndarray):
                part.setflags(write=False)
    return round_tuple


@bounded_cache(128e6, rounds_bytes)
def rounds(
    kind: str,
    workers: int,
    nbytes: float,
    algorithm: str | None = None,
    group: Inner = None,
    nccl: NcclCosts | None = None,
    places: Places | None = None,
) -> Sequence[Round]:
    """Return the rounds of a collective.

    The rounds of an algorithm are in its file in `syncline.costmodel.collectives.algorithms`; those of gloo, of NCCL,
    of a direct exchange and of places are in modules of these names in `syncline.sim.collectives`. Those of a hierarchy
    follow `syncline.costmodel.collectives.hierarchical`: in ``leader`` each node reduces along a binomial tree to its
    first worker, these workers all-reduce, and each of them broadcasts down its tree.

    Args:
        kind: the collective, one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        workers: P, number of workers.
        nbytes: n, bytes with the meaning that the collective's closed form gives them.
        algorithm: one of ``ALGORITHMS[kind]`` or ``HIERARCHICAL[kind]`` in `syncline.costmodel.collectives.table`; by
            default the first of ``ALGORITHMS[kind]``.
        group: number of workers of a node, which are consecutive, or the sizes of all levels but the outermost; only
            for hierarchical algorithms.
        nccl: sizes of NCCL's pieces; its defaults if None.
        places: places of the workers, for the algorithms that follow them; without them every worker is one.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, or workers that do not fill nodes.

    Source: as `syncline.costmodel.collectives.algorithms`.
    """
    name = algorithm_name(kind, algorithm)
    wire_bytes(kind, workers, nbytes, name, group)  # raises an error for arguments that cannot be used
    if name in HIERARCHIES[kind]:
        by_level = _hierarchical_all_reduce if kind == "all_reduce" else partial(_level_by_level, kind)
        return _read_only(by_level(name, workers, nbytes, all_sizes(workers, group)))
    entry = TABLE[kind][name]
    if isinstance(entry, DirectAlgorithm):
        return _read_only(direct_rounds(workers, float(nbytes), entry.owners, places))
    if isinstance(entry, PlacedAlgorithm):
        return _read_only(_placed_rounds(kind, entry, float(nbytes), places or places_in_order(workers)))
    if is_gloo(kind, name):
        return _read_only(gloo_rounds(kind, workers, float(nbytes)))
    if is_nccl(kind, name):
        return _read_only(nccl_rounds(kind, workers, float(nbytes), nccl or DEFAULT))
    return _read_only(FLAT[kind][name].rounds(workers, nbytes))


def rounds_on(
    kind: str, workers: int, nbytes: float, network: Network | Topology | Sequence[Link], algorithm: str | None = None
) -> Sequence[Round]:
    """Return the rounds of a collective on a network, whose nodes, sites or places are the groups of the workers."""
    cut = nccl_on(network) if is_nccl(kind, algorithm) else None  # type: ignore[arg-type]
    placed = places_for(kind, algorithm, network, workers)  # type: ignore[arg-type]
    return rounds(kind, workers, nbytes, algorithm, inner_sizes(network, workers), cut, placed)


def places_for(kind: str, algorithm: str | None, on: Network | Topology, workers: int) -> Places | None:
    """Return the places of the workers if the messages of an algorithm depend on them."""
    entry = TABLE.get(kind, {}).get(algorithm or "")
    follows = isinstance(entry, PlacedAlgorithm) or (isinstance(entry, DirectAlgorithm) and entry.owners != "workers")
    return places_on(on, workers) if follows and place_of(on, workers) is not None else None


def _placed_rounds(kind: str, entry: PlacedAlgorithm, nbytes: float, places: Places) -> Sequence[Round]:
    return ordered_ring_rounds(kind, nbytes, places) if entry.is_ring else by_places_rounds(nbytes, places)


def _at_level(level_rounds: Iterable[Round], firsts: RankArray, stride: int) -> Iterator[Round]:
    """Yield the rounds of several groups at once: a group has every ``stride``-th rank from its first one."""
    built: dict[int, Round] = {}
    for round_ in tuple(level_rounds):  # a ring's rounds are one object, and stay so
        if id(round_) not in built:
            sizes = round_.nbytes if np.ndim(round_.nbytes) == 0 else np.tile(round_.nbytes, len(firsts))
            senders, receivers = ((firsts[:, None] + stride * ends).ravel() for ends in round_[:2])
            built[id(round_)] = Round(senders, receivers, sizes)
        yield built[id(round_)]


def _first_ranks(workers: int, size: int, stride: int, leaders: bool) -> RankArray:
    """Return the first rank of each group of ``size`` peers ``stride`` ranks apart, or of each group of leaders."""
    units = size * stride * np.arange(workers // (size * stride))
    return units if leaders else (units[:, None] + np.arange(stride)).ravel()


def _level_by_level(kind: str, name: str, workers: int, nbytes: float, sizes: tuple[int, ...]) -> Iterator[Round]:
    """Yield the rounds of one level after another."""
    hierarchy = HIERARCHIES[kind][name]
    for number, part_bytes in level_parts(kind, sizes, nbytes):
        stride = math.prod(sizes[:number])
        firsts = _first_ranks(workers, sizes[number], stride, hierarchy.leaders)
        yield from _at_level(FLAT[kind][hierarchy.between].rounds(sizes[number], float(part_bytes)), firsts, stride)


def _hierarchical_all_reduce(name: str, workers: int, nbytes: float, sizes: tuple[int, ...]) -> Iterable[Round]:
    """Return the rounds up the inner levels, those of the all-reduce at the outermost level, and those down again."""
    hierarchy, (*inner, last) = HIERARCHIES["all_reduce"][name], sizes
    leaders, part, stride = hierarchy.leaders, nbytes, 1
    up: list[Round] = []
    down: list[list[Round]] = []
    for size in inner:
        firsts = _first_ranks(workers, size, stride, leaders)
        part = part if leaders else part / size
        inside = tuple(broadcast_rounds(size, part)) if leaders else tuple(ring_rounds(size, part))
        up += _at_level(reversed_rounds(inside) if leaders else inside, firsts, stride)
        down.append(list(_at_level(inside, firsts, stride)))
        stride *= size
    among = FLAT["all_reduce"][hierarchy.between].rounds(last, part)
    between = _at_level(among, np.arange(1 if leaders else stride), stride)
    return *up, *between, *(round_ for level_rounds in down[::-1] for round_ in level_rounds)


def sent_bytes(schedule: Iterable[Round], workers: int) -> Floats:
    """Return the bytes that each worker sends in these rounds, ``(P,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in schedule:
        total[senders] += nbytes
    return total
