"""Plans timed again by events: every message of what replicas send, with whom it shares a link.

Computing, sums over tensor and context, and pipelines stay in closed form, which tests hold against their own events.
What a step sends every time (gradients inside a replica, data parallelism) is played call by call, all groups at once
and level by level, and put together by the recurrence of buckets. What is sent now and then is played in a run of two
of its cycles, of which the second counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel import Exchange, Link, Network
from syncline.costmodel.collectives.hierarchical import HIERARCHIES
from syncline.costmodel.layouts.groups import group_carried
from syncline.costmodel.layouts.level_bytes import capacities
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import calls_at, calls_by_step
from syncline.costmodel.traffic.overlap import PricedCall, split
from syncline.costmodel.traffic.step_time import priced_step
from syncline.experiments.advice.priced import PlanRow
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.projection.plan import ProjectionPlan

if TYPE_CHECKING:
    from syncline.sim import Clock

MOST_STEPS = 2000
"""Of a run that is played."""

REPLAYED = 3
"""Plans of a list that are timed again."""


def level_groups(ranks: range, of: Sequence[int]) -> list[range]:
    """The first group at each level where a group has several, from the inside out.

    >>> level_groups(range(8), (2, 4, 8))
    [range(0, 2), range(0, 4, 2), range(0, 8, 4)]
    """
    found, stride, members = [], ranks.step, 1
    for capacity in of:
        within = len(range(0, min(capacity, ranks.stop), ranks.step))
        if within > members:
            found.append(range(0, stride * (within // members), stride))
            stride, members = stride * (within // members), within
    return found


def groups_like(ranks: range, workers: int) -> list[range]:
    """All groups of P workers that are like the first.

    >>> groups_like(range(0, 4, 2), 8)
    [range(0, 4, 2), range(1, 5, 2), range(4, 8, 2), range(5, 9, 2)]
    """
    block = len(ranks) * ranks.step
    firsts = [start + place for start in range(0, workers, block) for place in range(ranks.step)]
    return [range(first, first + block, ranks.step) for first in firsts]


def by_level(call: Call, ranks: range, workers: int, of: Sequence[int], algorithm: str | None = None) -> Iterator[Call]:
    """The calls that a collective is on levels, of all groups: reduce-scatters up, all-gathers down, or likewise.

    Args:
        call: the collective.
        ranks: the first group.
        workers: P.
        of: `capacities`.
        algorithm: what carries it; of several levels the outermost's, as the hierarchy of that name has it.
    """
    kind, n, on = call.collective, float(call.payload_bytes), level_groups(ranks, of)
    if len(on) > 1:
        algorithm = HIERARCHIES[algorithm].between if kind == "all_reduce" and algorithm in HIERARCHIES else None
    below = [math.prod(map(len, on[:place])) for place in range(len(on))]
    if kind == "all_reduce" and on:
        inner = [*zip(on, below, strict=True)][:-1]
        yield from _of_groups(call, "reduce_scatter", [(group, n / g) for group, g in inner], workers)
        yield from _of_groups(call, kind, [(on[-1], n / below[-1])], workers, algorithm)
        down = [(group, n / g / len(group)) for group, g in reversed(inner)]
        yield from _of_groups(call, "all_gather", down, workers)
    elif kind == "reduce_scatter":
        each = [(group, n / g) for group, g in zip(on, below, strict=True)]
        yield from _of_groups(call, kind, each, workers, algorithm)
    elif kind == "gather":
        each = [(group, n * g) for group, g in zip(on, below, strict=True)]
        yield from _of_groups(call, kind, each, workers, algorithm)
    elif kind == "all_gather":
        outer = [len(ranks) / g / len(group) for group, g in zip(on, below, strict=True)]
        each = [*zip(reversed(on), (n * g for g in reversed(outer)), strict=True)]
        yield from _of_groups(call, kind, each, workers, algorithm)
    else:
        yield from _of_groups(call, kind, [(group, n) for group in reversed(on)], workers, algorithm)


def _of_groups(
    call: Call, kind: str, each: Sequence[tuple[range, float]], workers: int, algorithm: str | None = None
) -> Iterator[Call]:
    for ranks, nbytes in each:
        for group in groups_like(ranks, workers):
            yield call._replace(
                collective=kind, payload_bytes=nbytes, group=group, encoded_bytes=0.0, algorithm=algorithm
            )


def replayed(question: AdviceQuestion, row: PlanRow) -> dict[str, Any]:
    """The mean step of a row's plan by events: ``events_step_s``, and ``events_difference`` from the closed form's.

    None where units are not alike, or the cycle of what is sent is longer than is played.
    """
    prepared, number = row["prepared"]
    of = capacities(question.network, question.workers)
    played = of is not None and len(prepared.traffic[number]) == 1
    told = Replay(prepared, number, question.network, of).step_s() if played and of is not None else None
    return {"events_step_s": told, "events_difference": None if told is None else told / row["step_time_s"] - 1}


class Replay:
    """A plan that is played.

    Args:
        prepared: of one setting.
        number: of the method.
        network: that joins the workers.
        of: its `capacities`.
    """

    def __init__(self, prepared: ProjectionPlan, number: int, network: Network, of: Sequence[int]) -> None:
        self.prepared, self.number, self.network, self.of = prepared, number, network, of
        self.spec, self.workers = prepared.spec, int(prepared.workers[0])
        self.traffic = prepared.traffic[number][0]
        self._played: dict[tuple[str, float, range], float] = {}

    def step_s(self) -> float | None:
        """The mean step; None where its cycle is too long."""
        each = [one for one in self.traffic.exchanges if one.period == 1 and one.wait_steps == 0]
        rare = [one for one in self.traffic.exchanges if one.period != 1 or one.wait_steps]
        inside = self.prepared.inside_times(self.number, self.network)
        busy_s = float(np.ravel(self.prepared.compute_s if inside is None else inside.step_s)[0])
        if each:
            patterns = calls_by_step(each, self.spec.steps)
            first = priced_step(busy_s, each, patterns, self.spec.steps, self._timed)
            busy_s = float(np.ravel(first.step_time_s)[0])
        trigger_s = self.spec.compute.readback * self.prepared.readbacks[self.number]
        optimizer_s = float(self.prepared.optimizer_s[self.number][0])
        return self._run_s(rare, busy_s, trigger_s, optimizer_s) if rare else busy_s + trigger_s + optimizer_s

    def _timed(self, call: Call) -> list[PricedCall]:
        out = []
        for one in split(call, self.spec.overlap, self.traffic.buckets):
            key = one.collective, float(one.payload_bytes), self._ranks(one)
            if key not in self._played:
                alone = one._replace(step=0, ready=1.0, needed=1.0, wait_steps=0, in_backward=False)
                self._played[key] = self._clock(list(self._by_level(alone)), 0.0, 1).wall_s
            out.append(PricedCall(one, self._played[key]))
        return out

    def _ranks(self, call: Call) -> range:
        """The first group of a call."""
        if call.group is None:
            return self.prepared.layout.replica_group(self.workers)
        assert isinstance(call.group, range)
        return call.group

    def _by_level(self, call: Call) -> Iterator[Call]:
        """Its calls at each level, by what the closed form takes to be the fastest."""
        ranks = self._ranks(call)
        wanted = self.spec.algorithm_on(self.network)
        told = group_carried(
            call.collective, ranks, self.workers, float(call.payload_bytes), self.network, wanted, self.spec.rule
        )
        name = told.names[int(np.ravel(told.chosen)[0])]
        return by_level(call, ranks, self.workers, self.of, name or None)

    def _clock(
        self, calls: Sequence[Call], busy_s: float, steps: int, trigger_s: float = 0.0, optimizer_s: float = 0.0
    ) -> Clock:
        from syncline.sim import clock  # only here: most projections play nothing

        return clock(
            calls,
            busy_s,
            self.network,
            self.workers,
            steps,
            algorithm=None if isinstance(self.network, Link) else "ring",
            rule=self.spec.rule,
            evaluator="events",
            trigger_s=trigger_s,
            optimizer_s=optimizer_s,
            keep_steps=0,
        )

    def _run_s(
        self, exchanges: Sequence[Exchange], busy_s: float, trigger_s: float, optimizer_s: float
    ) -> float | None:
        """The mean step of the second of two cycles."""
        cycle = math.lcm(*(one.period for one in exchanges))
        if 2 * cycle > MOST_STEPS or any(one.start or one.stop is not None for one in exchanges):
            return None
        calls = [part for step in range(2 * cycle) for one in calls_at(exchanges, step) for part in self._by_level(one)]
        ends = self._clock(calls, busy_s, 2 * cycle, trigger_s, optimizer_s).step_end_s
        return float(ends[-1] - ends[cycle - 1]) / cycle
