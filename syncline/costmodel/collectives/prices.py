"""Times of collectives in closed form, in many settings at once: on links, on nodes, and of groups of workers.

A policy may choose another algorithm in each setting. `syncline.costmodel.collectives.prices` prices any network
with these functions, setting by setting where the settings have no common form.

Times and algorithms of collectives for many numbers of workers and many links at once.

`collective_s` prices a single algorithm on arrays. In this module a policy may choose another algorithm in each
setting, and the caller may pass a function that times the settings without a closed form, for example by simulating
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import (
    Callable,
    Iterator,
    Sequence,
)
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers, first_group_like, group_peers, has_levels, peers
from syncline.costmodel.collectives.nccl import LAPS, NVLINK, is_measured, measured_all_reduce_s, nodes_of, nvlink_s
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
    algorithms_on,
    candidates_on,
    default_algorithm,
    gpu_nodes,
    nccl_on,
)
from syncline.costmodel.network.link import Link, Network
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

CLOSED_FORM = "closed form"
"""Source of a time that a closed form gives."""

TIME_SOURCES = (CLOSED_FORM, "lockstep", "events")
"""Sources of a time, from a formula to the event simulation; any other text is the reason for an unknown time."""

BY_NCCL = "auto", "nccl"
"""Policies that use NCCL's algorithm among GPUs with NVLink."""

FIRST = np.zeros((), dtype=np.int64)
"""Index of the first of several texts, for all settings."""


class CollectivePrices(NamedTuple):
    """Times of one kind of collective in many settings, with the algorithms and the sources of the times.

    Attributes:
        seconds: time of the collective in each setting.
        names: names of algorithms.
        name_index: index into ``names`` of each setting's algorithm; broadcasts with ``seconds``.
        sources: sources of times: ``CLOSED_FORM``, or the text that a ``CollectiveTimer`` function returns.
        source_index: index into ``sources`` of each setting's source; broadcasts with ``seconds``.
    """

    seconds: FloatOrArray
    names: tuple[str, ...]
    name_index: Indices
    sources: tuple[str, ...] = (CLOSED_FORM,)
    source_index: Indices = FIRST


def link_prices(
    kind: str, workers: Any, nbytes: FloatOrArray, link: Link, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the prices of a collective on full-duplex links, or for a single number of workers on any link."""
    policy = algorithm_of(algorithms, kind)
    if policy == "auto" and is_measured(kind, link, workers):
        return CollectivePrices(measured_all_reduce_s(workers, nbytes, link), (MEASURED,), FIRST)
    if policy in BY_NCCL and kind in LAPS and link.nvlink is not None and link.duplex == "full":
        return CollectivePrices(nvlink_s(kind, nbytes, gpu_nodes(link, workers)), (NVLINK,), FIRST)
    if policy == "auto":
        return _fastest_prices(kind, workers, nbytes, link, rule)
    if policy == "nccl" and kind not in NCCL:
        is_tree = _nccl_takes_tree(workers, nbytes, link)
        names = nccl_names(kind, link)
        # An algorithm that no setting chooses may have no closed form.
        ring_s, tree_s = (
            collective_s(kind, workers, nbytes, link, name, rule=rule) if np.any(is_tree == index) else np.nan
            for index, name in enumerate(names)
        )
        return CollectivePrices(np.where(is_tree, tree_s, ring_s), names, is_tree)
    name = algorithm_for(algorithms, kind, 1, 0.0, link) or default_algorithm(kind, link)
    return CollectivePrices(collective_s(kind, workers, nbytes, link, name, rule=rule), (name,), FIRST)


def _fastest_prices(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, rule: Rule) -> CollectivePrices:
    """Return the prices of the fastest algorithms in closed form, the first of equals, without parameter servers."""
    names, eager_s = [], []
    for name in ALGORITHMS[kind]:
        if name not in SERVERS:
            with contextlib.suppress(NoClosedForm):
                eager_s.append(collective_s(kind, workers, nbytes, link, name))
                names.append(name)
    if not names:
        names, eager_s = [ALGORITHMS[kind][0]], [collective_s(kind, workers, nbytes, link)]
    seconds = eager_s
    if rule != "eager":
        seconds = [collective_s(kind, workers, nbytes, link, name, rule=rule) for name in names]
    return _least_cost_prices(eager_s, seconds, names)


def node_prices(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: TwoLevel | MultiLevel,
    algorithms: Algorithms,
    rule: Rule,
) -> CollectivePrices | None:
    """Return the prices of hierarchical algorithms, or None if they have no closed form in all settings.

    They have one if each number of workers fills two nodes or more.
    """
    names, policy = hierarchical_names(kind, algorithms), algorithm_of(algorithms, kind)
    if not names and policy not in BY_NCCL:
        return None
    size = network.per_node if isinstance(network, TwoLevel) else network.inner_workers
    fills_nodes = size > 1 and bool(np.all((workers > size) & (workers % size == 0)))
    if not fills_nodes:
        return None
    try:
        *inner_levels, outermost = peers(network, 2 * size)
    except NoClosedForm:
        return None
    if outermost.is_shared_half_duplex or any(
        level.is_shared_half_duplex or level.link.duplex == "half" for level in inner_levels
    ):
        return None
    levels = *inner_levels, outermost._replace(size=workers // size)
    priced = _nvlink_prices(kind, levels, nbytes, algorithms)
    if priced is not None or not names:
        return priced
    return _least_cost_prices(
        [hierarchy_s(kind, name, levels, nbytes) for name in names],
        [hierarchy_s(kind, name, levels, nbytes, rule) for name in names],
        names,
    )


def _nvlink_prices(
    kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, algorithms: Algorithms
) -> CollectivePrices | None:
    """Return the prices of NCCL's algorithm among GPUs with NVLink; None without NVLink or under another policy."""
    permitted = kind in LAPS and algorithm_of(algorithms, kind) in BY_NCCL
    nodes = nodes_of(levels) if permitted else None
    return None if nodes is None else CollectivePrices(nvlink_s(kind, nbytes, nodes), (NVLINK,), FIRST)


def _hierarchical_price(
    kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, names: tuple[str, ...], rule: Rule
) -> CollectivePrices | None:
    """Return the price of the fastest hierarchical algorithm on several levels, or None if none has a closed form."""
    eager_s = {}
    for name in names:
        with contextlib.suppress(NoClosedForm):
            eager_s[name] = hierarchy_s(kind, name, levels, nbytes)
    if not eager_s:
        return None
    name = min(eager_s, key=eager_s.__getitem__)
    seconds = eager_s[name] if rule == "eager" else hierarchy_s(kind, name, levels, nbytes, rule)
    return CollectivePrices(seconds, (name,), FIRST)


def group_price(
    kind: str, group: range, workers: int, nbytes: float, network: Network, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the price of a collective that all groups of workers call at once on a network of levels.

    ``group`` has the ranks of the first group, ``workers`` is the number of all workers.

    Raises:
        NoClosedForm: see `group_peers`; also messages that share half-duplex links unevenly.
    """
    levels = group_peers(network, group, workers)
    policy = algorithm_of(algorithms, kind)
    if not levels:
        return CollectivePrices(np.float64(0.0), ("",), FIRST)
    if len(levels) == 1:
        if levels[0].is_shared_half_duplex:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        at_level: Algorithms = "auto" if policy in HIERARCHICAL[kind] else algorithms
        link = replace(levels[0].link, gloo=network.gloo, nccl=nccl_on(network))
        return link_prices(kind, np.array(levels[0].size), nbytes, link, at_level, rule)
    priced = _nvlink_prices(kind, levels, nbytes, algorithms)
    if priced is not None:
        return priced
    names = (policy,) if policy in HIERARCHICAL[kind] and policy else HIERARCHICAL[kind]
    priced = _hierarchical_price(kind, levels, nbytes, names, rule)
    if priced is None:
        raise NoClosedForm("network", network.name, "links between units that all workers load evenly")
    return priced


def hierarchical_names(kind: str, algorithms: Algorithms) -> tuple[str, ...]:
    """Return the hierarchical algorithms that ``algorithms`` permits: all for ``auto``, else the named one or none."""
    policy = algorithm_of(algorithms, kind)
    if policy == "auto":
        return HIERARCHICAL[kind]
    return (policy,) if policy in HIERARCHICAL[kind] and policy else ()


def closed_form_price(
    kind: str, workers: int, nbytes: float, network: Network, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the price of one setting by a closed form."""
    if isinstance(network, Link):
        return link_prices(kind, workers, nbytes, network, algorithms, rule)
    names = hierarchical_names(kind, algorithms)
    if names and has_levels(network, workers) and NVLINK not in algorithms_on(kind, network, workers):
        with contextlib.suppress(NoClosedForm):
            price = _hierarchical_price(kind, peers(network, workers), nbytes, names, rule)
            if price is not None:
                return price
    name = algorithm_for(algorithms, kind, workers, nbytes, network)
    seconds = collective_s(kind, workers, nbytes, network, name, rule=rule)
    return CollectivePrices(seconds, (name or default_algorithm(kind, network),), FIRST)


def _least_cost_prices(
    eager_s: Sequence[FloatOrArray], seconds: Sequence[FloatOrArray], names: Sequence[str]
) -> CollectivePrices:
    """Return the seconds of the algorithm with the least eager seconds in each setting, the first of equals."""
    name_index = np.argmin(np.stack(np.broadcast_arrays(*eager_s)), axis=0)
    stacked_s = np.stack(np.broadcast_arrays(*seconds))
    return CollectivePrices(np.take_along_axis(stacked_s, name_index[None], axis=0)[0], tuple(names), name_index)


def _nccl_takes_tree(workers: Any, nbytes: FloatOrArray, link: Link) -> Indices:
    """Return 1 in the settings in which NCCL's model chooses the tree for an all-reduce, else 0."""
    is_tree = []
    for count, size, setting_link in settings(workers, nbytes, link):
        estimates = nccl_estimates_s(count, size, setting_link) if count > 1 else {("ring", ""): np.zeros(())}
        fastest = np.argmin(np.stack(np.broadcast_arrays(*estimates.values())), axis=0)
        is_tree.append(np.array([name == "tree" for name, _ in estimates], dtype=np.int64)[fastest])
    return np.stack(np.broadcast_arrays(*is_tree))


def settings(workers: Any, nbytes: FloatOrArray, network: Network) -> Iterator[tuple[int, float, Network]]:
    """Yield the number of workers, the bytes and the network of each setting; equal networks are the same object."""
    counts = np.reshape(workers, (-1,))
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), counts.shape)
    arrays = network.arrays if isinstance(network, Link) else {}
    varies = any(len(value) > 1 for value in arrays.values())
    current = network
    for index, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
        if isinstance(network, Link) and arrays and (varies or not index):
            numbers = {field: value[index if len(value) > 1 else 0] for field, value in arrays.items()}
            current = network.with_numbers(numbers, same_links=True)
        yield count, size, current


CollectiveTimer: TypeAlias = Callable[[str, int, float, Network, str, Rule, range | None], tuple[float, str]]
"""A function of a collective's kind, P, n, network, algorithm, rule and group that returns seconds and their source."""


def collective_prices(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    algorithms: Algorithms = None,
    rule: Rule = "eager",
    timer: CollectiveTimer | None = None,
    groups: Sequence[range] | None = None,
) -> CollectivePrices:
    """Return a collective's seconds and its algorithm in each of many settings.

    Everything that asks for the time of a collective on a network calls this function. All workers call the collective,
    or groups of workers call it at once.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: number of workers of each setting, along the first axis.
        nbytes: bytes of the collective, the same for all settings or one value for each.
        network: a link, or another network. A link's fields may be arrays with the settings along the first axis.
        algorithms: see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: the start rule of messages; policy ``auto`` chooses as if the rule were eager.
        timer: function that times a collective without a closed form; policy ``auto`` then takes the fastest of
            `candidates_on`. With this function, a number of workers that the network cannot join has the time NaN, and
            its entry of ``sources`` gives the reason.
        groups: the first of the groups of each setting, see `group_peers`; None: one group of all workers. A group on
            several levels goes level by level; on one level it uses ``algorithms`` (hierarchical ones mean ``auto``).

    Raises:
        SpecError: no such algorithm, or, without ``timer``, a number of workers that the network cannot join.
        NoClosedForm: as `collective_s`, without ``timer``.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx, workers = NETWORKS["dgx-a100"].network, np.array([16])
    >>> for group in range(8), range(0, 16, 8):
    ...     print(f"{collective_prices('all_reduce', workers, 1e9, dgx, groups=[group]).seconds.item():.5f}")
    0.00584
    0.04000
    """
    if groups is not None and isinstance(network, Link):  # groups of workers that share no link
        workers = np.reshape([len(group) for group in groups], (-1, *(1,) * (np.ndim(workers) - 1)))
    elif groups is not None and any(
        len(group) != count for group, count in zip(groups, np.ravel(workers), strict=True)
    ):
        return _setting_by_setting(kind, workers, nbytes, network, algorithms, rule, timer, groups)
    if isinstance(network, (TwoLevel, MultiLevel)):
        priced = node_prices(kind, workers, nbytes, network, algorithms, rule)
        if priced is not None:
            return priced
    is_hierarchical = algorithm_of(algorithms, kind) in HIERARCHICAL[kind]
    if not isinstance(network, Link) or network.duplex == "half" or is_hierarchical:
        return _setting_by_setting(kind, workers, nbytes, network, algorithms, rule, timer)
    return link_prices(kind, workers, nbytes, network, algorithms, rule)


def group_algorithm(
    kind: str,
    ranks: Sequence[int],
    workers: int,
    nbytes: float,
    network: Network,
    algorithms: Algorithms,
    timer: CollectiveTimer | None = None,
) -> str | None:
    """Return the algorithm of `collective_prices` for a group of workers, or None if the group has no price.

    Args:
        kind: one of ``COLLECTIVES``.
        ranks: ranks of the group among all workers.
        workers: number of all workers.
        nbytes: bytes of the collective.
        network: network of all workers.
        algorithms: see `collective_prices`.
        timer: see `collective_prices`.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> [group_algorithm("all_reduce", ranks, 16, 1e9, dgx, "auto") for ranks in (range(8), (0, 8), range(4))]
    ['measured', 'recursive-doubling', 'measured']
    """
    group = first_group_like(ranks, workers)
    if group is None:
        return None
    try:
        priced = collective_prices(kind, np.array([workers]), nbytes, network, algorithms, timer=timer, groups=[group])
    except NoClosedForm:
        return None
    return priced.names[int(np.ravel(priced.name_index)[0])] or None


def _setting_by_setting(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    algorithms: Algorithms,
    rule: Rule,
    timer: CollectiveTimer | None,
    groups: Sequence[range] | None = None,
) -> CollectivePrices:
    """Return the prices of a collective, each setting by itself, and equal settings only once."""
    cache: dict[tuple[int, float, int, range | None], CollectivePrices] = {}
    prices, networks = [], []
    for index, (count, size, setting_network) in enumerate(settings(workers, nbytes, network)):
        group = groups[index] if groups is not None and len(groups[index]) < count else None
        key = count, size, id(setting_network), group
        if key not in cache:
            cache[key] = _setting_price(kind, count, size, setting_network, algorithms, rule, timer, group)
            networks.append(setting_network)  # while the list keeps the network alive, no other object has its id
        prices.append(cache[key])
    seconds = np.stack(np.broadcast_arrays(*(priced.seconds for priced in prices)))
    names, name_index = _merged_texts([(priced.names, priced.name_index) for priced in prices])
    return CollectivePrices(
        seconds, names, name_index, *_merged_texts([(priced.sources, priced.source_index) for priced in prices])
    )


def _merged_texts(lists: Sequence[tuple[tuple[str, ...], Indices]]) -> tuple[tuple[str, ...], Indices]:
    """Merge pairs of texts and indices into one list of texts and the indices into this list, on a new first axis."""
    all_texts = tuple(dict.fromkeys(chain.from_iterable(texts for texts, _ in lists)))
    position = {text: number for number, text in enumerate(all_texts)}
    merged = [np.array([position[text] for text in texts], dtype=np.int64)[indices] for texts, indices in lists]
    return all_texts, np.stack(np.broadcast_arrays(*merged))


def _setting_price(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    algorithms: Algorithms,
    rule: Rule,
    timer: CollectiveTimer | None,
    group: range | None = None,
) -> CollectivePrices:
    """Return the price of one setting, by a closed form or else by ``timer``."""
    try:
        if group is not None:
            return group_price(kind, group, workers, nbytes, network, algorithms, rule)
        return closed_form_price(kind, workers, nbytes, network, algorithms, rule)
    except NoClosedForm:
        if timer is None:
            raise
        return _timed_price(kind, workers, nbytes, network, algorithms, rule, timer, group)
    except SpecError as error:
        if error.path != "workers" or timer is None:
            raise
        return _unknown_price(network, error)


def _unknown_price(network: Network, error: SpecError) -> CollectivePrices:
    """Return the time NaN with the reason that the network cannot join so many workers."""
    reason = f"{network.name} cannot join so many workers; expected {error.expected}"
    return CollectivePrices(np.float64(np.nan), ("",), FIRST, (reason,), FIRST)


def _timed_price(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    algorithms: Algorithms,
    rule: Rule,
    timer: CollectiveTimer,
    group: range | None = None,
) -> CollectivePrices:
    """Return the price of a setting by ``timer``, for each index of a link whose fields are arrays.

    Policy ``auto`` takes the fastest of `candidates_on`. Under another policy, groups take the named algorithm if it is
    not hierarchical, or the default.
    """
    prices = []
    for single_link in _scalar_networks(network):
        name = algorithm_of(algorithms, kind)
        if name == "auto":
            names = candidates_on(kind, single_link, workers)
        elif group is None:
            names = (
                algorithm_for(algorithms, kind, workers, nbytes, single_link) or default_algorithm(kind, single_link),
            )
        else:
            names = (
                name
                if name in TABLE[kind] and name not in HIERARCHICAL[kind]
                else default_algorithm(kind, single_link),
            )
        try:
            times = [(*timer(kind, workers, nbytes, single_link, name, rule, group), name) for name in names]
        except SpecError as error:
            if error.path != "workers":
                raise
            prices.append(_unknown_price(single_link, error))
        else:
            seconds, source, name = min(times, key=lambda time: (np.isnan(time[0]), time[0]))
            prices.append(CollectivePrices(seconds, (name,), FIRST, (source,), FIRST))
    if len(prices) == 1:
        return prices[0]
    names, name_index = _merged_texts([(priced.names, priced.name_index) for priced in prices])
    sources, source_index = _merged_texts([(priced.sources, priced.source_index) for priced in prices])
    return CollectivePrices(np.array([priced.seconds for priced in prices]), names, name_index, sources, source_index)


def _scalar_networks(network: Network) -> Iterator[Network]:
    """Yield a network for each index of a link whose fields are arrays ``(n,)``, or the network itself."""
    arrays = network.arrays if isinstance(network, Link) else {}
    if not isinstance(network, Link) or not arrays:
        yield network
        return
    for index in range(max(len(value) for value in arrays.values())):
        numbers = {field: value[index if len(value) > 1 else 0] for field, value in arrays.items()}
        yield network.with_numbers(numbers, same_links=True)
