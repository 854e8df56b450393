"""Seconds of NCCL's collectives over sockets: pipelined rings and chains.

NCCL cuts a tensor into pieces of its buffers' size, and a worker forwards a piece while it receives the next one. So a
large collective pays latencies once, not at every step, unless a worker sends a step's bytes before the piece for the
next step arrives. There are P workers, latency alpha, overhead o per message and R payload bytes per second. Pieces
have at most C bytes in S slices, and a worker forwards a slice as soon as it has received it. Then

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
        form: function that returns seconds, of P, n, the link, its costs, and the part of a piece that a worker must
            receive before it forwards the piece.
        sent: function that returns the bytes that each worker sends, mean over workers, of P and n.
        directions: transfers that a worker's half-duplex link carries at once; None if workers differ.
    """

    form: Callable[[IntOrArray, FloatOrArray, Link, NcclCosts, FloatOrArray], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    directions: int | None


def nccl_sockets_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    link: Link,
    costs: NcclCosts | None = None,
) -> FloatOrArray:
    """Return the seconds that NCCL takes over sockets for a collective of workers that start together.

    Args:
        kind: one of ``NCCL_KINDS``.
        workers: P, at least 1; P, n and the fields of the link broadcast.
        nbytes: n, at least 0, with the meaning that `syncline.costmodel.collectives.cost` gives it.
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
    seconds = algorithm.form(workers, np.asarray(nbytes, dtype=np.float64), link, costs, costs.forwarded_part)
    seconds = seconds + costs.fixed_s(NCCL_RUNS[kind], link.latency_s)
    return np.where(np.greater(workers, 1) & np.greater(nbytes, 0), seconds, 0.0)[()]


def nccl_messages(kind: str, workers: int, nbytes: float, costs: NcclCosts | None = None) -> int:
    """Return the number of messages of all workers together: slices of a ring, pieces of a chain."""
    costs, hops = costs or DEFAULT, workers - 1
    if workers < 2 or not nbytes:
        return 0
    if kind in ("broadcast", "reduce"):
        return hops * int(np.ceil(nbytes / costs.chain_piece_bytes))
    if kind in ("all_to_all", "gather"):
        return hops * (workers if kind == "all_to_all" else 1)
    full_steps, rest = costs.ring_steps(nbytes if kind == "all_gather" else nbytes / workers)
    return (2 if kind == "all_reduce" else 1) * workers * hops * costs.slices * int(full_steps + (rest > 0))


def _ring_s(
    laps: int, workers: IntOrArray, block: FloatOrArray, link: Link, costs: NcclCosts, part: FloatOrArray
) -> FloatOrArray:
    alpha, overhead, rate, slices = link.latency_s, link.overhead_s, link.goodput_bytes_per_s, costs.slices

    def step_s(piece: FloatOrArray) -> FloatOrArray:
        return np.maximum(slices * overhead + piece / rate, alpha + overhead + part * piece / rate)

    full_steps, rest = costs.ring_steps(block)
    steps_s = full_steps * step_s(costs.ring_piece_bytes) + np.where(np.greater(rest, 0), step_s(rest), 0.0)
    return laps * np.subtract(workers, 1) * steps_s + ring_last_s(block, link, costs, part)


def ring_last_s(block: FloatOrArray, link: Link, costs: NcclCosts, part: FloatOrArray) -> FloatOrArray:
    """Return u, the seconds of a ring's last slice beyond its steps; the arguments are those of `nccl_sockets_s`."""
    first = np.minimum(block, costs.ring_piece_bytes)
    flow_s = (1 - part) * first / link.goodput_bytes_per_s
    return np.minimum(link.latency_s, (costs.slices - 1) * link.overhead_s + flow_s)


def _all_reduce(p: IntOrArray, n: FloatOrArray, link: Link, costs: NcclCosts, part: FloatOrArray) -> FloatOrArray:
    return _ring_s(2, p, np.divide(n, p), link, costs, part)


def _all_gather(p: IntOrArray, n: FloatOrArray, link: Link, costs: NcclCosts, part: FloatOrArray) -> FloatOrArray:
    return _ring_s(1, p, n, link, costs, part)


def _reduce_scatter(p: IntOrArray, n: FloatOrArray, link: Link, costs: NcclCosts, part: FloatOrArray) -> FloatOrArray:
    return _ring_s(1, p, np.divide(n, p), link, costs, part)


def _chain(p: IntOrArray, n: FloatOrArray, link: Link, costs: NcclCosts, _: FloatOrArray) -> FloatOrArray:
    alpha, overhead, rate = link.latency_s, link.overhead_s, link.goodput_bytes_per_s
    piece = costs.chain_piece_bytes
    filled_s = np.subtract(p, 2) * (overhead + np.minimum(piece, n) / rate)
    return n / rate + np.ceil(n / piece) * overhead + np.subtract(p, 1) * alpha + filled_s


def _all_to_all(p: IntOrArray, n: FloatOrArray, link: Link, _: NcclCosts, __: FloatOrArray) -> FloatOrArray:
    return np.subtract(p, 1) * (link.overhead_s + np.divide(n, p) / link.goodput_bytes_per_s) + link.latency_s


def _gather(p: IntOrArray, n: FloatOrArray, link: Link, _: NcclCosts, __: FloatOrArray) -> FloatOrArray:
    return np.subtract(p, 1) * (link.overhead_s + n / link.goodput_bytes_per_s) + link.latency_s


def _of_part(p: IntOrArray, n: FloatOrArray) -> FloatOrArray:
    return n * (np.subtract(p, 1) / p)


NCCL_ALGORITHMS: dict[str, NcclAlgorithm] = {
    "all_reduce": NcclAlgorithm(_all_reduce, lambda p, n: 2 * _of_part(p, n), 2),
    "all_gather": NcclAlgorithm(_all_gather, lambda p, n: n * np.subtract(p, 1), 2),
    "reduce_scatter": NcclAlgorithm(_reduce_scatter, _of_part, 2),
    "all_to_all": NcclAlgorithm(_all_to_all, _of_part, 2),
    "broadcast": NcclAlgorithm(_chain, _of_part, None),
    "reduce": NcclAlgorithm(_chain, _of_part, None),
    "gather": NcclAlgorithm(_gather, _of_part, 1),
}
"""The algorithm of NCCL for each collective."""

NCCL_KINDS = tuple(NCCL_ALGORITHMS)
