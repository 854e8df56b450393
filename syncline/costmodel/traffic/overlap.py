"""Overlap of communication with computing: gradient buckets, and the points of a step where calls start or are awaited.

`syncline.costmodel.traffic.step_time` computes the waiting times, `syncline.sim.clocks.overlap` simulates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np

from syncline.costmodel.collectives.table import hivemind_on
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.numerics.arrays import require
from syncline.costmodel.traffic.call import Call, Spans
from syncline.errors import require_one_of

Overlap = Literal["none", "ddp", "async"]
"""``none``: a worker computes, then communicates; ``ddp``: gradients travel in buckets during the backward pass;
``async``: a worker waits for the calls of a step one step later."""

OVERLAPS: tuple[str, ...] = get_args(Overlap)

BUCKET_BYTES = 25 * 2**20
"""Default bytes of a gradient bucket (25 MiB). Source: PyTorch's ``DistributedDataParallel``, ``bucket_cap_mb``."""

FIRST_BUCKET_BYTES = 2**20
"""Bytes of the first bucket if the others have the default size, so that a call starts early. Source: as above."""

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
    """Return the buckets in which a gradient travels on a network: ``buckets``, or one for all tensors with hivemind.

    hivemind's averager takes all tensors in one call, after the backward pass.
    """
    return buckets if hivemind_on(network) is None else WHOLE


def gradient_buckets(
    elements: Sequence[int], bucket_bytes: float = BUCKET_BYTES, *, element_bytes: float = 4
) -> tuple[Bucket, ...]:
    """Return the buckets of a gradient, in the order in which the backward pass fills them.

    Buckets are filled from the last tensor to the first, because a backward pass computes gradients in this order. A
    bucket is full when it holds ``bucket_bytes`` or more. If ``bucket_bytes`` is the default, the first bucket is full
    at 1 MiB, as in PyTorch. The backward pass spends time on each tensor in proportion to its elements.

    Args:
        elements: number of elements of each tensor, in the order of the forward pass.
        bucket_bytes: size of a bucket; positive.
        element_bytes: bytes of one gradient element.

    Source: S. Li et al., "PyTorch Distributed", VLDB 13 (2020), section 3.2; PyTorch's
    ``_compute_bucket_assignment_by_size``.

    >>> [(f"{b.share:.2f}", f"{b.ready:.2f}") for b in gradient_buckets([6, 1, 2, 1], 12.0)]
    [('0.30', '0.53'), ('0.70', '1.00')]
    """
    require(bucket_bytes > 0, "bucket_size", bucket_bytes, "a positive number of bytes")
    return _gradient_buckets(tuple(elements), bucket_bytes, element_bytes)


@lru_cache(maxsize=256)
def _gradient_buckets(elements: tuple[int, ...], bucket_bytes: float, element_bytes: float) -> tuple[Bucket, ...]:
    """Return the buckets of `gradient_buckets` from a cache, which needs ``elements`` as a tuple."""
    total_elements = sum(elements)
    if not total_elements:
        return WHOLE  # one empty bucket: a worker without parameters takes part in the call
    # As in PyTorch, the first bucket is smaller only if the user sets no bucket size.
    full_bytes = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    buckets: list[Bucket] = []
    bucket_elements = computed_elements = 0
    for tensor_elements in reversed(elements):
        bucket_elements += tensor_elements
        computed_elements += tensor_elements
        is_full = bucket_elements * element_bytes >= full_bytes
        if is_full or computed_elements == total_elements:
            if bucket_elements:  # empty tensors after the last bucket make no bucket
                ready = FORWARD_SHARE + (1 - FORWARD_SHARE) * (computed_elements / total_elements)
                buckets.append(Bucket(bucket_elements / total_elements, ready))
            bucket_elements = 0
            full_bytes = bucket_bytes
    return tuple(buckets)


def covered_buckets(buckets: Sequence[Bucket], spans: Spans) -> tuple[Bucket, ...]:
    """Return the buckets of a payload that covers only some parts of a gradient.

    Args:
        spans: the parts that the payload covers, as (begin, end) fractions of the gradient.

    Returns:
        The buckets that overlap with a part. The shares are fractions of the payload.

    >>> covered_buckets([Bucket(0.5, 0.7), Bucket(0.5, 1.0)], [(0.25, 0.5), (0.75, 1.0)])
    (Bucket(share=0.5, ready=0.7), Bucket(share=0.5, ready=1.0))
    """
    covered: list[Bucket] = []  # shares are still fractions of the whole gradient
    bucket_begin = 0.0
    for bucket in buckets:
        bucket_end = bucket_begin + bucket.share
        covered_share = sum(max(0.0, min(bucket_end, end) - max(bucket_begin, begin)) for begin, end in spans)
        if covered_share > NEGLIGIBLE:
            covered.append(Bucket(covered_share, bucket.ready))
        bucket_begin = bucket_end
    payload_share = sum(bucket.share for bucket in covered)
    return tuple(bucket._replace(share=bucket.share / payload_share) for bucket in covered)


def split_call(call: Call, overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """Return the calls that carry a collective with an overlap of communication and computing.

    Args:
        overlap: ``ddp`` cuts a gradient into buckets, ``async`` delays the wait by a step, ``none`` changes nothing.
        buckets: buckets of the whole gradient.
    """
    require_one_of("overlap", overlap, OVERLAPS)
    nbytes = call.payload_bytes
    if type(nbytes) is not float:  # a bucket's fraction of whole bytes may be no whole number
        float_bytes = nbytes.astype(np.float64) if isinstance(nbytes, np.ndarray) else float(nbytes)
        call = call._replace(payload_bytes=float_bytes)
    if overlap == "async":
        return [call._replace(wait_steps=max(call.wait_steps, 1))]
    if overlap == "none" or not call.in_backward or buckets == WHOLE:
        return [call]
    if call.spans:  # the payload covers only these parts of the gradient
        buckets = covered_buckets(buckets, call.spans)
    return [
        call._replace(
            payload_bytes=bucket.share * call.payload_bytes,
            encoded_bytes=bucket.share * call.encoded_bytes,
            ready=min(call.ready, bucket.ready),
            label=f"{call.label} {number}/{len(buckets)}".strip() if len(buckets) > 1 else call.label,
        )
        for number, bucket in enumerate(buckets, start=1)
    ]


class WayPoint(NamedTuple):
    """A point in a step's computing where a collective starts, or where a worker waits for one.

    Attributes:
        fraction: fraction of the compute time, from 0 to 1.
        is_wait: whether the worker waits for the collective here; otherwise the collective starts here.
        call_index: index of the collective's call among those of the step.
    """

    fraction: float
    is_wait: bool
    call_index: int


def way_points(calls: Sequence[Call]) -> list[WayPoint]:
    """Return the points before the end of a step's computing where the collectives start or the worker awaits them.

    Returns:
        The points in the order of time; at equal times starts come before waits.
    """
    points = []
    for index, call in enumerate(calls):
        if call.ready < 1:
            points.append(WayPoint(call.ready, is_wait=False, call_index=index))
        if is_awaited_early(call):
            points.append(WayPoint(call.needed, is_wait=True, call_index=index))
    return sorted(points)


def is_awaited_early(call: Call) -> bool:
    """Return whether a worker waits for the call before the computing of the step ends."""
    return call.needed < 1 and not call.wait_steps
