"""Collectives of many numbers of workers on many links at once: what each takes, and which algorithm carries it.

`collective_s` prices one algorithm on arrays; here a policy may choose another one in each setting, and what has no
closed form somewhere may be asked of somebody else, who plays it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import has_levels, peers
from syncline.costmodel.collectives.policies import (
    NCCL,
    Algorithms,
    algorithm_for,
    algorithm_of,
    nccl_estimates_s,
    nccl_names,
)
from syncline.costmodel.collectives.table import ALGORITHMS, HIERARCHICAL, SERVERS, first_on
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.errors import SpecError

CLOSED_FORM = "closed form"
"""How a time is known, where nothing else is needed."""

_FIRST = np.zeros((), dtype=np.int64)


class PricedMany(NamedTuple):
    """Collectives of one kind in many settings.

    Attributes:
        seconds: what each takes.
        names: of algorithms.
        chosen: which of the names carries each; broadcasts with ``seconds``.
        ways: ways of knowing the time: ``CLOSED_FORM``, or what somebody else said who was asked.
        known_by: which of the ways of each; broadcasts with ``seconds``.
    """

    seconds: FloatOrArray
    names: tuple[str, ...]
    chosen: Indices
    ways: tuple[str, ...] = (CLOSED_FORM,)
    known_by: Indices = _FIRST


TimedOtherwise: TypeAlias = Callable[[str, int, float, Network, str, Rule], tuple[float, str]]
"""What a collective of P workers takes, by its kind, n, network, algorithm and rule, and how that is known."""


def carried(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms = None,
    rule: Rule = "eager",
    otherwise: TimedOtherwise | None = None,
) -> PricedMany:
    """What a collective takes in each of many settings, and what carries it there.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P of each setting, along the first axis.
        nbytes: n, one for all or one for each P.
        network: a link, whose fields may be arrays with the settings along the first axis, too, or one for all; or
            another network.
        wanted: see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: when a message starts; ``auto`` chooses as if eager.
        otherwise: who is asked where there is no closed form. Then a P that the network cannot join has no time, and
            its way says why.

    Raises:
        SpecError: no such algorithm, or, where nobody is asked, a P that the network cannot join.
        NoClosedForm: as `collective_s`, where nobody is asked.
    """
    names = _of_levels(kind, wanted)
    if isinstance(network, (TwoLevel, MultiLevel)) and names:
        several = _on_nodes(workers, nbytes, network, names, rule)
        if several is not None:
            return several
    if not isinstance(network, Link) or network.duplex == "half" or algorithm_of(wanted, kind) in HIERARCHICAL[kind]:
        return _one_by_one(kind, workers, nbytes, network, wanted, rule, otherwise)
    return _on_links(kind, workers, nbytes, network, wanted, rule)


def _of_levels(kind: str, wanted: Algorithms) -> tuple[str, ...]:
    """The hierarchical algorithms that may be chosen, or the one that is wanted."""
    policy = algorithm_of(wanted, kind)
    return HIERARCHICAL[kind] if policy == "auto" else (policy,) if policy in HIERARCHICAL[kind] and policy else ()


def _on_links(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, wanted: Algorithms, rule: Rule) -> PricedMany:
    """On links of which every algorithm has a closed form, or for one P."""
    policy = algorithm_of(wanted, kind)
    if policy == "auto":
        return _fastest(kind, workers, nbytes, link, rule)
    if policy == "nccl" and kind not in NCCL:
        chosen = _ring_or_tree(workers, nbytes, link)
        names = nccl_names(kind, link)
        # What nobody chooses may have no closed form.
        costs = [
            collective_s(kind, workers, nbytes, link, name, rule=rule) if np.any(chosen == code) else np.nan
            for code, name in enumerate(names)
        ]
        return PricedMany(np.where(chosen, costs[1], costs[0]), names, chosen)
    name = algorithm_for(wanted, kind, 1, 0.0, link) or first_on(kind, link)
    return PricedMany(collective_s(kind, workers, nbytes, link, name, rule=rule), (name,), _FIRST)


def _fastest(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, rule: Rule) -> PricedMany:
    """By the algorithm of the least closed form, the first of several; parameter servers are left out."""
    names, costs = [], []
    for name in ALGORITHMS[kind]:
        if name not in SERVERS:
            with contextlib.suppress(NoClosedForm):
                costs.append(collective_s(kind, workers, nbytes, link, name))
                names.append(name)
    if not names:
        names, costs = [ALGORITHMS[kind][0]], [collective_s(kind, workers, nbytes, link)]
    told = costs
    if rule != "eager":
        told = [collective_s(kind, workers, nbytes, link, name, rule=rule) for name in names]
    return _least(costs, told, names)


def _on_nodes(
    workers: Indices, nbytes: FloatOrArray, network: TwoLevel | MultiLevel, names: tuple[str, ...], rule: Rule
) -> PricedMany | None:
    """On several full nodes each, where nothing but the two-level algorithms has a closed form; None elsewhere."""
    size = network.per_node if isinstance(network, TwoLevel) else network.inner_workers
    full = size > 1 and bool(np.all((workers > size) & (workers % size == 0)))
    if not full:
        return None
    try:
        *inside, last = peers(network, 2 * size)
    except NoClosedForm:
        return None
    if last.exchanges or any(each.exchanges or each.link.duplex == "half" for each in inside):
        return None
    on = *inside, last._replace(size=workers // size)
    return _least(
        [hierarchy_s(name, on, nbytes) for name in names],
        [hierarchy_s(name, on, nbytes, rule) for name in names],
        names,
    )


def _by_levels(workers: int, nbytes: float, network: Network, names: tuple[str, ...], rule: Rule) -> PricedMany | None:
    """Where there are several levels, on which no other all-reduce has a closed form; None elsewhere."""
    if not names or not has_levels(network, workers):
        return None
    costs = {}
    with contextlib.suppress(NoClosedForm):
        on = peers(network, workers)
        for name in names:
            with contextlib.suppress(NoClosedForm):
                costs[name] = hierarchy_s(name, on, nbytes)
    if not costs:
        return None
    name = min(costs, key=costs.__getitem__)
    return PricedMany(costs[name] if rule == "eager" else hierarchy_s(name, on, nbytes, rule), (name,), _FIRST)


def _least(costs: Sequence[FloatOrArray], told: Sequence[FloatOrArray], names: Sequence[str]) -> PricedMany:
    """What is told of the least cost, of several the first."""
    chosen = np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)
    each = np.stack(np.broadcast_arrays(*told))
    return PricedMany(np.take_along_axis(each, chosen[None], axis=0)[0], tuple(names), chosen)


def _ring_or_tree(workers: Any, nbytes: FloatOrArray, link: Link) -> Indices:
    """Where NCCL's model takes the tree for an all-reduce."""
    of_each = []
    for count, size, one in _settings(workers, nbytes, link):
        estimates = nccl_estimates_s(count, size, one) if count > 1 else {("ring", ""): np.zeros(())}
        least = np.argmin(np.stack(np.broadcast_arrays(*estimates.values())), axis=0)
        of_each.append(np.array([name == "tree" for name, _ in estimates], dtype=np.int64)[least])
    return np.stack(np.broadcast_arrays(*of_each))


def _one_by_one(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
    otherwise: TimedOtherwise | None,
) -> PricedMany:
    """One P after another, where what an algorithm costs, or whether that is known, is another question for each."""
    known: dict[tuple[int, float, int], PricedMany] = {}
    each, networks = [], []
    for count, size, one in _settings(workers, nbytes, network):
        key = count, size, id(one)
        if key not in known:
            known[key] = _at(kind, count, size, one, wanted, rule, otherwise)
            networks.append(one)  # as long as it lives, nothing else has its id
        each.append(known[key])
    seconds = np.stack(np.broadcast_arrays(*(one.seconds for one in each)))
    names, chosen = _texts([(one.names, one.chosen) for one in each])
    return PricedMany(seconds, names, chosen, *_texts([(one.ways, one.known_by) for one in each]))


def _texts(each: Sequence[tuple[tuple[str, ...], Indices]]) -> tuple[tuple[str, ...], Indices]:
    """Texts of several by their places, as places in one list, along a new first axis."""
    places: dict[str, int] = {}
    for texts, _ in each:
        for text in texts:
            places.setdefault(text, len(places))
    codes = [np.array([places[text] for text in texts], dtype=np.int64)[which] for texts, which in each]
    return tuple(places), np.stack(np.broadcast_arrays(*codes))


def _at(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
    otherwise: TimedOtherwise | None,
) -> PricedMany:
    if otherwise is None:
        return _by_formula(kind, workers, nbytes, network, wanted, rule)
    try:
        return _by_formula(kind, workers, nbytes, network, wanted, rule)
    except NoClosedForm:
        return _by_somebody(kind, workers, nbytes, network, wanted, rule, otherwise)
    except SpecError as error:
        if error.path != "workers":
            raise
        return _unjoined(network, error)


def _unjoined(network: Network, error: SpecError) -> PricedMany:
    why = f"{network.name} cannot join so many workers; expected {error.expected}"
    return PricedMany(np.float64(np.nan), ("",), _FIRST, (why,), _FIRST)


def _by_formula(kind: str, workers: int, nbytes: float, network: Network, wanted: Algorithms, rule: Rule) -> PricedMany:
    if isinstance(network, Link):
        return _on_links(kind, workers, nbytes, network, wanted, rule)
    by_levels = _by_levels(workers, nbytes, network, _of_levels(kind, wanted), rule)
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
) -> PricedMany:
    each = []
    for one in _single(network):
        name = algorithm_for(wanted, kind, workers, nbytes, one) or first_on(kind, one)
        try:
            seconds, way = otherwise(kind, workers, nbytes, one, name, rule)
        except SpecError as error:
            if error.path != "workers":
                raise
            each.append(_unjoined(one, error))
        else:
            each.append(PricedMany(seconds, (name,), _FIRST, (way,), _FIRST))
    if len(each) == 1:
        return each[0]
    names, chosen = _texts([(one.names, one.chosen) for one in each])
    ways, known_by = _texts([(one.ways, one.known_by) for one in each])
    return PricedMany(np.array([one.seconds for one in each]), names, chosen, ways, known_by)


def _single(network: Network) -> Iterator[Network]:
    """The networks that links are whose fields are arrays ``(n,)``."""
    arrays = network.arrays if isinstance(network, Link) else {}
    if not isinstance(network, Link) or not arrays:
        yield network
        return
    for index in range(max(len(value) for value in arrays.values())):
        yield network.with_numbers({n: value[index if len(value) > 1 else 0] for n, value in arrays.items()})


def _settings(workers: Any, nbytes: FloatOrArray, network: Network) -> Iterator[tuple[int, float, Network]]:
    """P, n and the network of each setting, one after another; the same object where the network is the same."""
    counts = np.reshape(workers, (-1,))
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), counts.shape)
    arrays = network.arrays if isinstance(network, Link) else {}
    varies = any(len(value) > 1 for value in arrays.values())
    one = network
    for index, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
        if isinstance(network, Link) and arrays and (varies or not index):
            one = network.with_numbers({n: value[index if len(value) > 1 else 0] for n, value in arrays.items()})
        yield count, size, one
