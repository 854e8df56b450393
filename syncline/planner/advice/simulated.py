"""Plans timed again by the event simulation: every message between replicas, with all messages that share its link.

Computing, sums over tensor and context, and pipelines stay in closed form, which tests compare with their own events.
The calls of every step (gradients inside a replica, data parallelism) are simulated one by one, all groups at once and
level by level, and combined by the recurrence of buckets. Calls of longer periods are simulated in a run of two cycles;
the second counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel import Exchange, Link, Network
from syncline.costmodel.collectives.hierarchical import HIERARCHIES
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.layouts.groups import workers_of_units
from syncline.costmodel.traffic.call import Call, groups_like
from syncline.costmodel.traffic.exchanges import calls_at, calls_by_step
from syncline.costmodel.traffic.overlap import split_call
from syncline.costmodel.traffic.step_time import PricedCall, priced_step
from syncline.planner.advice.plan_costs import PlanRow
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import first_value

if TYPE_CHECKING:
    from syncline.sim import Clock

MOST_STEPS = 2000
"""Limit on the steps of a simulated run."""

MOST_WORKERS = 1024
"""Limit on the workers of a simulated run: its time grows with them, while the time of all closed forms does not."""

PLANS_SIMULATED = 3
"""Number of plans of a list that are timed again."""


def level_groups(ranks: range, unit_workers: Sequence[int]) -> list[range]:
    """Divide a group of ranks by network level: at each level that joins several units, return the first subgroup.

    A subgroup has one rank of each unit that the level joins. The innermost level comes first.

    >>> level_groups(range(8), (2, 4, 8))
    [range(0, 2), range(0, 4, 2), range(0, 8, 4)]
    """
    groups, stride, inner_members = [], ranks.step, 1
    for workers_in_unit in unit_workers:
        members = len(range(0, min(workers_in_unit, ranks.stop), ranks.step))  # ranks of the group in the first unit
        if members > inner_members:
            inner_units = members // inner_members  # one rank of each is in the subgroup
            groups.append(range(0, stride * inner_units, stride))
            stride, inner_members = stride * inner_units, members
    return groups


def calls_by_level(
    call: Call, ranks: range, workers: int, unit_workers: Sequence[int], algorithm: str | None = None
) -> Iterator[Call]:
    """Yield the collectives that carry out one collective level by level, as reduce-scatters up and all-gathers down.

    Args:
        ranks: ranks of the first group that makes the call.
        workers: P, the number of workers.
        unit_workers: `workers_of_units` of the network.
        algorithm: algorithm of the collective; on several levels, a hierarchy, of which the outermost level takes the
            algorithm between units.
    """
    kind, nbytes, groups = call.collective, float(call.payload_bytes), level_groups(ranks, unit_workers)
    if len(groups) > 1:
        hierarchy = HIERARCHIES[kind].get(algorithm or "") if kind == "all_reduce" else None
        algorithm = hierarchy.between if hierarchy else None
    # Ranks for which a member of each level stands: it has their gathered bytes, or the part 1 / below of their sum.
    members_below = [math.prod(map(len, groups[:level])) for level in range(len(groups))]
    levels = list(zip(groups, members_below, strict=True))  # from the innermost
    if kind == "all_reduce" and groups:
        for group, below in levels[:-1]:
            yield from _calls_of_groups(call, "reduce_scatter", group, nbytes / below, workers)
        yield from _calls_of_groups(call, kind, groups[-1], nbytes / members_below[-1], workers, algorithm)
        for group, below in reversed(levels[:-1]):
            yield from _calls_of_groups(call, "all_gather", group, nbytes / below / len(group), workers)
    elif kind in ("reduce_scatter", "gather"):
        for group, below in levels:
            level_bytes = nbytes / below if kind == "reduce_scatter" else nbytes * below
            yield from _calls_of_groups(call, kind, group, level_bytes, workers, algorithm)
    elif kind == "all_gather":
        for group, below in reversed(levels):
            members_above = len(ranks) / below / len(group)  # whose bytes the outer levels have gathered before
            yield from _calls_of_groups(call, kind, group, nbytes * members_above, workers, algorithm)
    elif kind == "send":
        for group in groups_like(ranks, workers):
            yield call._replace(group=(group[0], group[-1]), encoded_bytes=0.0)  # from its first rank to its last
    else:
        for group in reversed(groups):
            yield from _calls_of_groups(call, kind, group, nbytes, workers, algorithm)


def _calls_of_groups(
    call: Call, kind: str, first_group: range, nbytes: float, workers: int, algorithm: str | None = None
) -> Iterator[Call]:
    """Yield a collective of ``kind`` for every group like the first one, with a payload of ``nbytes``."""
    for group in groups_like(first_group, workers):
        yield call._replace(collective=kind, payload_bytes=nbytes, group=group, encoded_bytes=0.0, algorithm=algorithm)


def simulate_by_events(question: AdviceQuestion, row: PlanRow) -> dict[str, Any]:
    """Simulate the messages of a plan's step; return its seconds, and their relative difference from the closed form.

    Seconds and difference are None if units of the network differ in size, or if the workers or the cycle of the
    exchanges exceed a limit of the simulation.
    """
    projection, method_index = row["prepared"]
    unit_workers = workers_of_units(question.network, question.workers) if question.workers <= MOST_WORKERS else None
    events_s = None
    if unit_workers is not None:
        events_s = SimulatedPlan(projection, method_index, question.network, unit_workers).step_s()
    difference = None if events_s is None else events_s / row["step_time_s"] - 1
    return {"events_step_s": events_s, "events_difference": difference}


class SimulatedPlan:
    """A training plan whose step time is computed by simulating each message between workers.

    Args:
        projection: projection of one spec, and so of one number of workers.
        unit_workers: number of workers in a unit of each network level, see `workers_of_units`.
    """

    def __init__(
        self, projection: ProjectionPlan, method_index: int, network: Network, unit_workers: Sequence[int]
    ) -> None:
        self.projection, self.method_index = projection, method_index
        self.network, self.unit_workers = network, unit_workers
        self.spec, self.workers = projection.spec, int(projection.workers[0])
        (self.traffic,) = projection.method_plans[method_index].traffic  # one, as there is one spec
        self._simulated_s: dict[tuple[str, float, range], float] = {}  # by collective, bytes and ranks

    def step_s(self) -> float | None:
        """Return the mean seconds of a step, or None if the cycle of its exchanges is too long."""
        method_plan = self.projection.method_plans[self.method_index]
        exchanges = self.traffic.exchanges
        each_step = [exchange for exchange in exchanges if exchange.period == 1 and exchange.wait_steps == 0]
        others = [exchange for exchange in exchanges if exchange.period != 1 or exchange.wait_steps]
        busy_s = first_value(self.projection.replica_times(self.method_index, self.network).step_s)
        if each_step:  # as in the closed form, but with the seconds of each call's own simulation
            patterns = calls_by_step(each_step, self.spec.steps)
            step = priced_step(busy_s, each_step, patterns, self.spec.steps, price=self._price_call)
            busy_s = first_value(step.step_time_s)
        trigger_s = self.spec.compute.readback_latency * method_plan.readbacks
        optimizer_s = float(method_plan.optimizer_s[0])
        if not others:
            return busy_s + trigger_s + optimizer_s
        return self._mean_step_s(others, busy_s, trigger_s, optimizer_s)

    def _price_call(self, call: Call) -> list[PricedCall]:
        """Return the parts in which a call's bytes are sent, each with the seconds of its own simulation."""
        parts = []
        for part in split_call(call, self.spec.overlap, self.traffic.on(self.network).buckets):
            key = part.collective, float(part.payload_bytes), self._ranks(part)
            if key not in self._simulated_s:
                # Simulate one step without computing, in which workers begin this call alone and wait for it.
                single_call = part._replace(step=0, ready=1.0, needed=1.0, wait_steps=0, in_backward=False)
                clock = self._simulate(list(self._level_calls(single_call)), busy_s=0.0, steps=1)
                self._simulated_s[key] = clock.wall_s
            parts.append(PricedCall(part, self._simulated_s[key]))
        return parts

    def _ranks(self, call: Call) -> range:
        """Return the ranks of the first group that makes a call; other groups make the same call at the same time."""
        if call.group is None:  # one worker of each replica
            return self.projection.layout.replica_group(self.workers)
        assert isinstance(call.group, range)
        return call.group

    def _level_calls(self, call: Call) -> Iterator[Call]:
        """Return the collectives at each network level that carry out a call, by its fastest algorithm."""
        ranks = self._ranks(call)
        prices = collective_prices(
            call.collective, np.array([self.workers]), float(call.payload_bytes), self.network,
            self.spec.algorithm_on(self.network), rule=self.spec.protocol, groups=[ranks],
        )  # fmt: skip
        (name_index,) = np.ravel(prices.name_index).tolist()  # there is one setting
        return calls_by_level(call, ranks, self.workers, self.unit_workers, algorithm=prices.names[name_index] or None)

    def _simulate(
        self, calls: Sequence[Call], busy_s: float, steps: int, trigger_s: float = 0.0, optimizer_s: float = 0.0
    ) -> Clock:
        """Simulate calls among all workers, with ``busy_s`` seconds of computing in a step."""
        from syncline.sim import clock  # only here: most projections simulate nothing

        # `_level_calls` has divided each call into rings on single levels.
        return clock(
            calls, busy_s, self.network, self.workers, steps,
            algorithm=None if isinstance(self.network, Link) else "ring", rule=self.spec.protocol, evaluator="events",
            trigger_s=trigger_s, optimizer_s=optimizer_s, keep_steps=0,
        )  # fmt: skip

    def _mean_step_s(
        self, exchanges: Sequence[Exchange], busy_s: float, trigger_s: float, optimizer_s: float
    ) -> float | None:
        """Return the mean seconds of a step in the second of two cycles, or None if the cycle is too long.

        In the first cycle no exchange of an earlier cycle is under way.
        """
        cycle = math.lcm(*(exchange.period for exchange in exchanges))
        if 2 * cycle > MOST_STEPS:
            return None
        if any(exchange.start or exchange.stop is not None for exchange in exchanges):  # then the cycles differ
            return None
        calls: list[Call] = []
        for step in range(2 * cycle):
            for call in calls_at(exchanges, step):
                calls += self._level_calls(call)
        clock = self._simulate(calls, busy_s, steps=2 * cycle, trigger_s=trigger_s, optimizer_s=optimizer_s)
        return float(clock.step_end_s[-1] - clock.step_end_s[cycle - 1]) / cycle
