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
arrays. All forms are exact for every P.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), sections 4.1 to 4.5, without the cost of the additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from syncline.costmodel.collectives import hierarchical, table
from syncline.costmodel.collectives.algorithms import FLAT, Algorithm, NoClosedForm
from syncline.costmodel.collectives.gloo import GlooAlgorithm, gloo_s, gloo_sent_bytes
from syncline.costmodel.collectives.nccl import NVLINK, NcclAlgorithm, measured_all_reduce_s, nccl_sockets_s, nvlink_s
from syncline.costmodel.collectives.placed import DirectAlgorithm, PlacedAlgorithm, direct_s
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require_call
from syncline.errors import SpecError, one_of

Rule = Literal["eager", "rendezvous"]
"""The start rule of messages.

An ``eager`` message starts once its sender holds it and the ports are free, a ``rendezvous`` once both ends reach it.
"""


def rounds_and_block(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None
) -> tuple[IntOrArray, FloatOrArray]:
    """Return the number of messages on a collective's longest path (rounds), and the mean bytes of one (a block).

    The arguments are those of `collective_s`, with an algorithm for any network, the collective's first by default.
    """
    name = table.algorithm_name(kind, algorithm)
    require_call(workers, nbytes)
    if name not in FLAT[kind]:
        raise SpecError(f"{kind}.algorithm", name, one_of(FLAT[kind], name))
    definition = FLAT[kind][name]
    messages = definition.messages(workers)
    return messages, definition.nbytes(workers, nbytes) / np.maximum(messages, 1)  # a single worker has no messages


def collective_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    network: Network | Topology,
    algorithm: str | None = None,
    *,
    rule: Rule = "eager",
) -> FloatOrArray:
    """Return the seconds of a collective, from the common start until the last worker finishes.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: number of workers P, at least 1.
        nbytes: bytes n of the collective, at least 0, by the table of this module.
        network: a link that all workers have; or nodes, sites or levels, for which P is a single number.
        algorithm: one of ``TABLE[kind]``; None for the network's `default_algorithm`.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, a negative size, or a hierarchy without nodes.
        NoClosedForm: a flat algorithm on nodes, or an algorithm that loads half-duplex links unevenly.

    >>> from syncline.costmodel import NETWORKS
    >>> f"{collective_s('all_reduce', 2, 619 * 2**20, NETWORKS['wan'].network):.3f}"
    '5.243'
    >>> f"{collective_s('all_reduce', 8, 1000, NETWORKS['wan'].network, 'recursive-doubling'):.3f}"
    '0.075'
    """
    name = table.algorithm_name(kind, table.default_algorithm(kind, network) if algorithm is None else algorithm)
    require_call(workers, nbytes)
    if rule not in ("eager", "rendezvous"):
        raise SpecError("rule", rule, "'eager' or 'rendezvous'")
    if name in hierarchical.HIERARCHIES[kind]:
        return hierarchy_s(kind, name, levels=hierarchical.peers(network, int(workers)), nbytes=nbytes, rule=rule)
    if name == table.MEASURED:
        return measured_all_reduce_s(workers, nbytes, table.link_of_all(network, int(np.max(workers))))
    if name == NVLINK:
        return nvlink_s(kind, nbytes, table.gpu_nodes(network, workers))
    return _flat_s(kind, name, workers, nbytes, network, rule)


def _flat_s(
    kind: str, name: str, workers: IntOrArray, nbytes: FloatOrArray, network: Network | Topology, rule: Rule
) -> FloatOrArray:
    """Return the seconds of a collective by an algorithm without hierarchy on the link that all workers have.

    Raises:
        NoClosedForm: the workers' links differ.
    """
    definition = table.TABLE[kind][name]
    link = network if isinstance(network, Link) else hierarchical.flat_link(network, int(workers))
    if link is None:
        expected = "an algorithm with a closed form where links differ (lockstep and events simulate this one)"
        raise NoClosedForm(f"{kind}.algorithm", name, expected)
    if isinstance(definition, DirectAlgorithm):
        return direct_s(workers, nbytes, link, definition.owners)
    if isinstance(definition, PlacedAlgorithm):  # on one link every worker is a place, in the order of the ranks
        return _on_link_s(kind, "ring", workers, nbytes, link, rule)
    if isinstance(definition, GlooAlgorithm):
        return gloo_s(kind, workers, nbytes, link, costs=network.gloo)
    if isinstance(definition, NcclAlgorithm):
        return nccl_sockets_s(kind, workers, nbytes, link, costs=table.nccl_on(network))
    return _on_link_s(kind, name, workers, nbytes, link, rule)


def _on_link_s(
    kind: str, name: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, rule: Rule = "eager"
) -> FloatOrArray:
    """Return the seconds of an algorithm on a link: (number of latencies) alpha + messages o + bytes / R."""
    definition = FLAT[kind][name]
    messages = definition.messages(workers)
    num_latencies = messages  # each message waits for the arrival of the one before
    if rule == "eager" and definition.latencies is not None:
        num_latencies = definition.latencies(workers)
    link_bytes = definition.nbytes(workers, nbytes)
    if link.duplex == "half":  # the link also carries the bytes that the worker receives meanwhile
        link_bytes = link_bytes * _transfers_at_once(kind, name, definition, workers)
    return num_latencies * link.latency_s + messages * link.overhead_s + link_bytes / link.goodput_bytes_per_s


def _transfers_at_once(kind: str, name: str, definition: Algorithm, workers: IntOrArray) -> int:
    """Return the number of transfers that share a worker's half-duplex link at a time, 1 or 2.

    Raises:
        NoClosedForm: the number differs among the workers or rounds.
    """
    if np.all(np.less_equal(workers, 1)):  # no transfers
        return 1
    is_power_of_two = np.bitwise_and(workers, np.subtract(workers, 1)) == 0
    if definition.directions is None:
        reason = "here some workers send only while others send and receive"
    elif definition.only_powers_of_two and not np.all(is_power_of_two):
        reason = "workers beyond a power of two are folded in, beside exchanges"  # see `folded_rounds`
    else:
        return definition.directions
    expected = f"an algorithm with a closed form on half-duplex links ({reason})"
    raise NoClosedForm(f"{kind}.algorithm", name, expected)


def hierarchy_s(
    kind: str, name: str, levels: Sequence[hierarchical.Peers], nbytes: FloatOrArray, rule: Rule = "eager"
) -> FloatOrArray:
    """Return the seconds of a hierarchical collective, a sum over the levels.

    Args:
        kind: one of ``COLLECTIVES``.
        name: one of ``HIERARCHIES[kind]``.
        levels: the peers that exchange at each level, the innermost first; the outermost may have an array of sizes.
        nbytes: bytes n of the collective, by the table of this module.
        rule: the start rule of messages.

    Raises:
        NoClosedForm: half-duplex links on which some messages go one way only.
    """
    hierarchy = hierarchical.HIERARCHIES[kind][name]
    *inner_levels, outermost = levels
    tree_levels = levels if hierarchy.leaders else ()  # levels with a tree among the leaders, whose messages go one way
    if kind == "all_reduce":
        tree_levels = inner_levels if hierarchy.leaders else ()
        if outermost.is_shared_half_duplex:  # raise NoClosedForm unless all workers of a unit send and receive
            _transfers_at_once(kind, name, FLAT[kind][hierarchy.between], outermost.size)
    for level in tree_levels:
        if level.is_shared_half_duplex and np.any(np.greater(level.size, 1)):
            expected = "an algorithm whose messages go both ways on these links"
            raise NoClosedForm(f"{kind}.algorithm", name, expected)
    seconds: FloatOrArray = 0.0
    if kind != "all_reduce":
        for index, nbytes_at_level in hierarchical.level_parts(kind, [level.size for level in levels], nbytes):
            level = levels[index]
            link = level.leader_link if hierarchy.leaders else level.link
            seconds = seconds + _on_link_s(kind, hierarchy.between, level.size, nbytes_at_level, link, rule)
        return seconds
    if hierarchy.leaders:  # trees up to the first worker of each unit, and down again
        for level in inner_levels:
            seconds = seconds + _on_link_s("broadcast", "binomial", level.size, nbytes, level.leader_link, rule)
        link = outermost.leader_link
        return 2 * seconds + _on_link_s("all_reduce", hierarchy.between, outermost.size, nbytes, link, rule)

    # Reduce-scatters from the inside out, an all-reduce of the parts, and all-gathers back.
    part_bytes = [nbytes]  # bytes of a worker's part: the whole tensor, then after the reduce-scatter of each level
    for level in inner_levels:
        seconds = seconds + _on_link_s("reduce_scatter", "ring", level.size, part_bytes[-1], level.link, rule)
        part_bytes.append(part_bytes[-1] / level.size)
    link, size = outermost.link, outermost.size
    seconds = seconds + _on_link_s("all_reduce", hierarchy.between, size, part_bytes[-1], link, rule)
    for level in reversed(inner_levels):
        seconds = seconds + _on_link_s("all_gather", "ring", level.size, part_bytes.pop(), level.link, rule)
    return seconds


def closed_form_s(
    kind: str, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule = "eager"
) -> float | None:
    """Return the seconds of a collective by a closed form, or None if the algorithm has none on this network."""
    try:
        return float(collective_s(kind, workers, nbytes, network, algorithm, rule=rule))
    except NoClosedForm:
        return None


def best_algorithm(kind: str, workers: int, nbytes: float, network: Network | Topology) -> str:
    """Return the name of the algorithm of a collective with the least closed-form time on a network.

    Measured times and NCCL's times on NVLink are taken without a comparison, if the network has them. A tie goes to the
    first algorithm. Parameter servers are excluded. Without any closed form the collective's first is returned.

    >>> from syncline.costmodel import NETWORKS
    >>> [best_algorithm("all_reduce", 8, nbytes, NETWORKS["10gbe"].network) for nbytes in (1e3, 1e9)]
    ['recursive-doubling', 'rabenseifner']
    """
    names = table.algorithms_on(kind, network, workers)
    if names[0] in table.TIMED_AS_A_WHOLE:  # measured times, or NCCL's on NVLink
        return names[0]
    times = {name: closed_form_s(kind, workers, nbytes, network, name) for name in names if name not in table.SERVERS}
    known_times = {name: seconds for name, seconds in times.items() if seconds is not None}
    return min(known_times, key=known_times.__getitem__, default=names[0])


def wire_bytes(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None, group: hierarchical.Inner = None
) -> FloatOrArray:
    """Return the bytes that each worker sends in a collective, as the mean over the workers.

    In a ring or a pairwise exchange each worker sends the bytes of the module's table. In a tree's broadcast P - 1
    workers receive n bytes each, so the mean is n (P - 1) / P. In a tree's gather the n bytes of worker i travel one
    hop for each digit 1 of i in binary, so the mean is n times the mean number of digits 1 in 0, ..., P - 1.

    The arguments are those of `collective_s`; the collective's first algorithm is the default.
    """
    name = table.algorithm_name(kind, algorithm)
    require_call(workers, nbytes)
    definition = table.TABLE[kind][name]
    if isinstance(definition, hierarchical.Hierarchy):
        sizes = hierarchical.all_sizes(int(workers), group)
        total_bytes: FloatOrArray = 0.0
        if kind != "all_reduce":
            for index, part_bytes in hierarchical.level_parts(kind, sizes, nbytes):
                sender_bytes = wire_bytes(kind, sizes[index], part_bytes, definition.between)
                workers_per_sender = math.prod(sizes[:index]) if definition.leaders else 1
                total_bytes = total_bytes + sender_bytes / workers_per_sender
            return total_bytes
        *inner_sizes, outermost_size = sizes
        unit_workers = 1  # in a unit, each worker sends its part of the n bytes, or the leader sends all of them
        for size in inner_sizes:
            total_bytes = total_bytes + 2 * nbytes * ((size - 1) / size) / unit_workers
            unit_workers *= size
        return total_bytes + wire_bytes(kind, outermost_size, nbytes, algorithm=definition.between) / unit_workers
    if isinstance(definition, GlooAlgorithm):
        return gloo_sent_bytes(kind, workers, nbytes)
    if isinstance(definition, NcclAlgorithm):
        return definition.sent(workers, nbytes)
    if not isinstance(definition, Algorithm):  # all others send as many bytes as the collective's first algorithm
        definition = FLAT[kind][table.ALGORITHMS[kind][0]]
    sent_bytes = definition.nbytes if definition.sent is None else definition.sent
    return sent_bytes(workers, nbytes)


def ring_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of a ring all-reduce of n bytes among P workers: ``2 (P - 1) (alpha + o + n / (P R))``."""
    return collective_s("all_reduce", workers, nbytes, link, algorithm="ring")


def gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of a binomial-tree gather of n bytes from each of P workers.

    They are ``floor(log2 P) alpha + ceil(log2 P) o + (P - 1) n / R``.
    """
    return collective_s("gather", workers, nbytes, link, algorithm="binomial")
