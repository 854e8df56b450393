"""Seconds of gloo's reduce: a ring like the all-reduce's first half, then every worker's chunk to the root.

The ring continues to the end of the tensor's segments, beyond those that a worker needs: it has ``k P - 2`` messages,
not ``k (P - 1)``. Then all workers send n/P bytes to the root at once, each on its own link, over idle connections,

    W(k P - 2, n/(k P)) + 2 alpha + max(after idling n/P bytes, n (P - 1)/(P D)),

with D the download bandwidth of the root's link. See `syncline.costmodel.collectives.gloo.times` for W, k and alpha.

Source: pytorch/gloo, gloo/reduce.cc (``i < numSegments - 2``).
"""

from __future__ import annotations

import numpy as np

from syncline.costmodel.collectives.gloo.times import segments, window_s
from syncline.costmodel.network.gloo_costs import FREE, GlooCosts
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray


def gloo_reduce_s(workers: int, nbytes: float, link: Link, tcp: Tcp, costs: GlooCosts | None = None) -> FloatOrArray:
    """Return the seconds of a reduce of n bytes to the root among P workers that start together.

    Args:
        workers: P, at least 1.
        nbytes: n.
        link: link of each worker; a worker sends at its upload bandwidth, the root receives at its download bandwidth.
        tcp: TCP parameters of the connections to the root.
        costs: costs of the software; None for those of the link.
    """
    if workers < 2 or nbytes <= 0:
        return 0.0
    alpha = link.latency_s + link.overhead_s + (costs or link.gloo or FREE).message_s
    rate = tcp.rate_bytes_per_s(link.goodput_bytes_per_s, 2 * link.latency_s)
    count, size = segments(workers, nbytes)
    ring_s = window_s(np.asarray(count - 2), size / rate, alpha, np.equal(workers, 2))
    chunk_s = tcp.after_idling_s(nbytes / workers, link.up_bytes_per_s, 2 * link.latency_s)
    return ring_s + 2 * alpha + np.maximum(chunk_s, nbytes * (workers - 1) / workers / link.down_bytes_per_s)
