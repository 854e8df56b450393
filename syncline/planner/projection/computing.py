"""Seconds of computing of the settings of a plan: by kernels where they are known, else by a utilisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel import ModelShape
from syncline.costmodel.compute.transformer_operations import Share, Work, step_seconds
from syncline.costmodel.layouts.activations import RECOMPUTED
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.specs import ProjectSpec


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
    seconds_by_key: dict[tuple[int, int, int, int, int, bool, int], float] = {}
    seconds = np.empty(len(specs))
    columns = zip(
        specs, plan.micro_batches.tolist(), plan.sharding.tolist(), plan.recomputed.tolist(), replicas.tolist(),
        strict=True,
    )  # fmt: skip
    for index, (spec, micro, sharding, recomputed, count) in enumerate(columns):
        sharers = (layout.sharers // layout.copies if layout.sharers > 1 else count) if sharding else 1
        key = id(spec.model), id(spec.compute), spec.worker_tokens, micro, sharding, recomputed, sharers
        if key not in seconds_by_key:
            seconds_by_key[key] = _computing_s(spec, layout, elements, micro, SHARDINGS[sharding], recomputed, sharers)
        seconds[index] = seconds_by_key[key]
    return seconds


def _computing_s(
    spec: ProjectSpec, layout: Layout, elements: int, micro: int, sharding: str, recomputed: bool, sharers: int
) -> float:
    if spec.priced_by_kernels:
        return sum(step_parts(spec, layout, elements, micro, sharding, recomputed, sharers).values())
    return flops_s(spec, RECOMPUTED if recomputed else 1.0)


def step_parts(
    spec: ProjectSpec, layout: Layout, elements: int, micro: int, sharding: str, recomputed: bool, sharers: int
) -> dict[str, float]:
    """Return the computing seconds of a step by part, for a transformer on a GPU whose kernels are known.

    Args:
        spec: spec of the setting.
        layout: layout of a replica.
        elements: parameters of a worker.
        micro: number of micro-batches.
        sharding: one of ``SHARDINGS``.
        recomputed: whether the backward pass recomputes layers.
        sharers: workers over which states are sharded.
    """
    model = spec.model
    assert isinstance(model, ModelShape)
    sequences = spec.worker_tokens * layout.workers / layout.data / model.sequence / micro
    share = Share(sequences, layout.tensor, layout.context, layout.expert, spec.product_format)
    work = Work(
        share, micro, layout.pipeline, elements, elements / sharers, recomputed, sharding == SHARDINGS[-1]
    )  # fmt: skip
    return step_seconds(model, work, spec.compute.kernels.build(), spec.compute.machine)


def flops_s(spec: ProjectSpec, work: float = 1.0) -> float:
    """Return the computing seconds of a step of ``work`` times a step's FLOPs; seconds from the spec include them."""
    shape, tokens = spec.model, spec.worker_tokens
    flops = work * shape.flops_per_token * tokens
    return float(spec.compute.base_s(flops, shape.name, samples=tokens / shape.sequence, tokens=tokens))
