"""Times and algorithms of collectives in many settings at once: numbers of workers, bytes, links, groups of workers.

`collective_s` prices a single algorithm on arrays. In this module a policy may choose another algorithm in each
setting, and the caller may pass a function that times the settings without a closed form, for example by simulation.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives import nccl, table
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers, first_of_equal_groups, group_peers, has_levels, peers
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, nccl_estimates_s, nccl_names, user_choice
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

CLOSED_FORM = "closed form"
"""Source of a time that a closed form gives."""

TIME_SOURCES = (CLOSED_FORM, "lockstep", "events")
"""Sources of a time, from a formula to the event simulation; any other text is the reason for an unknown time."""

NVLINK_POLICIES = "auto", "nccl"
"""Policies that use NCCL's algorithm among GPUs with NVLink."""

FIRST_INDEX = np.zeros((), dtype=np.int64)
"""Index of the first of several texts, for all settings."""

CollectiveTimer: TypeAlias = Callable[[str, int, float, Network, str, Rule, range | None], tuple[float, str]]
"""A function of a collective's kind, P, n, network, algorithm, rule and group that returns seconds and their source."""


class CollectivePrices(NamedTuple):
    """Times of one kind of collective in many settings, with the algorithms and the sources of the times.

    Attributes:
        seconds: time of the collective in each setting.
        name_index: index into ``names`` of each setting's algorithm; broadcasts with ``seconds``.
        sources: sources of times: ``CLOSED_FORM``, or the text that a ``CollectiveTimer`` function returns.
        source_index: index into ``sources`` of each setting's source; broadcasts with ``seconds``.
    """

    seconds: FloatOrArray
    names: tuple[str, ...]
    name_index: Indices
    sources: tuple[str, ...] = (CLOSED_FORM,)
    source_index: Indices = FIRST_INDEX


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
    """Return the seconds of a collective and the algorithm that carries it, in each of many settings.

    All workers call the collective, or groups of workers call it at once.

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
        groups: ranks of the first group of each setting, see `group_peers`; None: one group of all workers. A group on
            several levels uses a hierarchical algorithm. On one level it uses ``algorithms``, and ``auto`` if they are
            hierarchical.

    Raises:
        SpecError: no such algorithm; without ``timer`` also a number of workers that the network cannot join.
        NoClosedForm: without ``timer``, as `collective_s`.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx, workers = NETWORKS["dgx-a100"].network, np.array([16])
    >>> for group in range(8), range(0, 16, 8):
    ...     print(f"{collective_prices('all_reduce', workers, 1e9, dgx, groups=[group]).seconds.item():.5f}")
    0.00584
    0.04000
    """
    if groups is not None:
        group_sizes = [len(group) for group in groups]
        if isinstance(network, Link):  # groups do not share links: a group takes the time of a network of its size
            further_axes = (1,) * (np.ndim(workers) - 1)
            workers = np.reshape(group_sizes, (-1, *further_axes))
        elif group_sizes != np.ravel(workers).tolist():  # some group does not have all workers
            return _prices_by_setting(kind, workers, nbytes, network, algorithms, rule, timer, groups)
    if isinstance(network, (TwoLevel, MultiLevel)):
        prices = _node_prices(kind, workers, nbytes, network, algorithms, rule)
        if prices is not None:
            return prices
    is_hierarchical = user_choice(algorithms, kind) in table.HIERARCHICAL[kind]
    if not isinstance(network, Link) or network.duplex == "half" or is_hierarchical:
        return _prices_by_setting(kind, workers, nbytes, network, algorithms, rule, timer)
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
    """Return the algorithm that `collective_prices` takes for a group of workers, or None if the group has no price.

    ``ranks`` are those of the group among all ``workers``; the other arguments are those of `collective_prices`.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> [group_algorithm("all_reduce", ranks, 16, 1e9, dgx, "auto") for ranks in (range(8), (0, 8), range(4))]
    ['measured', 'recursive-doubling', 'measured']
    """
    group = first_of_equal_groups(ranks, workers)
    if group is None:  # an irregular group
        return None
    try:
        prices = collective_prices(kind, np.array([workers]), nbytes, network, algorithms, timer=timer, groups=[group])
    except NoClosedForm:
        return None
    (index,) = np.ravel(prices.name_index).tolist()
    return prices.names[index] or None  # the name is empty if nothing is sent or the time is unknown


def link_prices(
    kind: str, workers: Any, nbytes: FloatOrArray, link: Link, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the prices of a collective on a link; on a half-duplex link ``workers`` must be a single number.

    Otherwise ``workers`` and the link's fields may be arrays; the arguments are those of `collective_prices`.
    """
    policy = user_choice(algorithms, kind)
    if policy == "auto" and nccl.is_measured(kind, link, workers):
        return CollectivePrices(nccl.measured_all_reduce_s(workers, nbytes, link), (table.MEASURED,), FIRST_INDEX)
    if policy in NVLINK_POLICIES and kind in nccl.NVLINK_LAPS and link.nvlink is not None and link.duplex == "full":
        return CollectivePrices(
            nccl.nvlink_s(kind, nbytes, table.gpu_nodes(link, workers)), (nccl.NVLINK,), FIRST_INDEX
        )

    def seconds_of(name: str, rule: Rule) -> FloatOrArray:
        return collective_s(kind, workers, nbytes, link, name, rule=rule)

    if policy == "auto":
        prices = _fastest_prices(
            [name for name in table.ALGORITHMS[kind] if name not in table.SERVERS], seconds_of, rule
        )
        assert prices is not None  # the first algorithm of each collective has a closed form on every link
        return prices
    names = nccl_names(kind, link) if policy == "nccl" else ()
    if len(names) > 1:  # a ring, and a tree or PAT
        name_index = _nccl_choices(kind, workers, nbytes, link)
        seconds: FloatOrArray = np.nan
        for index, name in enumerate(names):
            if np.any(name_index == index):  # an algorithm that no setting chooses may have no closed form
                seconds = np.where(name_index == index, seconds_of(name, rule), seconds)
        return CollectivePrices(seconds, names, name_index)
    # Other policies choose an algorithm regardless of workers and bytes.
    name = algorithm_for(algorithms, kind, workers=1, nbytes=0.0, network=link) or table.default_algorithm(kind, link)
    return CollectivePrices(seconds_of(name, rule), (name,), FIRST_INDEX)


def _fastest_prices(
    names: Sequence[str], seconds_of: Callable[[str, Rule], FloatOrArray], rule: Rule
) -> CollectivePrices | None:
    """Return the prices of each setting's fastest algorithm under the eager rule, or None if none has a closed form.

    Args:
        names: names of the algorithms; of equally fast ones the first is taken.
        seconds_of: function of an algorithm's name and a start rule that returns the seconds in all settings.
        rule: start rule of the prices; the choice is that under the eager rule.
    """
    eager_s = {}
    for name in names:
        with contextlib.suppress(NoClosedForm):
            eager_s[name] = seconds_of(name, "eager")
    if not eager_s:
        return None
    # The algorithms are along axis 0 of the stacked arrays, the settings along the other axes.
    stacked_s = np.stack(np.broadcast_arrays(*eager_s.values()))
    name_index = np.argmin(stacked_s, axis=0)
    if rule != "eager":
        stacked_s = np.stack(np.broadcast_arrays(*(seconds_of(name, rule) for name in eager_s)))
    fastest_s = np.take_along_axis(stacked_s, name_index[None], axis=0)[0]
    if not name_index.ndim:  # a single setting names only its own algorithm
        return CollectivePrices(fastest_s, (tuple(eager_s)[name_index],), FIRST_INDEX)
    return CollectivePrices(fastest_s, tuple(eager_s), name_index)


def _nccl_choices(kind: str, workers: Any, nbytes: FloatOrArray, link: Link) -> Indices:
    """Return 0 in the settings in which NCCL's model chooses a ring for a collective, and 1 for a tree or PAT."""
    choices = []
    for count, size, setting_link in _each_setting(workers, nbytes, link):
        # A single worker sends nothing, and has no estimates; the ring stands for it.
        estimates = nccl_estimates_s(count, size, setting_link, kind) if count > 1 else {("ring", ""): np.zeros(())}
        fastest = np.argmin(np.stack(np.broadcast_arrays(*estimates.values())), axis=0)
        choice_by_estimate = np.array([algorithm != "ring" for algorithm, _ in estimates], dtype=np.int64)
        choices.append(choice_by_estimate[fastest])
    stacked_choices = np.stack(np.broadcast_arrays(*choices))
    return stacked_choices if np.ndim(workers) else stacked_choices[0]  # one setting if `workers` is a number


def _node_prices(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: TwoLevel | MultiLevel,
    algorithms: Algorithms,
    rule: Rule,
) -> CollectivePrices | None:
    """Return the prices of algorithms for nodes; None if ``algorithms`` permits none or a setting has no closed form.

    A setting has a closed form if its workers fill two nodes or more, and all links are full-duplex.
    """
    names = _hierarchical_names(kind, algorithms)
    if not names and user_choice(algorithms, kind) not in NVLINK_POLICIES:
        return None
    unit_workers = network.per_node if isinstance(network, TwoLevel) else network.inner_workers
    if unit_workers < 2 or not np.all((workers > unit_workers) & (workers % unit_workers == 0)):
        return None
    try:
        # Two units have the links of any number of units; only the outermost level's size differs.
        *inner_levels, outermost = peers(network, 2 * unit_workers)
    except NoClosedForm:
        return None
    is_half_duplex = any(level.is_shared_half_duplex or level.link.duplex == "half" for level in inner_levels)
    if outermost.is_shared_half_duplex or is_half_duplex:
        return None
    levels = *inner_levels, outermost._replace(size=workers // unit_workers)
    return _level_prices(kind, levels, nbytes, algorithms, names, rule)


def _level_prices(
    kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, algorithms: Algorithms, names: Sequence[str], rule: Rule
) -> CollectivePrices | None:
    """Return the prices of a collective that goes level by level, or None if it has no closed form.

    On NVLink it is NCCL's algorithm, if ``algorithms`` permits it; else the fastest of the hierarchical ``names``.
    """
    permits_nvlink = kind in nccl.NVLINK_LAPS and user_choice(algorithms, kind) in NVLINK_POLICIES
    nodes = nccl.nodes_of(levels) if permits_nvlink else None
    if nodes is not None:
        return CollectivePrices(nccl.nvlink_s(kind, nbytes, nodes), (nccl.NVLINK,), FIRST_INDEX)
    return _fastest_prices(names, lambda name, rule: hierarchy_s(kind, name, levels, nbytes, rule), rule)


def _hierarchical_names(kind: str, algorithms: Algorithms) -> tuple[str, ...]:
    """Return the hierarchical algorithms that ``algorithms`` permits: all for ``auto``, else only the named one."""
    policy = user_choice(algorithms, kind)
    return tuple(name for name in table.HIERARCHICAL[kind] if policy in ("auto", name))


def _group_price(
    kind: str, group: range, workers: int, nbytes: float, network: Network, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the price of a collective that all groups of workers call at once on a network of levels.

    ``group`` has the ranks of the first group of all ``workers``; other arguments are those of `collective_prices`.

    Raises:
        NoClosedForm: see `group_peers`; also messages that share half-duplex links unevenly.
    """
    levels = group_peers(network, group, workers)
    if not levels:  # a group of one worker sends nothing, and uses no algorithm
        return CollectivePrices(np.float64(0.0), names=("",), name_index=FIRST_INDEX)
    if len(levels) == 1:
        (level,) = levels
        if level.is_shared_half_duplex:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        if user_choice(algorithms, kind) in table.HIERARCHICAL[kind]:  # these need several levels
            algorithms = "auto"
        link = replace(
            level.link, gloo=network.gloo, nccl=table.nccl_on(network)
        )  # the default is the network's library
        return link_prices(kind, np.array(level.size), nbytes, link, algorithms, rule)
    names = _hierarchical_names(kind, algorithms) or table.HIERARCHICAL[kind]
    prices = _level_prices(kind, levels, nbytes, algorithms, names, rule)
    if prices is None:
        raise NoClosedForm("network", network.name, "links between units that all workers load evenly")
    return prices


def _closed_form_price(
    kind: str, workers: int, nbytes: float, network: Network, algorithms: Algorithms, rule: Rule
) -> CollectivePrices:
    """Return the price of a collective of all workers by a closed form, for a single number of workers and size."""
    if isinstance(network, Link):
        return link_prices(kind, workers, nbytes, network, algorithms, rule)
    names = _hierarchical_names(kind, algorithms)
    # Among GPUs with NVLink, `algorithm_for` chooses NCCL's own algorithm for policy ``auto``.
    if names and has_levels(network, workers) and nccl.NVLINK not in table.algorithms_on(kind, network, workers):
        with contextlib.suppress(NoClosedForm):  # if levels have no closed form, a flat algorithm may have one
            levels = peers(network, workers)
            price = _fastest_prices(names, lambda name, rule: hierarchy_s(kind, name, levels, nbytes, rule), rule)
            if price is not None:
                return price
    name = algorithm_for(algorithms, kind, workers, nbytes, network) or table.default_algorithm(kind, network)
    return CollectivePrices(collective_s(kind, workers, nbytes, network, name, rule=rule), (name,), FIRST_INDEX)


def _prices_by_setting(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    algorithms: Algorithms,
    rule: Rule,
    timer: CollectiveTimer | None,
    groups: Sequence[range] | None = None,
) -> CollectivePrices:
    """Return the prices of a collective, setting by setting: by a closed form, or by ``timer`` where there is none.

    Equal settings are priced once. The arguments are those of `collective_prices`.
    """
    cache: dict[tuple[int, float, int, range | None], CollectivePrices] = {}
    prices, networks = [], []
    for index, (count, size, setting_network) in enumerate(_each_setting(workers, nbytes, network)):
        # A group of all workers is priced as the whole network.
        group = groups[index] if groups is not None and len(groups[index]) < count else None
        key = count, size, id(setting_network), group
        if key not in cache:
            networks.append(setting_network)  # while the list keeps the network alive, no other object has its id
            try:
                if group is not None:
                    cache[key] = _group_price(kind, group, count, size, setting_network, algorithms, rule)
                else:
                    cache[key] = _closed_form_price(kind, count, size, setting_network, algorithms, rule)
            except NoClosedForm:
                if timer is None:
                    raise
                cache[key] = _timed_price(kind, count, size, setting_network, algorithms, rule, timer, group)
            except SpecError as error:
                if timer is None:
                    raise
                cache[key] = _unknown_price(setting_network, error)
        prices.append(cache[key])
    return _merged_prices(prices)


def _timed_price(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    algorithms: Algorithms,
    rule: Rule,
    timer: CollectiveTimer,
    group: range | None,
) -> CollectivePrices:
    """Return the price of a collective by ``timer``, for each link if the link's fields are arrays.

    Policy ``auto`` takes the fastest of `candidates_on`. Groups of some workers take the algorithm that ``algorithms``
    names, or the default instead of another policy or a hierarchical algorithm.
    """
    policy = user_choice(algorithms, kind)
    arrays = network.arrays if isinstance(network, Link) else {}
    num_networks = max(map(len, arrays.values()), default=1)
    prices = []
    for single_network in _network_at_each(network, num_networks):
        if policy == "auto":
            names = table.candidates_on(kind, single_network, workers)
        else:
            name = None
            if group is None:
                name = algorithm_for(algorithms, kind, workers, nbytes, single_network)
            elif policy in table.TABLE[kind] and policy not in table.HIERARCHICAL[kind]:
                name = policy
            names = (name or table.default_algorithm(kind, single_network),)
        try:
            times = [timer(kind, workers, nbytes, single_network, name, rule, group) for name in names]
        except SpecError as error:
            prices.append(_unknown_price(single_network, error))
            continue
        all_seconds = [seconds for seconds, _ in times]
        # An algorithm whose time is unknown (NaN) does not win, unless all are unknown.
        fastest = 0 if np.all(np.isnan(all_seconds)) else int(np.nanargmin(all_seconds))
        seconds, source = times[fastest]
        prices.append(CollectivePrices(seconds, (names[fastest],), FIRST_INDEX, sources=(source,)))
    return _merged_prices(prices) if arrays else prices[0]  # one link in an array has an axis, too


def _unknown_price(network: Network, error: SpecError) -> CollectivePrices:
    """Return the price NaN, with the reason, for a network that cannot connect so many workers; raise other errors."""
    if error.path != "workers":
        raise error
    reason = f"{network.name} cannot connect so many workers; expected {error.expected}"
    return CollectivePrices(np.float64(np.nan), names=("",), name_index=FIRST_INDEX, sources=(reason,))


def _merged_prices(prices: Sequence[CollectivePrices]) -> CollectivePrices:
    """Return the prices of several settings as one, with the settings along a new first axis."""
    seconds = np.stack(np.broadcast_arrays(*(price.seconds for price in prices)))
    names, name_index = _merged_texts([(price.names, price.name_index) for price in prices])
    sources, source_index = _merged_texts([(price.sources, price.source_index) for price in prices])
    return CollectivePrices(seconds, names, name_index, sources, source_index)


def _merged_texts(texts_and_indices: Sequence[tuple[tuple[str, ...], Indices]]) -> tuple[tuple[str, ...], Indices]:
    """Return the different texts of several settings, and the indices into them along a new first axis.

    ``texts_and_indices`` has the texts of each setting, and the setting's indices into its own texts.
    """
    position: dict[str, int] = {}
    merged_indices = []
    for texts, index in texts_and_indices:
        new_positions = [position.setdefault(text, len(position)) for text in texts]  # a new text comes last
        merged_indices.append(np.array(new_positions, dtype=np.int64)[index])
    return tuple(position), np.stack(np.broadcast_arrays(*merged_indices))


def _each_setting(workers: Any, nbytes: FloatOrArray, network: Network) -> Iterator[tuple[int, float, Network]]:
    """Yield the number of workers, the bytes and the network of each setting; equal networks are one object."""
    counts = np.reshape(workers, (-1,))
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), counts.shape)
    yield from zip(counts.tolist(), sizes.tolist(), _network_at_each(network, len(counts)), strict=True)


def _network_at_each(network: Network, count: int) -> Iterator[Network]:
    """Yield the network of each of ``count`` settings; a link's arrays have the settings along their first axis.

    If the network is the same in all settings, all get the same object.
    """
    arrays = network.arrays if isinstance(network, Link) else {}
    links_differ = any(len(array) > 1 for array in arrays.values())
    for index in range(count if links_differ else 1):
        # An array of length 1 has the same value for all settings.
        numbers = {field: array[index if len(array) > 1 else 0] for field, array in arrays.items()}
        setting_network = network.with_numbers(numbers, same_links=True) if isinstance(network, Link) else network
        yield from itertools.repeat(setting_network, 1 if links_differ else count)
