"""The time of a training step in closed form, with the seconds for which a worker waits for the network.

The collectives of one worker run one after another. If collective k can start at ``ready_k`` and takes ``cost_k``
seconds, it ends at

    done_k = max(ready_k, done_(k-1)) + cost_k.

A worker that needs collective k before it continues waits ``max(0, done_k - now)``, *exposed* communication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.tcp_slow_start import AfterIdling, after_idling
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import (
    CallPattern,
    Exchange,
    call_s,
    calls_by_step,
    calls_of_exchanges,
    due_steps,
    phase_cycles,
)
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, WayPoint, is_awaited_early, split_call, way_points


class PricedCall(NamedTuple):
    """A collective, or one bucket of a gradient, with its seconds.

    Attributes:
        cost_s: seconds for which the call occupies the network, if the network was busy before.
        encode_s: seconds in which the worker encodes and decodes the payload.
        after_idling: extra seconds of the call by the idle seconds of the network before it; None means none.
    """

    call: Call
    cost_s: FloatOrArray
    encode_s: FloatOrArray = 0.0
    after_idling: AfterIdling | None = None


Price = Callable[[Call], Sequence[PricedCall]]
"""A function that returns the priced calls that carry a call; the result does not depend on the call's step."""


@dataclass(eq=False)
class Worker:
    """The clocks of one training worker and of its network, which a caller advances step by step, in seconds.

    A clock is a number, or an array with a value for each of many settings.

    Args:
        compute_s: computing seconds of each step.
        trigger_s: seconds of each step between computing and calls in which the worker decides whether to send.
        idle_limit_s: idle seconds of the network after which further idle seconds no longer slow the next call down.
        optimizer_s: seconds of the update in each step, after all waits of the step.

    Attributes:
        now_s: time of the worker.
        free_s: time at which the network has finished all calls that were started.
        exposed_s: seconds for which the worker has waited for the network.
        slow_start_s: extra seconds of calls that started after the network was idle.
        pending: end times of calls, by the step after which the worker waits for them.
    """

    compute_s: FloatOrArray
    trigger_s: FloatOrArray = 0.0
    idle_limit_s: float = 0.0
    optimizer_s: FloatOrArray = 0.0
    now_s: FloatOrArray = field(default=0.0, init=False)
    free_s: FloatOrArray = field(default=0.0, init=False)
    exposed_s: FloatOrArray = field(default=0.0, init=False)
    slow_start_s: FloatOrArray = field(default=0.0, init=False)
    pending: dict[int, list[FloatOrArray]] = field(default_factory=dict, init=False)

    @property
    def remaining_s(self) -> FloatOrArray:
        """Return the seconds that the network still needs for the collectives that the worker has started."""
        return np.maximum(0.0, self.free_s - self.now_s)

    def skip(self, steps: int) -> None:
        """Advance the worker by ``steps`` steps in which it starts no collective and waits for none."""
        self.now_s = self.now_s + steps * (self.compute_s + self.trigger_s + self.optimizer_s)

    def step(self, step: int, priced_calls: Sequence[PricedCall], points: Sequence[WayPoint]) -> None:
        """Advance the worker by one step: compute, start collectives as they are ready, wait for results, and update.

        Args:
            step: number of the step, from 0.
            points: points in the computing where collectives start or the worker waits for them, by `way_points`.
        """
        begin_s = self.now_s
        encoding_s = waiting_s = 0.0 * begin_s  # seconds so far in this step: zeros of the clock's shape
        needed_end_s: FloatOrArray = begin_s  # end of the last collective that the next step needs
        call_ends_s: dict[int, FloatOrArray] = {}
        for fraction, is_wait, index in points:
            priced_call = priced_calls[index]
            if is_wait:
                point_s = begin_s + fraction * self.compute_s + encoding_s + waiting_s
                wait_s = np.maximum(0.0, call_ends_s[index] - point_s)
                self._count_wait(point_s, wait_s)
                waiting_s = waiting_s + wait_s
                continue
            encoding_s = encoding_s + priced_call.encode_s
            self._start(priced_call, begin_s + fraction * self.compute_s + encoding_s + waiting_s, step)
            call_ends_s[index] = self.free_s
            if not priced_call.call.wait_steps and not is_awaited_early(priced_call.call):
                needed_end_s = self.free_s
        self.now_s = begin_s + self.compute_s + encoding_s + waiting_s + self.trigger_s
        self._wait(needed_end_s)

        # The worker encodes and starts the collectives that are ready only after the computing, one after another.
        for priced_call in priced_calls:
            if priced_call.call.ready >= 1:
                self.now_s = self.now_s + priced_call.encode_s
                self._start(priced_call, self.now_s, step)
                if not priced_call.call.wait_steps:
                    self._wait(self.free_s)

        for end_s in self.pending.pop(step, ()):  # collectives of earlier steps whose results this step needs
            self._wait(end_s)
        self.now_s = self.now_s + self.optimizer_s

    def _start(self, priced_call: PricedCall, ready_s: FloatOrArray, step: int) -> None:
        """Start a collective of a step at ``ready_s`` seconds, or once the network is free.

        The end of a collective whose result a later step needs joins the `pending` ends of that step.
        """
        begin_s = np.maximum(self.free_s, ready_s)
        if priced_call.after_idling is not None:
            idle_s = begin_s - self.free_s  # since the last call ended
            extra_s = priced_call.after_idling.opening_s(idle_s)
            self.slow_start_s = self.slow_start_s + extra_s
            begin_s = begin_s + extra_s
        self.free_s = begin_s + priced_call.cost_s
        if priced_call.call.wait_steps:
            wait_step = step + priced_call.call.wait_steps
            self.pending.setdefault(wait_step, []).append(self.free_s)

    def _wait(self, until_s: FloatOrArray) -> None:
        """Let the worker wait until a time, if that time is still to come."""
        end_s = np.maximum(self.now_s, until_s)
        self._count_wait(self.now_s, end_s - self.now_s)
        self.now_s = end_s

    def _count_wait(self, at_s: FloatOrArray, wait_s: FloatOrArray) -> None:
        """Count ``wait_s`` seconds as exposed communication; a subclass records that they begin at ``at_s``."""
        self.exposed_s = self.exposed_s + wait_s

    def rebase(self) -> None:
        """Shift the clocks so that the worker's time is 0 s."""
        # All idle times beyond the limit have the same effect; cut to the limit, they give equal states.
        self.free_s = np.maximum(self.free_s - self.now_s, 0.0 - self.idle_limit_s)
        self.pending = {step: [end_s - self.now_s for end_s in ends_s] for step, ends_s in self.pending.items()}
        self.now_s = 0.0

    def future_state(self, next_step: int) -> list[tuple[int, FloatOrArray]]:
        """Return the state that decides all steps from ``next_step`` on, for a worker whose time is 0 s (`rebase`).

        Returns:
            Pairs. The first holds -1, which no pending call has, and the time at which the network is free. Each other
            pair is a pending call: the number of steps until the worker waits for it, and its end in seconds.
        """
        state = [(-1, self.free_s)]
        for step in sorted(self.pending):
            state += [(step - next_step, end_s) for end_s in self.pending[step]]
        return state


def stepper(
    worker: Worker, exchanges: Sequence[Exchange], price: Price, patterns: Sequence[CallPattern] = ()
) -> Callable[[int, int], None]:
    """Return a function ``advance(begin, end)`` that advances the worker from step ``begin`` to step ``end``.

    The function prices the calls of each pattern once.

    Args:
        patterns: call patterns of these exchanges, by `calls_by_step`, whose calls need not be made again.
    """
    # Exchanges of equal timing are due at the same steps, so that one of them stands for all.
    representatives = list({exchange.timing: exchange for exchange in exchanges}.values())
    priced_patterns: dict[tuple[bool, ...], tuple[list[PricedCall], list[WayPoint]]] = {}

    def due_at(step: int) -> tuple[bool, ...]:
        """Return which of the representatives are due after a step."""
        return tuple(bool(exchange.is_due(step)) for exchange in representatives)

    calls_by_due = {due_at(pattern.first_step): pattern.calls for pattern in patterns}

    def advance(begin: int, end: int) -> None:
        next_step = begin
        for step in _steps_with_calls(representatives, begin, end, worker):
            worker.skip(step - next_step)
            due = due_at(step)
            if due not in priced_patterns:
                calls = calls_by_due.get(due) or calls_of_exchanges(e for e in exchanges if e.is_due(step))
                priced_calls = [priced_call for call in calls for priced_call in price(call)]
                priced_patterns[due] = priced_calls, way_points([priced_call.call for priced_call in priced_calls])
            priced_calls, points = priced_patterns[due]
            worker.step(step, priced_calls, points)
            next_step = step + 1
        worker.skip(end - next_step)

    return advance


def worker_after(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    steps: int,
    price: Price,
    trigger_s: FloatOrArray = 0.0,
    idle_limit_s: float = 0.0,
    optimizer_s: FloatOrArray = 0.0,
    patterns: Sequence[CallPattern] = (),
) -> Worker:
    """Return the clocks of a training worker after T steps with periodic collectives.

    The worker advances step by step through cycles of the exchanges' periods. When a cycle leaves the worker's state
    unchanged, the remaining cycles of this phase repeat the cycle, and the worker skips them at once.

    Args:
        compute_s: computing seconds of the worker in a step.
        steps: T.
        price: function from a call to the priced calls that carry it.
        patterns: see `stepper`.

    The other arguments are those of `Worker`.
    """
    worker = Worker(compute_s, trigger_s, idle_limit_s, optimizer_s)
    advance = stepper(worker, exchanges, price, patterns)
    tolerance_s = 1e-12 * float(np.max(compute_s)) if idle_limit_s else 0.0  # shorter idle times are rounding errors
    step = 0
    for _, end, cycle_steps in phase_cycles(exchanges, steps):
        state_before: list[tuple[int, FloatOrArray]] | None = None  # these are before the last cycle of this phase
        exposed_before_s: FloatOrArray = 0.0
        slow_start_before_s: FloatOrArray = 0.0
        while step < end:
            worker.rebase()
            state, exposed_s, slow_start_s = worker.future_state(step), worker.exposed_s, worker.slow_start_s
            if state_before is not None and _equal_states(state_before, state, tolerance_s):
                num_cycles = (end - step) // cycle_steps
                skipped_steps = num_cycles * cycle_steps
                worker.exposed_s = exposed_s + num_cycles * (exposed_s - exposed_before_s)
                worker.slow_start_s = slow_start_s + num_cycles * (slow_start_s - slow_start_before_s)
                worker.pending = {wait_step + skipped_steps: ends_s for wait_step, ends_s in worker.pending.items()}
                step += skipped_steps
                state_before = None  # fewer steps than a cycle are left, which run one by one
                continue
            state_before, exposed_before_s, slow_start_before_s = state, exposed_s, slow_start_s
            cycle_end = min(end, step + cycle_steps)
            advance(step, cycle_end)
            step = cycle_end
    return worker


def _steps_with_calls(exchanges: Sequence[Exchange], begin: int, end: int, worker: Worker) -> Iterator[int]:
    """Yield the steps from ``begin`` to ``end - 1`` after which the worker starts a call or waits for a pending one.

    The caller advances the worker after each step, which changes the pending calls.
    """
    due = deque([*due_steps(exchanges, begin, end), end])  # the last entry ends the loop
    while (step := min([due[0], *worker.pending])) < end:
        yield step
        if step == due[0]:
            due.popleft()


def _equal_states(
    state: list[tuple[int, FloatOrArray]], other: list[tuple[int, FloatOrArray]], tolerance_s: float
) -> bool:
    """Return whether two states of `Worker.future_state` agree to ``tolerance_s`` and rounding; nan equals nan."""
    return [step for step, _ in state] == [step for step, _ in other] and all(
        np.allclose(time_s, other_s, rtol=1e-12, atol=tolerance_s, equal_nan=True)
        for (_, time_s), (_, other_s) in zip(state, other, strict=True)
    )


@dataclass(frozen=True)
class StepTime:
    """Components of the time of a mean step, in seconds; each field is a number or an array.

    Args:
        compute_s: forward and backward pass of one worker, and its update unless ``optimizer_s`` counts the update.
        communication_s: time for which calls occupy the network; unfinished ones count to the end of the training.
        encode_s: computing that encodes payloads into their wire format, and decodes them.
        trigger_s: computing that decides whether to send.
        hidden_communication_s: the part of the communication during which the worker computes.
        inside_s: waiting inside a step for other workers of the same replica, see
            `syncline.costmodel.layouts.replica_step`, and for the slowest worker of all, see
            `syncline.costmodel.numerics.slowest`.
        optimizer_s: the update, where it is counted separately.
    """

    compute_s: FloatOrArray
    communication_s: FloatOrArray
    encode_s: FloatOrArray = 0.0
    trigger_s: FloatOrArray = 0.0
    hidden_communication_s: FloatOrArray = 0.0
    inside_s: FloatOrArray = 0.0
    optimizer_s: FloatOrArray = 0.0

    @property
    def exposed_communication_s(self) -> FloatOrArray:
        """Return the communication seconds during which the worker waits with nothing to compute."""
        return self.communication_s - self.hidden_communication_s

    @property
    def step_time_s(self) -> FloatOrArray:
        """Return the seconds of a step: computing, exposed communication, and waiting inside the step."""
        return self.computing_s + self.exposed_communication_s + self.inside_s

    @property
    def computing_s(self) -> FloatOrArray:
        """Return the computing seconds: ``compute + encode + trigger + update``."""
        return self.compute_s + self.encode_s + self.trigger_s + self.optimizer_s


def mean_step(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    steps: int,
    workers: IntOrArray,
    link: Link,
    *,
    overlap: str = "none",
    buckets: Sequence[Bucket] = WHOLE,
    algorithm: Algorithms = None,
    rule: Rule = "eager",
    encode_bytes_per_s: FloatOrArray | None = None,
    trigger_s: FloatOrArray = 0.0,
    optimizer_s: FloatOrArray = 0.0,
) -> StepTime:
    """Return the components of the time of the mean step of a training of T steps on equal links.

    Args:
        compute_s: computing seconds of each worker in a step.
        steps: T, at least 1.
        workers: P; broadcasts with the fields of ``link``.
        overlap: ``none``, ``ddp`` or ``async``, see `syncline.costmodel.traffic.overlap.Overlap`. With ``none``, a
            worker waits for all communication except that of exchanges whose results are needed later.
        buckets: buckets of the gradient, see `gradient_buckets`.
        algorithm: algorithm or policy of the collectives, see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: start rule of a message, ``eager`` or ``rendezvous``.
        encode_bytes_per_s: fp32 bytes that a worker encodes and decodes per second; None means instantly.
        trigger_s: seconds of each step in which the worker decides whether to send.
        optimizer_s: seconds of the update in each step, after all waits of the step.
    """
    require(steps >= 1, "steps", steps, "at least 1")
    if encode_bytes_per_s is not None:
        require(encode_bytes_per_s > 0, "encode", encode_bytes_per_s, "a positive number of bytes per second")

    def price(call: Call) -> list[PricedCall]:
        parts = []
        for part in split_call(call, overlap, buckets):
            cost_s = call_s(part.collective, workers, part.payload_bytes, link=link, algorithm=algorithm, rule=rule)
            encode_s = 0.0 if encode_bytes_per_s is None else part.encoded_bytes / encode_bytes_per_s
            slow_start = None
            if link.tcp is not None:  # TCP's windows close while the network is idle, and open again in the call
                prices = collective_prices(part.collective, np.asarray(workers), part.payload_bytes, link, algorithm)
                slow_start = after_idling(
                    part.collective, workers, part.payload_bytes, link, prices.names, prices.name_index
                )
            parts.append(PricedCall(part, cost_s, encode_s, after_idling=slow_start))
        return parts

    patterns = calls_by_step(exchanges, steps)
    return priced_step(compute_s, exchanges, patterns, steps, price, trigger_s, optimizer_s)


def priced_step(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    patterns: Sequence[CallPattern],
    steps: int,
    price: Price,
    trigger_s: FloatOrArray = 0.0,
    optimizer_s: FloatOrArray = 0.0,
) -> StepTime:
    """Return the components of the time of a training's mean step, with collectives priced by a function.

    Args:
        patterns: call patterns of these exchanges, by `calls_by_step`.
        steps: T, at least 1.
        price: function from a call to the priced calls that carry it.

    The other arguments are those of `mean_step`.
    """
    communication_s: FloatOrArray = 0.0
    encode_s: FloatOrArray = 0.0
    overlaps = depends_on_idling = False
    idle_limit_s = 0.0
    for pattern in patterns:
        for call in pattern.calls:
            for priced_call in price(call):
                communication_s = communication_s + pattern.steps * priced_call.cost_s
                encode_s = encode_s + pattern.steps * priced_call.encode_s
                overlaps |= priced_call.call.ready < 1 or priced_call.call.wait_steps > 0
                if priced_call.after_idling is not None:
                    depends_on_idling = True
                    idle_limit_s = max(idle_limit_s, priced_call.after_idling.longest_s)
    hidden_s: FloatOrArray = 0.0
    if overlaps or depends_on_idling:
        # A worker that advances step by step counts its waits, and the extra seconds of calls after idle times.
        worker = worker_after(compute_s, exchanges, steps, price, trigger_s, idle_limit_s, optimizer_s, patterns)
        # Calls that are unfinished at the end of the training count up to the end.
        communication_s = communication_s + worker.slow_start_s - worker.remaining_s
        hidden_s = communication_s - worker.exposed_s if overlaps else 0.0  # else the worker waits for all calls
    mean_s, mean_hidden_s = communication_s / steps, hidden_s / steps
    return StepTime(compute_s, mean_s, encode_s / steps, trigger_s, mean_hidden_s, optimizer_s=optimizer_s)
