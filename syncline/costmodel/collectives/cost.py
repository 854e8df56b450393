"""Closed-form times of the collectives.

With P equal workers that start together on a link of latency alpha, overhead o per message and R bytes per second,

    time = messages (alpha + o) + bytes / R,

where each of the messages waits for the one before, and "bytes" is the size of all of them. If a worker sends several
messages without waiting, the eager rule counts fewer latencies than messages. The table shows each collective's first
algorithm, which is the default:

| collective       | n: bytes                      | algorithm     | messages     | bytes       |
|------------------|-------------------------------|---------------|--------------|-------------|
| `all_reduce`     | of the tensor, on each worker | ring          | 2(P - 1)     | 2n(P - 1)/P |
| `all_gather`     | that each worker contributes  | ring          | P - 1        | n(P - 1)    |
| `reduce_scatter` | of each worker's full input   | ring          | P - 1        | n(P - 1)/P  |
| `all_to_all`     | that a worker holds for all   | pairwise      | P - 1        | n(P - 1)/P  |
| `broadcast`      | of the tensor                 | binomial tree | ceil(log2 P) | n x messages|
| `gather`         | that each worker contributes  | binomial tree | ceil(log2 P) | n(P - 1)    |
| `reduce`         | of the tensor, on each worker | binomial tree | ceil(log2 P) | n x messages|

`syncline.costmodel.collectives.algorithms` describes the algorithms for any network,
`syncline.costmodel.collectives.hierarchical` the algorithms for networks of nodes, and
`syncline.costmodel.collectives.gloo` the algorithms that gloo runs. Blocks of n / P bytes are exact, not rounded
up. One worker pays nothing. If a link carries the costs of gloo's software (``Link.gloo``), the default algorithm is
gloo's, with these costs; if it carries NCCL's piece sizes (``Link.nccl``), the default is the one of
`syncline.costmodel.collectives.nccl`. On a link all arguments broadcast: P, n and the fields of the link may be
arrays. All forms are exact for every P. Eager messages of a gather pay only floor(log2 P) latencies, because the root
receives its last, smaller subtree right after another one.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), sections 4.1 to 4.5, without the cost of the additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, Algorithm, NoClosedForm
from syncline.costmodel.collectives.gloo import GlooAlgorithm, gloo_s, gloo_sent_bytes
from syncline.costmodel.collectives.hierarchical import (
    HIERARCHIES,
    Hierarchy,
    Inner,
    Peers,
    all_sizes,
    flat_link,
    level_parts,
    peers,
)
from syncline.costmodel.collectives.nccl import (
    NcclAlgorithm,
    NvlinkAlgorithm,
    measured_all_reduce_s,
    nccl_sockets_s,
    nvlink_s,
)
from syncline.costmodel.collectives.placed import DirectAlgorithm, PlacedAlgorithm, direct_s
from syncline.costmodel.collectives.table import (
    ALGORITHMS,
    SERVERS,
    TABLE,
    TIMED_AS_A_WHOLE,
    MeasuredAlgorithm,
    algorithm_name,
    algorithms_on,
    default_algorithm,
    gpu_nodes,
    link_of_all,
    nccl_on,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require_call
from syncline.errors import SpecError, one_of

Rule = Literal["eager", "rendezvous"]
"""The start rule of messages.

An ``eager`` message starts once its sender holds it and the ports are free; a ``rendezvous`` message starts once both
ends have reached it.
"""


def _checked(kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None) -> str:
    """Return the algorithm's name after a check of the collective, the number of workers and the bytes."""
    name = algorithm_name(kind, algorithm)
    require_call(workers, nbytes)
    return name


def rounds_and_block(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None
) -> tuple[IntOrArray, FloatOrArray]:
    """Return the number of messages on a collective's longest path and the mean bytes of one message.

    The arguments are those of `collective_s`, with an algorithm for flat networks, the first by default.
    """
    name = _checked(kind, workers, nbytes, algorithm)
    if name not in FLAT[kind]:
        raise SpecError(f"{kind}.algorithm", name, one_of(FLAT[kind], name))
    entry = FLAT[kind][name]
    messages = entry.messages(workers)
    return messages, entry.nbytes(workers, nbytes) / np.maximum(messages, 1)


def collective_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    network: Network | Topology,
    algorithm: str | None = None,
    *,
    rule: Rule = "eager",
    group: Inner = None,
) -> FloatOrArray:
    """Return the seconds of a collective, from the common start until the last worker finishes.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: number of workers P, at least 1.
        nbytes: bytes n of the collective, at least 0, by the table of this module.
        network: a link that all workers have; or nodes, sites or levels, for which P is a single number.
        algorithm: one of ``TABLE[kind]``; None for the network's `default_algorithm`.
        rule: the start rule of messages.
        group: number of workers in a node for a hierarchical algorithm on a link, or the sizes of all levels but the
            outermost.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, a hierarchical algorithm without
            nodes.
        NoClosedForm: a flat algorithm on nodes, or an algorithm that loads half-duplex links unevenly.

    >>> from syncline.costmodel import NETWORKS
    >>> f"{collective_s('all_reduce', 2, 619 * 2**20, NETWORKS['wan'].network):.3f}"
    '5.243'
    >>> f"{collective_s('all_reduce', 8, 1000, NETWORKS['wan'].network, 'recursive-doubling'):.3f}"
    '0.075'
    """
    name = _checked(
        kind, workers, nbytes, algorithm=default_algorithm(kind, network) if algorithm is None else algorithm
    )
    if rule not in ("eager", "rendezvous"):
        raise SpecError("rule", rule, "'eager' or 'rendezvous'")
    entry = TABLE[kind][name]
    if isinstance(entry, Hierarchy):
        return hierarchy_s(kind, name, levels=peers(network, int(workers), group), nbytes=nbytes, rule=rule)
    if isinstance(entry, MeasuredAlgorithm):
        return measured_all_reduce_s(workers, nbytes, link_of_all(network, int(np.max(workers))))
    if isinstance(entry, NvlinkAlgorithm):
        return nvlink_s(kind, nbytes, gpu_nodes(network, workers))
    return _flat_s(kind, name, workers, nbytes, network, rule)


def _flat_s(
    kind: str, name: str, workers: IntOrArray, nbytes: FloatOrArray, network: Network | Topology, rule: Rule
) -> FloatOrArray:
    """Return the seconds of an algorithm without hierarchy on the link that all workers have.

    Raises:
        NoClosedForm: the workers' links differ.
    """
    entry = TABLE[kind][name]
    link = network if isinstance(network, Link) else flat_link(network, int(workers))
    if link is None:
        expected = "an algorithm with a closed form where links differ (lockstep or events tell this one)"
        raise NoClosedForm(f"{kind}.algorithm", name, expected)
    if isinstance(entry, DirectAlgorithm):
        return direct_s(workers, nbytes, link, entry.owners)
    if isinstance(entry, PlacedAlgorithm):  # on one link every worker is a place, in the order of the ranks
        return _on_link_s(kind, "ring", workers, nbytes, link, rule)
    if isinstance(entry, GlooAlgorithm):
        return gloo_s(kind, workers, nbytes, link, costs=network.gloo)
    if isinstance(entry, NcclAlgorithm):
        return nccl_sockets_s(kind, workers, nbytes, link, costs=nccl_on(network))
    return _on_link_s(kind, name, workers, nbytes, link, rule)


def _on_link_s(kind: str, name: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, rule: Rule) -> FloatOrArray:
    """Return the seconds of an algorithm of ``FLAT`` on a link: ``latencies alpha + messages o + bytes / R``."""
    entry = FLAT[kind][name]
    messages = entry.messages(workers)
    latencies = messages if rule == "rendezvous" or entry.latencies is None else entry.latencies(workers)
    directions = _directions(kind, name, entry, workers) if link.duplex == "half" else 1
    sent_bytes = entry.nbytes(workers, nbytes) * directions
    return latencies * link.latency_s + messages * link.overhead_s + sent_bytes / link.goodput_bytes_per_s


def _directions(kind: str, name: str, entry: Algorithm, workers: IntOrArray) -> int:
    """Return the number of transfers that share a worker's half-duplex link at a time, 1 or 2.

    Raises:
        NoClosedForm: the number differs among the workers or rounds.
    """
    if np.all(np.less_equal(workers, 1)):
        return 1
    reason = ""
    if entry.directions is None:
        reason = "here some workers send only while others send and receive"
    elif entry.folds and np.any(np.bitwise_and(workers, np.subtract(workers, 1))):
        reason = "workers beyond a power of two are folded in, beside exchanges"
    if entry.directions is None or reason:
        expected = f"an algorithm with a closed form on half-duplex links ({reason})"
        raise NoClosedForm(f"{kind}.algorithm", name, expected)
    return entry.directions


def hierarchy_s(
    kind: str, name: str, levels: Sequence[Peers], nbytes: FloatOrArray, rule: Rule = "eager"
) -> FloatOrArray:
    """Return the seconds of a hierarchical collective, the sum over its levels.

    Args:
        kind: one of ``COLLECTIVES``.
        name: one of ``HIERARCHIES[kind]``.
        levels: the peers that exchange at each level, from the innermost to the outermost, whose size may be an array.
        nbytes: bytes n of the collective, by the table of this module.
        rule: the start rule of messages.

    Raises:
        NoClosedForm: half-duplex links on which some messages go one way only.
    """
    entry = HIERARCHIES[kind][name]
    if kind != "all_reduce":
        total_s: FloatOrArray = 0.0
        for number, part_bytes in level_parts(kind, [level.size for level in levels], nbytes):
            level = levels[number]
            if level.is_shared_half_duplex and entry.leaders and np.any(np.greater(level.size, 1)):
                raise NoClosedForm(f"{kind}.algorithm", name, "an algorithm whose messages go both ways on these links")
            link = level.leader_link if entry.leaders else level.link
            total_s = total_s + _on_link_s(
                kind, entry.between, workers=level.size, nbytes=part_bytes, link=link, rule=rule
            )
        return total_s
    *inner, outermost = levels
    if outermost.is_shared_half_duplex:  # raises NoClosedForm unless all workers of the link send and receive
        _directions("all_reduce", name, entry=FLAT["all_reduce"][entry.between], workers=outermost.size)
    if entry.leaders:
        if any(level.is_shared_half_duplex and np.any(np.greater(level.size, 1)) for level in inner):
            raise NoClosedForm("all_reduce.algorithm", name, "an algorithm whose messages go both ways on these links")
        trees = (
            _on_link_s("broadcast", "binomial", workers=level.size, nbytes=nbytes, link=level.leader_link, rule=rule)
            for level in inner
        )
        leaders_s = _on_link_s(
            "all_reduce", entry.between, workers=outermost.size, nbytes=nbytes, link=outermost.leader_link, rule=rule
        )
        return 2 * sum(trees) + leaders_s
    seconds: FloatOrArray = 0.0
    part_bytes = nbytes
    inner_parts = []  # each inner level with the bytes of a worker's part after its reduce-scatter
    for level in inner:
        seconds = seconds + _on_link_s(
            "reduce_scatter", "ring", workers=level.size, nbytes=part_bytes, link=level.link, rule=rule
        )
        part_bytes = part_bytes / level.size
        inner_parts.append((level, part_bytes))
    seconds = seconds + _on_link_s(
        "all_reduce", entry.between, workers=outermost.size, nbytes=part_bytes, link=outermost.link, rule=rule
    )
    for level, part_bytes in reversed(inner_parts):
        seconds = seconds + _on_link_s(
            "all_gather", "ring", workers=level.size, nbytes=part_bytes, link=level.link, rule=rule
        )
    return seconds


def closed_form_s(
    kind: str, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule = "eager"
) -> float | None:
    """Return the seconds of `collective_s`, or None if the algorithm has no closed form on this network."""
    try:
        return float(collective_s(kind, workers, nbytes, network, algorithm, rule=rule))
    except NoClosedForm:
        return None


def best_algorithm(kind: str, workers: int, nbytes: float, network: Network | Topology, rule: Rule = "eager") -> str:
    """Return the algorithm with the least closed-form time.

    Measured times and NCCL's times on NVLink come before the other closed forms. A tie goes to the first algorithm. If
    no algorithm has a closed form, the collective's first algorithm is returned. Parameter servers are excluded.

    >>> from syncline.costmodel import NETWORKS
    >>> [best_algorithm("all_reduce", 8, nbytes, NETWORKS["10gbe"].network) for nbytes in (1e3, 1e9)]
    ['recursive-doubling', 'rabenseifner']
    """
    names = algorithms_on(kind, network, workers)
    if names[0] in TIMED_AS_A_WHOLE:
        return names[0]
    times = {name: closed_form_s(kind, workers, nbytes, network, name, rule) for name in names if name not in SERVERS}
    seconds_by_name = {name: seconds for name, seconds in times.items() if seconds is not None}
    return min(seconds_by_name, key=seconds_by_name.__getitem__, default=ALGORITHMS[kind][0])


def wire_bytes(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None, group: Inner = None
) -> FloatOrArray:
    """Return the bytes that each worker sends in a collective, as the mean over the workers.

    In a ring or a pairwise exchange each worker sends all bytes of the closed form. In a broadcast along a tree P - 1
    workers receive n bytes each, so the mean is n (P - 1) / P (the root sends n ceil(log2 P)). In a gather the n bytes
    of worker i travel one hop for each digit 1 of i in binary, so the mean is n times the mean number of digits 1 in
    0, ..., P - 1 (the root sends nothing).

    The arguments are those of `collective_s`; the collective's first algorithm is the default.
    """
    name = _checked(kind, workers, nbytes, algorithm)
    entry = TABLE[kind][name]
    if isinstance(entry, Hierarchy):
        sizes = all_sizes(int(workers), group)
        if kind != "all_reduce":
            total_bytes: FloatOrArray = 0.0
            for number, part_bytes in level_parts(kind, sizes, nbytes):
                per_sender = math.prod(sizes[:number]) if entry.leaders else 1  # one worker in so many sends
                total_bytes = total_bytes + wire_bytes(kind, sizes[number], part_bytes, entry.between) / per_sender
            return total_bytes
        *inner, outermost = sizes
        inside_bytes: FloatOrArray = 0.0
        copies = 1  # every worker sends n / copies, or one worker in `copies` sends n
        for size in inner:
            inside_bytes = inside_bytes + 2 * nbytes * ((size - 1) / size) / copies
            copies *= size
        return inside_bytes + wire_bytes(kind, outermost, nbytes, algorithm=entry.between) / copies
    if isinstance(entry, GlooAlgorithm):
        return gloo_sent_bytes(kind, workers, nbytes)
    if isinstance(entry, NcclAlgorithm):
        return entry.sent(workers, nbytes)
    if isinstance(entry, MeasuredAlgorithm | NvlinkAlgorithm | DirectAlgorithm | PlacedAlgorithm):  # as a ring
        entry = FLAT[kind][ALGORITHMS[kind][0]]
    sent_bytes = entry.nbytes if entry.sent is None else entry.sent
    return sent_bytes(workers, nbytes)


def ring_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of a ring all-reduce of n bytes among P workers: ``2 (P - 1) (alpha + o + n / (P R))``."""
    return collective_s("all_reduce", workers, nbytes, link, algorithm="ring")


def gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of a binomial-tree gather of n bytes from each of P workers.

    They are ``floor(log2 P) alpha + ceil(log2 P) o + (P - 1) n / R``.
    """
    return collective_s("gather", workers, nbytes, link, algorithm="binomial")
