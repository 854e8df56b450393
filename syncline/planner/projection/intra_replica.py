"""Seconds of a step inside a replica: computing, and the collectives of the replica's groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
from syncline.planner.projection.pricing import PriceCache, PricedSettings, joined_rows, simulated_s
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
        plan: micro-batches, sharding and recomputation of each setting.
        replicas: ``(S,)``: number of replicas.
        cache: seconds that this function has computed for any method in these settings; it adds to them.
    """
    seconds = []
    all_sharers = sharers_of(layout, plan, replicas).tolist()
    for setting, (spec, sharers) in enumerate(zip(specs, all_sharers, strict=True)):
        micro_batches, sharding = int(plan.micro_batches[setting]), SHARDINGS[plan.sharding[setting]]
        policy = plan.policy(setting)
        key = id(spec.model), id(spec.compute), spec.worker_tokens, micro_batches, sharding, policy, sharers
        if key not in cache:
            if spec.priced_by_kernels:
                cache[key] = step_s_by_kernels(spec, layout, elements, micro_batches, sharding, policy, sharers)
            else:
                cache[key] = step_s_by_flops(spec, layout, micro_batches, policy)
        seconds.append(cache[key])
    return np.array(seconds)


def step_s_by_kernels(
    spec: ProjectSpec,
    layout: Layout,
    elements: int,
    micro_batches: int,
    sharding: str,
    policy: ActivationPolicy,
    sharers: int,
) -> float:
    """Return the computing seconds of a step as the sum of its kernels, for a transformer on a GPU with known kernels.

    Args:
        sharding: one of ``SHARDINGS``.
        sharers: workers over which states are sharded.
    """
    model = spec.model
    assert isinstance(model, ModelShape)  # as `ProjectSpec.priced_by_kernels` requires
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
    return sum(step_seconds(model, work, software=software, hardware=spec.compute.machine).values())


def step_s_by_flops(spec: ProjectSpec, layout: Layout, micro_batches: int, policy: ActivationPolicy) -> float:
    """Return the computing seconds of a step by its FLOPs; all layers take equally long.

    The forward pass takes a third of a layer's seconds, and twice as long if the layer is recomputed. A pass waits for
    the activations of an offloaded layer as in `syncline.costmodel.compute.transformer_operations`.
    """
    model, step_s = spec.model, flops_s(spec)
    if not isinstance(model, ModelShape):
        return step_s
    seconds = step_s
    num_recomputed = sum(stage_layers(model, layout, policy.most_recomputed).totals)
    if num_recomputed:
        seconds = flops_s(spec, 1 + num_recomputed / model.layers / 3)
    if policy.offloaded_layers:
        offload_s = _offload_s(spec, layout, micro_batches)
        # A stage computes ``layers / pipeline`` layers for each micro-batch of the step.
        layer_s = step_s * layout.pipeline / micro_batches / model.layers
        waits_s = max(0.0, offload_s - layer_s / 3) + max(0.0, offload_s - layer_s * 2 / 3)  # forward and backward
        num_offloaded = sum(stage_layers(model, layout, policy.offloaded_layers).totals)
        seconds += micro_batches / layout.pipeline * num_offloaded * waits_s  # of the mean stage
    return seconds


def _micro_sequences(spec: ProjectSpec, layout: Layout, micro_batches: int) -> float:
    """Return the number of sequences of a micro-batch on the workers of one data-parallel rank."""
    return float(spec.worker_tokens * layout.model_parallel_workers / spec.model.sequence / micro_batches)


def _offload_s(spec: ProjectSpec, layout: Layout, micro_batches: int) -> float:
    """Return the seconds in which the activations of one layer and one micro-batch move to the host's memory."""
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


class IntraReplica:
    """A worker's part of the model and the seconds of its step inside a replica, in settings with one layout.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica, of one worker or several.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        """Compute what all settings have in common: tensors of a worker, tokens, and kernels."""
        spec = specs[0]
        self.layout, self.model = layout, spec.model
        self.worker_tensors = worker_tensors(spec.model, layout)
        if spec.adapters is not None:
            self.worker_tensors = self.worker_tensors.with_adapters(spec.adapters)
        self.tokens = spec.worker_tokens * layout.model_parallel_workers
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
            algorithm: algorithm of collectives, or the policy that chooses it, see `ClockSpec.algorithm_on`.
        """
        layout, model = self.layout, self.model
        computes_alone = layout.workers == layout.data and layout.expert == 1  # each worker has the whole model
        if not isinstance(model, ModelShape) or computes_alone:
            return ReplicaTimes(step_s=compute_s, compute_s=compute_s)
        # Settings with equal workers, micro-batches and recomputed layers have the same step, on links that may differ.
        rows_by_step: dict[tuple[int, int, int], list[int]] = {}  # rows: indices into the selected settings
        for row, setting in enumerate(selection.settings.tolist()):
            recomputed_layers = memory_plan.policy(setting).most_recomputed
            key = int(workers[setting]), int(memory_plan.micro_batches[setting]), recomputed_layers
            rows_by_step.setdefault(key, []).append(row)
        count = len(selection.settings)
        computing_s = np.broadcast_to(compute_s, (count, *np.shape(compute_s)[1:]))
        rows_and_times: list[tuple[Indices, ReplicaTimes]] = []
        for (num_workers, micro_batches, recomputed_layers), row_list in rows_by_step.items():
            rows = np.array(row_list)
            equal_settings = selection.at_rows(rows)
            if equal_settings.network is not selection.network:  # a cache is for one network
                equal_settings = replace(equal_settings, cache=PriceCache())
            try:
                times = replica_times(
                    model, layout, compute_s=computing_s[rows], micro_batches=micro_batches,
                    micro_tokens=self.tokens / micro_batches,
                    collective_s=partial(self._call_s, equal_settings, num_workers, algorithm),
                    message_s=partial(self._message_s, equal_settings, num_workers),
                    bytes_per_number=self.bytes_per_number, most_recomputed=recomputed_layers,
                    overlapped=self.kernels.overlapped,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, which `evaluators` reports
                times = ReplicaTimes(*(np.nan * computing_s[rows] for _ in ReplicaTimes._fields))
            rows_and_times.append((rows, times))
        if len(rows_and_times) == 1:  # all settings have the same step
            return times
        return ReplicaTimes(**joined_rows(rows_and_times, ReplicaTimes._fields, count, selection.ndim))

    def _call_s(
        self, selection: PricedSettings, num_workers: int, algorithm: Algorithms, call: ReplicaCall
    ) -> FloatOrArray:
        """Return the seconds of a collective inside a replica, in settings of ``num_workers`` workers in all."""
        nbytes, cache = call.payload_bytes, selection.cache
        if call.copies > 1 and self.kernels.once_per_node:  # a token goes once to each node that has one of its experts
            receivers = _nodes_or_members(call.ranks, selection.network, num_workers)
            nbytes *= distinct_share(receivers, call.copies)
        key = call.collective, nbytes, num_workers, call.ranks, algorithm
        if key not in cache:
            workers = np.full((1,) * selection.ndim, num_workers)  # the same for all settings and links
            cache[key] = collective_prices(
                call.collective, workers, nbytes, selection.network, algorithm, timer=simulated_s, groups=[call.ranks]
            )
        return selection.factors.communication * cache[key].seconds

    def _message_s(self, selection: PricedSettings, num_workers: int, nbytes: float) -> FloatOrArray:
        """Return the seconds of a message from one pipeline stage to the next."""
        seconds = message_s(self.layout.pipeline_group, num_workers, nbytes, selection.network)
        return selection.factors.communication * seconds


def _nodes_or_members(ranks: range, network: Network, workers: int) -> int:
    """Return the number of nodes over which a group extends, or the number of its members if it is inside one node."""
    levels = () if isinstance(network, Link) else group_peers(network, ranks, workers)
    if len(levels) < 2:
        return len(ranks)
    # The first level is inside a node; the product of the others is the number of nodes.
    return math.prod(int(level.size) for level in levels[1:])
