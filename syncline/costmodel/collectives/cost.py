"""What a collective costs, in closed form.

With P equal workers that start together on a link of latency alpha, overhead o per message and R bytes per second,

    time = messages (alpha + o) + bytes / R,

where the messages, so many bytes in all, wait for each other. Where a worker sends several without waiting, the eager
rule counts fewer latencies than messages. Each collective's first algorithm, which is taken if none is named:

| collective       | n: bytes                      | algorithm     | messages     | bytes       |
|------------------|-------------------------------|---------------|--------------|-------------|
| `all_reduce`     | of the tensor, on each worker | ring          | 2(P - 1)     | 2n(P - 1)/P |
| `all_gather`     | that each worker contributes  | ring          | P - 1        | n(P - 1)    |
| `reduce_scatter` | of each worker's full input   | ring          | P - 1        | n(P - 1)/P  |
| `all_to_all`     | that a worker holds for all   | pairwise      | P - 1        | n(P - 1)/P  |
| `broadcast`      | of the tensor                 | binomial tree | ceil(log2 P) | n x messages|
| `gather`         | that each worker contributes  | binomial tree | ceil(log2 P) | n(P - 1)    |

`syncline.costmodel.collectives.algorithms` tells of all algorithms for any network,
`syncline.costmodel.collectives.hierarchical` those for networks of nodes, `syncline.costmodel.collectives.gloo.times`
what gloo really runs. Blocks of n / P bytes are exact, not rounded up. One worker pays nothing. Where a link knows what
gloo's software takes (``Link.gloo``), what is not named is gloo's, with these costs; where it knows NCCL's pieces
(``Link.nccl``), it is `syncline.costmodel.collectives.nccl.sockets`. On a link all arguments broadcast:
P, n and the fields of the link may be arrays. All forms are exact for every P. Eager messages of a gather pay
floor(log2 P) latencies only, for the root receives its last, smaller subtree right after another one.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), sections 4.1 to 4.5, without the cost of the additions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, Algorithm, NoClosedForm
from syncline.costmodel.collectives.gloo.times import GlooAlgorithm, gloo_s, gloo_sent_bytes
from syncline.costmodel.collectives.hierarchical import (
    HIERARCHIES,
    Hierarchy,
    Inner,
    Peers,
    all_sizes,
    flat_link,
    peers,
)
from syncline.costmodel.collectives.nccl.sockets import NcclAlgorithm, nccl_sockets_s
from syncline.costmodel.collectives.table import ALGORITHMS, SERVERS, TABLE, algorithm_name, algorithms_on, first_on
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

if TYPE_CHECKING:
    from syncline.costmodel.network.topology import Network, Topology

Rule = Literal["eager", "rendezvous"]
"""When a message starts: when its sender has it and the ports are free, or when both ends have come to it."""


def _checked(kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None) -> str:
    """The algorithm's name, for a P and an n that can be."""
    name = algorithm_name(kind, algorithm)
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    return name


def rounds_and_block(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None
) -> tuple[IntOrArray, FloatOrArray]:
    """How many messages a collective has on its longest way and how many bytes one has (the mean), by the tables.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, at least 1.
        nbytes: n, at least 0, with the meaning the table gives it.
        algorithm: one of ``ALGORITHMS[kind]``, the first unless given.

    Raises:
        SpecError: an unknown collective, an algorithm that is none of a flat network's, no worker, or a negative size.
    """
    name = _checked(kind, workers, nbytes, algorithm)
    if name not in FLAT[kind]:
        raise SpecError(f"{kind}.algorithm", name, one_of(FLAT[kind], name))
    of = FLAT[kind][name]
    messages = of.messages(workers)
    return messages, of.nbytes(workers, nbytes) / np.maximum(messages, 1)


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
    """Seconds that a collective takes, from the common start until the last worker is through.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, at least 1.
        nbytes: n, at least 0, with the meaning the table gives it.
        network: a link that all workers have; or nodes, sites or levels, for which P is one number.
        algorithm: one of ``ALGORITHMS[kind]``, of ``HIERARCHICAL[kind]``, ``OF_GLOO[kind]`` or ``OF_NCCL[kind]``; see
            ``first_on``.
        rule: when a message starts.
        group: workers of a node for a hierarchical algorithm on a link, or the sizes of all levels but the outermost.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, a hierarchical algorithm without
            nodes.
        NoClosedForm: a flat algorithm on nodes, or one that is uneven on half-duplex links.

    >>> from syncline.costmodel import NETWORKS
    >>> f"{collective_s('all_reduce', 2, 619 * 2**20, NETWORKS['wan'].network):.3f}"
    '5.243'
    >>> f"{collective_s('all_reduce', 8, 1000, NETWORKS['wan'].network, 'recursive-doubling'):.3f}"
    '0.075'
    """
    name = _checked(kind, workers, nbytes, first_on(kind, network) if algorithm is None else algorithm)
    if rule not in ("eager", "rendezvous"):
        raise SpecError("rule", rule, "'eager' or 'rendezvous'")
    of = TABLE[kind][name]
    if isinstance(of, Hierarchy):
        return hierarchy_s(name, peers(network, int(workers), group), nbytes, rule)
    link = network if isinstance(network, Link) else flat_link(network, int(workers))
    if link is None:
        expected = "an algorithm with a closed form where links differ (lockstep or events tell this one)"
        raise NoClosedForm(f"{kind}.algorithm", name, expected)
    if isinstance(of, GlooAlgorithm):
        return gloo_s(kind, workers, nbytes, link)
    if isinstance(of, NcclAlgorithm):
        return nccl_sockets_s(kind, workers, nbytes, link)
    return _on_link_s(kind, name, workers, nbytes, link, rule)


def _on_link_s(kind: str, name: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, rule: Rule) -> FloatOrArray:
    of = FLAT[kind][name]
    messages = of.messages(workers)
    latencies = messages if rule == "rendezvous" or of.latencies is None else of.latencies(workers)
    sent = of.nbytes(workers, nbytes) * (_directions(kind, name, of, workers) if link.duplex == "half" else 1)
    return latencies * link.latency_s + messages * link.overhead_s + sent / link.goodput_bytes_per_s


def _directions(kind: str, name: str, of: Algorithm, workers: IntOrArray) -> int:
    """Transfers that share a worker's half-duplex link."""
    expected = "an algorithm with a closed form on half-duplex links"
    if np.all(np.less_equal(workers, 1)):
        return 1
    if of.directions is None:
        raise NoClosedForm(
            f"{kind}.algorithm", name, f"{expected} (here some workers send only while others send and receive)"
        )
    if of.folds and np.any(np.bitwise_and(workers, np.subtract(workers, 1))):
        raise NoClosedForm(
            f"{kind}.algorithm", name, f"{expected} (workers beyond a power of two are folded in, beside exchanges)"
        )
    return of.directions


def hierarchy_s(name: str, on: Sequence[Peers], nbytes: FloatOrArray, rule: Rule = "eager") -> FloatOrArray:
    """Seconds of an all-reduce level by level, whose outermost level may be of several sizes, as an array.

    Args:
        name: one of ``HIERARCHIES``.
        on: who exchanges at each level, from the inside out.
        nbytes: n.
        rule: when a message starts.

    Raises:
        NoClosedForm: half-duplex links whose messages do not all go both ways.
    """
    of, (*inside, last) = HIERARCHIES[name], on
    if last.exchanges:  # shares of a half-duplex link that are right if all send and receive
        _directions("all_reduce", name, FLAT["all_reduce"][of.between], last.size)
    if of.leaders:
        if any(each.exchanges and np.any(np.greater(each.size, 1)) for each in inside):
            raise NoClosedForm("all_reduce.algorithm", name, "an algorithm whose messages go both ways on these links")
        trees_s = sum(_on_link_s("broadcast", "binomial", each.size, nbytes, each.alone, rule) for each in inside)
        return 2 * trees_s + _on_link_s("all_reduce", of.between, last.size, nbytes, last.alone, rule)
    seconds: FloatOrArray = 0.0
    parts = [nbytes]
    for each in inside:
        seconds = seconds + _on_link_s("reduce_scatter", "ring", each.size, parts[-1], each.link, rule)
        parts.append(parts[-1] / each.size)
    seconds = seconds + _on_link_s("all_reduce", of.between, last.size, parts[-1], last.link, rule)
    for each, part in zip(inside[::-1], parts[:0:-1], strict=True):
        seconds = seconds + _on_link_s("all_gather", "ring", each.size, part, each.link, rule)
    return seconds


def closed_form_s(
    kind: str, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule = "eager"
) -> float | None:
    """Seconds by `collective_s`, or None where the algorithm has no closed form on this network."""
    try:
        return float(collective_s(kind, workers, nbytes, network, algorithm, rule=rule))
    except NoClosedForm:
        return None


def best_algorithm(kind: str, workers: int, nbytes: float, network: Network | Topology, rule: Rule = "eager") -> str:
    """The algorithm with the least closed form; of several, the first; where none has one, the collective's first.

    Parameter servers are left out.

    Raises:
        SpecError: an unknown collective, or a number of workers that the network cannot join.

    >>> from syncline.costmodel import NETWORKS
    >>> [best_algorithm("all_reduce", 8, nbytes, NETWORKS["10gbe"].network) for nbytes in (1e3, 1e9)]
    ['recursive-doubling', 'rabenseifner']
    """
    costs = {
        name: closed_form_s(kind, workers, nbytes, network, name, rule)
        for name in algorithms_on(kind, network, workers)
        if name not in SERVERS
    }
    known = {name: seconds for name, seconds in costs.items() if seconds is not None}
    return min(known, key=known.__getitem__, default=ALGORITHMS[kind][0])


def fastest_s(kind: str, workers: int, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds by the fastest algorithm on each of several links, whose fields are arrays: the least closed form.

    Parameter servers are left out. Arguments as in `collective_s`.
    """
    costs = []
    for name in ALGORITHMS[kind]:
        if name not in SERVERS:
            with contextlib.suppress(NoClosedForm):
                costs.append(collective_s(kind, workers, nbytes, link, name))
    return functools.reduce(np.minimum, costs)


def wire_bytes(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None, group: Inner = None
) -> FloatOrArray:
    """Bytes that each worker sends in a collective, the mean over workers where they differ.

    In a ring or a pairwise exchange all bytes in sequence. In a broadcast along a tree P - 1 workers receive n bytes
    each, so the mean is n (P - 1) / P (the root sends n ceil(log2 P)). In a gather the n bytes of worker i travel once
    for each binary one of i, so the mean is n times the mean number of ones in 0, ..., P - 1 (the root sends nothing).

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, at least 1.
        nbytes: n, at least 0.
        algorithm: one of ``ALGORITHMS[kind]``, the first unless given, or of ``HIERARCHICAL[kind]``.
        group: workers of a node, for the latter, or the sizes of all levels but the outermost.

    Raises:
        SpecError: an argument that cannot be used.
    """
    name = _checked(kind, workers, nbytes, algorithm)
    of = TABLE[kind][name]
    if isinstance(of, Hierarchy):
        *inner, last = all_sizes(int(workers), group)
        inside_bytes: FloatOrArray = 0.0
        copies = 1  # of n/g by all, or of n by one in g
        for size in inner:
            inside_bytes = inside_bytes + 2 * nbytes * ((size - 1) / size) / copies
            copies *= size
        return inside_bytes + wire_bytes(kind, last, nbytes, of.between) / copies
    if isinstance(of, GlooAlgorithm):
        return gloo_sent_bytes(kind, workers, nbytes)
    if isinstance(of, NcclAlgorithm):
        return of.sent(workers, nbytes)
    sent = of.nbytes if of.sent is None else of.sent
    return sent(workers, nbytes)


def ring_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a ring all-reduce of n bytes: ``2 (P - 1) (alpha + n / (P B))``."""
    return collective_s("all_reduce", workers, nbytes, link, "ring")


def gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a binomial-tree gather of n bytes from each worker: ``floor(log2 P) alpha + (P - 1) n / B``."""
    return collective_s("gather", workers, nbytes, link, "binomial")
