"""What a step of a method sends over each level of a network, all workers together."""

from __future__ import annotations

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.layouts.inside import inside_calls
from syncline.costmodel.layouts.level_bytes import capacities, level_bytes, message_levels
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.pipeline.stage_sizes import blocks_of_stages
from syncline.experiments.projection.plan import ProjectionPlan


def level_bytes_per_step(plan: ProjectionPlan, number: int, network: Network) -> Floats | None:
    """Mean bytes that leave units at each level in a step, ``(levels,)``, the innermost level's first.

    What replicas send to one another, gradients and weights inside a replica, and what its workers share: sums over
    tensor and context, tokens to experts, activations from stage to stage and back.

    Args:
        plan: of one setting.
        number: of the method.
        network: that joins the workers.

    Returns:
        None where units are not alike, so that nobody counts.
    """
    workers = int(plan.workers[0])
    of = capacities(network, workers)
    if of is None:
        return None
    told = np.zeros(len(of))
    for traffic in plan.traffic[number]:
        for one in traffic.exchanges:
            group = plan.layout.replica_group(workers) if one.part is None else one.part
            sent = float(np.reshape(one.payload_bytes, (-1,))[0]) * one.times(plan.spec.steps) / plan.spec.steps
            told += level_bytes(one.collective, sent, group, workers, of)
    return told if plan.inside is None else told + _inside(plan, number, workers, of)


def _inside(plan: ProjectionPlan, number: int, workers: int, of: tuple[int, ...]) -> Floats:
    inside, layout = plan.inside, plan.layout
    assert inside is not None
    micro = int(plan.held[number].micro_batches[0])
    tokens, k = inside.tokens / micro, layout.pipeline
    blocks = blocks_of_stages(inside.model, k, layout.chunks)
    told = np.zeros(len(of))
    for call in inside_calls(inside.model, layout, tokens, inside.bytes_per_number, inside.recomputed):
        layers = sum(
            sum(block >= inside.model.dense_layers for block in stage) if call.experts else len(stage)
            for stage in blocks
        )
        times = micro * (call.per_layer * layers + 2 * call.at_ends) / k
        told += times * level_bytes(call.collective, call.payload_bytes, call.ranks, workers, of)
    if k > 1:
        sent = inside.bytes_per_number * tokens * inside.model.width  # of those who share it, together
        pipelines = workers // (k * layout.tensor * layout.context)
        levels = layout.chunks * message_levels(layout.pipeline_group, of)
        first, last = layout.pipeline_group[0], layout.pipeline_group[-1]
        levels += (layout.chunks - 1) * [next(n for n, size in enumerate(of) if first // size == last // size)]
        for level in levels:
            told[level] += 2 * micro * pipelines * sent
    return told
