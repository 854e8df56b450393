"""Traffic of all groups of a layout at once: seconds of messages, bytes that leave the units of a level, or sites.

A *group* is a set of workers that call a collective among themselves, given by the ranks of the first group; all groups
of the same pattern communicate at once. `syncline.costmodel.collectives.prices.collective_prices` has their seconds.

A network has *levels* (nodes, racks, sites), and a *unit* is one node, rack or site. A group of G members with n
payload bytes each has k units of a level inside one unit of the next level. These bytes of the group leave the units
inside one unit of the next level:

| collective                 | bytes                                                 |
|----------------------------|-------------------------------------------------------|
| `all_reduce`               | `2 (k - 1) n`                                         |
| `reduce_scatter`           | `(k - 1) n`                                           |
| `broadcast`, `reduce`      | `(k - 1) n`                                           |
| `all_gather`               | `(k - 1) n G`                                         |
| `gather`                   | `(k - 1) n G / k`                                     |
| `all_to_all`               | `m (G - m / k) n / G`, m members in the unit of the next level |
| `send`                     | `n` at the outermost level that the message crosses   |
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.hierarchical import group_peers, level_sizes
from syncline.costmodel.collectives.nccl import DATA_CENTRE_S
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import LevelTopology, MultiLevel
from syncline.costmodel.network.paths import Floats, Network
from syncline.costmodel.network.two_level import Sites, SitesTopology, TwoLevel, levels_of
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.traffic.call import groups_like
from syncline.errors import SpecError


def message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """Return the seconds of a message from a member of a group to the next member, while all groups send.

    If the units of each level are equal, the message takes the time of one over the outermost level that the group
    crosses. On another network the slowest of all these messages counts.

    Args:
        ranks: ranks of the first group, which all groups resemble.
        workers: P, number of workers, all in groups of the same pattern.
        nbytes: n, bytes of the message.
    """
    if len(ranks) == 1:
        return 0.0
    if isinstance(network, Link):
        link = network
    elif level_sizes(network, workers) is not None:
        *_, outermost_level = group_peers(network, ranks, workers)
        link = outermost_level.link
    else:
        first_group = range(0, len(ranks) * ranks.step, ranks.step)  # `groups_like` counts from rank 0
        groups = np.array(groups_like(first_group, workers))
        senders, receivers = groups[:, :-1].ravel(), groups[:, 1:].ravel()
        return slowest_message_s(network, workers, senders, receivers, nbytes)
    return link.latency_s + link.overhead_s + nbytes / link.goodput_bytes_per_s


def slowest_message_s(
    network: Network, workers: int, senders: NDArray[np.int_], receivers: NDArray[np.int_], nbytes: FloatOrArray
) -> FloatOrArray:
    """Return the seconds of the slowest of several messages that are sent at once.

    A message takes ``latency + overhead + n / rate`` with the least rate of its path's channels. Messages share the
    bandwidth of a channel equally.

    Args:
        workers: P, number of workers.
        nbytes: n, bytes of each message.
    """
    network_topology = topology(network, workers)
    bandwidth_bytes_per_s = network_topology.bandwidth_bytes_per_s
    paths = network_topology.paths(senders, receivers)
    channels = paths.channels  # (messages, longest path), -1 after the last channel of a path
    num_messages = np.bincount(channels[channels >= 0], minlength=len(bandwidth_bytes_per_s))  # by channel
    part_bytes_per_s = bandwidth_bytes_per_s / np.maximum(num_messages, 1)
    rates = np.append(part_bytes_per_s, np.inf)[channels].min(axis=1)  # index -1 takes the appended infinity
    different_messages = np.unique(np.stack([paths.latency_s + paths.overhead_s, rates], axis=1), axis=0)
    slowest_s: FloatOrArray = 0.0
    for fixed_s, rate in different_messages:
        slowest_s = np.maximum(slowest_s, fixed_s + nbytes / rate)
    return slowest_s


def workers_of_units(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the number of workers in a unit of each level of a network, such as a node, up to the whole network.

    A network with one link per worker has one level, of one unit. The result is None if a level's units differ in size.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> workers_of_units(NETWORKS["two-sites"].network, 8), workers_of_units(NETWORKS["wan"].network, 3)
    ((4, 8), (3,))
    """
    if isinstance(network, Link):
        return (workers,)
    sizes = level_sizes(network, workers)
    return None if sizes is None else tuple(int(size) for size in np.cumprod(sizes))


@functools.lru_cache(maxsize=64)  # each algorithm and size asks for them
def different_groups(ranks: range, workers: int, network: Network) -> NDArray[np.int64]:
    """Return the ranks of groups whose messages stand for those of all groups of a pattern, ``(groups, members)``.

    All groups remain if units of a level differ in size. Else groups repeat after each block of B ranks, and units of a
    level after each U workers. If all groups stay inside units of the next level, each run of L = lcm(B, U) workers
    sends the same messages over its own channels, so that the groups of the first L workers suffice. Groups share no
    channel if every worker has its own link on all levels that their messages cross; then one group for each set of
    crossed levels suffices.

    Args:
        ranks: ranks of the first group, which all groups resemble, see `syncline.costmodel.traffic.call.groups_like`.
        workers: P, the number of workers.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-h100"].network
    >>> different_groups(range(0, 100_000, 50_000), 100_000, dgx).tolist()
    [[0, 50000]]
    >>> different_groups(range(0, 20, 5), 100_000, dgx).tolist()
    [[0, 5, 10, 15], [1, 6, 11, 16], [3, 8, 13, 18], [22, 27, 32, 37]]
    """
    try:
        levels = MultiLevel(levels_of(network)) if isinstance(network, (Link, TwoLevel, Sites, MultiLevel)) else None
    except SpecError:  # sites that differ
        levels = None
    block = len(ranks) * ranks.step
    repeating_workers = workers if levels is None else _repeating_workers(block, levels, workers)
    first_ranks = np.array([group.start for group in groups_like(ranks, repeating_workers)])
    groups = first_ranks[:, None] + np.arange(0, block, ranks.step)
    if levels is None:
        return groups
    shape = levels.shape(workers)
    units = np.stack([groups // size for size in shape.unit_workers], axis=-1)  # (groups, members, levels)
    leaves_unit = np.diff(units, axis=1) != 0  # whether the message to the next member leaves its unit of each level
    meets_others = np.zeros(len(groups), dtype=np.bool_)
    for number, level in enumerate(levels.levels[1:], start=1):  # at the innermost level all workers have own links
        if shape.rails[number] != shape.rail_sharers[number] or level.is_pooled or level.cross_rail:
            # Rails are fewer than workers, or pooled: messages that leave a unit of the level below share links.
            meets_others |= leaves_unit[:, :, number - 1].any(axis=1)
    # Of the groups that meet no others, the first with each pattern of crossed levels stays.
    patterns = np.packbits(leaves_unit.reshape(len(groups), -1), axis=1)
    first_by_pattern: dict[bytes, int] = {}
    for number in np.flatnonzero(~meets_others).tolist():
        first_by_pattern.setdefault(patterns[number].tobytes(), number)
    return groups[sorted([*np.flatnonzero(meets_others).tolist(), *first_by_pattern.values()])]


@functools.lru_cache(maxsize=64)
def copies_of_groups(ranks: range, workers: int, network: Network) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return some of `different_groups` that stand for all, and the number of groups for which each stands.

    Two groups are equal if their members, in their order, use the same shared channels, and all their other channels
    are theirs alone. Of w > 1 equal groups two remain: the first stands for ``w - 1`` groups and the second for itself,
    so that a shared channel still has more than one user.

    Args:
        ranks: ranks of the first group, which all groups resemble.
        workers: P, the number of workers.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> kept, copies = copies_of_groups(range(0, 100_000, 50_000), 100_000, NETWORKS["two-sites"].network)
    >>> kept.tolist(), copies.tolist()
    ([[0, 50000], [1, 50001]], [49999, 1])
    """
    groups = different_groups(ranks, workers, network)
    network_topology = topology(network, workers)
    levels = network_topology.network.levels if isinstance(network_topology, LevelTopology) else ()
    # A row of `features` for each group; equal groups have equal rows.
    if isinstance(network_topology, SitesTopology):
        features = network_topology.site_by_worker[groups]
    elif isinstance(network_topology, LevelTopology) and not any(level.cross_rail for level in levels):
        shape = network_topology.shape
        # Whether each message to the next member leaves its unit of each level, and the shared channels of members.
        columns: list[NDArray[Any]] = [np.diff(groups // size, axis=1) != 0 for size in shape.unit_workers]
        for number, level in enumerate(levels):
            if shape.rails[number] != shape.rail_sharers[number] or level.is_pooled:  # members share rails or a pool
                columns += network_topology.level_channels(number, groups, down=False)
        features = np.concatenate(columns, axis=1)
    else:
        return groups, np.ones(len(groups), dtype=np.int64)

    classes: dict[bytes, list[int]] = {}  # indices of equal groups, of which the first two stay
    for index, row in enumerate(features):
        classes.setdefault(row.tobytes(), []).append(index)
    copies = np.zeros(len(groups), dtype=np.int64)
    for indices in classes.values():
        copies[indices[:2]] = 1
        copies[indices[0]] = max(1, len(indices) - 1)
    return groups[copies > 0], copies[copies > 0]


def _repeating_workers(block: int, levels: MultiLevel, workers: int) -> int:
    """Return the number of workers after which the messages of groups repeat, L of `different_groups`.

    ``block`` is B of that function, the number of ranks after which the groups themselves repeat.
    """
    has_spine = any(level.cross_rail == "spine" for level in levels.levels)
    lower_unit_workers = 1
    for number, unit_workers in enumerate(levels.shape(workers).unit_workers):
        if has_spine and number == 1:  # messages between rails of a unit leave the unit
            lower_unit_workers = unit_workers
        if unit_workers % block == 0:  # all groups stay inside units of this level
            return math.lcm(block, lower_unit_workers)
        lower_unit_workers = unit_workers
    return workers


def level_bytes(
    collective: str, payload_bytes: float, ranks: range, workers: int, unit_workers: Sequence[int]
) -> Floats:
    """Return the bytes of a collective that leave the units of each network level, summed over all groups.

    The table at the top of this module has the formulas.

    Args:
        payload_bytes: n, payload bytes of a member.
        ranks: ranks of the first group, which all groups resemble.
        workers: P, number of workers, all in groups of the same pattern.
        unit_workers: workers in a unit of each level, by `workers_of_units`.

    Returns:
        The bytes by level, ``(levels,)``.

    >>> level_bytes("all_reduce", 100.0, range(0, 8, 4), 8, (4, 8)).tolist()
    [0.0, 800.0]
    """
    members = len(ranks)
    groups = workers // members
    nbytes = np.zeros(len(unit_workers))
    if collective == "send":
        if members > 1:
            (level,) = message_levels((ranks[0], ranks[-1]), unit_workers)
            nbytes[level] = payload_bytes * groups
        return nbytes
    lower_members = 1  # members of the first group in a unit of the level below
    for level, size in enumerate(unit_workers):
        # A group has members in `units` units of this level, and there in `lower_units` units of the level below.
        unit_members = len(range(0, min(size, ranks.stop), ranks.step))
        lower_units = unit_members / lower_members
        units = members / unit_members
        if lower_units > 1:
            # Bytes between the lower units in a unit of this level, over the payload.
            factors = {
                "all_reduce": 2 * (lower_units - 1),
                "reduce_scatter": lower_units - 1,
                "broadcast": lower_units - 1,
                "reduce": lower_units - 1,
                "all_gather": (lower_units - 1) * members,
                "gather": (lower_units - 1) / lower_units * members,
                "all_to_all": unit_members * (members - lower_members) / members,
            }
            if collective not in factors:
                expected = f"one whose bytes are counted: {', '.join([*factors, 'send'])}"
                raise SpecError("collective", collective, expected)
            nbytes[level] = payload_bytes * factors[collective] * units * groups
        lower_members = unit_members
    return nbytes


def message_levels(ranks: Sequence[int], unit_workers: Sequence[int]) -> list[int]:
    """Return, for each member of a ring but the last, the network level that its message to the next one crosses.

    Level 0 is the innermost, such as the links inside a node.

    Args:
        ranks: ranks of the members, in the order of the ring.
        unit_workers: workers of a unit of each level, such as of a node and of all nodes.

    >>> message_levels(range(0, 8, 2), (4, 8))
    [0, 1, 0]
    """
    levels = []
    for sender, receiver in pairwise(ranks):
        levels.append(next(level for level, size in enumerate(unit_workers) if sender // size == receiver // size))
    return levels


def egress_bytes(collective: str, payload_bytes: float, sizes: Sequence[int]) -> float:
    """Return the bytes that leave all sites together in one collective, if each site first sums among its workers.

    The bytes are those of the table at the top of this module with k sites and G = P workers, except for `gather`, with
    ``n (P - m_1)``, and `all_to_all`, with the sum of ``n m_i (P - m_i) / P`` over sites i of ``m_i`` workers.

    Args:
        payload_bytes: n, payload bytes of a worker.
        sizes: m_i, workers of each site; the root of a `gather` is in the first site.

    >>> egress_bytes("all_reduce", 100.0, [4, 4]), egress_bytes("all_gather", 100.0, [4, 4])
    (200.0, 800.0)
    """
    other_sites, workers = len(sizes) - 1, sum(sizes)
    factors = {
        "all_reduce": 2.0 * other_sites,
        "reduce_scatter": float(other_sites),
        "broadcast": float(other_sites),
        "reduce": float(other_sites),
        "send": float(other_sites > 0),
        "all_gather": float(other_sites * workers),
        "gather": float(workers - sizes[0]),
        "all_to_all": sum(size * (workers - size) for size in sizes) / workers,
    }
    if collective not in factors:
        raise SpecError("collective", collective, f"one whose bytes between sites are counted: {', '.join(factors)}")
    return payload_bytes * factors[collective]


def site_sizes(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the number of workers at each site of a network, or None for a graph.

    The sites are those of `Sites`, places of a `Matrix`, or the outermost units of several levels. On a network with
    one link per worker each worker is a site. A network of nodes is one site, because it is inside one data centre.

    >>> from syncline.costmodel import NETWORKS
    >>> site_sizes(NETWORKS["two-sites"].network, 8), site_sizes(NETWORKS["wan"].network, 3)
    ((4, 4), (1, 1, 1))
    """
    if workers == 1 or isinstance(network, TwoLevel):
        return (workers,)
    if isinstance(network, Sites):
        return network.sizes(workers)
    if isinstance(network, Matrix):
        return tuple(size for size in network.sizes(workers) if size)
    if isinstance(network, MultiLevel):
        units = network.sizes(workers)[-1]
        return (workers // units,) * units
    return (1,) * workers if isinstance(network, Link) else None


def data_centre_sizes(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the number of workers in each data centre of a network: at each site if these are far apart.

    Workers or outermost units whose links have at most the latency of `DATA_CENTRE_S` are in one data centre, unless
    the links say otherwise. None for a graph, as in `site_sizes`.

    >>> from syncline.costmodel import NETWORKS
    >>> [data_centre_sizes(NETWORKS[name].network, 4) for name in ("10gbe", "wan", "two-sites")]
    [(4,), (1, 1, 1, 1), (2, 2)]
    """
    outermost = network.levels[-1].link if isinstance(network, MultiLevel) else network
    if isinstance(outermost, Link):
        is_near = np.all(np.less_equal(outermost.latency_s, DATA_CENTRE_S))
        if outermost.data_centre or (outermost.data_centre is None and is_near):
            return (workers,)
    return site_sizes(network, workers)
