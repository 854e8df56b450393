"""Times inside the replicas of settings of one layout, and costs of the collectives of their groups.

Seconds of computing of the settings of a plan: by kernels where they are known, else by a utilisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.costmodel import (
    Link,
    ModelShape,
    Network,
    NoClosedForm,
)
from syncline.costmodel.collectives.hierarchical import group_peers
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.compute.transformer_operations import Share, Work, step_seconds
from syncline.costmodel.layouts.groups import message_s
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import RECOMPUTED
from syncline.costmodel.layouts.partition import worker_tensors
from syncline.costmodel.layouts.replica_step import ReplicaCall, ReplicaTimes, distinct_share, replica_times
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import (
    FloatOrArray,
    Indices,
)
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.pricing import PricedSettings, links_of_rows, of_rows, simulated_s
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


class IntraReplica:
    """The inside of the replicas of some settings.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica, of one worker or several.

    Raises:
        SpecError: the model cannot have this layout.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        spec = specs[0]
        self.layout, self.model = layout, spec.model
        self.own = worker_tensors(spec.model, layout)
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
        """Return the seconds of a step inside a replica, along the settings.

        Args:
            compute_s: computing seconds of a worker, along the settings.
            memory_plan: micro-batches and recomputation of all settings of the plan.
            workers: P of all settings of the plan.
            selection: the settings on their network.
            algorithm: see `ClockSpec.algorithm_on`.
        """
        if not isinstance(self.model, ModelShape) or (
            self.layout.workers == self.layout.data and self.layout.expert == 1
        ):
            return ReplicaTimes(compute_s, compute_s)  # every worker computes whole sequences by itself
        model, settings, network, ndim = self.model, selection.settings, selection.network, selection.ndim
        alike: dict[tuple[int, int, bool], list[int]] = {}
        steps = zip(workers.tolist(), memory_plan.micro_batches.tolist(), memory_plan.recomputed.tolist(), strict=True)
        step_kinds = list(steps)
        for row, setting in enumerate(settings.tolist()):
            alike.setdefault(step_kinds[setting], []).append(row)
        computed = np.broadcast_to(compute_s, (len(settings), *np.shape(compute_s)[1:]))
        parts = []
        for (count, micro, recomputed), rows in alike.items():
            links = network if len(alike) == 1 else links_of_rows(network, np.array(rows))
            slower = of_rows(selection.factors.communication, rows, len(settings), ndim)

            def call_s(call: ReplicaCall, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                among = np.full((1,) * ndim, count)
                nbytes = call.payload_bytes
                if call.why == "expert" and self.kernels.once_per_node:
                    nbytes *= distinct_share(_units_of(call.ranks, links, count), call.copies)
                priced = collective_prices(
                    call.collective, among, nbytes, links, algorithm, timer=simulated_s, groups=[call.ranks]
                )
                return slower * priced.seconds

            def sent_s(nbytes: float, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                return slower * message_s(self.layout.pipeline_group, count, nbytes, links)

            try:
                inside = replica_times(
                    model, self.layout, computed[rows], micro, self.tokens / micro, call_s, sent_s,
                    self.bytes_per_number, recomputed, self.kernels.overlapped,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, and give the reason
                inside = ReplicaTimes(*(np.nan * computed[rows] for _ in ReplicaTimes._fields))
            parts.append((rows, inside))
        if len(parts) == 1:
            return parts[0][1]
        return _joined(parts, len(settings), ndim)


def _units_of(ranks: range, network: Network, workers: int) -> int:
    """Return the number of nodes over which a group extends, or of its members inside one node."""
    levels = () if isinstance(network, Link) else group_peers(network, ranks, workers)
    return math.prod(int(level.size) for level in levels[1:]) if len(levels) > 1 else len(ranks)


def _joined(parts: Sequence[tuple[list[int], ReplicaTimes]], count: int, ndim: int) -> ReplicaTimes:
    columns = []
    for pieces in zip(*(times for _, times in parts), strict=True):
        arrays = [np.asarray(piece, dtype=np.float64) for piece in pieces]
        arrays = [array.reshape((1,) * (ndim - array.ndim) + array.shape) for array in arrays]
        joined = np.zeros((count, *np.broadcast_shapes(*(array.shape[1:] for array in arrays))))
        for (rows, _), array in zip(parts, arrays, strict=True):
            joined[rows] = array
        columns.append(joined)
    return ReplicaTimes(*columns)
