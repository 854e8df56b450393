"""Seconds of NCCL's collectives over sockets: pipelined rings and chains.

NCCL cuts a tensor into pieces of its buffers' size, and a worker forwards a piece while it receives the next one. So a
large collective pays latencies once, not at every step, unless a worker sends a step's bytes before the piece for the
next step arrives. There are P workers, latency alpha, overhead o per message and R payload bytes per second. Pieces
have at most C bytes in S slices, and a worker forwards a slice as soon as the slice has arrived. A block of w whole
pieces and a rest of C' bytes takes w + 1 steps. Then

    s(C) = max(S o + C/R, alpha + o + C/(S R))           seconds of a ring's step
    u(C) = min(alpha, (S - 1)(o + C/(S R)))              extra time of the last slice, once

| collective       | algorithm     | time                                                                     |
|------------------|---------------|--------------------------------------------------------------------------|
| `all_reduce`     | `nccl-ring`   | 2 (P - 1) (w s(C) + s(C')) + u,  block n/P = w C + C'                    |
| `all_gather`     | `nccl-ring`   | (P - 1) (w s(C) + s(C')) + u,    block n                                 |
| `reduce_scatter` | `nccl-ring`   | (P - 1) (w s(C) + s(C')) + u,    block n/P                               |
| `broadcast`      | `nccl-chain`  | n/R + ceil(n/c) o + (P - 1) alpha + (P - 2)(o + min(c, n)/R)             |
| `reduce`         |               | the same, towards its root                                               |
| `all_to_all`     | `nccl-posted` | (P - 1)(o + n/(P R)) + alpha                                             |
| `gather`         | `nccl-posted` | (P - 1)(o + n/R) + alpha                                                 |

and the time of a call is added, with the latencies that it takes besides (``ring_latencies``, ``chain_latencies``). If
a part p of a piece must be there before it is forwarded, p C takes the place of C/S in s, and u is
``min(alpha, (S - 1) o + (1 - p) C/R)``. ``C = k b / 2``, ``c = k b / 8`` and S = 2: k channels have a buffer of b
bytes each, in 8 steps, and a ring's piece takes four of the steps, a chain's piece one. All forms are exact for every P
and n, also if a block is no multiple of a piece (NCCL's last loop has shorter pieces, equal on all workers). They
assume that a slice leaves when the port is free and the slice S before it has arrived. They treat the two channels as a
single one of twice the rate: at the end of a loop a channel must receive its last slice before it sends the next loop's
first, and the other channel uses the link meanwhile.

torch's gather is sends and receives in a group (``torch::cuda::nccl::gather``), like an all-to-all. Trees, the
protocols LL and LL128 (small messages), PAT and NVLS are not modelled.

Source: NVIDIA NCCL 2.10.3: as `syncline.costmodel.network.nccl_costs`; src/collectives/device/all_reduce.h (a
ring's loops), broadcast.h (the chain), src/transport/net_socket.cc (on AWS 2 threads with 8 sockets each for every
channel and peer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.nccl_costs import DEFAULT, NCCL_RUNS, NcclCosts
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

__all__ = ["NCCL_ALGORITHMS", "NCCL_KINDS", "NcclAlgorithm", "NcclCosts", "nccl_messages", "nccl_sockets_s"]


class NcclAlgorithm(NamedTuple):
    """An algorithm of NCCL over sockets, which sends pieces before the receiver's program waits for them.

    Attributes:
        form: function ``(workers, nbytes, link, costs)`` that returns seconds.
        sent: function ``(workers, nbytes)`` that returns the bytes that each worker sends, mean over workers.
        directions: transfers that a worker's half-duplex link carries at once; None if workers differ.
    """

    form: Callable[[IntOrArray, FloatOrArray, Link, NcclCosts], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    directions: int | None


def nccl_sockets_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts | None = None
) -> FloatOrArray:
    """Return the seconds that NCCL takes over sockets for a collective of workers that start together.

    Args:
        kind: one of ``NCCL_KINDS``.
        workers: number of workers P, at least 1; it broadcasts with ``nbytes`` and the fields of the link.
        nbytes: bytes n of the collective, at least 0, by the table of `syncline.costmodel.collectives.cost`.
        link: each worker's link to the others.
        costs: costs of the software; None for those of the link, or NCCL's defaults if it has none.

    Raises:
        SpecError: an unknown collective, no worker, a negative size, or a part out of range.
        NoClosedForm: a chain on a half-duplex link.

    >>> link = Link(10e-3, 125e6)
    >>> f"{nccl_sockets_s('all_reduce', 32, 2**28, link):.2f} s, not {2 * 31 * (10e-3 + 2**23 / 125e6):.2f} s"
    '4.17 s, not 4.78 s'
    """
    if kind not in NCCL_KINDS:
        raise SpecError("collective", kind, one_of(NCCL_KINDS, kind))
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    costs = costs or link.nccl or DEFAULT
    algorithm = NCCL_ALGORITHMS[kind]
    if link.duplex == "half":
        if algorithm.directions is None:
            expected = "an algorithm with a closed form on half-duplex links (here some only send while others do both)"
            raise NoClosedForm(f"{kind}.algorithm", NCCL_RUNS[kind], expected)
        if algorithm.directions > 1:
            link = link.shared_by(1)
    seconds = algorithm.form(workers, np.asarray(nbytes, dtype=np.float64), link, costs)
    seconds = seconds + costs.fixed_s(NCCL_RUNS[kind], link.latency_s)
    return np.where(np.greater(workers, 1) & np.greater(nbytes, 0), seconds, 0.0)[()]


def nccl_messages(kind: str, workers: int, nbytes: float, costs: NcclCosts | None = None) -> int:
    """Return the number of messages of all workers together in a collective: slices of a ring, pieces of a chain."""
    costs, hops = costs or DEFAULT, workers - 1
    if workers < 2 or not nbytes:
        return 0
    if kind in ("broadcast", "reduce"):
        return hops * int(np.ceil(nbytes / costs.chain_piece_bytes))
    if kind in ("all_to_all", "gather"):
        return hops * (workers if kind == "all_to_all" else 1)
    full_steps, rest = costs.ring_steps(nbytes if kind == "all_gather" else nbytes / workers)
    return (2 if kind == "all_reduce" else 1) * workers * hops * costs.slices * int(full_steps + (rest > 0))


def _ring_s(laps: int, workers: IntOrArray, block: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    """Return the seconds of a ring's laps in which each worker forwards blocks of so many bytes."""
    alpha, overhead, rate = link.latency_s, link.overhead_s, link.goodput_bytes_per_s

    def step_s(piece_bytes: FloatOrArray) -> FloatOrArray:
        """Return s, the seconds of a ring's step."""
        forwarded_bytes = costs.forwarded_part * piece_bytes
        return np.maximum(costs.slices * overhead + piece_bytes / rate, alpha + overhead + forwarded_bytes / rate)

    full_steps, rest = costs.ring_steps(block)
    steps_s = full_steps * step_s(costs.ring_piece_bytes) + np.where(np.greater(rest, 0), step_s(rest), 0.0)
    return laps * np.subtract(workers, 1) * steps_s + ring_last_s(block, link, costs)


def ring_last_s(block: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    """Return u, the seconds of a ring's last slice beyond its steps, with blocks of so many bytes."""
    first_bytes = np.minimum(block, costs.ring_piece_bytes)
    rest_s = (1 - costs.forwarded_part) * first_bytes / link.goodput_bytes_per_s
    return np.minimum(link.latency_s, (costs.slices - 1) * link.overhead_s + rest_s)


def _all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    return _ring_s(2, workers, np.divide(nbytes, workers), link, costs)


def _all_gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    return _ring_s(1, workers, nbytes, link, costs)


def _reduce_scatter_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    return _ring_s(1, workers, np.divide(nbytes, workers), link, costs)


def _chain_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    alpha, overhead, rate = link.latency_s, link.overhead_s, link.goodput_bytes_per_s
    piece_bytes = costs.chain_piece_bytes
    filling_s = np.subtract(workers, 2) * (overhead + np.minimum(piece_bytes, nbytes) / rate)
    return nbytes / rate + np.ceil(nbytes / piece_bytes) * overhead + np.subtract(workers, 1) * alpha + filling_s


def _all_to_all_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, _: NcclCosts) -> FloatOrArray:
    message_s = link.overhead_s + np.divide(nbytes, workers) / link.goodput_bytes_per_s
    return np.subtract(workers, 1) * message_s + link.latency_s


def _gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, _: NcclCosts) -> FloatOrArray:
    return np.subtract(workers, 1) * (link.overhead_s + nbytes / link.goodput_bytes_per_s) + link.latency_s


def _other_parts_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return n (P - 1)/P, the bytes of all but one of P equal parts of n bytes."""
    return nbytes * (np.subtract(workers, 1) / workers)


NCCL_ALGORITHMS: dict[str, NcclAlgorithm] = {
    "all_reduce": NcclAlgorithm(_all_reduce_s, lambda workers, nbytes: 2 * _other_parts_bytes(workers, nbytes), 2),
    "all_gather": NcclAlgorithm(_all_gather_s, lambda workers, nbytes: nbytes * np.subtract(workers, 1), 2),
    "reduce_scatter": NcclAlgorithm(_reduce_scatter_s, _other_parts_bytes, 2),
    "all_to_all": NcclAlgorithm(_all_to_all_s, _other_parts_bytes, 2),
    "broadcast": NcclAlgorithm(_chain_s, _other_parts_bytes, None),
    "reduce": NcclAlgorithm(_chain_s, _other_parts_bytes, None),
    "gather": NcclAlgorithm(_gather_s, _other_parts_bytes, 1),
}
"""The algorithm of NCCL for each collective."""

NCCL_KINDS = tuple(NCCL_ALGORITHMS)
"""The collectives that NCCL carries over sockets."""
