"""Plans timed again by the event simulation: every message between replicas, with all messages that share its link.

Computing, sums over tensor and context, and pipelines stay in closed form, which tests compare with their own events.
The calls of every step (gradients inside a replica, data parallelism) are simulated one by one, all groups at once and
level by level, and combined by the recurrence of buckets. Calls of longer periods are simulated in a run of two cycles,
of which the second counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel import Exchange, Link, Network
from syncline.costmodel.collectives.hierarchical import HIERARCHIES
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.layouts.groups import capacities
from syncline.costmodel.traffic.call import Call, groups_like
from syncline.costmodel.traffic.exchanges import calls_at, calls_by_step
from syncline.costmodel.traffic.overlap import split_call
from syncline.costmodel.traffic.step_time import PricedCall, priced_step
from syncline.planner.advice.plan_costs import PlanRow
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.plan import ProjectionPlan

if TYPE_CHECKING:
    from syncline.sim import Clock

MOST_STEPS = 2000
"""Limit on the steps of a simulated run."""

MOST_WORKERS = 1024
"""Limit on the workers of a simulated run: its time grows with them, while the time of all closed forms does not."""

REPLAYED = 3
"""Number of plans of a list that are timed again."""


def level_groups(ranks: range, level_sizes: Sequence[int]) -> list[range]:
    """Return the first group at each level at which a group has several members, from the inside out.

    >>> level_groups(range(8), (2, 4, 8))
    [range(0, 2), range(0, 4, 2), range(0, 8, 4)]
    """
    groups, stride, members = [], ranks.step, 1
    for capacity in level_sizes:
        within = len(range(0, min(capacity, ranks.stop), ranks.step))
        if within > members:
            groups.append(range(0, stride * (within // members), stride))
            stride, members = stride * (within // members), within
    return groups


def calls_by_level(
    call: Call, ranks: range, workers: int, level_sizes: Sequence[int], algorithm: str | None = None
) -> Iterator[Call]:
    """Yield the calls of a collective on each level, for all groups: reduce-scatters up, all-gathers down, or similar.

    Args:
        call: the collective.
        ranks: the first group.
        workers: P, the number of workers.
        level_sizes: `capacities` of the network.
        algorithm: algorithm of the collective; on several levels that of the outermost, as in the hierarchy of that
            name.
    """
    kind, n, groups = call.collective, float(call.payload_bytes), level_groups(ranks, level_sizes)
    if len(groups) > 1:
        hierarchy = HIERARCHIES[kind].get(algorithm or "") if kind == "all_reduce" else None
        algorithm = hierarchy.between if hierarchy else None
    inner_sizes = [math.prod(map(len, groups[:level])) for level in range(len(groups))]
    if kind == "all_reduce" and groups:
        inner = [*zip(groups, inner_sizes, strict=True)][:-1]
        yield from _of_groups(call, "reduce_scatter", [(group, n / g) for group, g in inner], workers)
        yield from _of_groups(call, kind, [(groups[-1], n / inner_sizes[-1])], workers, algorithm)
        down = [(group, n / g / len(group)) for group, g in reversed(inner)]
        yield from _of_groups(call, "all_gather", group_bytes=down, workers=workers)
    elif kind == "reduce_scatter":
        group_bytes = [(group, n / g) for group, g in zip(groups, inner_sizes, strict=True)]
        yield from _of_groups(call, kind, group_bytes, workers, algorithm)
    elif kind == "gather":
        group_bytes = [(group, n * g) for group, g in zip(groups, inner_sizes, strict=True)]
        yield from _of_groups(call, kind, group_bytes, workers, algorithm)
    elif kind == "all_gather":
        outer = [len(ranks) / g / len(group) for group, g in zip(groups, inner_sizes, strict=True)]
        group_bytes = [*zip(reversed(groups), (n * g for g in reversed(outer)), strict=True)]
        yield from _of_groups(call, kind, group_bytes, workers, algorithm)
    elif kind == "send":
        for group in groups_like(ranks, workers):
            yield call._replace(group=(group[0], group[-1]), encoded_bytes=0.0)
    else:
        yield from _of_groups(call, kind, [(group, n) for group in reversed(groups)], workers, algorithm)


def _of_groups(
    call: Call, kind: str, group_bytes: Sequence[tuple[range, float]], workers: int, algorithm: str | None = None
) -> Iterator[Call]:
    """Yield a collective of ``kind`` for all groups like each group, with the bytes beside that group."""
    for ranks, nbytes in group_bytes:
        for group in groups_like(ranks, workers):
            yield call._replace(
                collective=kind, payload_bytes=nbytes, group=group, encoded_bytes=0.0, algorithm=algorithm
            )


def replay_by_events(question: AdviceQuestion, row: PlanRow) -> dict[str, Any]:
    """Return the fields of a row's simulated step: ``events_step_s`` and ``events_difference``.

    The difference is relative to the closed form. Both are None if units differ in size, or if the workers or the cycle
    of the exchanges exceed a limit of the simulation.
    """
    prepared, number = row["prepared"]
    unit_sizes = capacities(question.network, question.workers) if question.workers <= MOST_WORKERS else None
    events_s = None
    if unit_sizes is not None and len(prepared.traffic[number]) == 1:
        events_s = Replay(prepared, number, question.network, unit_sizes).step_s()
    difference = None if events_s is None else events_s / row["step_time_s"] - 1
    return {"events_step_s": events_s, "events_difference": difference}


class Replay:
    """A plan that the event simulation plays.

    Args:
        prepared: projection of one setting.
        number: index of the method.
        network: network that joins the workers.
        level_sizes: `capacities` of the network.
    """

    def __init__(self, prepared: ProjectionPlan, number: int, network: Network, level_sizes: Sequence[int]) -> None:
        self.prepared, self.number, self.network, self.level_sizes = prepared, number, network, level_sizes
        self.spec, self.workers = prepared.spec, int(prepared.workers[0])
        self.traffic = prepared.traffic[number][0]
        self._played: dict[tuple[str, float, range], float] = {}

    def step_s(self) -> float | None:
        """Return the mean step in seconds, or None if its cycle is too long."""
        regular = [exchange for exchange in self.traffic.exchanges if exchange.period == 1 and exchange.wait_steps == 0]
        rare = [exchange for exchange in self.traffic.exchanges if exchange.period != 1 or exchange.wait_steps]
        inside_times = self.prepared.replica_times(self.number, self.network)
        busy_s = float(np.ravel(inside_times.step_s)[0])
        if regular:
            patterns = calls_by_step(regular, self.spec.steps)
            first = priced_step(busy_s, regular, patterns, self.spec.steps, price=self._timed)
            busy_s = float(np.ravel(first.step_time_s)[0])
        trigger_s = self.spec.compute.readback_latency * self.prepared.readbacks[self.number]
        optimizer_s = float(self.prepared.optimizer_s[self.number][0])
        return self._run_s(rare, busy_s, trigger_s, optimizer_s) if rare else busy_s + trigger_s + optimizer_s

    def _timed(self, call: Call) -> list[PricedCall]:
        """Return the parts in which a call's bytes are sent, each with the seconds of its own simulation."""
        parts = []
        for part in split_call(call, self.spec.overlap, self.traffic.on(self.network).buckets):
            key = part.collective, float(part.payload_bytes), self._ranks(part)
            if key not in self._played:
                single_part = part._replace(step=0, ready=1.0, needed=1.0, wait_steps=0, in_backward=False)
                self._played[key] = self._clock(list(self._by_level(single_part)), 0.0, steps=1).wall_s
            parts.append(PricedCall(part, self._played[key]))
        return parts

    def _ranks(self, call: Call) -> range:
        """Return the first of the groups that make a call side by side."""
        if call.group is None:
            return self.prepared.layout.replica_group(self.workers)
        assert isinstance(call.group, range)
        return call.group

    def _by_level(self, call: Call) -> Iterator[Call]:
        """Return a call's calls at each level, by the algorithm that the closed form finds fastest."""
        ranks = self._ranks(call)
        algorithm = self.spec.algorithm_on(self.network)
        among, nbytes = np.array([self.workers]), float(call.payload_bytes)
        carrier = collective_prices(
            call.collective, among, nbytes, self.network, algorithm, rule=self.spec.protocol, groups=[ranks]
        )
        name = carrier.names[int(np.ravel(carrier.name_index)[0])]
        return calls_by_level(call, ranks, self.workers, self.level_sizes, algorithm=name or None)

    def _clock(
        self, calls: Sequence[Call], busy_s: float, steps: int, trigger_s: float = 0.0, optimizer_s: float = 0.0
    ) -> Clock:
        """Return the simulation of calls among all workers; ``busy_s`` are the seconds of computing in a step."""
        from syncline.sim import clock  # only here: most projections play nothing

        return clock(
            calls,
            busy_s,
            self.network,
            self.workers,
            steps,
            algorithm=None if isinstance(self.network, Link) else "ring",
            rule=self.spec.protocol,
            evaluator="events",
            trigger_s=trigger_s,
            optimizer_s=optimizer_s,
            keep_steps=0,
        )

    def _run_s(
        self, exchanges: Sequence[Exchange], busy_s: float, trigger_s: float, optimizer_s: float
    ) -> float | None:
        """Return the mean step of the second of two cycles, or None if the cycle is too long."""
        cycle = math.lcm(*(exchange.period for exchange in exchanges))
        if 2 * cycle > MOST_STEPS or any(exchange.start or exchange.stop is not None for exchange in exchanges):
            return None
        calls = [
            part for step in range(2 * cycle) for call in calls_at(exchanges, step) for part in self._by_level(call)
        ]
        ends = self._clock(calls, busy_s, steps=2 * cycle, trigger_s=trigger_s, optimizer_s=optimizer_s).step_end_s
        return float(ends[-1] - ends[cycle - 1]) / cycle
