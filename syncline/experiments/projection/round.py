"""What a worker does in one round of a method, in closed form: from an average to the next, as spans of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from syncline.costmodel import Exchange, Network
from syncline.costmodel.arrays import FloatOrArray
from syncline.costmodel.traffic.exchanges import calls_at, due_steps
from syncline.costmodel.traffic.overlap import PricedCall, Worker
from syncline.experiments.projection.plan import Known, ProjectionPlan

MOST_STEPS = 2048
"""Of a round: the least common multiple of periods may be any number."""

SETTLED = 2
"""Rounds before the one that is told, in which what is under way becomes what it always is."""


class Doing(NamedTuple):
    """A span of one worker.

    Attributes:
        what: ``compute`` (with what else keeps it busy, inside its replica, too), ``wait``, or ``network``, which is
            beside the others.
        label: what is sent.
        start_s: from the beginning of the round.
        end_s: likewise.
    """

    what: str
    label: str
    start_s: float
    end_s: float


class MethodRound(NamedTuple):
    """One round of a method.

    Attributes:
        steps: H.
        seconds: that it takes.
        spans: of one worker, each stream's in order; what the network does may begin before the round or end after it.
    """

    steps: int
    seconds: float
    spans: tuple[Doing, ...]


class _Noted(Worker):
    """A worker that notes when it waits, and when its network is busy."""

    def __init__(self, compute_s: float, trigger_s: float, optimizer_s: float) -> None:
        super().__init__(compute_s, trigger_s, optimizer_s=optimizer_s)
        self.spans: list[Doing] = []

    @override
    def _start(self, one: PricedCall, at_s: FloatOrArray, number: int) -> None:
        begin_s = np.maximum(self.free_s, at_s)
        super()._start(one, at_s, number)
        self._note("network", one.call.label or one.call.collective, begin_s, self.free_s)

    @override
    def _expose(self, at_s: FloatOrArray, late_s: FloatOrArray) -> None:
        super()._expose(at_s, late_s)
        self._note("wait", "", at_s, at_s + late_s)

    def _note(self, what: str, label: str, start_s: FloatOrArray, end_s: FloatOrArray) -> None:
        start, end = _number(start_s), _number(end_s)
        if end > start:
            self.spans.append(Doing(what, label, start, end))


def one_round(plan: ProjectionPlan, number: int, network: Network, known: Known | None = None) -> MethodRound:
    """A round of a method among the workers of a plan's first setting.

    A round is what repeats: the least common multiple of the periods of what is sent in the method's last phase.

    Args:
        plan: of it.
        number: of the method, which serves so many workers.
        network: no arrays.
        known: calls that have been priced, see `ProjectionPlan.step`.
    """
    of = plan.scheduled(number, network, known)
    exchanges = _last_phase(of.exchanges)
    steps = min(math.lcm(*(one.period for one in exchanges)) if exchanges else 1, MOST_STEPS)
    priced: dict[tuple[bool, ...], list[PricedCall]] = {}
    worker = _Noted(of.busy_s, of.trigger_s, of.optimizer_s)
    for begin in range(0, SETTLED * steps, steps):
        _go(worker, exchanges, of.timed, begin, begin + steps, priced)
    start_s = _number(worker.now_s)
    _go(worker, exchanges, of.timed, SETTLED * steps, (SETTLED + 1) * steps, priced)
    end_s = _number(worker.now_s)
    spans = [one for one in worker.spans if one.end_s > start_s and one.start_s < end_s]
    spans = [one._replace(start_s=one.start_s - start_s, end_s=one.end_s - start_s) for one in spans]
    network_spans = [one for one in spans if one.what == "network"]
    waits = sorted((one for one in spans if one.what == "wait"), key=lambda one: one.start_s)
    return MethodRound(steps, end_s - start_s, (*_busy(waits, end_s - start_s), *waits, *network_spans))


def _last_phase(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """What is sent when everything has begun, from the first step on."""
    begin = max((one.start for one in exchanges), default=0)
    return [replace(one, start=0, stop=None) for one in exchanges if one.stop is None or one.stop > begin]


def _go(
    worker: Worker, exchanges: Sequence[Exchange], timed: Any, begin: int, end: int, priced: dict[Any, list[PricedCall]]
) -> None:
    """Through these steps."""
    due = set(due_steps(exchanges, begin, end))
    at = begin
    while at < end:
        step = min([one for one in (*due, *worker.pending) if one >= at], default=end)
        worker.skip(min(step, end) - at)
        if step >= end:
            return
        pattern = tuple(bool(one.is_due(step)) for one in exchanges)
        if pattern not in priced:
            priced[pattern] = [one for call in calls_at(exchanges, step) for one in timed(call)]
        worker.step(step, priced[pattern])
        at = step + 1


def _busy(waits: Sequence[Doing], end_s: float) -> list[Doing]:
    """When a worker does not wait."""
    at, spans = 0.0, []
    for wait in waits:
        if wait.start_s > at:
            spans.append(Doing("compute", "", at, wait.start_s))
        at = max(at, wait.end_s)
    return [*spans, Doing("compute", "", at, end_s)] if end_s > at else spans


def _number(value: FloatOrArray) -> float:
    return float(np.ravel(value)[0])
