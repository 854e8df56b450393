"""Times of collectives in closed form, in many settings at once: on links, on nodes, and of groups of workers.

A policy may choose another algorithm in each setting. `syncline.costmodel.collectives.vectorised` prices any network
with these functions, setting by setting where the settings have no common form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers, group_peers, has_levels, peers
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
    algorithms_on,
    first_on,
    gpu_nodes,
    nccl_on,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices

CLOSED_FORM = "closed form"
"""Source of a time that a closed form gives."""

HOW = (CLOSED_FORM, "lockstep", "events")
"""Sources of a time, from a formula to the event simulation; any other text is the reason for an unknown time."""

BY_NCCL = "auto", "nccl"
"""Policies that use NCCL's algorithm among GPUs with NVLink."""

FIRST = np.zeros((), dtype=np.int64)
"""Index of the first of several texts, for all settings."""


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
    known_by: Indices = FIRST


def on_links(kind: str, workers: Any, nbytes: FloatOrArray, link: Link, wanted: Algorithms, rule: Rule) -> PricedMany:
    """Price a collective on full-duplex links, where algorithms have closed forms, or for a single P on any link."""
    policy = algorithm_of(wanted, kind)
    if policy == "auto" and is_measured(kind, link, workers):
        return PricedMany(measured_all_reduce_s(workers, nbytes, link), (MEASURED,), FIRST)
    if policy in BY_NCCL and kind in LAPS and link.nvlink is not None and link.duplex == "full":
        return PricedMany(nvlink_s(kind, nbytes, gpu_nodes(link, workers)), (NVLINK,), FIRST)
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
    return PricedMany(collective_s(kind, workers, nbytes, link, name, rule=rule), (name,), FIRST)


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


def on_nodes(
    kind: str,
    workers: Indices,
    nbytes: FloatOrArray,
    network: TwoLevel | MultiLevel,
    wanted: Algorithms,
    rule: Rule,
) -> PricedMany | None:
    """Price algorithms of nodes if every P fills two nodes or more; return None if they have no closed form."""
    names, policy = of_levels(kind, wanted), algorithm_of(wanted, kind)
    if not names and policy not in BY_NCCL:
        return None
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
    priced = _on_nvlink(kind, levels, nbytes, wanted)
    if priced is not None or not names:
        return priced
    return _least(
        [hierarchy_s(kind, name, levels, nbytes) for name in names],
        [hierarchy_s(kind, name, levels, nbytes, rule) for name in names],
        names,
    )


def _on_nvlink(kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, wanted: Algorithms) -> PricedMany | None:
    """Price NCCL's algorithm among GPUs with NVLink; return None if ``wanted`` names another or it has no time."""
    permitted = kind in LAPS and algorithm_of(wanted, kind) in BY_NCCL
    on = nodes_of(levels) if permitted else None
    return None if on is None else PricedMany(nvlink_s(kind, nbytes, on), (NVLINK,), FIRST)


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
    return PricedMany(seconds, (name,), FIRST)


def of_group(
    kind: str, group: range, workers: int, nbytes: float, network: Network, wanted: Algorithms, rule: Rule
) -> PricedMany:
    """Price a collective that all groups of some workers call at once on a network of levels.

    Raises:
        NoClosedForm: see `group_peers`; also messages that share half-duplex links unevenly.
    """
    levels = group_peers(network, group, workers)
    policy = algorithm_of(wanted, kind)
    if not levels:
        return PricedMany(np.float64(0.0), ("",), FIRST)
    if len(levels) == 1:
        if levels[0].exchanges:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        at_level: Algorithms = "auto" if policy in HIERARCHICAL[kind] else wanted
        link = replace(levels[0].link, gloo=network.gloo, nccl=nccl_on(network))
        return on_links(kind, np.array(levels[0].size), nbytes, link, at_level, rule)
    priced = _on_nvlink(kind, levels, nbytes, wanted)
    if priced is not None:
        return priced
    names = (policy,) if policy in HIERARCHICAL[kind] and policy else HIERARCHICAL[kind]
    priced = _by_levels(kind, levels, nbytes, names, rule)
    if priced is None:
        raise NoClosedForm("network", network.name, "links between units that all workers load evenly")
    return priced


def of_levels(kind: str, wanted: Algorithms) -> tuple[str, ...]:
    """Return the hierarchical algorithms that ``wanted`` permits: all for ``auto``, else the named one or none."""
    policy = algorithm_of(wanted, kind)
    return HIERARCHICAL[kind] if policy == "auto" else (policy,) if policy in HIERARCHICAL[kind] and policy else ()


def by_formula(kind: str, workers: int, nbytes: float, network: Network, wanted: Algorithms, rule: Rule) -> PricedMany:
    """Price one setting by a closed form."""
    if isinstance(network, Link):
        return on_links(kind, workers, nbytes, network, wanted, rule)
    names = of_levels(kind, wanted)
    if names and has_levels(network, workers) and NVLINK not in algorithms_on(kind, network, workers):
        with contextlib.suppress(NoClosedForm):
            by_levels = _by_levels(kind, peers(network, workers), nbytes, names, rule)
            if by_levels is not None:
                return by_levels
    name = algorithm_for(wanted, kind, workers, nbytes, network)
    seconds = collective_s(kind, workers, nbytes, network, name, rule=rule)
    return PricedMany(seconds, (name or first_on(kind, network),), FIRST)


def _least(costs: Sequence[FloatOrArray], reported: Sequence[FloatOrArray], names: Sequence[str]) -> PricedMany:
    """Return the reported seconds of the algorithm of least cost in each setting, the first of equals."""
    chosen = np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)
    stacked = np.stack(np.broadcast_arrays(*reported))
    return PricedMany(np.take_along_axis(stacked, chosen[None], axis=0)[0], tuple(names), chosen)


def _ring_or_tree(workers: Any, nbytes: FloatOrArray, link: Link) -> Indices:
    """Return 1 in the settings in which NCCL's model chooses the tree for an all-reduce, else 0."""
    is_tree = []
    for count, size, setting_link in settings_of(workers, nbytes, link):
        estimates = nccl_estimates_s(count, size, setting_link) if count > 1 else {("ring", ""): np.zeros(())}
        fastest = np.argmin(np.stack(np.broadcast_arrays(*estimates.values())), axis=0)
        is_tree.append(np.array([name == "tree" for name, _ in estimates], dtype=np.int64)[fastest])
    return np.stack(np.broadcast_arrays(*is_tree))


def settings_of(workers: Any, nbytes: FloatOrArray, network: Network) -> Iterator[tuple[int, float, Network]]:
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
