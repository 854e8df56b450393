"""Times inside the replicas of settings of one layout, and costs of the collectives of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Network, NoClosedForm
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.vectorised import CLOSED_FORM, PricedMany
from syncline.costmodel.layouts.groups import group_carried, message_s
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.own_tensors import worker_tensors
from syncline.costmodel.layouts.replica_step import ReplicaCall, ReplicaTimes, replica_times
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.traffic.overlap import bytes_per_gradient
from syncline.planner.bounds import Factors
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.rows import links_of_rows
from syncline.specs import ProjectSpec


class IntraReplica:
    """The inside of the replicas of some settings.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica of several workers.

    Raises:
        SpecError: the model cannot have this layout.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        spec = specs[0]
        self.layout, self.model = layout, layout.check(spec.model)
        self.own = worker_tensors(self.model, layout)
        self.tokens = spec.worker_tokens * layout.workers // layout.data
        self.bytes_per_number = bytes_per_gradient(spec.number_format)

    def step_times(
        self, compute_s: FloatOrArray, memory_plan: MemoryPlan, workers: Indices, settings: Indices, network: Network,
        ndim: int, factors: Factors, algorithm: Algorithms,
    ) -> ReplicaTimes:  # fmt: skip
        """Return the seconds of a step inside a replica, along the settings.

        Args:
            compute_s: computing seconds of a worker, along the settings.
            memory_plan: micro-batches and recomputation of the settings.
            workers: ``(S,)``: P, the number of workers.
            settings: indices of the settings.
            network: network that joins all workers.
            ndim: number of axes of the resulting arrays.
            factors: factors of computing and communication, along the settings.
            algorithm: see `ClockSpec.algorithm_on`.
        """
        alike: dict[tuple[int, int, bool], list[int]] = {}
        steps = zip(workers.tolist(), memory_plan.micro_batches.tolist(), memory_plan.recomputed.tolist(), strict=True)
        step_kinds = list(steps)
        for row, setting in enumerate(settings.tolist()):
            alike.setdefault(step_kinds[setting], []).append(row)
        computed = np.broadcast_to(compute_s, (len(settings), *np.shape(compute_s)[1:]))
        parts = []
        for (count, micro, recomputed), rows in alike.items():
            links = network if len(alike) == 1 else links_of_rows(network, np.array(rows))
            slower = factors.communication
            if isinstance(slower, np.ndarray) and slower.ndim == 2 and len(slower) == len(settings):
                slower = slower[rows]

            def call_s(call: ReplicaCall, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                priced = group_carried(call.collective, call.ranks, count, call.payload_bytes, links, algorithm)
                return slower * priced.seconds

            def sent_s(nbytes: float, links: Any = links, count: int = count, slower: Any = slower) -> FloatOrArray:
                return slower * message_s(self.layout.pipeline_group, count, nbytes, links)

            try:
                inside = replica_times(
                    self.model, self.layout, computed[rows], micro, self.tokens / micro, call_s, sent_s,
                    self.bytes_per_number, recomputed,
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


def carried_by_groups(
    kind: str,
    groups: Sequence[range],
    workers: Sequence[int],
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
) -> PricedMany:
    """Return the cost of a collective that all groups call at once, in each setting, on a network of levels.

    If it has no closed form, its time is nan and its ``ways`` give the reason.

    Args:
        kind: the collective, one of ``COLLECTIVES``.
        groups: the first group of each setting.
        workers: P, number of workers in each setting.
        nbytes: n, number of bytes, one for all settings or one for each.
        network: network that joins all workers.
        wanted: algorithm or policy, see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: condition under which a message starts.
    """
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), (len(groups),)).tolist()
    cache: dict[tuple[range, int, float], tuple[float, str, str]] = {}
    for key in zip(groups, workers, sizes, strict=True):
        if key in cache:
            continue
        try:
            priced = group_carried(kind, key[0], key[1], key[2], network, wanted, rule)
        except NoClosedForm as error:
            why = f"{kind} of groups of a layout has no closed form on {network.name}; expected {error.expected}"
            cache[key] = np.nan, "", why
        else:
            name = priced.names[int(np.reshape(priced.chosen, (-1,))[0])]
            cache[key] = float(np.reshape(priced.seconds, (-1,))[0]), name, CLOSED_FORM
    seconds, names, evaluators = zip(*(cache[key] for key in zip(groups, workers, sizes, strict=True)), strict=True)
    return PricedMany(np.array(seconds), *_places(names), *_places(evaluators))


def _places(texts: Sequence[str]) -> tuple[tuple[str, ...], Indices]:
    """Return the different texts, and the index of each text among them."""
    different = tuple(dict.fromkeys(texts))
    return different, np.array([different.index(text) for text in texts], dtype=np.int64)
