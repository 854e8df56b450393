"""The time of a training step, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.tcp_slow_start import AfterIdling, after_idling
from syncline.costmodel.collectives.vectorised import carried
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, Exchange, call_s, calls_by_step
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, PricedCall, split, worker_after
from syncline.errors import SpecError


@dataclass(frozen=True)
class StepTime:
    """Where the time of a mean step goes, in seconds; each field a number or an array.

    Args:
        compute_s: forward and backward of one worker, and its update where that is not counted by itself.
        communication_s: what the network takes; of what is sent last, the part before the training ends.
        encode_s: computing that turns what is sent into its wire format, and back.
        trigger_s: computing that finds out whether to send.
        hidden_communication_s: the part of the communication during which the worker computes.
        inside_s: waiting for other workers of the same replica, see `syncline.costmodel.layouts.replica_step`.
        optimizer_s: the update where it is.
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
        """Communication during which the worker waits, with nothing to compute."""
        return self.communication_s - self.hidden_communication_s

    @property
    def step_time_s(self) -> FloatOrArray:
        """What a worker computes, ``compute + encode + trigger + update``, and waits for, ``exposed + inside``."""
        return self.computing_s + self.exposed_communication_s + self.inside_s

    @property
    def computing_s(self) -> FloatOrArray:
        """``compute + encode + trigger + update``."""
        return self.compute_s + self.encode_s + self.trigger_s + self.optimizer_s


def step_time_s(compute_s: FloatOrArray, communication_s: FloatOrArray) -> FloatOrArray:
    """Seconds of a step without overlap: ``compute + communication``."""
    return StepTime(compute_s, communication_s).step_time_s


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
    """The mean step of a training of T steps: ``compute + (what else T steps take) / T``.

    What a worker waits for comes from the recurrence of `syncline.costmodel.traffic.overlap`; without overlap, and
    without exchanges that are needed later, that is all communication.

    Args:
        compute_s: seconds that each worker computes in a step.
        exchanges: what is sent, and how often.
        steps: T, at least 1.
        workers: P; it and the fields of the link broadcast.
        link: each worker's link.
        overlap: ``none``; ``ddp``: what is ready during the backward pass travels in ``buckets``; ``async``: what is
            sent after a step is waited for one step later.
        buckets: of the gradient, see `gradient_buckets`.
        algorithm: what carries the collectives, see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: when a message starts, ``eager`` or ``rendezvous``.
        encode_bytes_per_s: fp32 bytes that a worker encodes and decodes per second; none: in no time.
        trigger_s: seconds of each step in which it finds out whether to send.
        optimizer_s: seconds of each step in which it updates, after all that it waits for.

    Raises:
        SpecError: no step, no such overlap, or a rate or time out of range.
    """
    if steps < 1:
        raise SpecError("steps", steps, "at least 1")
    if encode_bytes_per_s is not None:
        require(encode_bytes_per_s > 0, "encode", encode_bytes_per_s, "a positive number of bytes per second")

    def opening(one: Call) -> AfterIdling | None:
        if link.tcp is None:
            return None
        priced = carried(one.collective, np.asarray(workers), one.payload_bytes, link, algorithm)
        return after_idling(one.collective, workers, one.payload_bytes, link, priced.names, priced.chosen)

    def timed(call: Call) -> list[PricedCall]:
        return [
            PricedCall(
                one,
                call_s(one.collective, workers, one.payload_bytes, link, algorithm, rule),
                0.0 if encode_bytes_per_s is None else one.encoded_bytes / encode_bytes_per_s,
                opening(one),
            )
            for one in split(call, overlap, buckets)
        ]

    return priced_step(compute_s, exchanges, calls_by_step(exchanges, steps), steps, timed, trigger_s, optimizer_s)


def priced_step(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    patterns: Sequence[CallPattern],
    steps: int,
    timed: Callable[[Call], Sequence[PricedCall]],
    trigger_s: FloatOrArray = 0.0,
    optimizer_s: FloatOrArray = 0.0,
) -> StepTime:
    """The mean step of a training whose calls somebody else prices.

    Args:
        compute_s: see `mean_step`.
        exchanges: what is sent, and how often.
        patterns: of these exchanges, by `calls_by_step`.
        steps: T, at least 1.
        timed: the calls in which a call travels, and what they take, whatever its step.
        trigger_s: see `mean_step`.
        optimizer_s: likewise.
    """
    communication_s: FloatOrArray = 0.0
    encode_s: FloatOrArray = 0.0
    overlaps, longest_s = False, -1.0
    for pattern in patterns:
        for call in pattern.calls:
            for one in timed(call):
                communication_s = communication_s + pattern.steps * one.cost_s
                encode_s = encode_s + pattern.steps * one.encode_s
                overlaps |= one.call.ready < 1 or one.call.wait_steps > 0
                if one.after_idling is not None:
                    longest_s = max(longest_s, one.after_idling.longest_s)
    hidden_s: FloatOrArray = 0.0
    if overlaps or longest_s >= 0:
        worker = worker_after(compute_s, exchanges, steps, timed, trigger_s, max(longest_s, 0.0), optimizer_s)
        communication_s = communication_s + worker.opened_s - worker.left_s
        hidden_s = communication_s - worker.exposed_s if overlaps else 0.0
    return StepTime(
        compute_s, communication_s / steps, encode_s / steps, trigger_s, hidden_s / steps, optimizer_s=optimizer_s
    )
