"""Times and algorithms of collectives for many numbers of workers and many links at once.

`collective_s` prices a single algorithm on arrays. In this module a policy may choose another algorithm in each
setting, and the caller may pass a function that times the settings without a closed form, for example by simulating
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.closed_prices import (
    FIRST,
    PricedMany,
    by_formula,
    of_group,
    on_links,
    on_nodes,
    settings_of,
)
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.hierarchical import first_group_like
from syncline.costmodel.collectives.policies import (
    Algorithms,
    algorithm_for,
    algorithm_of,
)
from syncline.costmodel.collectives.table import (
    HIERARCHICAL,
    TABLE,
    candidates_on,
    first_on,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

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
        otherwise: times a collective that has no closed form; ``auto`` then is the fastest of `candidates_on`. With
            this function, a P that the network cannot join has the time NaN, and its entry of ``ways`` gives the
            reason.
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
    if isinstance(network, (TwoLevel, MultiLevel)):
        priced = on_nodes(kind, workers, nbytes, network, wanted, rule)
        if priced is not None:
            return priced
    if not isinstance(network, Link) or network.duplex == "half" or algorithm_of(wanted, kind) in HIERARCHICAL[kind]:
        return _one_by_one(kind, workers, nbytes, network, wanted, rule, otherwise)
    return on_links(kind, workers, nbytes, network, wanted, rule)


def group_algorithm(
    kind: str,
    ranks: Sequence[int],
    workers: int,
    nbytes: float,
    network: Network,
    wanted: Algorithms,
    otherwise: TimedOtherwise | None = None,
) -> str | None:
    """Return the algorithm of `carried` for some of P workers, or None if no time tells which.

    Args:
        kind: one of ``COLLECTIVES``.
        ranks: the workers that take part.
        workers: P.
        nbytes: n.
        network: network of all workers.
        wanted: see `carried`.
        otherwise: see `carried`.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> [group_algorithm("all_reduce", ranks, 16, 1e9, dgx, "auto") for ranks in (range(8), (0, 8), range(4))]
    ['measured', 'recursive-doubling', 'measured']
    """
    group = first_group_like(ranks, workers)
    if group is None:
        return None
    try:
        priced = carried(kind, np.array([workers]), nbytes, network, wanted, otherwise=otherwise, groups=[group])
    except NoClosedForm:
        return None
    return priced.names[int(np.ravel(priced.chosen)[0])] or None


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
    for index, (count, size, setting_network) in enumerate(settings_of(workers, nbytes, network)):
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
            return of_group(kind, group, workers, nbytes, network, wanted, rule)
        return by_formula(kind, workers, nbytes, network, wanted, rule)
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
    return PricedMany(np.float64(np.nan), ("",), FIRST, (why,), FIRST)


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

    Policy ``auto`` takes the fastest of `candidates_on`. Else groups take the named algorithm for any network, or the
    default.
    """
    prices = []
    for single_link in _single(network):
        name = algorithm_of(wanted, kind)
        if name == "auto":
            names = candidates_on(kind, single_link, workers)
        elif group is None:
            names = (algorithm_for(wanted, kind, workers, nbytes, single_link) or first_on(kind, single_link),)
        else:
            names = (name if name in TABLE[kind] and name not in HIERARCHICAL[kind] else first_on(kind, single_link),)
        try:
            timed = {name: otherwise(kind, workers, nbytes, single_link, name, rule, group) for name in names}
        except SpecError as error:
            if error.path != "workers":
                raise
            prices.append(_unjoined(single_link, error))
        else:
            name = min(names, key=lambda name: (np.isnan(timed[name][0]), timed[name][0]))
            prices.append(PricedMany(timed[name][0], (name,), FIRST, (timed[name][1],), FIRST))
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
