"""The rows of a plan as columns, sorted by settings, then networks, then methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Hardware, Link, Network, bytes_per_step
from syncline.costmodel.collectives.prices import TIME_SOURCES
from syncline.costmodel.network.link import NUMBERS, stacked_links
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.planner.bounds import StepTimeVariants, combined_bounds
from syncline.planner.periods import period_of
from syncline.planner.projection.bounds import (
    FactorBounds,
    based_on,
    by_link,
    communication_bounds,
    computing_bounds,
    step_time_variants,
    threshold_bounds,
)
from syncline.planner.projection.columns import Categorical, Columns
from syncline.planner.projection.memory_plan import ACTIVATIONS, memory_record
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import Known
from syncline.planner.projection.thresholds import AT_A_TIME, RATIOS, WHEN, of_links, ratio, thresholds

NOT_SOUGHT = ("nccl",)
"""Policies whose choice jumps with the bandwidth, by tables; they have no thresholds."""

TIMES = (
    "step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s", "inside_s", "communication_s",
    "exposed_communication_s",
)  # fmt: skip
"""Fields of a `syncline.costmodel.StepTime` with a column."""

INSIDE = ("tensor_s", "context_s", "expert_s", "pipeline_s")
"""Fields of `syncline.costmodel.layouts.replica_step.ReplicaTimes`; ``inside_s`` is their sum, and waiting for the
slowest worker if computing has jitter."""

FITS = (None, False, True)

CODED: dict[str, tuple[Any, ...]] = {"fits": FITS, "sharding": SHARDINGS, "activations": ACTIVATIONS}
"""Columns of the memory that are indices into these values."""

ENDS = ("", "_low", "_high")
"""Suffixes of a threshold's columns: its value, and its bounds."""


class NetworkGroup(NamedTuple):
    """Networks that are priced at once: their indices among all, and a link of arrays ``(1, n)``, or the only one."""

    places: list[int]
    network: Network


def network_groups(networks: Sequence[Network]) -> list[NetworkGroup]:
    """Return the networks in groups: links that differ only in numbers as one, every other network by itself."""
    groups: dict[Any, list[int]] = {}
    for place, network in enumerate(networks):
        key: Any = place
        if isinstance(network, Link):
            kind = [getattr(network, field.name) for field in fields(network) if field.name not in (*NUMBERS, "name")]
            key = *kind, network.upload_bytes_per_s is None
        groups.setdefault(key, []).append(place)
    out = []
    for places in groups.values():
        links = [link for place in places if isinstance(link := networks[place], Link)]
        out.append(NetworkGroup(places, stacked_links(links) if links else networks[places[0]]))
    return out


Beside = Mapping[str, tuple[Indices, tuple[Any, ...]]]
"""Further columns by name: the index of each row's value, which broadcasts to ``(S, N, M)``, and the values."""


def plan_columns(
    plan: ProjectionPlan, networks: Sequence[Network], with_thresholds: bool, extra_columns: Beside | None = None
) -> Columns:
    """Return the mean step of each method on each network; speedups are over the first method, in the same setting.

    Args:
        plan: plan of the settings.
        networks: the networks.
        with_thresholds: whether to find the bandwidths at which a method is worth it.
        extra_columns: further columns of the rows.

    Raises:
        SpecError: a number of workers that a network cannot join.
    """
    spec, shape = plan.spec, (len(plan.specs), len(networks), len(plan.methods))
    rows = np.broadcast_to(plan.able[:, None, :], shape)
    times = {name: np.zeros(shape) for name in (*TIMES, *INSIDE)}
    texts: dict[str, int] = {}
    evaluators = {evaluator: code for code, evaluator in enumerate(TIME_SOURCES)}
    algorithms, source_index = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    groups = network_groups(networks)
    computing, communicating = computing_bounds(plan), communication_bounds(plan, networks)
    bounded = StepTimeVariants(*(np.zeros(shape) for _ in StepTimeVariants._fields))
    for places, network in groups:
        cache: Known = {}
        link_sides = communicating.select(places)
        for number in range(len(plan.methods)):
            step = plan.step(number, network, cache=cache)
            for name in TIMES:
                times[name][:, places, number] = by_link(getattr(step, name))
            inside = plan.inside_times(number, network)
            for name in INSIDE:
                times[name][:, places, number] = by_link(getattr(inside, name))
            for bound, bound_s in zip(
                bounded, step_time_variants(plan, number, network, cache, step, computing, link_sides), strict=True
            ):
                bound[:, places, number] = bound_s
            names, codes = plan.algorithms(number, network, cache)
            code_of = np.array([texts.setdefault(text, len(texts)) for text in names], dtype=np.int64)
            algorithms[:, places, number] = code_of[codes]
            reasons, codes = plan.evaluators(number, network, cache)
            code_of = np.array(
                [evaluators.setdefault(evaluator, len(evaluators)) for evaluator in reasons], dtype=np.int64
            )
            source_index[:, places, number] = code_of[codes]
    if len(evaluators) > len(TIME_SOURCES):  # some times are unknown
        for name in ("step_time_s", "communication_s", "exposed_communication_s"):
            times[name][source_index >= len(TIME_SOURCES)] = np.nan
    step_s, communication_s = times["step_time_s"], times["communication_s"]
    step_low_s, step_high_s = combined_bounds(step_s, bounded)
    speedup = ratio(step_s[:, :, :1], step_s)
    speedup_low, speedup_high = combined_bounds(speedup, [ratio(bound_s[:, :, :1], bound_s) for bound_s in bounded])
    rests_on, bases = based_on(computing, communicating)
    share = np.divide(communication_s, step_s, out=np.zeros(shape), where=~(step_s <= 0))

    def flat(values: Any) -> NDArray[Any]:
        return np.broadcast_to(values, shape)[rows]

    def coded(codes: Any, values: Sequence[Any]) -> Categorical:
        return Categorical(flat(codes), tuple(values))

    def by_setting(values: Sequence[Any]) -> Categorical:
        code_by_value = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return coded(np.array([code_by_value[value] for value in values])[:, None, None], list(code_by_value))

    machines = [setting.compute.hardware.name if setting.compute.hardware else None for setting in plan.specs]
    columns: Columns = {
        **{name: coded(codes, values) for name, (codes, values) in (extra_columns or {}).items()},
        "model": by_setting([setting.model.name for setting in plan.specs]),
        "hardware": by_setting(machines),
        "method": coded(np.arange(shape[2]), [method.name for method in plan.methods]),
        "period": coded(np.arange(shape[2]), [period_of(method) for method in plan.methods]),
        "network": coded(np.arange(shape[1])[:, None], [network.name for network in networks]),
        "workers": flat(plan.workers[:, None, None]),
        "tokens_per_worker": by_setting([spec.worker_tokens for spec in plan.specs]),
        "layout": coded(0, [plan.layout.describe() if plan.layout.workers > 1 else None]),
        "replicas": flat(plan.replicas[:, None, None]),
        "overlap": coded(0, [spec.overlap]),
        "precision": coded(0, [spec.number_format]),
        "algorithm": coded(algorithms, list(texts)),
        "timed_by": coded(np.minimum(source_index, len(TIME_SOURCES)), (*TIME_SOURCES, None)),
        "not_timed": coded(
            np.maximum(source_index - len(TIME_SOURCES) + 1, 0), (None, *list(evaluators)[len(TIME_SOURCES) :])
        ),
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
        for name, (when, *rates) in _thresholds(plan, groups, source_index == 0, computing, communicating).items():
            columns[name] = coded(when, WHEN)
            columns |= {f"{name}{end}_bandwidth_bytes_per_s": flat(r) for end, r in zip(ENDS, rates, strict=True)}
    for name, values in _memory(plan).items():
        columns[name] = coded(values[:, None, :], CODED[name]) if name in CODED else flat(values[:, None, :])
    return columns


def _bytes(plan: ProjectionPlan) -> Floats:
    out = np.zeros((len(plan.specs), len(plan.methods)))
    for number, several in enumerate(plan.traffic):
        for traffic in several:
            sent = [exchange for exchange in traffic.exchanges if plan.layout.workers == 1 or exchange.part is None]
            out[traffic.settings, number] = bytes_per_step(sent, plan.spec.steps)
    return out


def _utilisation(plan: ProjectionPlan) -> Floats:
    """Return a step's seconds at the hardware's peak rate in each setting; nan if no hardware is known."""
    machines = [spec.compute.hardware for spec in plan.specs]
    flops = [spec.model.flops_per_token * spec.worker_tokens for spec in plan.specs]
    return np.array(
        [
            step_flops / machine.peak_flops if machine else np.nan
            for step_flops, machine in zip(flops, machines, strict=True)
        ]
    )


def _thresholds(
    plan: ProjectionPlan,
    groups: Sequence[NetworkGroup],
    closed: NDArray[np.bool_],
    computing: FactorBounds,
    communicating: FactorBounds,
) -> dict[str, tuple[NDArray[Any], ...]]:
    """Return the bandwidth below which a method is faster than the first one, or 5 % faster, with its bounds.

    A threshold is unknown for the first method, on a network that is more than one link, with a policy of `NOT_SOUGHT`,
    and if one of the two methods is not ``closed`` ``(S, N, M)``, a closed form. A bound is unknown if nothing crosses
    there.
    """
    columns = {
        name: (np.zeros(closed.shape, dtype=np.int64), *(np.full(closed.shape, np.nan) for _ in ENDS))
        for name in RATIOS
    }
    for places, links in groups:
        if not isinstance(links, Link) or plan.spec.algorithm_on(links) in NOT_SOUGHT:
            continue
        numbers, settings = np.nonzero(plan.able[:, 1:].T)
        link_index = np.tile(np.arange(len(places)), len(settings))
        numbers, settings = (np.repeat(values, len(places)) for values in (numbers + 1, settings))
        if not closed.all():
            network_index = np.array(places)[link_index]
            mask = closed[settings, network_index, numbers] & closed[settings, network_index, 0]
            numbers, settings, link_index = numbers[mask], settings[mask], link_index[mask]
        for begin in range(0, len(settings), AT_A_TIME):
            part = slice(begin, begin + AT_A_TIME)
            triples = settings[part], link_index[part], numbers[part]
            index = triples[0], np.array(places)[triples[1]], triples[2]
            bounds = threshold_bounds(computing, communicating, index[0], index[1])
            all_ends = np.concatenate([np.ones_like(bounds[0]), *bounds])
            order = np.argsort(np.tile(triples[2], len(ENDS)), kind="stable")  # grouped by method
            settings_of_end, link_of_end, number_of_end = (np.tile(values, len(ENDS))[order] for values in triples)
            speedups_of = of_links(plan, links, (settings_of_end, link_of_end, number_of_end), all_ends[order])
            back = np.argsort(order).reshape(len(ENDS), -1)
            for name, (when, bytes_per_s) in thresholds(speedups_of, len(order)).items():
                columns[name][0][index] = when[back[0]]
                for end, places_of_end in enumerate(back):
                    columns[name][1 + end][index] = bytes_per_s[places_of_end]
    return columns


def _memory(plan: ProjectionPlan) -> dict[str, NDArray[Any]]:
    """Return the fields of `memory_record`, ``(S, M)`` each, ``fits`` as an index into `FITS`; and the memory plan."""
    specs = plan.specs
    machines: dict[int, tuple[Hardware | None, list[int]]] = {}
    for index, spec in enumerate(specs):
        machine = spec.memory_machine
        machines.setdefault(id(machine), (machine, []))[1].append(index)
    columns: dict[str, list[NDArray[Any]]] = {}
    for memory_plan in plan.held:
        method_fields: dict[str, NDArray[Any]] = {}
        for machine, settings in machines.values():
            for name, field_value in memory_record(memory_plan.memory, machine).items():
                missing = 0 if name == "fits" else np.nan
                value = (
                    missing if field_value is None else 1 + np.asarray(field_value) if name == "fits" else field_value
                )
                column = np.broadcast_to(value, (len(specs),))
                method_fields.setdefault(name, np.zeros(len(specs), dtype=column.dtype))[settings] = column[settings]
        for name, column in (
            method_fields
            | {"micro_batches": memory_plan.micro_batches, "sharding": memory_plan.sharding}
            | {"activations": memory_plan.activations}
        ).items():
            columns.setdefault(name, []).append(column)
    return {name: np.stack(by_method, axis=1) for name, by_method in columns.items()}
