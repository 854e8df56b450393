"""Times and algorithms of collectives for many numbers of workers and many links at once.

`collective_s` prices a single algorithm on arrays. In this module a policy may choose another algorithm in each
setting, and the caller may pass a function that times the settings without a closed form, for example by simulating
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.closed_prices import (
    FIRST,
    CollectivePrices,
    closed_form_price,
    group_price,
    link_prices,
    node_prices,
    settings,
)
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.hierarchical import first_group_like
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, algorithm_of
from syncline.costmodel.collectives.table import HIERARCHICAL, TABLE, candidates_on, default_algorithm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

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
