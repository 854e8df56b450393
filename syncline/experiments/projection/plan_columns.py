"""The rows of a plan as columns: settings before networks before methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Hardware, Link, Network, bytes_per_step
from syncline.costmodel.arrays import Indices
from syncline.costmodel.network.link import NUMBERS, stacked_links
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.experiments.bounds import Varied, between
from syncline.experiments.projection.bounds import (
    Sides,
    based_on,
    by_link,
    of_networks,
    of_settings,
    of_thresholds,
    varied,
)
from syncline.experiments.projection.columns import Coded, Columns
from syncline.experiments.projection.memory import memory_record
from syncline.experiments.projection.plan import Known, ProjectionPlan
from syncline.experiments.projection.played import HOW
from syncline.experiments.projection.thresholds import AT_A_TIME, RATIOS, WHEN, of_links, ratio, thresholds

NOT_SOUGHT = ("nccl",)
"""Policies whose choice jumps with the bandwidth, by tables; of these no threshold is told."""

TIMES = (
    "step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s", "inside_s", "communication_s",
    "exposed_communication_s",
)  # fmt: skip
"""Of a `syncline.costmodel.StepTime`."""

INSIDE = ("tensor_s", "context_s", "expert_s", "pipeline_s")
"""Of `syncline.costmodel.layouts.inside.InsideTimes`: what ``inside_s`` is the sum of."""

FITS = (None, False, True)

CODED: dict[str, tuple[Any, ...]] = {"fits": FITS, "sharding": SHARDINGS}
"""What of the memory's columns are places in these."""

ENDS = ("", "_low", "_high")
"""What a threshold's columns are called behind its name: it, and its bounds."""


class PricedTogether(NamedTuple):
    """Networks that are priced at once: their places among all, and a link of arrays ``(1, n)``, or the only one."""

    places: list[int]
    network: Network


def together(networks: Sequence[Network]) -> list[PricedTogether]:
    """Links that differ in numbers alone as one; every other network for itself."""
    groups: dict[Any, list[int]] = {}
    for place, network in enumerate(networks):
        key: Any = place
        if isinstance(network, Link):
            kind = [getattr(network, field.name) for field in fields(network) if field.name not in (*NUMBERS, "name")]
            key = *kind, network.upload_bytes_per_s is None
        groups.setdefault(key, []).append(place)
    out = []
    for places in groups.values():
        links = [one for place in places if isinstance(one := networks[place], Link)]
        out.append(PricedTogether(places, stacked_links(links) if links else networks[places[0]]))
    return out


Beside = Mapping[str, tuple[Indices, tuple[Any, ...]]]
"""More columns by name: the place of each row's value, which broadcasts to ``(S, N, M)``, and the values."""


def plan_columns(
    plan: ProjectionPlan, networks: Sequence[Network], with_thresholds: bool, beside: Beside | None = None
) -> Columns:
    """Mean step of each method on each network; speedups are over the first method, in the same setting.

    Args:
        plan: of the settings.
        networks: on which.
        with_thresholds: whether the bandwidths are told at which a method is worth it.
        beside: what else rows have.

    Raises:
        SpecError: a number of workers that a network cannot join.
    """
    spec, shape = plan.spec, (len(plan.specs), len(networks), len(plan.methods))
    rows = np.broadcast_to(plan.able[:, None, :], shape)
    times = {name: np.zeros(shape) for name in (*TIMES, *INSIDE)}
    texts: dict[str, int] = {}
    ways = {way: code for code, way in enumerate(HOW)}
    algorithms, known_by = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    groups = together(networks)
    computing, communicating = of_settings(plan), of_networks(plan, networks)
    bounded = Varied(*(np.zeros(shape) for _ in Varied._fields))
    for places, network in groups:
        known: Known = {}
        here = communicating.of(places)
        for number in range(len(plan.methods)):
            step = plan.step(number, network, known=known)
            for name in TIMES:
                times[name][:, places, number] = by_link(getattr(step, name))
            inside = plan.inside_times(number, network)
            for name in INSIDE if inside is not None else ():
                times[name][:, places, number] = by_link(getattr(inside, name))
            for whole, one in zip(bounded, varied(plan, number, network, known, step, computing, here), strict=True):
                whole[:, places, number] = one
            names, codes = plan.algorithms(number, network, known)
            own = np.array([texts.setdefault(text, len(texts)) for text in names], dtype=np.int64)
            algorithms[:, places, number] = own[codes]
            told, codes = plan.known_by(number, network, known)
            own = np.array([ways.setdefault(way, len(ways)) for way in told], dtype=np.int64)
            known_by[:, places, number] = own[codes]
    if len(ways) > len(HOW):  # some are not known
        for name in ("step_time_s", "communication_s", "exposed_communication_s"):
            times[name][known_by >= len(HOW)] = np.nan
    step_s, communication_s = times["step_time_s"], times["communication_s"]
    step_low_s, step_high_s = between(step_s, bounded)
    speedup = ratio(step_s[:, :, :1], step_s)
    speedup_low, speedup_high = between(speedup, [ratio(one[:, :, :1], one) for one in bounded])
    rests_on, bases = based_on(computing, communicating)
    share = np.divide(communication_s, step_s, out=np.zeros(shape), where=~(step_s <= 0))

    def flat(values: Any) -> NDArray[Any]:
        return np.broadcast_to(values, shape)[rows]

    def coded(codes: Any, values: Sequence[Any]) -> Coded:
        return Coded(flat(codes), tuple(values))

    def by_setting(values: Sequence[Any]) -> Coded:
        known = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return coded(np.array([known[value] for value in values])[:, None, None], list(known))

    machines = [one.compute.hardware.name if one.compute.hardware else None for one in plan.specs]
    columns: Columns = {
        **{name: coded(codes, values) for name, (codes, values) in (beside or {}).items()},
        "model": by_setting([one.model.name for one in plan.specs]),
        "hardware": by_setting(machines),
        "method": coded(np.arange(shape[2]), [method.name for method in plan.methods]),
        "network": coded(np.arange(shape[1])[:, None], [network.name for network in networks]),
        "workers": flat(plan.workers[:, None, None]),
        "layout": coded(0, [plan.layout.describe() if plan.inside else None]),
        "replicas": flat(plan.replicas[:, None, None]),
        "overlap": coded(0, [spec.overlap]),
        "precision": coded(0, [spec.number_format]),
        "algorithm": coded(algorithms, list(texts)),
        "timed_by": coded(np.minimum(known_by, len(HOW)), (*HOW, None)),
        "not_timed": coded(np.maximum(known_by - len(HOW) + 1, 0), (None, *list(ways)[len(HOW) :])),
        **{name: flat(times[name]) for name in (*TIMES[:-1], *INSIDE)},
        "communication_share": flat(share),
        "exposed_communication_s": flat(times["exposed_communication_s"]),
        "utilisation": flat(_utilisation(plan)[:, None, None] / np.where(step_s > 0, step_s, np.nan)),
        "bytes_per_worker": flat(_bytes(plan)[:, None, :]),
        "wall_clock_s": flat(step_s * spec.steps),
        "speedup": flat(speedup),
        "step_time_low_s": flat(step_low_s),
        "step_time_high_s": flat(step_high_s),
        "wall_clock_low_s": flat(step_low_s * spec.steps),
        "wall_clock_high_s": flat(step_high_s * spec.steps),
        "speedup_low": flat(speedup_low),
        "speedup_high": flat(speedup_high),
        "basis": coded(rests_on[:, :, None], bases),
    }
    if with_thresholds:
        for name, (when, *rates) in _thresholds(plan, groups, known_by == 0, computing, communicating).items():
            columns[name] = coded(when, WHEN)
            columns |= {f"{name}{end}_bandwidth_bytes_per_s": flat(r) for end, r in zip(ENDS, rates, strict=True)}
    for name, values in _memory(plan).items():
        columns[name] = coded(values[:, None, :], CODED[name]) if name in CODED else flat(values[:, None, :])
    return columns


def _bytes(plan: ProjectionPlan) -> Floats:
    out = np.zeros((len(plan.specs), len(plan.methods)))
    for number, several in enumerate(plan.traffic):
        for traffic in several:
            sent = [one for one in traffic.exchanges if plan.inside is None or one.part is None]
            out[traffic.settings, number] = bytes_per_step(sent, plan.spec.steps)
    return out


def _utilisation(plan: ProjectionPlan) -> Floats:
    """Seconds of a step at the hardware's peak, in each setting; nan where none is known."""
    machines = [one.compute.hardware for one in plan.specs]
    flops = [one.model.flops_per_token * one.tokens_per_worker for one in plan.specs]
    return np.array([of / one.peak_flops if one else np.nan for of, one in zip(flops, machines, strict=True)])


def _thresholds(
    plan: ProjectionPlan,
    groups: Sequence[PricedTogether],
    closed: NDArray[np.bool_],
    computing: Sides,
    communicating: Sides,
) -> dict[str, tuple[NDArray[Any], ...]]:
    """Below which bandwidth a method is faster than the first one, and faster by a twentieth; and its bounds.

    Unknown for the first one, on a network that is more than one link, with a policy of `NOT_SOUGHT`, and where either
    of the two is not ``closed`` ``(S, N, M)``, a closed form. A bound is unknown where nothing crosses there.
    """
    told = {
        name: (np.zeros(closed.shape, dtype=np.int64), *(np.full(closed.shape, np.nan) for _ in ENDS))
        for name in RATIOS
    }
    for places, links in groups:
        if not isinstance(links, Link) or plan.spec.algorithm_on(links) in NOT_SOUGHT:
            continue
        numbers, settings = np.nonzero(plan.able[:, 1:].T)
        which = np.tile(np.arange(len(places)), len(settings))
        numbers, settings = (np.repeat(one, len(places)) for one in (numbers + 1, settings))
        if not closed.all():
            there = np.array(places)[which]
            sought = closed[settings, there, numbers] & closed[settings, there, 0]
            numbers, settings, which = numbers[sought], settings[sought], which[sought]
        for begin in range(0, len(settings), AT_A_TIME):
            part = slice(begin, begin + AT_A_TIME)
            triples = settings[part], which[part], numbers[part]
            at = triples[0], np.array(places)[triples[1]], triples[2]
            off = of_thresholds(computing, communicating, at[0], at[1])
            for end, factors in enumerate((None, *off)):
                found = thresholds(of_links(plan, links, triples, factors), len(triples[0]))
                for name, (when, bytes_per_s) in found.items():
                    told[name][1 + end][at] = bytes_per_s
                    if factors is None:
                        told[name][0][at] = when
    return told


def _memory(plan: ProjectionPlan) -> dict[str, NDArray[Any]]:
    """The fields of `memory_record`, ``(S, M)`` each; ``fits`` as a place in `FITS`; and how a step is held."""
    specs = plan.specs
    machines: dict[int, tuple[Hardware | None, list[int]]] = {}
    for index, one in enumerate(specs):
        machine = one.memory_machine
        machines.setdefault(id(machine), (machine, []))[1].append(index)
    columns: dict[str, list[NDArray[Any]]] = {}
    for how in plan.held:
        own: dict[str, NDArray[Any]] = {}
        for machine, settings in machines.values():
            for name, told in memory_record(how.memory, machine).items():
                missing = 0 if name == "fits" else np.nan
                value = missing if told is None else 1 + np.asarray(told) if name == "fits" else told
                column = np.broadcast_to(value, (len(specs),))
                own.setdefault(name, np.zeros(len(specs), dtype=column.dtype))[settings] = column[settings]
        for name, column in (own | {"micro_batches": how.micro_batches, "sharding": how.sharding}).items():
            columns.setdefault(name, []).append(column)
    return {name: np.stack(each, axis=1) for name, each in columns.items()}
