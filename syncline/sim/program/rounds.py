"""The rounds of a collective, with the senders and receivers of each: one definition for lockstep and for events.

Under the eager rule **a worker sends its message of a round as soon as it has received all its messages of earlier
rounds and its port and the receiver's port are free**. No worker waits for a receiver's program. So a homogeneous group
that starts together takes the closed form's time, with every algorithm and number of workers.

In a direct exchange worker i sends to worker i + 1 + r in round r: first each owner's part, then the owner's sum. A
worker's messages of the first half leave at once. An owner's messages of the second half leave once the owner has
received all messages of the first half.

Source of the collectives by places: `syncline.costmodel.collectives.placed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, RankArray, Round, RoundTable
from syncline.costmodel.collectives.algorithms.base import reversed_rounds
from syncline.costmodel.collectives.algorithms.exchanges import ring_rounds
from syncline.costmodel.collectives.algorithms.trees import broadcast_rounds
from syncline.costmodel.collectives.cost import wire_bytes
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, Inner, all_sizes, inner_sizes, level_parts
from syncline.costmodel.collectives.placed import DirectAlgorithm, Owners, PlacedAlgorithm
from syncline.costmodel.collectives.table import TABLE, algorithm_name, is_gloo, is_nccl, nccl_on
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.costmodel.network.places import Places, place_of, places_in_order, places_on
from syncline.costmodel.network.software_costs import NCCL_DEFAULT, HivemindCosts, NcclCosts
from syncline.costmodel.numerics.arrays import bounded_cache
from syncline.sim.program.library_rounds import GLOO_ROUNDS, nccl_rounds

ROUND_BYTES, ARRAY_BYTES = 600.0, 100.0
"""Approximate memory in bytes of a round of a table, as objects, and of an array besides its numbers."""


def rounds_bytes(all_rounds: Iterable[Round]) -> float:
    """Return the approximate memory of rounds in bytes; arrays that several rounds share count once."""
    if isinstance(all_rounds, RoundTable):
        message_bytes = 16.0  # a sender and a receiver
        return ROUND_BYTES * len(all_rounds) + message_bytes * len(all_rounds.senders)
    return sum(ARRAY_BYTES + np.asarray(field).nbytes for field in _distinct_fields(all_rounds))


def _distinct_fields(all_rounds: Iterable[Round]) -> Iterable[Any]:
    """Return the senders, receivers and bytes of rounds; an object that several rounds share appears once."""
    distinct_rounds = {id(round_): round_ for round_ in all_rounds}.values()
    return {id(field): field for round_ in distinct_rounds for field in round_}.values()


def _read_only(all_rounds: Iterable[Round]) -> Sequence[Round]:
    """Return the same rounds as a sequence with read-only arrays, so that callers can share them."""
    if isinstance(all_rounds, RoundTable):
        return all_rounds
    round_tuple = tuple(all_rounds)
    for field in _distinct_fields(round_tuple):
        if isinstance(field, np.ndarray):
            field.setflags(write=False)
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

    The rounds of an algorithm are in its file in `syncline.costmodel.collectives.algorithms`, those of gloo and NCCL in
    `syncline.sim.program.library_rounds`, those of a direct exchange and of places below. The rounds of a hierarchy
    follow `syncline.costmodel.collectives.hierarchical`: in ``leader`` each node reduces along a binomial
    tree to its first worker, these workers all-reduce, and each of these workers broadcasts down its tree.

    Args:
        kind: the collective, one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        nbytes: bytes with the meaning that the collective's closed form gives them.
        algorithm: one of ``ALGORITHMS[kind]`` or ``HIERARCHICAL[kind]`` in `syncline.costmodel.collectives.table`; by
            default the first of ``ALGORITHMS[kind]``.
        group: for hierarchical algorithms, the number of consecutive workers that form a node, or the group sizes of
            all levels but the outermost.
        nccl: costs of NCCL with the sizes of its pieces; its defaults if None.
        places: places of the workers, for the algorithms that follow places; if None, every worker is a place.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, or workers that do not fill nodes.

    Source: as `syncline.costmodel.collectives.algorithms`.
    """
    name = algorithm_name(kind, algorithm)
    wire_bytes(kind, workers, nbytes, name, group)  # raises an error for arguments that cannot be used
    entry = TABLE[kind].get(name)
    all_rounds: Iterable[Round]
    if name in HIERARCHIES[kind]:
        hierarchical = _hierarchical_all_reduce if kind == "all_reduce" else partial(_level_by_level, kind)
        all_rounds = hierarchical(name, workers, nbytes, all_sizes(workers, group))
    elif isinstance(entry, DirectAlgorithm):
        all_rounds = direct_rounds(workers, float(nbytes), entry.owners, places)
    elif isinstance(entry, PlacedAlgorithm) and entry.is_ring:
        all_rounds = ordered_ring_rounds(kind, float(nbytes), places or places_in_order(workers))
    elif isinstance(entry, PlacedAlgorithm):
        all_rounds = by_places_rounds(float(nbytes), places or places_in_order(workers))
    elif is_gloo(kind, name):
        all_rounds = GLOO_ROUNDS[kind](workers, float(nbytes))
    elif is_nccl(kind, name):
        all_rounds = nccl_rounds(kind, workers, nbytes=float(nbytes), costs=nccl or NCCL_DEFAULT)
    else:
        all_rounds = FLAT[kind][name].rounds(workers, nbytes)
    return _read_only(all_rounds)


def rounds_on(
    kind: str, workers: int, nbytes: float, network: Network | Topology | Sequence[Link], algorithm: str | None = None
) -> Sequence[Round]:
    """Return the rounds of a collective on a network; hierarchical algorithms group workers by node, site or place."""
    nccl_costs = nccl_on(network) if is_nccl(kind, algorithm) else None  # type: ignore[arg-type]
    places = places_for(kind, algorithm, network, workers)  # type: ignore[arg-type]
    return rounds(kind, workers, nbytes, algorithm, group=inner_sizes(network, workers), nccl=nccl_costs, places=places)


def places_for(kind: str, algorithm: str | None, network: Network | Topology, workers: int) -> Places | None:
    """Return the places of the workers on a network; None if it has none or the algorithm's messages ignore places."""
    entry = TABLE.get(kind, {}).get(algorithm or "")
    has_place_owners = isinstance(entry, DirectAlgorithm) and entry.owners != "workers"
    follows_places = has_place_owners or isinstance(entry, PlacedAlgorithm)
    has_places = place_of(network, workers) is not None
    return places_on(network, workers) if follows_places and has_places else None


def in_groups(group_rounds: Iterable[Round], first_ranks: RankArray, stride: int) -> Iterator[Round]:
    """Yield the rounds in which several groups run one collective at once; ``group_rounds`` are the rounds of a group.

    Worker i of the group whose first rank is f has the rank ``f + stride i``.
    """
    joined_rounds: dict[int, Round] = {}  # rounds of all groups, by the id of the given round
    for round_ in tuple(group_rounds):  # a tuple keeps all rounds, so that no two get the same id
        if id(round_) not in joined_rounds:
            sizes = round_.nbytes
            if np.ndim(sizes) > 0:  # a size for each message
                sizes = np.tile(sizes, len(first_ranks))
            senders = (first_ranks[:, None] + stride * round_.senders).ravel()
            receivers = (first_ranks[:, None] + stride * round_.receivers).ravel()
            joined_rounds[id(round_)] = Round(senders, receivers, sizes)
        yield joined_rounds[id(round_)]


def _first_ranks(workers: int, size: int, stride: int, leaders: bool) -> RankArray:
    """Return the first rank of each group of ``size`` workers that are ``stride`` ranks apart.

    ``leaders``: whether only the first of every ``stride`` ranks, the leaders of the level below, form groups.
    """
    block_starts = size * stride * np.arange(workers // (size * stride))
    first_of_groups = np.arange(1 if leaders else stride)  # in each block of ``size * stride`` ranks
    return (block_starts[:, None] + first_of_groups).ravel()


def _level_by_level(kind: str, name: str, workers: int, nbytes: float, sizes: tuple[int, ...]) -> Iterator[Round]:
    """Yield the rounds of a hierarchical collective, one level after another.

    ``name`` is the algorithm's; ``sizes`` are the group sizes of the levels, the innermost first.
    """
    hierarchy = HIERARCHIES[kind][name]  # its algorithm between groups, and whether groups have leaders
    for level, part_bytes in level_parts(kind, sizes, nbytes):
        stride = math.prod(sizes[:level])
        first_ranks = _first_ranks(workers, size=sizes[level], stride=stride, leaders=hierarchy.leaders)
        group_rounds = FLAT[kind][hierarchy.between].rounds(sizes[level], float(part_bytes))
        yield from in_groups(group_rounds, first_ranks, stride)


def _hierarchical_all_reduce(name: str, workers: int, nbytes: float, sizes: tuple[int, ...]) -> Iterable[Round]:
    """Return the rounds that reduce up the inner levels, all-reduce at the outermost level, and distribute down again.

    With leaders, each group reduces along a tree to its first worker, which broadcasts the result down the tree.
    Otherwise each group reduce-scatters and all-gathers around a ring. Arguments are as in `_level_by_level`.
    """
    hierarchy = HIERARCHIES["all_reduce"][name]  # its algorithm between groups, and whether groups have leaders
    *sizes_of_inner_levels, outer_size = sizes
    part_bytes, stride = nbytes, 1  # bytes that a worker reduces, and ranks between workers of a group
    up: list[Round] = []
    down: list[Round] = []
    for size in sizes_of_inner_levels:
        first_ranks = _first_ranks(workers, size, stride=stride, leaders=hierarchy.leaders)
        if hierarchy.leaders:
            down_rounds = tuple(broadcast_rounds(size, part_bytes))
            up_rounds = tuple(reversed_rounds(down_rounds))
        else:
            part_bytes /= size
            up_rounds = down_rounds = tuple(ring_rounds(size, part_bytes))
        up += in_groups(up_rounds, first_ranks, stride)
        down = [*in_groups(down_rounds, first_ranks, stride), *down]
        stride *= size
    outer_rounds = FLAT["all_reduce"][hierarchy.between].rounds(outer_size, part_bytes)
    outer_first_ranks = np.arange(1 if hierarchy.leaders else stride)  # a group of leaders, or one for each part
    return *up, *in_groups(outer_rounds, outer_first_ranks, stride), *down


def sent_bytes(all_rounds: Iterable[Round], workers: int) -> Floats:
    """Return the bytes that each worker sends in these rounds, ``(workers,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in all_rounds:
        total[senders] += nbytes
    return total


def ordered_ring_rounds(kind: str, nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of a collective around a ring of all workers, in which each place follows the place before."""
    order = np.array(places.order)
    workers = len(order)
    if workers < 2:  # nobody to send to
        return ()
    block_bytes = nbytes if kind == "all_gather" else nbytes / workers  # a worker begins with one block, or with all
    return _ring(order.reshape(1, workers), block_bytes, laps=2 if kind == "all_reduce" else 1)


def by_places_rounds(nbytes: float, places: Places) -> Sequence[Round]:
    """Return the rounds of an all-reduce inside the places, across them, and inside again.

    The tensor of ``nbytes`` bytes has as many parts as the smallest place has workers. In each place, every part has an
    owner, which collects the part from the place's workers, reduces it in a ring with the part's owners in the other
    places, and returns it to the workers.
    """
    num_parts, num_places = min(map(len, places.ranks)), len(places.ranks)
    to_owners = list(_to_owners(places, num_parts, nbytes / num_parts))
    between_owners: Sequence[Round] = ()
    if num_places > 1:
        owners = np.array([place[:num_parts] for place in places.ranks]).T  # (parts, places)
        between_owners = _ring(owners, nbytes / (num_parts * num_places), laps=2)
    from_owners = [Round(senders=receivers, receivers=senders, nbytes=size) for senders, receivers, size in to_owners]
    return *to_owners, *between_owners, *from_owners


def _ring(orders: RankArray, block_bytes: float, laps: int) -> Sequence[Round]:
    """Return the rounds of rings that run at once: in a round every worker sends a block to the next on its ring.

    Args:
        orders: ranks of each ring in order, ``(rings, workers of a ring)``.
        laps: number of times that each block goes around its ring.
    """
    senders, receivers = orders.ravel(), np.roll(orders, -1, axis=1).ravel()
    ascending = np.argsort(senders)  # lockstep is faster with sorted senders
    ring_round = Round(senders[ascending], receivers[ascending], float(block_bytes))
    rounds_of_lap = orders.shape[1] - 1
    return (ring_round,) * (laps * rounds_of_lap)


def _to_owners(places: Places, parts: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds in which every worker sends each owner of its place, except itself, ``nbytes`` bytes.

    The first ``parts`` workers of a place are the owners. In round r the i-th worker of a place sends to the worker
    i + 1 + r if that is an owner.
    """
    for round_number in range(max(map(len, places.ranks)) - 1):
        pairs = []
        for place in places.ranks:
            if round_number >= len(place) - 1:  # all workers of this place have sent to all others
                continue
            for index, sender in enumerate(place):
                receiver_index = (index + 1 + round_number) % len(place)
                if receiver_index < parts:
                    pairs.append((sender, place[receiver_index]))
        senders, receivers = np.array(sorted(pairs)).T
        yield Round(senders, receivers, float(nbytes))


def direct_rounds(workers: int, nbytes: float, owners: Owners, places: Places | None = None) -> Sequence[Round]:
    """Return the rounds of an all-reduce by direct exchange.

    Args:
        owners: the workers that sum one part of the tensor each: all, the first of each place, or the server.
        places: places of the workers; if None, every worker is a place, and the first worker is the server.
    """
    owner_ranks: Sequence[int] = range(workers)
    if owners == "server":
        owner_ranks = (0 if places is None else places.server,)
    elif owners == "places" and places is not None:
        owner_ranks = places.owners
    worker, is_owner = np.arange(workers), np.zeros(workers, dtype=bool)
    is_owner[list(owner_ranks)] = True
    part_bytes = nbytes / len(owner_ranks)
    first_half, second_half = [], []  # parts to their owners, and sums from the owners
    for round_number in range(workers - 1):
        receiver = (worker + 1 + round_number) % workers
        to_owner = is_owner[receiver]
        first_half.append(Round(worker[to_owner], receiver[to_owner], part_bytes))
        second_half.append(Round(worker[is_owner], receiver[is_owner], part_bytes))
    return *first_half, *second_half


def direct_rounds_ahead(workers: int) -> list[int]:
    """Return, for each round of a direct exchange, how many rounds a rank may be ahead of the messages it received."""
    # A round waits for the rounds of the half before alone. So in round r of its half, from 1, a rank is r ahead.
    return 2 * list(range(1, workers))


def software_s(network: Network | Topology, workers: int, nbytes: float) -> float:
    """Return the seconds of hivemind's software before the messages of an averaging; 0 if the network has no costs."""
    costs: HivemindCosts | None = getattr(network, "hivemind", None)
    return 0.0 if costs is None else costs.before_s(workers, nbytes)
