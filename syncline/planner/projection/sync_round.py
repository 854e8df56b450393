"""One round of a method for one worker, in closed form, as spans of time from an average to the next."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from syncline.costmodel import Network
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.traffic.step_time import PricedCall, Worker, stepper
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import first_value

MOST_STEPS = 2048
"""Limit on the steps of a round, because the least common multiple of periods may be any number."""

ROUNDS_BEFORE = 2
"""Number of rounds before the returned one, after which the calls in flight repeat from round to round."""


class ActivitySpan(NamedTuple):
    """The start and end of one activity of a worker.

    Attributes:
        kind: ``compute`` (all that keeps the worker busy, also communication inside its replica), ``wait``, or
            ``network`` (parallel to the others).
        label: name of the exchange.
        start_s: start in seconds from the beginning of the round.
        end_s: end in seconds from the beginning of the round.
    """

    kind: str
    label: str
    start_s: float
    end_s: float


class MethodRound(NamedTuple):
    """The steps of a method from one average to the next, as spans of one worker.

    Attributes:
        steps: H, the number of steps.
        seconds: duration of the round.
        spans: spans of one worker; network spans may begin before the round or end after it.
    """

    steps: int
    seconds: float
    spans: tuple[ActivitySpan, ...]


class _RecordingWorker(Worker):
    """A worker that records the spans in which it waits, and in which its network is busy."""

    def __init__(self, compute_s: float, trigger_s: float, optimizer_s: float) -> None:
        super().__init__(compute_s, trigger_s, optimizer_s=optimizer_s)
        self.spans: list[ActivitySpan] = []

    @override
    def _start(self, priced_call: PricedCall, ready_s: FloatOrArray, step: int) -> None:
        """Start a call whose data are ready at ``ready_s``, and record when the network is busy with it."""
        begin_s = np.maximum(self.free_s, ready_s)
        super()._start(priced_call, ready_s, step)
        label = priced_call.call.label or priced_call.call.collective
        self._record("network", label, start_s=begin_s, end_s=self.free_s)

    @override
    def _count_wait(self, at_s: FloatOrArray, wait_s: FloatOrArray) -> None:
        """Wait for ``wait_s`` seconds from ``at_s`` on, and record the span."""
        super()._count_wait(at_s, wait_s)
        self._record("wait", "", start_s=at_s, end_s=at_s + wait_s)

    def _record(self, kind: str, label: str, start_s: FloatOrArray, end_s: FloatOrArray) -> None:
        """Record a span that is not empty."""
        start_s, end_s = first_value(start_s), first_value(end_s)
        if end_s > start_s:
            self.spans.append(ActivitySpan(kind, label, start_s, end_s))


def simulate_round(plan: ProjectionPlan, method_index: int, network: Network) -> MethodRound:
    """Simulate one worker's steps from one average to the next, among the workers of a plan's first setting.

    A round has the least common multiple of the periods as its number of steps. Its exchanges are those that run once
    all have started or ended.

    Args:
        method_index: index of a method that the first setting includes.
        network: a network; if it is a link, the fields are numbers.
    """
    schedule = plan.schedule(method_index, network)
    last_start = max((exchange.start for exchange in schedule.exchanges), default=0)
    running = [exchange for exchange in schedule.exchanges if exchange.stop is None or exchange.stop > last_start]
    exchanges = [replace(exchange, start=0, stop=None) for exchange in running]
    steps = min(math.lcm(*(exchange.period for exchange in exchanges)), MOST_STEPS)  # 1 without exchanges
    worker = _RecordingWorker(schedule.busy_s, schedule.trigger_s, schedule.optimizer_s)
    advance = stepper(worker, exchanges, schedule.price_call)
    start_s = 0.0
    for round_index in range(ROUNDS_BEFORE + 1):  # the last round is the one that is returned
        start_s = first_value(worker.now_s)
        advance(round_index * steps, (round_index + 1) * steps)
    end_s = first_value(worker.now_s)
    rounding_s = 1e-9 * (end_s - start_s)  # a span that ends where the round begins belongs to the previous round
    spans = [
        span._replace(start_s=span.start_s - start_s, end_s=span.end_s - start_s)
        for span in worker.spans
        if span.end_s > start_s + rounding_s and span.start_s < end_s - rounding_s
    ]
    network_spans = [span for span in spans if span.kind == "network"]
    waits = sorted((span for span in spans if span.kind == "wait"), key=lambda span: span.start_s)
    # The worker computes between its waits.
    begins_s, ends_s = [0.0, *(wait.end_s for wait in waits)], [*(wait.start_s for wait in waits), end_s - start_s]
    intervals = zip(begins_s, ends_s, strict=True)
    computing = [ActivitySpan("compute", "", begin, end) for begin, end in intervals if begin < end]
    return MethodRound(steps, end_s - start_s, (*computing, *waits, *network_spans))
