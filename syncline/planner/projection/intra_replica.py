"""Seconds of a step inside a replica: computing, and the collectives of the replica's groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from syncline.costmodel import Link, ModelShape, Network, NoClosedForm
from syncline.costmodel.collectives.hierarchical import group_peers
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.compute.transformer_operations import Share, Work, step_seconds
from syncline.costmodel.layouts.groups import message_s
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import ActivationPolicy, offloaded_layer_bytes
from syncline.costmodel.layouts.partition import stage_layers, worker_tensors
from syncline.costmodel.layouts.replica_step import ReplicaCall, ReplicaTimes, distinct_share, replica_times
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.errors import SpecError
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.pricing import (
    PricedSettings,
    factor_of_rows,
    joined_arrays,
    links_of_rows,
    simulated_s,
)
from syncline.specs import ProjectSpec


def sharers_of(layout: Layout, plan: MemoryPlan, replicas: Indices) -> Indices:
    """Return the number of workers that share a worker's states in each setting, ``(S,)``; 1 without sharding."""
    all_sharers = layout.sharers // layout.copies if layout.sharers > 1 else replicas
    return np.where(plan.sharding > 0, all_sharers, 1)


def computing_s(
    specs: Sequence[ProjectSpec], layout: Layout, elements: int, plan: MemoryPlan, replicas: Indices
) -> Floats:
    """Return the computing seconds of a worker's step in each setting if the work is split evenly, ``(S,)``.

    Args:
        specs: ``(S,)``: specs of the settings, which share model and layout.
        layout: layout of a replica.
        elements: parameters of a worker.
        plan: micro-batches, sharding and recomputation of each setting.
        replicas: ``(S,)``: number of replicas.
    """
    cache: dict[tuple[int, int, int, int, int, ActivationPolicy, int], float] = {}
    seconds = np.empty(len(specs))
    columns = zip(
        specs, plan.micro_batches.tolist(), plan.sharding.tolist(), plan.setting_policies,
        sharers_of(layout, plan, replicas).tolist(), strict=True,
    )  # fmt: skip
    for index, (spec, micro, sharding, policy, sharers) in enumerate(columns):
        key = id(spec.model), id(spec.compute), spec.worker_tokens, micro, sharding, policy, sharers
        if key not in cache:
            if spec.priced_by_kernels:
                parts = step_parts(
                    spec, layout, elements, micro, sharding=SHARDINGS[sharding], policy=policy, sharers=sharers
                )
                cache[key] = sum(parts.values())
            else:
                cache[key] = step_s_by_flops(spec, layout, micro, policy)
        seconds[index] = cache[key]
    return seconds


def step_parts(
    spec: ProjectSpec,
    layout: Layout,
    elements: int,
    micro: int,
    sharding: str,
    policy: ActivationPolicy,
    sharers: int,
) -> dict[str, float]:
    """Return the computing seconds of a step by part, for a transformer on a GPU whose kernels are known.

    Args:
        spec: spec of the setting.
        layout: layout of a replica.
        elements: parameters of a worker.
        micro: number of micro-batches.
        sharding: one of ``SHARDINGS``.
        policy: policy for activations.
        sharers: workers over which states are sharded.
    """
    model = spec.model
    assert isinstance(model, ModelShape)
    share = Share(
        _micro_sequences(spec, layout, micro), layout.tensor, layout.context, layout.expert,
        precision=spec.product_format, expert_tensor=layout.expert_ways,
        by_heads=layout.context_by == "all-to-all",
    )  # fmt: skip
    work = Work(
        share, micro, stages=layout.pipeline, parameters=elements, updated=elements / sharers,
        recomputed=stage_layers(model, layout, policy.most_recomputed).totals,
        sharded=sharding == SHARDINGS[-1],
        offloaded=stage_layers(model, layout, policy.offloaded_layers).totals,
        offload_s=_offload_s(spec, layout, micro) if policy.offloaded_layers else 0.0,
    )  # fmt: skip
    software, modules = spec.compute.kernels.build(), policy.modules
    keeps_no_scores = policy.kind == "selective" or policy.recomputed_layers is not None
    if software.attention == "eager" and keeps_no_scores:
        modules = tuple(sorted({*modules, "core_attn"}))
    software = replace(software, recomputed=modules, adapters=spec.adapters)
    return step_seconds(model, work, software=software, hardware=spec.compute.machine)


def step_s_by_flops(spec: ProjectSpec, layout: Layout, micro: int, policy: ActivationPolicy) -> float:
    """Return the computing seconds of a step by its FLOPs: a recomputed layer costs a third more.

    A layer's share of the seconds is 1 / L; a pass waits for the activations of an offloaded layer as in
    `syncline.costmodel.compute.transformer_operations`.
    """
    model, step_s = spec.model, flops_s(spec)
    if not isinstance(model, ModelShape):
        return step_s
    num_recomputed = sum(stage_layers(model, layout, policy.most_recomputed).totals)
    seconds = flops_s(spec, 1 + num_recomputed / model.layers / 3) if num_recomputed else step_s
    if policy.offloaded_layers:
        offload_s, layer_s = _offload_s(spec, layout, micro), step_s * layout.pipeline / micro / model.layers
        waits_s = max(0.0, offload_s - layer_s / 3) + max(0.0, offload_s - layer_s * 2 / 3)
        moved = sum(stage_layers(model, layout, policy.offloaded_layers).totals)
        seconds += micro / layout.pipeline * moved * waits_s
    return seconds


def _micro_sequences(spec: ProjectSpec, layout: Layout, micro: int) -> float:
    """Return the sequences of a micro-batch on the workers of one data-parallel rank."""
    return float(spec.worker_tokens * layout.workers / layout.data / spec.model.sequence / micro)


def _offload_s(spec: ProjectSpec, layout: Layout, micro: int) -> float:
    """Return the seconds in which a layer's activations of a micro-batch move to the host's memory."""
    machine = spec.compute.hardware
    if machine is None or machine.host_bytes_per_s is None:
        expected = "hardware.host_bytes_per_s beside it, the rate of the link to the host's memory"
        raise SpecError("memory.offloaded_layers", spec.memory.offloaded_layers, expected)
    assert isinstance(spec.model, ModelShape)
    sequences = _micro_sequences(spec, layout, micro)
    return offloaded_layer_bytes(spec.model, layout, sequences, spec.activation_storage) / machine.host_bytes_per_s


def flops_s(spec: ProjectSpec, factor: float = 1.0) -> float:
    """Return the computing seconds of a step, from its FLOPs and the hardware's utilisation.

    Args:
        spec: spec of the setting; seconds of a step in the spec replace those by FLOPs.
        factor: factor on the FLOPs, for layers that are computed twice.
    """
    shape, tokens = spec.model, spec.worker_tokens
    flops = factor * spec.flops_per_token * tokens
    return float(spec.compute.base_s(flops, shape.name, samples=tokens / shape.sequence, tokens=tokens))


class _AlikeSettings(NamedTuple):
    """Settings with the same step inside a replica.

    Attributes:
        workers: P, the number of all workers.
        network: network or links of these settings.
        factor: factor on the seconds of communication, a number or along the settings.
        ndim: number of axes of the prices.
    """

    workers: int
    network: Network
    factor: FloatOrArray
    ndim: int


class IntraReplica:
    """The inside of the replicas of some settings: a worker's part of the model, and the seconds of a step.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica, of one worker or several.

    Raises:
        SpecError: the model cannot have this layout.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        """Compute what all settings share: tensors of a worker, tokens, and kernels."""
        spec = specs[0]
        self.layout, self.model = layout, spec.model
        self.worker_tensors = worker_tensors(spec.model, layout)
        if spec.adapters is not None:
            self.worker_tensors = self.worker_tensors.with_adapters(spec.adapters)
        self.tokens = spec.worker_tokens * layout.workers // layout.data
        self.kernels = spec.compute.kernels
        self.bytes_per_number = bytes_per_number(spec.number_format)

    def step_times(
        self,
        compute_s: FloatOrArray,
        memory_plan: MemoryPlan,
        workers: Indices,
        selection: PricedSettings,
        algorithm: Algorithms,
    ) -> ReplicaTimes:
        """Return the seconds of a step inside a replica, along the selected settings.

        Args:
            compute_s: computing seconds of a worker, along the selected settings.
            memory_plan: micro-batches and recomputation of all settings of the plan.
            workers: P of all settings of the plan.
            selection: the selected settings on their network.
            algorithm: algorithm of collectives, or the policy that chooses it, see `ClockSpec.algorithm_on`.
        """
        layout, model = self.layout, self.model
        computes_alone = layout.workers == layout.data and layout.expert == 1  # whole sequences of a whole model
        if not isinstance(model, ModelShape) or computes_alone:
            return ReplicaTimes(compute_s, compute_s)
        settings, network, ndim = selection.settings, selection.network, selection.ndim
        rows_by_step: dict[tuple[int, int, int], list[int]] = {}
        recomputed = [policy.most_recomputed for policy in memory_plan.setting_policies]
        steps = list(zip(workers.tolist(), memory_plan.micro_batches.tolist(), recomputed, strict=True))
        for row, setting in enumerate(settings.tolist()):
            rows_by_step.setdefault(steps[setting], []).append(row)
        computed = np.broadcast_to(compute_s, (len(settings), *np.shape(compute_s)[1:]))
        parts: list[tuple[list[int], ReplicaTimes]] = []
        for (count, micro, most_recomputed), rows in rows_by_step.items():
            links = network if len(rows_by_step) == 1 else links_of_rows(network, np.array(rows))
            factor = factor_of_rows(selection.factors.communication, rows, count=len(settings), ndim=ndim)
            alike = _AlikeSettings(count, links, factor, ndim)
            try:
                times = replica_times(
                    model, layout, compute_s=computed[rows], micro_batches=micro, micro_tokens=self.tokens / micro,
                    collective_s=partial(self._call_s, alike, algorithm), message_s=partial(self._message_s, alike),
                    bytes_per_number=self.bytes_per_number, most_recomputed=most_recomputed,
                    overlapped=self.kernels.overlapped,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, and give the reason
                times = ReplicaTimes(*(np.nan * computed[rows] for _ in ReplicaTimes._fields))
            parts.append((rows, times))
        if len(parts) == 1:
            return parts[0][1]
        step_fields = [
            [(rows, np.asarray(times[index], dtype=np.float64)) for rows, times in parts]
            for index in range(len(ReplicaTimes._fields))
        ]
        return ReplicaTimes(*(joined_arrays(field, len(settings), ndim) for field in step_fields))

    def _call_s(self, alike: _AlikeSettings, algorithm: Algorithms, call: ReplicaCall) -> FloatOrArray:
        """Return the seconds of a collective of a replica's group."""
        nbytes = call.payload_bytes
        if call.copies > 1 and self.kernels.once_per_node:
            nbytes *= distinct_share(_nodes_or_members(call.ranks, alike.network, alike.workers), call.copies)
        prices = collective_prices(
            call.collective, np.full((1,) * alike.ndim, alike.workers), nbytes, alike.network, algorithm,
            timer=simulated_s, groups=[call.ranks],
        )  # fmt: skip
        return alike.factor * prices.seconds

    def _message_s(self, alike: _AlikeSettings, nbytes: float) -> FloatOrArray:
        """Return the seconds of a message from one pipeline stage to the next."""
        return alike.factor * message_s(self.layout.pipeline_group, alike.workers, nbytes, alike.network)


def _nodes_or_members(ranks: range, network: Network, workers: int) -> int:
    """Return the number of nodes over which a group extends, or the number of its members if it is inside one node."""
    levels = () if isinstance(network, Link) else group_peers(network, ranks, workers)
    return math.prod(int(level.size) for level in levels[1:]) if len(levels) > 1 else len(ranks)
