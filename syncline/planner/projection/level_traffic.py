"""Bytes that a step of a method sends over each level of a network, all workers together."""

from __future__ import annotations

import numpy as np

from syncline.costmodel import ModelShape, Network
from syncline.costmodel.layouts.level_bytes import capacities, level_bytes, message_levels
from syncline.costmodel.layouts.replica_step import replica_calls
from syncline.costmodel.layouts.stage_sizes import blocks_of_stages
from syncline.costmodel.network.paths import Floats
from syncline.planner.projection.plan import ProjectionPlan


def level_bytes_per_step(plan: ProjectionPlan, number: int, network: Network) -> Floats | None:
    """Return the mean bytes that leave units at each level in a step, ``(levels,)``, the innermost level first.

    They are the messages between replicas, gradients and weights inside a replica, and the traffic of the layout: sums
    over tensor and context, tokens to experts, activations from stage to stage and back.

    Args:
        plan: plan of one setting.
        number: index of the method.
        network: network that joins the workers.

    Returns:
        The bytes, or None if units differ in size, so that they cannot be counted.
    """
    workers = int(plan.workers[0])
    unit_sizes = capacities(network, workers)
    if unit_sizes is None:
        return None
    totals = np.zeros(len(unit_sizes))
    for traffic in plan.traffic[number]:
        for exchange in traffic.exchanges:
            group = plan.layout.replica_group(workers) if exchange.part is None else exchange.part
            sent = (
                float(np.reshape(exchange.payload_bytes, (-1,))[0])
                * exchange.num_runs(plan.spec.steps)
                / plan.spec.steps
            )
            totals += level_bytes(exchange.collective, sent, group, workers, unit_sizes)
    return totals + _inside(plan, number, workers, unit_sizes)


def _inside(plan: ProjectionPlan, number: int, workers: int, unit_sizes: tuple[int, ...]) -> Floats:
    inside, layout = plan.inside, plan.layout
    if not isinstance(inside.model, ModelShape):
        return np.zeros(len(unit_sizes))
    memory_plan = plan.held[number]
    micro, recomputed = int(memory_plan.micro_batches[0]), bool(memory_plan.recomputed[0])
    tokens, k = inside.tokens / micro, layout.pipeline
    blocks = blocks_of_stages(inside.model, k, layout.chunks)
    totals = np.zeros(len(unit_sizes))
    for call in replica_calls(inside.model, layout, tokens, inside.bytes_per_number, recomputed):
        layers = sum(
            sum(block >= inside.model.dense_layers for block in stage) if call.experts else len(stage)
            for stage in blocks
        )
        times = micro * (call.per_layer * layers + 2 * call.at_ends) / k
        totals += times * level_bytes(call.collective, call.payload_bytes, call.ranks, workers, unit_sizes)
    if k > 1:
        sent = inside.bytes_per_number * tokens * inside.model.width  # of the workers that share it, together
        pipelines = workers // (k * layout.tensor * layout.context)
        levels = layout.chunks * message_levels(layout.pipeline_group, unit_sizes)
        first, last = layout.pipeline_group[0], layout.pipeline_group[-1]
        levels += (layout.chunks - 1) * [next(n for n, size in enumerate(unit_sizes) if first // size == last // size)]
        for level in levels:
            totals[level] += 2 * micro * pipelines * sent
    return totals
