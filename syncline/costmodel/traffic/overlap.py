"""Overlap of communication with computing: gradient buckets, and exposed communication in closed form.

The collectives of one worker run one after another. If the k-th can start at ``ready_k`` and takes ``cost_k`` seconds,

    done_k = max(ready_k, done_(k-1)) + cost_k.

A worker that needs its result before it continues waits ``max(0, done_k - now)``. This waiting time is *exposed*
communication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from syncline.costmodel.collectives.table import hivemind_on
from syncline.costmodel.collectives.tcp_slow_start import AfterIdling
from syncline.costmodel.network.link import Network, Topology
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.traffic.call import Call, Spans
from syncline.costmodel.traffic.exchanges import Exchange, due_steps, join_exchanges, phase_cycles
from syncline.errors import SpecError, one_of

Overlap = Literal["none", "ddp", "async"]
"""``none``: a worker computes, then communicates; ``ddp``: gradients travel in buckets during the backward pass;
``async``: a worker waits for the calls of a step one step later."""

OVERLAPS: tuple[str, ...] = get_args(Overlap)

BUCKET_BYTES = 25 * 2**20
"""Default size of a gradient bucket. Source: ``torch.nn.parallel.DistributedDataParallel``, ``bucket_cap_mb``; MiB."""

FIRST_BUCKET_BYTES = 2**20
"""Size of the first bucket if the others have the default size, so that a call starts early. Source: as above."""

FORWARD_SHARE = 1 / 3
"""Fraction of the compute time in the forward pass: a backward pass takes twice its operations, one product for the
inputs and one for the weights (J. Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1)."""


NEGLIGIBLE = 1e-9
"""Share of a gradient below which a part is a rounding error of sums of shares."""


class Bucket(NamedTuple):
    """A bucket of gradients that travel in one call.

    Attributes:
        share: fraction of the gradient's bytes, in (0, 1].
        ready: fraction of the compute time after which the last gradient of the bucket is ready, in (0, 1].
    """

    share: float
    ready: float


WHOLE = (Bucket(1.0, 1.0),)
"""The whole gradient in one bucket at the end of the backward pass, without overlap."""


def buckets_on(network: Network | Topology, buckets: Sequence[Bucket]) -> Sequence[Bucket]:
    """Return the buckets in which a gradient travels on a network; hivemind averages it as a whole.

    hivemind's averager takes all tensors of a round in one call, after the backward pass.
    """
    return buckets if hivemind_on(network) is None else WHOLE


def bytes_per_gradient(number_format: str) -> int:
    """Return the bytes of one gradient element as the backward pass makes it; they decide when a bucket is full.

    >>> bytes_per_gradient("fp32"), bytes_per_gradient("bf16")
    (4, 2)
    """
    return 4 if number_format == "fp32" else 2


def gradient_buckets(
    elements: Sequence[int],
    bucket_bytes: float = BUCKET_BYTES,
    *,
    element_bytes: float = 4,
    forward_share: float = FORWARD_SHARE,
) -> tuple[Bucket, ...]:
    """Return the buckets of a gradient, in the order in which they are ready.

    Buckets are filled from the last tensor to the first, the order in which a backward pass makes the gradients. A
    bucket is full when it holds ``bucket_bytes`` or more. The first holds only 1 MiB if the others have the default
    size. Each tensor takes a share of the backward pass in proportion to its elements.

    Args:
        elements: number of elements of each tensor, in the order of the forward pass.
        bucket_bytes: size of a bucket; positive.
        element_bytes: bytes of one gradient element.
        forward_share: fraction of the compute time before the backward pass, from 0 to 1.

    Raises:
        SpecError: a size or a share out of range.

    Source: S. Li et al., "PyTorch Distributed", VLDB 13 (2020), section 3.2; PyTorch's
    ``_compute_bucket_assignment_by_size``.

    >>> [(f"{b.share:.2f}", f"{b.ready:.2f}") for b in gradient_buckets([6, 1, 2, 1], 12.0)]
    [('0.30', '0.53'), ('0.70', '1.00')]
    """
    if not bucket_bytes > 0:
        raise SpecError("bucket_size", bucket_bytes, "a positive number of bytes")
    if not 0 <= forward_share <= 1:
        raise SpecError("forward_share", forward_share, "a part of the compute time, from 0 to 1")
    total = sum(elements)
    if not total:
        return WHOLE
    limit = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    buckets: list[Bucket] = []
    in_bucket = done = 0
    for count in reversed(elements):
        in_bucket, done = in_bucket + count, done + count
        if in_bucket * element_bytes >= limit or done == total:
            if in_bucket:
                buckets.append(Bucket(in_bucket / total, forward_share + (1 - forward_share) * (done / total)))
            in_bucket, limit = 0, bucket_bytes
    return tuple(buckets)


def covered_buckets(buckets: Sequence[Bucket], spans: Spans) -> tuple[Bucket, ...]:
    """Return the buckets of a payload that covers only some parts of a gradient, as shares of that payload.

    Args:
        buckets: buckets of the whole gradient.
        spans: the parts of the gradient that the payload covers.

    >>> covered_buckets([Bucket(0.5, 0.7), Bucket(0.5, 1.0)], [(0.25, 0.5), (0.75, 1.0)])
    (Bucket(share=0.5, ready=0.7), Bucket(share=0.5, ready=1.0))
    """
    begin, covered = 0.0, list[Bucket]()
    for bucket in buckets:
        end = begin + bucket.share
        share = sum(max(0.0, min(end, last) - max(begin, first)) for first, last in spans)
        if share > NEGLIGIBLE:
            covered.append(Bucket(share, bucket.ready))
        begin = end
    total = sum(bucket.share for bucket in covered)
    return tuple(bucket._replace(share=bucket.share / total) for bucket in covered)


class PricedCall(NamedTuple):
    """A call, or one bucket of a call, with its seconds.

    Attributes:
        call: the call.
        cost_s: seconds of the network.
        encode_s: seconds in which the worker encodes and decodes.
        after_idling: extra seconds of the network if it was idle before the call; None means no extra seconds.
    """

    call: Call
    cost_s: FloatOrArray
    encode_s: FloatOrArray = 0.0
    after_idling: AfterIdling | None = None


def split_call(call: Call, overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """Split a call for an overlap: ``ddp`` cuts a gradient into buckets, ``async`` delays the wait by a step.

    Raises:
        SpecError: an unknown overlap.
    """
    if overlap not in OVERLAPS:
        raise SpecError("overlap", overlap, one_of(OVERLAPS, overlap))
    nbytes = call.payload_bytes
    call = call._replace(payload_bytes=nbytes.astype(np.float64) if isinstance(nbytes, np.ndarray) else float(nbytes))
    if overlap == "async":
        return [call._replace(wait_steps=max(call.wait_steps, 1))]
    if overlap == "none" or not call.in_backward or buckets == WHOLE:
        return [call]
    if call.spans:
        buckets = covered_buckets(buckets, call.spans)
    labels = [f"{call.label} {number}/{len(buckets)}".strip() for number in range(1, len(buckets) + 1)]
    return [
        call._replace(
            payload_bytes=bucket.share * call.payload_bytes,
            encoded_bytes=bucket.share * call.encoded_bytes,
            ready=min(call.ready, bucket.ready),
            label=label if len(buckets) > 1 else call.label,
        )
        for bucket, label in zip(buckets, labels, strict=True)
    ]


T = TypeVar("T")


class WayPoint(NamedTuple, Generic[T]):
    """A point in a step's computing where a call starts, or where a worker waits for a call.

    Attributes:
        at: fraction of the compute time, from 0 to 1.
        waits: whether the worker waits for the call here, instead of starting it.
        item: object that holds the call.
    """

    at: float
    waits: bool
    item: T


def way_points(items: Sequence[T], call: Callable[[T], Call]) -> list[WayPoint[T]]:
    """Return the starts of calls, and waits for calls, before the computing ends; in order, starts before waits."""
    points = []
    for item in items:
        item_call = call(item)
        if item_call.ready < 1:
            points.append(WayPoint(item_call.ready, False, item))
        if is_awaited_in_step(item_call):
            points.append(WayPoint(item_call.needed, True, item))
    return sorted(points, key=lambda point: point[:2])


def is_awaited_in_step(call: Call) -> bool:
    """Return whether a worker waits for the call before the computing of the step ends."""
    return call.needed < 1 and not call.wait_steps


def points_of(timed: Sequence[PricedCall]) -> list[WayPoint[int]]:
    """Return the way points of the calls of a step, by index."""
    return way_points(range(len(timed)), lambda index: timed[index].call)


class Worker:
    """The two streams of a worker, computing and network, advanced step by step in seconds.

    Args:
        compute_s: computing seconds of each step.
        trigger_s: seconds of each step in which the worker decides whether to send, between its computing and the calls
            at the end of the step.
        idle_s: idle seconds of the network beyond which a longer idle time changes nothing.
        optimizer_s: seconds of the update in each step, after all waits of the step.
    """

    def __init__(
        self,
        compute_s: FloatOrArray,
        trigger_s: FloatOrArray = 0.0,
        idle_s: float = 0.0,
        optimizer_s: FloatOrArray = 0.0,
    ) -> None:
        self.compute_s, self.trigger_s, self.idle_s, self.optimizer_s = compute_s, trigger_s, idle_s, optimizer_s
        self.now_s: FloatOrArray = 0.0
        self.free_s: FloatOrArray = 0.0
        self.exposed_s: FloatOrArray = 0.0
        self.opened_s: FloatOrArray = 0.0
        self.pending: dict[int, list[FloatOrArray]] = {}  # step after which a worker waits: end times of calls

    @property
    def remaining_s(self) -> FloatOrArray:
        """Return the seconds that the network still needs for calls that the worker has not waited for."""
        return np.maximum(0.0, self.free_s - self.now_s)

    def skip(self, steps: int) -> None:
        """Advance by ``steps`` steps that start no call and wait for no call."""
        self.now_s = self.now_s + steps * (self.compute_s + self.trigger_s + self.optimizer_s)

    def step(self, number: int, timed: Sequence[PricedCall], points: Sequence[WayPoint[int]]) -> None:
        """Advance by one step: compute, start the calls as they are ready, wait for the results, and update.

        Args:
            number: number of the step.
            timed: the calls of the step.
            points: starts of the calls and waits for them, see `points_of`.
        """
        begin, encoded, waited = self.now_s, 0.0 * self.now_s, 0.0 * self.now_s
        needed: FloatOrArray = begin
        done: dict[int, FloatOrArray] = {}
        for fraction, waits, index in points:
            priced = timed[index]
            if waits:
                at_s = begin + fraction * self.compute_s + encoded + waited
                wait_s = np.maximum(0.0, done[index] - at_s)
                self._expose(at_s, wait_s)
                waited = waited + wait_s
                continue
            encoded = encoded + priced.encode_s
            self._start(priced, begin + fraction * self.compute_s + encoded + waited, number)
            done[index] = self.free_s
            needed = needed if priced.call.wait_steps or is_awaited_in_step(priced.call) else self.free_s
        self.now_s = begin + self.compute_s + encoded + waited + self.trigger_s
        self._wait(needed)
        for priced in timed:
            if priced.call.ready >= 1:
                self.now_s = self.now_s + priced.encode_s
                self._start(priced, self.now_s, number)
                if not priced.call.wait_steps:
                    self._wait(self.free_s)
        for done_s in self.pending.pop(number, ()):
            self._wait(done_s)
        self.now_s = self.now_s + self.optimizer_s

    def _start(self, priced: PricedCall, at_s: FloatOrArray, number: int) -> None:
        begin = np.maximum(self.free_s, at_s)
        if priced.after_idling is not None:
            opening_s = priced.after_idling.opening_s(begin - self.free_s)
            self.opened_s, begin = self.opened_s + opening_s, begin + opening_s
        self.free_s = begin + priced.cost_s
        if priced.call.wait_steps:
            self.pending.setdefault(number + priced.call.wait_steps, []).append(self.free_s)

    def _wait(self, until_s: FloatOrArray) -> None:
        after = np.maximum(self.now_s, until_s)
        self._expose(self.now_s, after - self.now_s)
        self.now_s = after

    def _expose(self, at_s: FloatOrArray, wait_s: FloatOrArray) -> None:
        """Count ``wait_s`` seconds of waiting, from ``at_s`` on, as exposed communication."""
        self.exposed_s = self.exposed_s + wait_s

    def rebase(self) -> None:
        """Shift the clock so that the present moment is 0 s."""
        self.free_s, now = np.maximum(self.free_s - self.now_s, 0.0 - self.idle_s), self.now_s
        self.pending = {step: [end_s - now for end_s in ends] for step, ends in self.pending.items()}
        self.now_s = 0.0

    def future_state(self, number: int) -> list[tuple[int, FloatOrArray]]:
        """Return the state that decides the future of a worker whose clock begins at step ``number``.

        It is a list of (steps ahead, seconds): the time at which the network is free, as step -1, then the end of each
        pending call, with the step after which the worker waits for it.
        """
        ends = [(step - number, end_s) for step in sorted(self.pending) for end_s in self.pending[step]]
        return [(-1, self.free_s), *ends]


def exposed_s(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    steps: int,
    timed: Callable[[Call], Sequence[PricedCall]],
    trigger_s: FloatOrArray = 0.0,
) -> FloatOrArray:
    """Return the seconds that a worker waits for the network in T steps.

    The worker advances step by step through cycles of the periods, until a cycle leaves its state unchanged. The
    remaining cycles repeat that one.

    Args:
        compute_s: computing seconds of the worker in a step.
        exchanges: exchanges of the method.
        steps: T.
        timed: function from a call to the priced calls that carry it, which do not depend on its step.
        trigger_s: see `Worker`.
    """
    return worker_after(compute_s, exchanges, steps, timed, trigger_s).exposed_s


def worker_after(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    steps: int,
    timed: Callable[[Call], Sequence[PricedCall]],
    trigger_s: FloatOrArray = 0.0,
    idle_s: float = 0.0,
    optimizer_s: FloatOrArray = 0.0,
) -> Worker:
    """Return a worker after T steps; see `exposed_s` and `Worker` for the arguments."""
    worker = Worker(compute_s, trigger_s, idle_s, optimizer_s)
    timed_calls: dict[tuple[bool, ...], tuple[list[PricedCall], list[WayPoint[int]]]] = {}
    alike = _by_timing(exchanges)
    near_s = float(np.max(compute_s)) if idle_s else 0.0  # an idle time may be only a rounding error
    now = 0
    for _, end, cycle in phase_cycles(exchanges, steps):
        before: tuple[list[tuple[int, FloatOrArray]], FloatOrArray, FloatOrArray] | None = None
        while now < end:
            worker.rebase()
            state, exposed, opened = worker.future_state(now), worker.exposed_s, worker.opened_s
            if before and _alike(before[0], state, near_s):
                times = (end - now) // cycle
                worker.exposed_s = exposed + times * (exposed - before[1])
                worker.opened_s = opened + times * (opened - before[2])
                worker.pending = {step + times * cycle: ends for step, ends in worker.pending.items()}
                now, before = now + times * cycle, None
                continue
            before = state, exposed, opened
            cycle_end = min(end, now + cycle)
            for step in _events(alike, now, cycle_end, worker):
                worker.skip(step - now)
                due = tuple(bool(exchange.is_due(step)) for exchange in alike)
                if due not in timed_calls:
                    calls = join_exchanges(exchange for exchange in exchanges if exchange.is_due(step))
                    due_calls = [priced for call in calls for priced in timed(call)]
                    timed_calls[due] = due_calls, points_of(due_calls)
                worker.step(step, *timed_calls[due])
                now = step + 1
            worker.skip(cycle_end - now)
            now = cycle_end
    return worker


def _by_timing(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return the first of all exchanges that are due at the same steps."""
    by_timing: dict[Any, Exchange] = {}
    for exchange in exchanges:
        by_timing.setdefault((exchange.period, exchange.offset, exchange.start, exchange.stop), exchange)
    return list(by_timing.values())


def _events(exchanges: Sequence[Exchange], begin: int, end: int, worker: Worker) -> Iterator[int]:
    """Yield the steps from ``begin`` to ``end - 1`` after which the worker starts or awaits a call, as it advances."""
    sends = iter(due_steps(exchanges, begin, end))
    next_send = next(sends, end)
    while True:
        step = min([next_send, *worker.pending])
        if step >= end:
            return
        yield step
        if step == next_send:
            next_send = next(sends, end)


def _alike(state: list[tuple[int, FloatOrArray]], other: list[tuple[int, FloatOrArray]], near_s: float) -> bool:
    """Return whether two states are equal up to rounding, with an absolute tolerance for times of ``near_s``.

    A time that no closed form gives is nan, and equals nan.
    """
    return [step for step, _ in state] == [step for step, _ in other] and all(
        np.allclose(a, b, rtol=1e-12, atol=1e-12 * near_s, equal_nan=True)
        for (_, a), (_, b) in zip(state, other, strict=True)
    )
