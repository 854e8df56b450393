"""Who sends what to whom in a collective: its rounds, told once for every evaluator.

Under the eager rule **a worker sends its message of a round as soon as everything it was to receive in earlier rounds
has arrived and its port and the receiver's are free**. Nobody waits for a receiver's program. So a homogeneous group
that starts together takes the closed form's time, with every algorithm and number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, RankArray, Round, RoundTable
from syncline.costmodel.collectives.algorithms.base import backwards
from syncline.costmodel.collectives.algorithms.binomial_tree import broadcast_rounds
from syncline.costmodel.collectives.algorithms.pairwise import pairwise_rounds
from syncline.costmodel.collectives.algorithms.ring import ring_rounds
from syncline.costmodel.collectives.cost import wire_bytes
from syncline.costmodel.collectives.gloo.times import segments
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, Inner, all_sizes, inner_sizes
from syncline.costmodel.collectives.nccl.costs import DEFAULT, NcclCosts
from syncline.costmodel.collectives.table import algorithm_name, is_gloo, is_nccl, nccl_on
from syncline.costmodel.kept import kept
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Network, Topology
from syncline.sim.collectives.nccl import nccl_rounds
from syncline.sim.starts import Floats


def rounds_bytes(of: Iterable[Round]) -> float:
    """About what rounds take in memory; arrays that several of them have count once."""
    if isinstance(of, RoundTable):
        return 600.0 * len(of) + 16.0 * len(of.senders)
    parts = {id(part): part for one in {id(one): one for one in of}.values() for part in one}
    return sum(100.0 + np.asarray(part).nbytes for part in parts.values())


def _never_changed(of: Iterable[Round]) -> Sequence[Round]:
    """The same rounds, which many may have."""
    if isinstance(of, RoundTable):
        return of
    made = tuple(of)
    for one in {id(one): one for one in made}.values():
        for part in one:
            if isinstance(part, np.ndarray):
                part.setflags(write=False)
    return made


@kept(128e6, rounds_bytes)
def rounds(
    kind: str,
    workers: int,
    nbytes: float,
    algorithm: str | None = None,
    group: Inner = None,
    nccl: NcclCosts | None = None,
) -> Sequence[Round]:
    """The rounds of a collective.

    Those of an algorithm are in its file in `syncline.costmodel.collectives.algorithms`, what gloo runs is in
    `syncline.sim.collectives.gloo`, what NCCL does in `syncline.sim.collectives.nccl`. Hierarchical (all-reduce): in
    each node of ``group`` workers a ring reduce-scatter; then an all-reduce of n/group among the workers of each local
    rank; then a ring all-gather. Leader: up a binomial tree to the first of each node, an all-reduce among these, down
    again. With more levels likewise at each.

    Args:
        kind: one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.
        algorithm: one of ``ALGORITHMS[kind]`` there, the first unless given, or of ``HIERARCHICAL[kind]``.
        group: workers of a node, which consecutive workers make up, or the sizes of all levels but the outermost; only
            for the latter.
        nccl: what NCCL cuts tensors into; its defaults unless given.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, or workers that do not fill nodes.

    Source: as `syncline.costmodel.collectives.algorithms`.
    """
    name = algorithm_name(kind, algorithm)
    wire_bytes(kind, workers, nbytes, name, group)  # refuses what cannot be
    if name in HIERARCHIES:
        return _never_changed(_hierarchical(name, workers, nbytes, all_sizes(workers, group)))
    if is_gloo(kind, name):
        return _never_changed(_GLOO[kind](workers, float(nbytes)))
    if is_nccl(kind, name):
        return _never_changed(nccl_rounds(kind, workers, float(nbytes), nccl or DEFAULT))
    return _never_changed(FLAT[kind][name].rounds(workers, nbytes))


def rounds_on(
    kind: str, workers: int, nbytes: float, network: Network | Topology | Sequence[Link], algorithm: str | None = None
) -> Sequence[Round]:
    """The rounds of a collective on a network, whose nodes or sites are those of a hierarchical algorithm."""
    cut = nccl_on(network) if is_nccl(kind, algorithm) else None  # type: ignore[arg-type]
    return rounds(kind, workers, nbytes, algorithm, inner_sizes(network, workers), cut)


def _at_level(of: Iterable[Round], firsts: RankArray, apart: int) -> Iterator[Round]:
    """The rounds of peers who are so many ranks apart, for several of them at once, by the first of each."""
    made: dict[int, Round] = {}
    for one in tuple(of):  # a ring's rounds are one and the same, and stay so
        if id(one) not in made:
            sizes = one.nbytes if np.ndim(one.nbytes) == 0 else np.tile(one.nbytes, len(firsts))
            senders, receivers = ((firsts[:, None] + apart * ends).ravel() for ends in one[:2])
            made[id(one)] = Round(senders, receivers, sizes)
        yield made[id(one)]


def _hierarchical(name: str, workers: int, nbytes: float, sizes: tuple[int, ...]) -> Iterable[Round]:
    of, (*inner, last) = HIERARCHIES[name], sizes
    part, apart = nbytes, 1
    up: list[Round] = []
    down: list[list[Round]] = []
    for size in inner:
        units = size * apart * np.arange(workers // (size * apart))
        firsts = units if of.leaders else (units[:, None] + np.arange(apart)).ravel()
        part = part if of.leaders else part / size
        inside = tuple(broadcast_rounds(size, part)) if of.leaders else tuple(ring_rounds(size, part))
        up += _at_level(backwards(inside) if of.leaders else inside, firsts, apart)
        down.append(list(_at_level(inside, firsts, apart)))
        apart *= size
    among = FLAT["all_reduce"][of.between].rounds(last, part)
    between = _at_level(among, np.arange(1 if of.leaders else apart), apart)
    return *up, *between, *(one for each in down[::-1] for one in each)


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
    "all_gather": lambda workers, nbytes: ring_rounds(workers, nbytes / 2, laps=2),
    "all_to_all": pairwise_rounds,
    "broadcast": _gloo_tree,
    "gather": _gloo_gather,
}


def sent_bytes(of: Iterable[Round], workers: int) -> Floats:
    """Bytes that each worker sends in these rounds, ``(P,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in of:
        total[senders] += nbytes
    return total
