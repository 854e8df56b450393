"""Overlap of communication with computing: gradient buckets, and the points of a step where calls start or are awaited.

`syncline.costmodel.traffic.step_time` computes the waiting times in closed form, `syncline.sim.clocks.overlap`
simulates them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from syncline.costmodel.collectives.table import hivemind_on
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.traffic.call import Call, Spans
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
"""Fraction of a step's compute time in the forward pass.

A backward pass has twice the operations of a forward pass: one product for the inputs and one for the weights (J.
Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1)."""

NEGLIGIBLE = 1e-9
"""Share of a gradient below which a bucket counts as a rounding error."""


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
    """Return ``buckets``, or one bucket for the whole gradient if hivemind averages on this network.

    hivemind's averager takes all tensors in one call, after the backward pass.
    """
    return buckets if hivemind_on(network) is None else WHOLE


def gradient_buckets(
    elements: Sequence[int],
    bucket_bytes: float = BUCKET_BYTES,
    *,
    element_bytes: float = 4,
    forward_share: float = FORWARD_SHARE,
) -> tuple[Bucket, ...]:
    """Return the buckets of a gradient, in the order in which the backward pass fills them.

    Buckets are filled from the last tensor to the first, because a backward pass computes gradients in this order. A
    bucket is full when it holds ``bucket_bytes`` or more. If ``bucket_bytes`` is the default, the first bucket is full
    at 1 MiB. The backward pass spends time on each tensor in proportion to its elements.

    Args:
        elements: number of elements of each tensor, in the order of the forward pass.
        bucket_bytes: size of a bucket; positive.
        element_bytes: bytes of one gradient element.
        forward_share: fraction of the compute time before the backward pass, from 0 to 1.

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
    full_bytes = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    buckets: list[Bucket] = []
    in_bucket = computed = 0
    for count in reversed(elements):
        in_bucket, computed = in_bucket + count, computed + count
        if in_bucket * element_bytes >= full_bytes or computed == total:
            if in_bucket:
                ready = forward_share + (1 - forward_share) * (computed / total)
                buckets.append(Bucket(in_bucket / total, ready))
            in_bucket, full_bytes = 0, bucket_bytes
    return tuple(buckets)


def covered_buckets(buckets: Sequence[Bucket], spans: Spans) -> tuple[Bucket, ...]:
    """Return the buckets of a payload that covers only some parts of a gradient.

    Args:
        buckets: buckets of the whole gradient.
        spans: the parts that the payload covers, as (begin, end) fractions of the gradient.

    Returns:
        The buckets that overlap with a part. The shares are fractions of the payload.

    >>> covered_buckets([Bucket(0.5, 0.7), Bucket(0.5, 1.0)], [(0.25, 0.5), (0.75, 1.0)])
    (Bucket(share=0.5, ready=0.7), Bucket(share=0.5, ready=1.0))
    """
    bucket_begin, covered = 0.0, list[Bucket]()
    for bucket in buckets:
        bucket_end = bucket_begin + bucket.share
        share = sum(max(0.0, min(bucket_end, end) - max(bucket_begin, begin)) for begin, end in spans)
        if share > NEGLIGIBLE:
            covered.append(Bucket(share, bucket.ready))
        bucket_begin = bucket_end
    total = sum(bucket.share for bucket in covered)
    return tuple(bucket._replace(share=bucket.share / total) for bucket in covered)


def split_call(call: Call, overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """Split a call for an overlap: ``ddp`` cuts a gradient into buckets, ``async`` delays the wait by a step."""
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
    parts = []
    for number, bucket in enumerate(buckets, start=1):
        label = f"{call.label} {number}/{len(buckets)}".strip() if len(buckets) > 1 else call.label
        part = call._replace(
            payload_bytes=bucket.share * call.payload_bytes,
            encoded_bytes=bucket.share * call.encoded_bytes,
            ready=min(call.ready, bucket.ready),
            label=label,
        )
        parts.append(part)
    return parts


T = TypeVar("T")


class WayPoint(NamedTuple, Generic[T]):
    """A point in a step's computing where a call starts, or where a worker waits for a call.

    Attributes:
        at: fraction of the compute time, from 0 to 1.
        waits: whether the worker waits for the call here; otherwise the call starts here.
        item: object that holds the call.
    """

    at: float
    waits: bool
    item: T


def way_points(items: Sequence[T], call: Callable[[T], Call]) -> list[WayPoint[T]]:
    """Return the points before the end of a step's computing where calls start, or where the worker waits for them.

    Args:
        items: objects that hold the calls of the step.
        call: function that returns the call of an item.

    Returns:
        The points in the order of time; at equal times starts come before waits.
    """
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
