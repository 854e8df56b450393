"""Communication beside computing: gradient buckets, and the wait for what is needed later, in closed form.

Collectives of one worker run one after another. With ``ready_k`` when the k-th can start and ``cost_k`` what it takes,

    done_k = max(ready_k, done_(k-1)) + cost_k,

and a worker that needs it before it goes on waits ``max(0, done_k - now)``: that time, with nothing to compute, is
*exposed* communication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from syncline.costmodel.collectives.tcp_slow_start import AfterIdling
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import Exchange, due_steps, joined, phase_cycles
from syncline.errors import SpecError, one_of

Overlap = Literal["none", "ddp", "async"]
"""``none``: compute, then communicate; ``ddp``: what is ready during the backward pass travels in buckets; ``async``:
what is sent after a step is waited for one step later."""

OVERLAPS: tuple[str, ...] = get_args(Overlap)

BUCKET_BYTES = 25 * 2**20
"""Default size of a gradient bucket. Source: ``torch.nn.parallel.DistributedDataParallel``, ``bucket_cap_mb``; MiB."""

FIRST_BUCKET_BYTES = 2**20
"""Of the first bucket, if the others have the default size, so that something is sent early. Source: as above."""

FORWARD_SHARE = 1 / 3
"""Of the compute time: a backward pass takes twice the operations of a forward pass, one product for the inputs and one
for the weights (J. Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1)."""


class Bucket(NamedTuple):
    """Gradients that travel together.

    Attributes:
        share: part of the gradient's bytes, in (0, 1].
        ready: part of the compute time after which the last of them is there, in (0, 1].
    """

    share: float
    ready: float


WHOLE = (Bucket(1.0, 1.0),)
"""Everything in one bucket at the end of the backward pass: no overlap."""


def bytes_per_gradient(number_format: str) -> int:
    """Of one element as a backward pass makes it, by which buckets are filled.

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
    """The buckets of a gradient, in the order in which they are ready.

    They are filled from the last tensor to the first, the order in which a backward pass makes the gradients; one is
    full when it holds ``bucket_bytes`` or more. The first holds only 1 MiB if the others have the default size. The
    time of the backward pass is shared out by elements.

    Args:
        elements: of each tensor, in the order of the forward pass.
        bucket_bytes: size of a bucket; positive.
        element_bytes: of one gradient element.
        forward_share: part of the compute time before the backward pass, from 0 to 1.

    Raises:
        SpecError: a size or a share out of range.

    Source: S. Li et al., "PyTorch Distributed", VLDB 13 (2020), section 3.2; PyTorch's
    ``_compute_bucket_assignment_by_size``.

    >>> [(f"{b.share:.2f}", f"{b.ready:.2f}") for b in gradient_buckets([6, 1, 2, 1], 12.0)]
    [('0.30', '0.53'), ('0.70', '1.00')]
    """
    if not bucket_bytes > 0:
        raise SpecError("bucket", bucket_bytes, "a positive number of bytes")
    if not 0 <= forward_share <= 1:
        raise SpecError("forward_share", forward_share, "a part of the compute time, from 0 to 1")
    total = sum(elements)
    if not total:
        return WHOLE
    limit = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    buckets: list[Bucket] = []
    held = done = 0
    for count in reversed(elements):
        held, done = held + count, done + count
        if held * element_bytes >= limit or done == total:
            if held:
                buckets.append(Bucket(held / total, forward_share + (1 - forward_share) * (done / total)))
            held, limit = 0, bucket_bytes
    return tuple(buckets)


class PricedCall(NamedTuple):
    """A call, or a bucket of one, and what it takes.

    Attributes:
        call: it.
        cost_s: of the network.
        encode_s: of the worker.
        after_idling: of the network beside, if it was idle; None: nothing.
    """

    call: Call
    cost_s: FloatOrArray
    encode_s: FloatOrArray = 0.0
    after_idling: AfterIdling | None = None


def split(call: Call, overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """The calls in which a call travels under an overlap: a gradient in buckets, anything else waited for later.

    Raises:
        SpecError: no such overlap.
    """
    if overlap not in OVERLAPS:
        raise SpecError("overlap", overlap, one_of(OVERLAPS, overlap))
    sent = call.payload_bytes
    call = call._replace(payload_bytes=sent.astype(np.float64) if isinstance(sent, np.ndarray) else float(sent))
    if overlap == "async":
        return [call._replace(wait_steps=max(call.wait_steps, 1))]
    if overlap == "none" or not call.in_backward or buckets == WHOLE:
        return [call]
    named = [f"{call.label} {number}/{len(buckets)}".strip() for number in range(1, len(buckets) + 1)]
    return [
        call._replace(
            payload_bytes=bucket.share * call.payload_bytes,
            encoded_bytes=bucket.share * call.encoded_bytes,
            ready=min(call.ready, bucket.ready),
            label=label if len(buckets) > 1 else call.label,
        )
        for bucket, label in zip(buckets, named, strict=True)
    ]


T = TypeVar("T")


class WayPoint(NamedTuple, Generic[T]):
    """A place in a step's computing where a call starts, or where a worker waits for it.

    Attributes:
        at: part of the compute time.
        waits: whether it is waited for.
        item: what has the call.
    """

    at: float
    waits: bool
    item: T


def way_points(items: Sequence[T], call: Callable[[T], Call]) -> list[WayPoint[T]]:
    """Where calls start, and are waited for, before the end of the computing; in order, starts before waits."""
    out = []
    for item in items:
        one = call(item)
        if one.ready < 1:
            out.append(WayPoint(one.ready, False, item))
        if is_awaited_inside(one):
            out.append(WayPoint(one.needed, True, item))
    return sorted(out, key=lambda one: one[:2])


def is_awaited_inside(call: Call) -> bool:
    """Whether a worker waits for it before its computing is over."""
    return call.needed < 1 and not call.wait_steps


class Worker:
    """One worker's two streams, step by step: when it computes until, and when its network is free.

    Args:
        compute_s: of each step.
        trigger_s: of each step, after computing and before what is sent at its end.
        idle_s: how long a network may be idle until more makes no difference.
        optimizer_s: of each step, after all that it waits for.
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
        self.pending: dict[int, list[FloatOrArray]] = {}  # step after which it is needed: when it is done

    @property
    def left_s(self) -> FloatOrArray:
        """Return for how long the network goes on with what was sent and nobody has waited for."""
        return np.maximum(0.0, self.free_s - self.now_s)

    def skip(self, steps: int) -> None:
        """Steps in which nothing is sent and nothing is waited for."""
        self.now_s = self.now_s + steps * (self.compute_s + self.trigger_s + self.optimizer_s)

    def step(self, number: int, timed: Sequence[PricedCall]) -> None:
        """One step: compute, start what is ready on the way, then what is ready at the end, wait, and update."""
        begin, encoded, waited = self.now_s, 0.0 * self.now_s, 0.0 * self.now_s
        needed: FloatOrArray = begin
        done: dict[int, FloatOrArray] = {}
        for at, waits, place in way_points(range(len(timed)), lambda place: timed[place].call):
            one = timed[place]
            if waits:
                at_s = begin + at * self.compute_s + encoded + waited
                late = np.maximum(0.0, done[place] - at_s)
                self._expose(at_s, late)
                waited = waited + late
                continue
            encoded = encoded + one.encode_s
            self._start(one, begin + at * self.compute_s + encoded + waited, number)
            done[place] = self.free_s
            needed = needed if one.call.wait_steps or is_awaited_inside(one.call) else self.free_s
        self.now_s = begin + self.compute_s + encoded + waited + self.trigger_s
        self._wait(needed)
        for one in timed:
            if one.call.ready >= 1:
                self.now_s = self.now_s + one.encode_s
                self._start(one, self.now_s, number)
                if not one.call.wait_steps:
                    self._wait(self.free_s)
        for done_s in self.pending.pop(number, ()):
            self._wait(done_s)
        self.now_s = self.now_s + self.optimizer_s

    def _start(self, one: PricedCall, at_s: FloatOrArray, number: int) -> None:
        begin = np.maximum(self.free_s, at_s)
        if one.after_idling is not None:
            opening_s = one.after_idling.opening_s(begin - self.free_s)
            self.opened_s, begin = self.opened_s + opening_s, begin + opening_s
        self.free_s = begin + one.cost_s
        if one.call.wait_steps:
            self.pending.setdefault(number + one.call.wait_steps, []).append(self.free_s)

    def _wait(self, until_s: FloatOrArray) -> None:
        after = np.maximum(self.now_s, until_s)
        self._expose(self.now_s, after - self.now_s)
        self.now_s = after

    def _expose(self, at_s: FloatOrArray, late_s: FloatOrArray) -> None:
        """So long from then on it waits."""
        self.exposed_s = self.exposed_s + late_s

    def rebase(self) -> None:
        """Count time from now on."""
        self.free_s, now = np.maximum(self.free_s - self.now_s, 0.0 - self.idle_s), self.now_s
        self.pending = {step: [done - now for done in waits] for step, waits in self.pending.items()}
        self.now_s = 0.0

    def ahead(self, number: int) -> list[tuple[int, FloatOrArray]]:
        """Of a worker whose time begins with step ``number``, all that its future depends on."""
        waits = [(step - number, done) for step in sorted(self.pending) for done in self.pending[step]]
        return [(-1, self.free_s), *waits]


def exposed_s(
    compute_s: FloatOrArray,
    exchanges: Sequence[Exchange],
    steps: int,
    timed: Callable[[Call], Sequence[PricedCall]],
    trigger_s: FloatOrArray = 0.0,
) -> FloatOrArray:
    """Seconds that a worker waits for the network in ``steps`` steps.

    The steps of a cycle of the periods are gone through one by one, until a cycle leaves the worker as it found it: the
    rest repeat it.

    Args:
        compute_s: seconds that it computes in a step.
        exchanges: what is sent.
        steps: T.
        timed: the calls in which a call travels, and what they take, whatever its step.
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
    """A worker that has gone through so many steps; arguments as of `exposed_s` and `Worker`."""
    worker, known = Worker(compute_s, trigger_s, idle_s, optimizer_s), dict[tuple[bool, ...], list[PricedCall]]()
    near_s = float(np.max(compute_s)) if idle_s else 0.0  # idling may be nothing but an error of rounding
    at = 0
    for _, end, cycle in phase_cycles(exchanges, steps):
        before: tuple[list[tuple[int, FloatOrArray]], FloatOrArray, FloatOrArray] | None = None
        while at < end:
            worker.rebase()
            state, exposed, opened = worker.ahead(at), worker.exposed_s, worker.opened_s
            if before and _alike(before[0], state, near_s):
                times = (end - at) // cycle
                worker.exposed_s = exposed + times * (exposed - before[1])
                worker.opened_s = opened + times * (opened - before[2])
                worker.pending = {step + times * cycle: waits for step, waits in worker.pending.items()}
                at, before = at + times * cycle, None
                continue
            before = state, exposed, opened
            until = min(end, at + cycle)
            for step in _events(exchanges, at, until, worker):
                worker.skip(step - at)
                due = tuple(bool(exchange.is_due(step)) for exchange in exchanges)
                if due not in known:
                    sent = joined(exchange for exchange, on in zip(exchanges, due, strict=True) if on)
                    known[due] = [one for call in sent for one in timed(call)]
                worker.step(step, known[due])
                at = step + 1
            worker.skip(until - at)
            at = until
    return worker


def _events(exchanges: Sequence[Exchange], begin: int, end: int, worker: Worker) -> Iterator[int]:
    """The steps of these after which something is sent or waited for, while the worker goes through them."""
    sends = iter(due_steps(exchanges, begin, end))
    next_send = next(sends, end)
    while True:
        step = min([next_send, *worker.pending])
        if step >= end:
            return
        yield step
        if step == next_send:
            next_send = next(sends, end)


def _alike(one: list[tuple[int, FloatOrArray]], other: list[tuple[int, FloatOrArray]], near_s: float) -> bool:
    """Whether two states are the same to rounding, of times no shorter than these; what nobody can time is nan."""
    return [step for step, _ in one] == [step for step, _ in other] and all(
        np.allclose(a, b, rtol=1e-12, atol=1e-12 * near_s, equal_nan=True)
        for (_, a), (_, b) in zip(one, other, strict=True)
    )
