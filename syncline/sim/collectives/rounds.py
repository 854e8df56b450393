"""Who sends what to whom in a collective: its rounds, told once for every evaluator.

Under the eager rule **a worker sends its message of a round as soon as everything it was to receive in earlier rounds
has arrived and its port and the receiver's are free**. Nobody waits for a receiver's program. So a homogeneous group
that starts together takes the closed form's time, with every algorithm and number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import wire_bytes
from syncline.costmodel.collectives.gloo.times import segments
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, node_count, node_size
from syncline.costmodel.collectives.table import algorithm_name, is_gloo
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Network, Topology
from syncline.sim.collectives.double_tree import reduce_rounds
from syncline.sim.starts import Floats

RankArray = NDArray[np.integer[Any]]


class Round(NamedTuple):
    """Messages: ``senders[i]`` to ``receivers[i]``. No worker sends twice or receives twice in a round.

    Attributes:
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: of each message, one size or ``(M,)`` sizes.
    """

    senders: RankArray
    receivers: RankArray
    nbytes: float | Floats


@lru_cache(maxsize=256)
def rounds(
    kind: str, workers: int, nbytes: float, algorithm: str | None = None, group: int | None = None
) -> tuple[Round, ...]:
    """The rounds of a collective.

    RankArray count modulo P. Q is the largest power of two that is at most P; ``i ^ d`` is i with the binary digit d
    flipped.

    - Ring (all-reduce, all-gather, reduce-scatter): i to i + 1 in each round.
    - Recursive doubling (all-reduce): i with i ^ 1, then i ^ 2, i ^ 4, ..., all n bytes each time.
    - Rabenseifner (all-reduce): i with i ^ Q/2, then i ^ Q/4, ..., half of what is left to reduce each time; then the
      same backwards, twice as much each time. In these two, if P is no power of two, workers Q + i send all they have
      to workers i in a first round, and get the result in a last one: from i again in Rabenseifner's; in recursive
      doubling from Q - 1 - i, whom their part reaches in the last exchange.
    - Recursive doubling (all-gather): i with i ^ 1, then i ^ 2, ..., all it holds, if P is a power of two. Else i to
      i - 2^k in round k, the min(2^k, P - 2^k) blocks from its own on. Halving (reduce-scatter): the same backwards.
    - Pairwise (all-to-all): i to i + 1 + k in round k.
    - Binomial tree (broadcast from worker 0): who holds a range of workers sends to the first of its upper half, the
      larger if they differ, until each is told. Tree (all-reduce): up the same tree to worker 0, then down.
    - Double binary tree (all-reduce): half of the bytes up and down each of two trees; see
      `syncline.sim.collectives.double_tree`.
    - Naive server (all-reduce): each worker in turn to worker 0, then worker 0 to each. Efficient server: a scatter's
      messages backwards, each with the n bytes of every worker that it stands for; then a scatter and an all-gather by
      recursive doubling of n bytes.
    - Hierarchical (all-reduce): in each node of ``group`` workers a ring reduce-scatter; then an all-reduce of n/group
      among the workers of each local rank; then a ring all-gather. Leader: up a binomial tree to the first of each
      node, an all-reduce among these, down again.
    - All-reduce (reduce-scatter): the ring all-reduce.
    - Scatter, then all-gather (broadcast from worker 0): who has the blocks of a range of workers sends those of the
      upper half, the larger if they differ, to its first worker, until each has one block; then a ring.
    - What gloo runs: see `syncline.sim.events.gloo`.
    - Binomial tree (gather to worker 0): in step k, i to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i)
      blocks that i holds by then. At most one worker of a step, the last, holds fewer than 2^k; its message is a round
      of its own.

    Args:
        kind: one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.
        algorithm: one of ``ALGORITHMS[kind]`` there, the first unless given, or of ``HIERARCHICAL[kind]``.
        group: workers of a node, which consecutive workers make up; only for the latter.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, or workers that do not fill nodes.

    Source: as `syncline.costmodel.collectives.algorithms`.
    """
    name = algorithm_name(kind, algorithm)
    wire_bytes(kind, workers, nbytes, name, group)  # refuses what cannot be
    if name in HIERARCHIES:
        return tuple(_hierarchical(name, workers, nbytes, node_count(workers, group)))
    if is_gloo(kind, name):
        return tuple(_GLOO[kind](workers, float(nbytes)))
    return tuple(_ROUNDS[kind][name](workers, nbytes))


def rounds_on(
    kind: str, workers: int, nbytes: float, network: Network | Topology | Sequence[Link], algorithm: str | None = None
) -> tuple[Round, ...]:
    """The rounds of a collective on a network, whose nodes or sites are those of a hierarchical algorithm."""
    return rounds(kind, workers, nbytes, algorithm, node_size(network, workers))


def _power_of_two(workers: int) -> int:
    return 1 << (workers.bit_length() - 1)


def _backwards(of: Iterable[Round]) -> Iterator[Round]:
    for senders, receivers, nbytes in tuple(of)[::-1]:
        yield Round(receivers, senders, nbytes)


def _ring(workers: int, nbytes: float, laps: int = 1) -> Iterable[Round]:
    worker = np.arange(workers)
    return (Round(worker, (worker + 1) % workers, float(nbytes)),) * (laps * (workers - 1))


def _pairwise(workers: int, nbytes: float) -> Iterator[Round]:
    worker = np.arange(workers)
    for k in range(workers - 1):
        yield Round(worker, (worker + 1 + k) % workers, nbytes / workers)


def _doubling(power: int, nbytes: float, growth: int) -> Iterator[Round]:
    """Exchanges at distances 1, 2, 4, ... among a power of two of workers; what is sent grows from round to round."""
    worker = np.arange(power)
    for k in range(power.bit_length() - 1):
        yield Round(worker, worker ^ 2**k, float(nbytes * growth**k))


def _folded(workers: int, nbytes: float, among_power: Iterable[Round], back: RankArray) -> Iterator[Round]:
    """A round before, Q + i to i, and one after, ``back[i]`` to Q + i: the workers beyond a power of two take part."""
    beyond = np.arange(len(back), workers)
    if len(beyond):
        yield Round(beyond, beyond - len(back), float(nbytes))
    yield from among_power
    if len(beyond):
        yield Round(back[: len(beyond)], beyond, float(nbytes))


def _recursive_doubling(workers: int, nbytes: float) -> Iterator[Round]:
    power = _power_of_two(workers)
    mirror = np.arange(power)[::-1]  # every exchange is on the way from worker i to it
    return _folded(workers, nbytes, _doubling(power, nbytes, growth=1), mirror)


def _rabenseifner(workers: int, nbytes: float) -> Iterator[Round]:
    power = _power_of_two(workers)
    gathering = tuple(_doubling(power, nbytes / power, growth=2))
    return _folded(workers, nbytes, (*gathering[::-1], *gathering), np.arange(power))


def _tree(workers: int, nbytes: float) -> Iterable[Round]:
    down = tuple(_broadcast(workers, nbytes))
    return (*_backwards(down), *down)


def _gathering_all(workers: int, nbytes: float) -> Iterator[Round]:
    if workers == _power_of_two(workers):
        yield from _doubling(workers, nbytes, growth=2)
        return
    worker = np.arange(workers)
    for k in range(workers.bit_length()):
        yield Round(worker, (worker - 2**k) % workers, float(min(2**k, workers - 2**k) * nbytes))


def _halved(workers: int) -> Iterator[tuple[RankArray, RankArray, RankArray]]:
    """Ranges of workers, halved until they have length 1: firsts, firsts of the upper halves, and these' lengths."""
    ranges = [(0, workers)]
    while any(length > 1 for _, length in ranges):
        halved = [(first, first + length // 2, length - length // 2) for first, length in ranges if length > 1]
        senders, receivers, lengths = np.array(halved).T
        yield senders, receivers, lengths
        ranges = [
            part
            for first, length in ranges
            for part in ((first, length // 2), (first + length // 2, length - length // 2))
            if part[1]
        ]


def _broadcast(workers: int, nbytes: float) -> Iterator[Round]:
    for senders, receivers, _ in _halved(workers):
        yield Round(senders, receivers, float(nbytes))


def _scatter(workers: int, nbytes: float) -> Iterator[Round]:
    for senders, receivers, lengths in _halved(workers):
        yield Round(senders, receivers, lengths * np.float64(nbytes))


def _scatter_all_gather(workers: int, nbytes: float) -> Iterable[Round]:
    return (*_scatter(workers, nbytes / workers), *_ring(workers, nbytes / workers))


def _double_tree(workers: int, nbytes: float) -> Iterable[Round]:
    pairs = (np.array(each).T for each in reduce_rounds(workers))
    up = tuple(Round(children, parents, nbytes / 2) for children, parents in pairs)
    return (*up, *_backwards(up))


def _server_naive(workers: int, nbytes: float) -> Iterable[Round]:
    server = np.zeros(1, dtype=np.int64)
    up = tuple(Round(np.array([worker]), server, float(nbytes)) for worker in range(1, workers))
    return (*up, *_backwards(up[::-1]))


def _server_efficient(workers: int, nbytes: float) -> Iterable[Round]:
    part = nbytes / workers
    return (*_backwards(_scatter(workers, nbytes)), *_scatter(workers, part), *_gathering_all(workers, part))


def _in_every_node(of: Iterable[Round], nodes: int, group: int) -> Iterator[Round]:
    """The rounds of the workers of one node, in all of them at once."""
    return _copied(of, lambda worker: (group * np.arange(nodes)[:, None] + worker).ravel(), nodes)


def _between_nodes(of: Iterable[Round], group: int, ranks: int) -> Iterator[Round]:
    """The rounds of one worker of each node, for so many local ranks at once."""
    return _copied(of, lambda node: (group * node + np.arange(ranks)[:, None]).ravel(), ranks)


def _copied(of: Iterable[Round], to: Callable[[RankArray], RankArray], copies: int) -> Iterator[Round]:
    made: dict[int, Round] = {}
    for one in tuple(of):  # a ring's rounds are one and the same, and stay so
        if id(one) not in made:
            sizes = one.nbytes if np.ndim(one.nbytes) == 0 else np.tile(one.nbytes, copies)
            made[id(one)] = Round(to(one.senders), to(one.receivers), sizes)
        yield made[id(one)]


def _hierarchical(name: str, workers: int, nbytes: float, nodes: int) -> Iterable[Round]:
    of, group = HIERARCHIES[name], workers // nodes
    ranks, part = (1, nbytes) if of.leaders else (group, nbytes / group)
    inside = tuple(_broadcast(group, nbytes)) if of.leaders else tuple(_ring(group, part))
    return (
        *_in_every_node(_backwards(inside) if of.leaders else inside, nodes, group),
        *_between_nodes(_ROUNDS["all_reduce"][of.between](nodes, part), group, ranks),
        *_in_every_node(inside, nodes, group),
    )


def _gather(workers: int, nbytes: float) -> Iterator[Round]:
    for k in range((workers - 1).bit_length()):
        senders = np.arange(2**k, workers, 2 ** (k + 1))
        held = np.minimum(2**k, workers - senders)
        for blocks in np.unique(held)[::-1]:
            of_size = senders[held == blocks]
            yield Round(of_size, of_size - 2**k, float(blocks * nbytes))


_ROUNDS: dict[str, dict[str, Callable[[int, float], Iterable[Round]]]] = {
    "all_reduce": {
        "ring": lambda workers, nbytes: _ring(workers, nbytes / workers, laps=2),
        "recursive-doubling": _recursive_doubling,
        "rabenseifner": _rabenseifner,
        "tree": _tree,
        "double-binary-tree": _double_tree,
        "server-naive": _server_naive,
        "server-efficient": _server_efficient,
    },
    "all_gather": {"ring": _ring, "recursive-doubling": _gathering_all},
    "reduce_scatter": {
        "ring": lambda workers, nbytes: _ring(workers, nbytes / workers),
        "halving": lambda workers, nbytes: _backwards(_gathering_all(workers, nbytes / workers)),
        "all-reduce": lambda workers, nbytes: _ring(workers, nbytes / workers, laps=2),
    },
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"binomial": _broadcast, "scatter-all-gather": _scatter_all_gather},
    "gather": {"binomial": _gather},
}


def _gloo_rings(workers: int, nbytes: float) -> Iterator[Round]:
    """Segments to the worker before, first those that are summed; what lies beyond the end is not sent."""
    count, size = (float(each) for each in segments(workers, nbytes))
    worker, per_chunk = np.arange(workers), int(count) // workers
    before = (worker - 1) % workers
    whole = Round(worker, before, size)
    for first in (1, 0):
        for i in range(per_chunk * (workers - 1)):
            begins = ((worker + first) * per_chunk + i) % count * size
            sizes = np.clip(nbytes - begins, 0.0, size)
            used = sizes > 0
            yield whole if np.all(sizes == size) else Round(worker[used], before[used], sizes[used])


def _gloo_tree(workers: int, nbytes: float) -> Iterator[Round]:
    for k in range((workers - 1).bit_length()):
        senders = np.arange(min(2**k, workers - 2**k))
        yield Round(senders, senders + 2**k, nbytes)


def _gloo_gather(workers: int, nbytes: float) -> Iterator[Round]:
    for worker in range(1, workers):
        yield Round(np.array([worker]), np.array([0]), nbytes)


_GLOO: dict[str, Callable[[int, float], Iterable[Round]]] = {
    "all_reduce": _gloo_rings,
    "reduce_scatter": _gloo_rings,
    "all_gather": lambda workers, nbytes: _ring(workers, nbytes / 2, laps=2),
    "all_to_all": _pairwise,
    "broadcast": _gloo_tree,
    "gather": _gloo_gather,
}


def sent_bytes(of: tuple[Round, ...], workers: int) -> Floats:
    """Bytes that each worker sends in these rounds, ``(P,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in of:
        total[senders] += nbytes
    return total
