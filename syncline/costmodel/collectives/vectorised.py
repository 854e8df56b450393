"""Times and algorithms of collectives for many numbers of workers and many links at once.

`collective_s` prices a single algorithm on arrays. In this module a policy may choose another algorithm in each
setting, and the caller may pass a function that times the settings without a closed form, for example by simulating
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers, first_group_like, group_peers, has_levels, peers
from syncline.costmodel.collectives.nccl.nodes import LAPS, NVLINK, nodes_of, nvlink_s
from syncline.costmodel.collectives.nccl.nvlink import is_measured, measured_all_reduce_s
from syncline.costmodel.collectives.policies import (
    NCCL,
    Algorithms,
    algorithm_for,
    algorithm_of,
    nccl_estimates_s,
    nccl_names,
)
from syncline.costmodel.collectives.table import (
    ALGORITHMS,
    HIERARCHICAL,
    MEASURED,
    SERVERS,
    TABLE,
    first_on,
    gpu_nodes,
    link_of_all,
    nccl_on,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

CLOSED_FORM = "closed form"
"""Source of a time that a closed form gives."""

BY_NCCL = "auto", "nccl"
"""Policies that use NCCL's algorithm among GPUs with NVLink."""

_FIRST = np.zeros((), dtype=np.int64)


class PricedMany(NamedTuple):
    """Times of one kind of collective in many settings, with the algorithms and the sources of the times.

    Attributes:
        seconds: time of the collective in each setting.
        names: names of algorithms.
        chosen: index into ``names`` of each setting's algorithm; broadcasts with ``seconds``.
        ways: sources of times: ``CLOSED_FORM``, or the text that a ``TimedOtherwise`` function returns.
        known_by: index into ``ways`` of each setting's source; broadcasts with ``seconds``.
    """

    seconds: FloatOrArray
    names: tuple[str, ...]
    chosen: Indices
    ways: tuple[str, ...] = (CLOSED_FORM,)
    known_by: Indices = _FIRST


TimedOtherwise: TypeAlias = Callable[[str, int, float, Network, str, Rule, range | None], tuple[float, str]]
"""A function of a collective's kind, P, n, network, algorithm, rule and group that returns seconds and their source."""


def carried(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms = None,
    rule: Rule = "eager",
    otherwise: TimedOtherwise | None = None,
    groups: Sequence[range] | None = None,
) -> PricedMany:
    """Return a collective's seconds and its algorithm in each of many settings.

    **This is what a collective takes on a network, whoever asks**: all workers, or groups of them that call it at once.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P of each setting, along the first axis.
        nbytes: n, the same for all settings or one value for each P.
        network: a link, or another network. A link's fields may be arrays with the settings along the first axis.
        wanted: see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: when a message starts; ``auto`` chooses as if eager.
        otherwise: times a collective that has no closed form. With this function, a P that the network cannot join
            has the time NaN, and its entry of ``ways`` gives the reason.
        groups: the first of the groups of each setting, see `group_peers`; None: one group of all workers. A group on
            several levels goes level by level; on one level, by ``wanted`` (a hierarchical algorithm means ``auto``).

    Raises:
        SpecError: no such algorithm, or, without ``otherwise``, a P that the network cannot join.
        NoClosedForm: as `collective_s`, without ``otherwise``.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx, workers = NETWORKS["dgx-a100"].network, np.array([16])
    >>> inside, across = (carried("all_reduce", workers, 1e9, dgx, groups=[g]) for g in (range(8), range(0, 16, 8)))
    >>> f"{inside.seconds.item():.5f}, {across.seconds.item():.5f}"
    '0.00584, 0.04000'
    """
    if groups is not None and isinstance(network, Link):  # groups of workers that share no link
        workers = np.reshape([len(group) for group in groups], (-1, *(1,) * (np.ndim(workers) - 1)))
    elif groups is not None and any(
        len(group) != count for group, count in zip(groups, np.ravel(workers), strict=True)
    ):
        return _one_by_one(kind, workers, nbytes, network, wanted, rule, otherwise, groups)
    names = _of_levels(kind, wanted)
    if isinstance(network, (TwoLevel, MultiLevel)) and (names or algorithm_of(wanted, kind) == "nccl"):
        priced = _on_nodes(kind, workers, nbytes, network, names, rule)
        if priced is not None:
            return priced
    if not isinstance(network, Link) or network.duplex == "half" or algorithm_of(wanted, kind) in HIERARCHICAL[kind]:
        return _one_by_one(kind, workers, nbytes, network, wanted, rule, otherwise)
    return _on_links(kind, workers, nbytes, network, wanted, rule)


def group_algorithm(
    kind: str, ranks: Sequence[int], workers: int, nbytes: float, network: Network, wanted: Algorithms
) -> str | None:
    """Return the algorithm of `carried` for some of P workers, or None if no closed form tells which.

    Args:
        kind: one of ``COLLECTIVES``.
        ranks: the workers that take part.
        workers: P.
        nbytes: n.
        network: network of all workers.
        wanted: see `carried`.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> [group_algorithm("all_reduce", ranks, 16, 1e9, dgx, "auto") for ranks in (range(8), (0, 8), range(4))]
    ['measured', 'recursive-doubling', 'measured']
    """
    group = first_group_like(ranks, workers)
    if group is None:
        return None
    try:
        priced = carried(kind, np.array([workers]), nbytes, network, wanted, groups=[group])
    except NoClosedForm:
        return None
    return priced.names[int(np.ravel(priced.chosen)[0])] or None


def _of_levels(kind: str, wanted: Algorithms) -> tuple[str, ...]:
    """Return the hierarchical algorithms that ``wanted`` permits: all for ``auto``, else the named one or none."""
    policy = algorithm_of(wanted, kind)
    return HIERARCHICAL[kind] if policy == "auto" else (policy,) if policy in HIERARCHICAL[kind] and policy else ()


def _on_links(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, wanted: Algorithms, rule: Rule) -> PricedMany:
    """Price a collective on full-duplex links, where algorithms have closed forms, or for a single P on any link."""
    policy = algorithm_of(wanted, kind)
    if policy == "auto" and is_measured(kind, link, workers):
        return PricedMany(measured_all_reduce_s(workers, nbytes, link), (MEASURED,), _FIRST)
    if policy in BY_NCCL and kind in LAPS and link.nvlink is not None and link.duplex == "full":
        return PricedMany(nvlink_s(kind, nbytes, gpu_nodes(link, workers)), (NVLINK,), _FIRST)
    if policy == "auto":
        return _fastest(kind, workers, nbytes, link, rule)
    if policy == "nccl" and kind not in NCCL:
        chosen = _ring_or_tree(workers, nbytes, link)
        names = nccl_names(kind, link)
        # An algorithm that no setting chooses may have no closed form.
        costs = [
            collective_s(kind, workers, nbytes, link, name, rule=rule) if np.any(chosen == index) else np.nan
            for index, name in enumerate(names)
        ]
        return PricedMany(np.where(chosen, costs[1], costs[0]), names, chosen)
    name = algorithm_for(wanted, kind, 1, 0.0, link) or first_on(kind, link)
    return PricedMany(collective_s(kind, workers, nbytes, link, name, rule=rule), (name,), _FIRST)


def _fastest(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, rule: Rule) -> PricedMany:
    """Price a collective by its fastest algorithm in closed form, the first of equals, without parameter servers."""
    names, costs = [], []
    for name in ALGORITHMS[kind]:
        if name not in SERVERS:
            with contextlib.suppress(NoClosedForm):
                costs.append(collective_s(kind, workers, nbytes, link, name))
                names.append(name)
    if not names:
        names, costs = [ALGORITHMS[kind][0]], [collective_s(kind, workers, nbytes, link)]
    reported = costs
    if rule != "eager":
        reported = [collective_s(kind, workers, nbytes, link, name, rule=rule) for name in names]
    return _least(costs, reported, names)


def _on_nodes(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: TwoLevel | MultiLevel,
    names: tuple[str, ...],
    rule: Rule,
) -> PricedMany | None:
    """Price two-level algorithms if every P fills two nodes or more; return None if they have no closed form."""
    size = network.per_node if isinstance(network, TwoLevel) else network.inner_workers
    full = size > 1 and bool(np.all((workers > size) & (workers % size == 0)))
    if not full:
        return None
    try:
        *inside, last = peers(network, 2 * size)
    except NoClosedForm:
        return None
    if last.exchanges or any(level.exchanges or level.link.duplex == "half" for level in inside):
        return None
    levels = *inside, last._replace(size=workers // size)
    if names == HIERARCHICAL[kind] or not names:
        priced = _on_nvlink(kind, levels, nbytes)
        if priced is not None or not names:
            return priced
    return _least(
        [hierarchy_s(kind, name, levels, nbytes) for name in names],
        [hierarchy_s(kind, name, levels, nbytes, rule) for name in names],
        names,
    )


def _on_nvlink(kind: str, levels: Sequence[Peers], nbytes: FloatOrArray) -> PricedMany | None:
    """Price NCCL's algorithm among GPUs with NVLink; return None if it has no time on these levels."""
    on = nodes_of(levels) if kind in LAPS and levels else None
    return None if on is None else PricedMany(nvlink_s(kind, nbytes, on), (NVLINK,), _FIRST)


def _by_levels(
    kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, names: tuple[str, ...], rule: Rule
) -> PricedMany | None:
    """Price the fastest hierarchical algorithm on several levels; return None if none has a closed form."""
    costs = {}
    for name in names:
        with contextlib.suppress(NoClosedForm):
            costs[name] = hierarchy_s(kind, name, levels, nbytes)
    if not costs:
        return None
    name = min(costs, key=costs.__getitem__)
    seconds = costs[name] if rule == "eager" else hierarchy_s(kind, name, levels, nbytes, rule)
    return PricedMany(seconds, (name,), _FIRST)


def _of_group(
    kind: str, group: range, workers: int, nbytes: float, network: Network, wanted: Algorithms, rule: Rule
) -> PricedMany:
    """Price a collective that all groups of some workers call at once on a network of levels.

    Raises:
        NoClosedForm: see `group_peers`; also messages that share half-duplex links unevenly.
    """
    levels = group_peers(network, group, workers)
    policy = algorithm_of(wanted, kind)
    if not levels:
        return PricedMany(np.float64(0.0), ("",), _FIRST)
    if len(levels) == 1:
        if levels[0].exchanges:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        at_level: Algorithms = "auto" if policy in HIERARCHICAL[kind] else wanted
        link = replace(levels[0].link, gloo=network.gloo, nccl=nccl_on(network))
        return _on_links(kind, np.array(levels[0].size), nbytes, link, at_level, rule)
    if policy in BY_NCCL:
        priced = _on_nvlink(kind, levels, nbytes)
        if priced is not None:
            return priced
    names = (policy,) if policy in HIERARCHICAL[kind] and policy else HIERARCHICAL[kind]
    priced = _by_levels(kind, levels, nbytes, names, rule)
    if priced is None:
        raise NoClosedForm("network", network.name, "links between units that all workers load evenly")
    return priced


def _least(costs: Sequence[FloatOrArray], reported: Sequence[FloatOrArray], names: Sequence[str]) -> PricedMany:
    """Return the reported seconds of the algorithm of least cost in each setting, the first of equals."""
    chosen = np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)
    stacked = np.stack(np.broadcast_arrays(*reported))
    return PricedMany(np.take_along_axis(stacked, chosen[None], axis=0)[0], tuple(names), chosen)


def _ring_or_tree(workers: Any, nbytes: FloatOrArray, link: Link) -> Indices:
    """Return 1 in the settings in which NCCL's model chooses the tree for an all-reduce, else 0."""
    is_tree = []
    for count, size, setting_link in _settings(workers, nbytes, link):
        estimates = nccl_estimates_s(count, size, setting_link) if count > 1 else {("ring", ""): np.zeros(())}
        fastest = np.argmin(np.stack(np.broadcast_arrays(*estimates.values())), axis=0)
        is_tree.append(np.array([name == "tree" for name, _ in estimates], dtype=np.int64)[fastest])
    return np.stack(np.broadcast_arrays(*is_tree))


def _one_by_one(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
    otherwise: TimedOtherwise | None,
    groups: Sequence[range] | None = None,
) -> PricedMany:
    """Price each setting by itself, and equal settings only once."""
    cache: dict[tuple[int, float, int, range | None], PricedMany] = {}
    prices, networks = [], []
    for index, (count, size, setting_network) in enumerate(_settings(workers, nbytes, network)):
        group = groups[index] if groups is not None and len(groups[index]) < count else None
        key = count, size, id(setting_network), group
        if key not in cache:
            cache[key] = _at(kind, count, size, setting_network, wanted, rule, otherwise, group)
            networks.append(setting_network)  # while the list keeps the network alive, no other object has its id
        prices.append(cache[key])
    seconds = np.stack(np.broadcast_arrays(*(priced.seconds for priced in prices)))
    names, chosen = _texts([(priced.names, priced.chosen) for priced in prices])
    return PricedMany(seconds, names, chosen, *_texts([(priced.ways, priced.known_by) for priced in prices]))


def _texts(lists: Sequence[tuple[tuple[str, ...], Indices]]) -> tuple[tuple[str, ...], Indices]:
    """Merge several pairs of texts and indices into one list of texts and the indices into it, on a new first axis."""
    places: dict[str, int] = {}
    for texts, _ in lists:
        for text in texts:
            places.setdefault(text, len(places))
    codes = [np.array([places[text] for text in texts], dtype=np.int64)[indices] for texts, indices in lists]
    return tuple(places), np.stack(np.broadcast_arrays(*codes))


def _at(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
    otherwise: TimedOtherwise | None,
    group: range | None = None,
) -> PricedMany:
    """Price one setting; if it has no closed form, call ``otherwise``."""
    try:
        if group is not None:
            return _of_group(kind, group, workers, nbytes, network, wanted, rule)
        return _by_formula(kind, workers, nbytes, network, wanted, rule)
    except NoClosedForm:
        if otherwise is None:
            raise
        return _by_somebody(kind, workers, nbytes, network, wanted, rule, otherwise, group)
    except SpecError as error:
        if error.path != "workers" or otherwise is None:
            raise
        return _unjoined(network, error)


def _unjoined(network: Network, error: SpecError) -> PricedMany:
    """Return the time NaN with the reason that the network cannot join so many workers."""
    why = f"{network.name} cannot join so many workers; expected {error.expected}"
    return PricedMany(np.float64(np.nan), ("",), _FIRST, (why,), _FIRST)


def _by_formula(kind: str, workers: int, nbytes: float, network: Network, wanted: Algorithms, rule: Rule) -> PricedMany:
    """Price one setting by a closed form."""
    if isinstance(network, Link):
        return _on_links(kind, workers, nbytes, network, wanted, rule)
    names = _of_levels(kind, wanted)
    if algorithm_of(wanted, kind) in BY_NCCL:
        on = gpu_nodes(network, workers) if kind in LAPS else None
        if on is not None and not (on.nodes == 1 and is_measured(kind, link_of_all(network, workers), workers)):
            return PricedMany(nvlink_s(kind, nbytes, on), (NVLINK,), _FIRST)
    if names and has_levels(network, workers):
        with contextlib.suppress(NoClosedForm):
            by_levels = _by_levels(kind, peers(network, workers), nbytes, names, rule)
            if by_levels is not None:
                return by_levels
    name = algorithm_for(wanted, kind, workers, nbytes, network)
    seconds = collective_s(kind, workers, nbytes, network, name, rule=rule)
    return PricedMany(seconds, (name or first_on(kind, network),), _FIRST)


def _by_somebody(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
    otherwise: TimedOtherwise,
    group: range | None = None,
) -> PricedMany:
    """Time a setting by ``otherwise``, for each index of a link whose fields are arrays.

    Groups take the named algorithm for any network, or else the default.
    """
    prices = []
    for single_link in _single(network):
        name = algorithm_of(wanted, kind)
        if group is None:
            name = algorithm_for(wanted, kind, workers, nbytes, single_link)
        name = name if name in TABLE[kind] and not (group and name in HIERARCHICAL[kind]) else None
        name = name or first_on(kind, single_link)
        try:
            seconds, source = otherwise(kind, workers, nbytes, single_link, name, rule, group)
        except SpecError as error:
            if error.path != "workers":
                raise
            prices.append(_unjoined(single_link, error))
        else:
            prices.append(PricedMany(seconds, (name,), _FIRST, (source,), _FIRST))
    if len(prices) == 1:
        return prices[0]
    names, chosen = _texts([(priced.names, priced.chosen) for priced in prices])
    sources, known_by = _texts([(priced.ways, priced.known_by) for priced in prices])
    return PricedMany(np.array([priced.seconds for priced in prices]), names, chosen, sources, known_by)


def _single(network: Network) -> Iterator[Network]:
    """Yield a network for each index of a link whose fields are arrays ``(n,)``, or the network itself."""
    arrays = network.arrays if isinstance(network, Link) else {}
    if not isinstance(network, Link) or not arrays:
        yield network
        return
    for index in range(max(len(value) for value in arrays.values())):
        numbers = {n: value[index if len(value) > 1 else 0] for n, value in arrays.items()}
        yield network.with_numbers(numbers, same_links=True)


def _settings(workers: Any, nbytes: FloatOrArray, network: Network) -> Iterator[tuple[int, float, Network]]:
    """Yield P, n and the network of each setting; equal networks are the same object."""
    counts = np.reshape(workers, (-1,))
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), counts.shape)
    arrays = network.arrays if isinstance(network, Link) else {}
    varies = any(len(value) > 1 for value in arrays.values())
    current = network
    for index, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
        if isinstance(network, Link) and arrays and (varies or not index):
            numbers = {n: value[index if len(value) > 1 else 0] for n, value in arrays.items()}
            current = network.with_numbers(numbers, same_links=True)
        yield count, size, current
