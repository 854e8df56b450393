"""Times inside the replicas of settings of one layout, and costs of the collectives of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.costmodel import ModelShape, NoClosedForm
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.vectorised import collective_prices
from syncline.costmodel.layouts.groups import message_s
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.own_tensors import worker_tensors
from syncline.costmodel.layouts.replica_step import ReplicaCall, ReplicaTimes, replica_times
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.traffic.overlap import bytes_per_gradient
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.rows import PricedSettings, links_of_rows
from syncline.planner.projection.simulated_cost import simulated_s
from syncline.specs import ProjectSpec


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
        self.tensor_overlap = spec.compute.kernels.tensor_overlap
        self.bytes_per_number = bytes_per_gradient(spec.number_format)

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
            slower = selection.factors.communication
            if isinstance(slower, np.ndarray) and slower.ndim == 2 and len(slower) == len(settings):
                slower = slower[rows]

            def call_s(call: ReplicaCall, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                among = np.full((1,) * ndim, count)
                nbytes = call.payload_bytes
                priced = collective_prices(
                    call.collective, among, nbytes, links, algorithm, timer=simulated_s, groups=[call.ranks]
                )
                return slower * priced.seconds

            def sent_s(nbytes: float, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                return slower * message_s(self.layout.pipeline_group, count, nbytes, links)

            try:
                inside = replica_times(
                    model, self.layout, computed[rows], micro, self.tokens / micro, call_s, sent_s,
                    self.bytes_per_number, recomputed, self.tensor_overlap,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, and give the reason
                inside = ReplicaTimes(*(np.nan * computed[rows] for _ in ReplicaTimes._fields))
            parts.append((rows, inside))
        if len(parts) == 1:
            return parts[0][1]
        return _joined(parts, len(settings), ndim)


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
