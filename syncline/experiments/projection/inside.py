"""What settings of one layout take inside a replica, and what carries collectives of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Network, NoClosedForm
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.many import CLOSED_FORM, PricedMany
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.layouts.groups import group_carried, message_s
from syncline.costmodel.layouts.inside import InsideCall, InsideTimes, inside_times
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.own_tensors import own_tensors
from syncline.costmodel.traffic.overlap import bytes_per_gradient
from syncline.experiments.bounds import Factors
from syncline.experiments.projection.rows import links_of_rows
from syncline.specs import ProjectSpec


class Inside:
    """The inside of the replicas of some settings.

    Args:
        specs: of the settings, of one model and layout.
        layout: of a replica; of several workers.

    Raises:
        SpecError: a model that cannot be laid out so.
    """

    def __init__(self, specs: Sequence[ProjectSpec], layout: Layout) -> None:
        spec = specs[0]
        self.layout, self.model = layout, layout.check(spec.model)
        self.own = own_tensors(self.model, layout)
        self.tokens = spec.tokens_per_worker * layout.workers // layout.data
        self.bytes_per_number = bytes_per_gradient(spec.number_format)
        self.recomputed = spec.memory.activations == "recomputed"

    def times(
        self, compute_s: FloatOrArray, micro_batches: Indices, workers: Indices, settings: Indices, network: Network,
        ndim: int, off: Factors, algorithm: Algorithms,
    ) -> InsideTimes:  # fmt: skip
        """Seconds of a step, along the settings.

        Args:
            compute_s: of a worker, along the settings.
            micro_batches: ``(S,)``: M.
            workers: ``(S,)``: P.
            settings: which of them are asked for.
            network: that joins all workers.
            ndim: axes of what is priced there.
            off: by how much communication is off, along the settings.
            algorithm: see `ClockSpec.algorithm_on`.
        """
        alike: dict[tuple[int, int], list[int]] = {}
        for row, one in enumerate(settings.tolist()):
            alike.setdefault((int(workers[one]), int(micro_batches[one])), []).append(row)
        computed = np.broadcast_to(compute_s, (len(settings), *np.shape(compute_s)[1:]))
        parts = []
        for (count, micro), rows in alike.items():
            here = network if len(alike) == 1 else links_of_rows(network, np.array(rows))
            slower = off.communication
            if isinstance(slower, np.ndarray) and slower.ndim == 2 and len(slower) == len(settings):
                slower = slower[rows]

            def call_s(call: InsideCall, here: Any = here, count: int = count, slower: Any = slower) -> FloatOrArray:
                priced = group_carried(call.collective, call.ranks, count, call.payload_bytes, here, algorithm)
                return slower * priced.seconds

            def sent_s(nbytes: float, here: Any = here, count: int = count, slower: Any = slower) -> FloatOrArray:
                return slower * message_s(self.layout.pipeline_group, count, nbytes, here)

            try:
                told = inside_times(
                    self.model, self.layout, computed[rows], micro, self.tokens / micro, call_s, sent_s,
                    self.bytes_per_number, self.recomputed,
                )  # fmt: skip
            except NoClosedForm:  # collectives between replicas have none either, and say so
                told = InsideTimes(*(np.nan * computed[rows] for _ in InsideTimes._fields))
            parts.append((rows, told))
        if len(parts) == 1:
            return parts[0][1]
        return _joined(parts, len(settings), ndim)


def _joined(parts: Sequence[tuple[list[int], InsideTimes]], count: int, ndim: int) -> InsideTimes:
    told = []
    for pieces in zip(*(times for _, times in parts), strict=True):
        arrays = [np.asarray(one, dtype=np.float64) for one in pieces]
        arrays = [one.reshape((1,) * (ndim - one.ndim) + one.shape) for one in arrays]
        whole = np.zeros((count, *np.broadcast_shapes(*(one.shape[1:] for one in arrays))))
        for (rows, _), one in zip(parts, arrays, strict=True):
            whole[rows] = one
        told.append(whole)
    return InsideTimes(*told)


def carried_by_groups(
    kind: str,
    groups: Sequence[range],
    workers: Sequence[int],
    nbytes: FloatOrArray,
    network: Network,
    wanted: Algorithms,
    rule: Rule,
) -> PricedMany:
    """What a collective takes in each setting that all groups call at once, on a network of levels.

    Where it has no closed form it has no time, and its way says why.

    Args:
        kind: one of ``COLLECTIVES``.
        groups: the first group of each setting.
        workers: P of each.
        nbytes: n, one for all or one for each.
        network: that joins all.
        wanted: see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: when a message starts.
    """
    sizes = np.broadcast_to(np.reshape(nbytes, (-1,)), (len(groups),)).tolist()
    known: dict[tuple[range, int, float], tuple[float, str, str]] = {}
    for key in zip(groups, workers, sizes, strict=True):
        if key in known:
            continue
        try:
            one = group_carried(kind, key[0], key[1], key[2], network, wanted, rule)
        except NoClosedForm as error:
            why = f"{kind} of groups of a layout has no closed form on {network.name}; expected {error.expected}"
            known[key] = np.nan, "", why
        else:
            name = one.names[int(np.reshape(one.chosen, (-1,))[0])]
            known[key] = float(np.reshape(one.seconds, (-1,))[0]), name, CLOSED_FORM
    seconds, names, ways = zip(*(known[key] for key in zip(groups, workers, sizes, strict=True)), strict=True)
    return PricedMany(np.array(seconds), *_places(names), *_places(ways))


def _places(texts: Sequence[str]) -> tuple[tuple[str, ...], Indices]:
    """Different texts, and the place of each."""
    each = tuple(dict.fromkeys(texts))
    return each, np.array([each.index(one) for one in texts], dtype=np.int64)
