"""Seconds of a step inside a replica: computing, and the collectives of the replica's groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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
    PriceCache,
    PricedSettings,
    factor_of_rows,
    joined_arrays,
    links_of_rows,
    simulated_s,
)
from syncline.specs import ProjectSpec


def sharers_of(layout: Layout, plan: MemoryPlan, replicas: Indices) -> Indices:
    """Return the number of workers over which states are sharded, in each of S settings ``(S,)``; 1 if none are."""
    all_sharers = layout.gradient_workers // layout.copies if layout.gradient_workers > 1 else replicas
    return np.where(plan.sharding > 0, all_sharers, 1)


def computing_s(
    specs: Sequence[ProjectSpec],
    layout: Layout,
    elements: int,
    plan: MemoryPlan,
    replicas: Indices,
    cache: dict[Any, float],
) -> Floats:
    """Return the computing seconds of a worker's step in each setting if the work is split evenly, ``(S,)``.

    Args:
        specs: ``(S,)``: specs of the settings, which share model and layout.
        layout: layout of a replica.
        elements: parameters of a worker.
        plan: micro-batches, sharding and recomputation of each setting.
        replicas: ``(S,)``: number of replicas.
        cache: computed seconds of all methods in these settings; this call adds its own.
    """
    seconds = []
    for spec, micro_batches, sharding_index, policy, sharers in zip(
        specs, plan.micro_batches.tolist(), plan.sharding.tolist(), map(plan.policy, range(len(specs))),
        sharers_of(layout, plan, replicas).tolist(), strict=True,
    ):  # fmt: skip
        sharding = SHARDINGS[sharding_index]
        key = id(spec.model), id(spec.compute), spec.worker_tokens, micro_batches, sharding, policy, sharers
        if key not in cache:
            if spec.priced_by_kernels:
                parts = step_parts(spec, layout, elements, micro_batches, sharding, policy=policy, sharers=sharers)
                cache[key] = sum(parts.values())
            else:
                cache[key] = step_s_by_flops(spec, layout, micro_batches, policy)
        seconds.append(cache[key])
    return np.array(seconds)


def step_parts(
    spec: ProjectSpec,
    layout: Layout,
    elements: int,
    micro_batches: int,
    sharding: str,
    policy: ActivationPolicy,
    sharers: int,
) -> dict[str, float]:
    """Return the computing seconds of a step by part, for a transformer on a GPU whose kernels are known.

    Args:
        spec: spec of the setting.
        layout: layout of a replica.
        elements: parameters of a worker.
        micro_batches: number of micro-batches of a step.
        sharding: one of ``SHARDINGS``.
        policy: policy for activations.
        sharers: workers over which states are sharded.
    """
    model = spec.model
    assert isinstance(model, ModelShape)
    share = Share(
        _micro_sequences(spec, layout, micro_batches), layout.tensor, layout.context, layout.expert,
        precision=spec.product_format, expert_tensor=layout.expert_tensor_workers,
        by_heads=layout.context_by == "all-to-all",
    )  # fmt: skip
    work = Work(
        share, micro_batches, stages=layout.pipeline, parameters=elements, updated=elements / sharers,
        recomputed=stage_layers(model, layout, policy.most_recomputed).totals,
        sharded=sharding == SHARDINGS[-1],  # only the last kind shards the weights, too
        offloaded=stage_layers(model, layout, policy.offloaded_layers).totals,
        offload_s=_offload_s(spec, layout, micro_batches) if policy.offloaded_layers else 0.0,
    )  # fmt: skip
    software, recomputed_modules = spec.compute.kernels.build(), policy.modules
    recomputes_scores = policy.kind == "selective" or policy.recomputed_layers is not None
    if software.attention == "eager" and recomputes_scores:  # fused attention never stores its scores
        recomputed_modules = tuple(sorted({*recomputed_modules, "core_attn"}))
    software = replace(software, recomputed=recomputed_modules, adapters=spec.adapters)
    return step_seconds(model, work, software=software, hardware=spec.compute.machine)


def step_s_by_flops(spec: ProjectSpec, layout: Layout, micro_batches: int, policy: ActivationPolicy) -> float:
    """Return the computing seconds of a step by its FLOPs: a recomputed layer costs a third more.

    A layer's share of the seconds is 1 / L; a pass waits for the activations of an offloaded layer as in
    `syncline.costmodel.compute.transformer_operations`.
    """
    model, step_s = spec.model, flops_s(spec)
    if not isinstance(model, ModelShape):
        return step_s
    seconds = step_s
    num_recomputed = sum(stage_layers(model, layout, policy.most_recomputed).totals)
    if num_recomputed:  # the forward pass of a layer, a third of its seconds, is computed twice
        seconds = flops_s(spec, 1 + num_recomputed / model.layers / 3)
    if policy.offloaded_layers:
        offload_s = _offload_s(spec, layout, micro_batches)
        layer_s = step_s * layout.pipeline / micro_batches / model.layers  # of a micro-batch; a stage has fewer layers
        # A layer's forward pass takes a third of its seconds, its backward pass two thirds.
        waits_s = max(0.0, offload_s - layer_s / 3) + max(0.0, offload_s - layer_s * 2 / 3)
        num_offloaded = sum(stage_layers(model, layout, policy.offloaded_layers).totals)
        seconds += micro_batches / layout.pipeline * num_offloaded * waits_s  # of the mean stage
    return seconds


def _micro_sequences(spec: ProjectSpec, layout: Layout, micro_batches: int) -> float:
    """Return the number of sequences of a micro-batch on the workers of one data-parallel rank."""
    return float(spec.worker_tokens * layout.workers / layout.data / spec.model.sequence / micro_batches)


def _offload_s(spec: ProjectSpec, layout: Layout, micro_batches: int) -> float:
    """Return the seconds in which a layer's activations of a micro-batch move to the host's memory."""
    machine = spec.compute.hardware
    if machine is None or machine.host_bytes_per_s is None:
        expected = "hardware.host_bytes_per_s as well, the rate of the link to the host's memory"
        raise SpecError("memory.offloaded_layers", spec.memory.offloaded_layers, expected)
    assert isinstance(spec.model, ModelShape)
    sequences = _micro_sequences(spec, layout, micro_batches)
    return offloaded_layer_bytes(spec.model, layout, sequences, spec.activation_storage) / machine.host_bytes_per_s


def flops_s(spec: ProjectSpec, factor: float = 1.0) -> float:
    """Return the computing seconds of a step, from its FLOPs and the hardware's utilisation.

    Args:
        spec: spec of the setting; if it sets the seconds of a step, these are returned.
        factor: factor on the FLOPs, for layers that are computed twice.
    """
    model, tokens = spec.model, spec.worker_tokens
    flops = factor * spec.flops_per_token * tokens
    return float(spec.compute.undisturbed_step_s(flops, model.name, samples=tokens / model.sequence, tokens=tokens))


class _EqualSettings(NamedTuple):
    """Settings whose replicas compute and communicate in the same way, on links that may differ.

    Attributes:
        workers: P, the number of all workers.
        network: network or links of these settings.
        factor: factor on the seconds of communication, a number or an entry for each setting.
        ndim: number of axes of the prices.
        cache: prices on this network.
    """

    workers: int
    network: Network
    factor: FloatOrArray
    ndim: int
    cache: PriceCache


class IntraReplica:
    """The inside of the replicas of some settings: a worker's part of the model, and the seconds of a step.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica, of one worker or several.

    Raises:
        SpecError: the model cannot have this layout.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        """Compute what all settings have in common: tensors of a worker, tokens, and kernels."""
        spec = specs[0]
        self.layout, self.model = layout, spec.model
        self.worker_tensors = worker_tensors(spec.model, layout)
        if spec.adapters is not None:
            self.worker_tensors = self.worker_tensors.with_adapters(spec.adapters)
        # The workers of a data-parallel rank compute their tokens together.
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
        """Return the seconds of a step inside a replica, with an entry for each selected setting.

        Args:
            compute_s: computing seconds of a worker, in each selected setting.
            memory_plan: micro-batches and recomputation of all settings of the plan.
            workers: P of all settings of the plan.
            selection: the selected settings on their network.
            algorithm: algorithm of collectives, or the policy that chooses it, see `ClockSpec.algorithm_on`.
        """
        layout, model = self.layout, self.model
        computes_alone = layout.workers == layout.data and layout.expert == 1  # whole sequences of a whole model
        if not isinstance(model, ModelShape) or computes_alone:
            return ReplicaTimes(step_s=compute_s, compute_s=compute_s)
        settings, network, ndim = selection.settings, selection.network, selection.ndim
        # Settings with equal workers, micro-batches and recomputed layers have the same step, on links that may differ.
        rows_by_step: dict[tuple[int, int, int], list[int]] = {}  # rows: indices into the selected settings
        for row, setting in enumerate(settings.tolist()):
            recomputed_layers = memory_plan.policy(setting).most_recomputed
            step = int(workers[setting]), int(memory_plan.micro_batches[setting]), recomputed_layers
            rows_by_step.setdefault(step, []).append(row)
        computing_s = np.broadcast_to(compute_s, (len(settings), *np.shape(compute_s)[1:]))
        rows_and_times: list[tuple[list[int], ReplicaTimes]] = []
        for (num_workers, micro_batches, recomputed_layers), rows in rows_by_step.items():
            row_network = network if len(rows_by_step) == 1 else links_of_rows(network, np.array(rows))
            factor = factor_of_rows(selection.factors.communication, rows, count=len(settings), ndim=ndim)
            cache = selection.cache if row_network is network else PriceCache()  # a cache is for one network
            equal_settings = _EqualSettings(num_workers, row_network, factor, ndim, cache)
            try:
                times = replica_times(
                    model, layout, compute_s=computing_s[rows], micro_batches=micro_batches,
                    micro_tokens=self.tokens / micro_batches,
                    collective_s=partial(self._call_s, equal_settings, algorithm),
                    message_s=partial(self._message_s, equal_settings), bytes_per_number=self.bytes_per_number,
                    most_recomputed=recomputed_layers, overlapped=self.kernels.overlapped,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, and give the reason
                times = ReplicaTimes(*(np.nan * computing_s[rows] for _ in ReplicaTimes._fields))
            rows_and_times.append((rows, times))
        if len(rows_and_times) == 1:
            _, times = rows_and_times[0]
            return times
        joined_times = {}
        for name in ReplicaTimes._fields:
            rows_and_values = [
                (rows, np.asarray(getattr(times, name), dtype=np.float64)) for rows, times in rows_and_times
            ]
            joined_times[name] = joined_arrays(rows_and_values, len(settings), ndim)
        return ReplicaTimes(**joined_times)

    def _call_s(self, settings: _EqualSettings, algorithm: Algorithms, call: ReplicaCall) -> FloatOrArray:
        """Return the seconds of a collective among workers of one replica."""
        nbytes = call.payload_bytes
        if call.copies > 1 and self.kernels.once_per_node:  # a token goes once to each node that has one of its experts
            receivers = _nodes_or_members(call.ranks, settings.network, settings.workers)
            nbytes *= distinct_share(receivers, call.copies)
        key = call.collective, nbytes, settings.workers, call.ranks, algorithm
        if key not in settings.cache:
            workers = np.full((1,) * settings.ndim, settings.workers)  # one number, with the axes of the prices
            settings.cache[key] = collective_prices(
                call.collective, workers, nbytes, settings.network, algorithm, timer=simulated_s, groups=[call.ranks]
            )
        return settings.factor * settings.cache[key].seconds

    def _message_s(self, settings: _EqualSettings, nbytes: float) -> FloatOrArray:
        """Return the seconds of a message from one pipeline stage to the next."""
        return settings.factor * message_s(self.layout.pipeline_group, settings.workers, nbytes, settings.network)


def _nodes_or_members(ranks: range, network: Network, workers: int) -> int:
    """Return the number of nodes over which a group extends, or the number of its members if it is inside one node."""
    levels = () if isinstance(network, Link) else group_peers(network, ranks, workers)
    if len(levels) < 2:
        return len(ranks)
    # The first level is inside a node; the product of the others is the number of nodes.
    return math.prod(int(level.size) for level in levels[1:])
