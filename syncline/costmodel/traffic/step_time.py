"""The time of a training step, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.policies import Algorithms
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.tcp_slow_start import AfterIdling, after_idling
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, Exchange, call_s, calls_by_step
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, PricedCall, split_call, worker_after
from syncline.errors import SpecError


@dataclass(frozen=True)
class StepTime:
    """Components of the time of a mean step, in seconds; each field is a number or an array.

    Args:
        compute_s: forward and backward pass of one worker, and its update unless ``optimizer_s`` counts it.
        communication_s: time of the network; the last calls count up to the end of the training.
        encode_s: computing that encodes payloads into their wire format, and decodes them.
        trigger_s: computing that decides whether to send.
        hidden_communication_s: the part of the communication during which the worker computes.
        inside_s: waiting for other workers of the same replica, see `syncline.costmodel.layouts.replica_step`, and for
            the slowest worker, see `syncline.costmodel.numerics.slowest`.
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
        """Return the computing, ``compute + encode + trigger + update``, plus the waiting, ``exposed + inside``."""
        return self.computing_s + self.exposed_communication_s + self.inside_s

    @property
    def computing_s(self) -> FloatOrArray:
        """Return the computing seconds: ``compute + encode + trigger + update``."""
        return self.compute_s + self.encode_s + self.trigger_s + self.optimizer_s


def step_time_s(compute_s: FloatOrArray, communication_s: FloatOrArray) -> FloatOrArray:
    """Return the seconds of a step without overlap: ``compute + communication``."""
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
    """Return the mean step of a training of T steps: ``compute + (other seconds of T steps) / T``.

    The waiting time of a worker comes from the recurrence of `syncline.costmodel.traffic.overlap`. Without overlap, and
    without exchanges whose results are needed later, a worker waits for all communication.

    Args:
        compute_s: computing seconds of each worker in a step.
        exchanges: exchanges of the method.
        steps: T, at least 1.
        workers: P; broadcasts with the fields of ``link``.
        link: each worker's link.
        overlap: ``none``; ``ddp``: gradients travel in ``buckets`` during the backward pass; ``async``: a worker waits
            for the calls of a step one step later.
        buckets: buckets of the gradient, see `gradient_buckets`.
        algorithm: algorithm or policy of the collectives, see `syncline.costmodel.collectives.policies.algorithm_for`.
        rule: start rule of a message, ``eager`` or ``rendezvous``.
        encode_bytes_per_s: fp32 bytes that a worker encodes and decodes per second; None means instantly.
        trigger_s: seconds of each step in which the worker decides whether to send.
        optimizer_s: seconds of the update in each step, after all waits of the step.

    Raises:
        SpecError: no step, an unknown overlap, or a rate or time out of range.
    """
    if steps < 1:
        raise SpecError("steps", steps, "at least 1")
    if encode_bytes_per_s is not None:
        require(encode_bytes_per_s > 0, "encode", encode_bytes_per_s, "a positive number of bytes per second")

    def opening(call: Call) -> AfterIdling | None:
        if link.tcp is None:
            return None
        priced = collective_prices(call.collective, np.asarray(workers), call.payload_bytes, link, algorithm)
        return after_idling(call.collective, workers, call.payload_bytes, link, priced.names, priced.name_index)

    def timed(call: Call) -> list[PricedCall]:
        return [
            PricedCall(
                part,
                call_s(part.collective, workers, part.payload_bytes, link, algorithm, rule),
                0.0 if encode_bytes_per_s is None else part.encoded_bytes / encode_bytes_per_s,
                opening(part),
            )
            for part in split_call(call, overlap, buckets)
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
    """Return the mean step of a training whose calls the function ``timed`` prices.

    Args:
        compute_s: see `mean_step`.
        exchanges: exchanges of the method.
        patterns: call patterns of these exchanges, by `calls_by_step`.
        steps: T, at least 1.
        timed: function from a call to the priced calls that carry it, which do not depend on its step.
        trigger_s: see `mean_step`.
        optimizer_s: see `mean_step`.
    """
    communication_s: FloatOrArray = 0.0
    encode_s: FloatOrArray = 0.0
    overlaps, longest_s = False, -1.0
    for pattern in patterns:
        for call in pattern.calls:
            for priced in timed(call):
                communication_s = communication_s + pattern.steps * priced.cost_s
                encode_s = encode_s + pattern.steps * priced.encode_s
                overlaps |= priced.call.ready < 1 or priced.call.wait_steps > 0
                if priced.after_idling is not None:
                    longest_s = max(longest_s, priced.after_idling.longest_s)
    hidden_s: FloatOrArray = 0.0
    if overlaps or longest_s >= 0:
        worker = worker_after(compute_s, exchanges, steps, timed, trigger_s, max(longest_s, 0.0), optimizer_s)
        communication_s = communication_s + worker.opened_s - worker.remaining_s
        hidden_s = communication_s - worker.exposed_s if overlaps else 0.0
    return StepTime(
        compute_s, communication_s / steps, encode_s / steps, trigger_s, hidden_s / steps, optimizer_s=optimizer_s
    )
