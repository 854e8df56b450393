"""Calls of gloo and NCCL on AWS p3.2xlarge: sends, collectives in pieces, and single collectives.

A single collective takes what `collective_s` says on the machines' links (`syncline.costmodel.network.measured_links`),
which are the presets ``p3.2xlarge`` and ``p3.2xlarge-gloo``.

Source: github.com/BinhangYuan/tc_cluster_setting: pytorch_collective_test.py (one call, a barrier before it),
pytorch_group_collective_test.py (P calls of n/P bytes, one after another on one stream; ``reduce+broadcast``: all
reduces, then all broadcasts; ``all_to_all+all_gather``: grouped sends, then grouped sends).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.nccl.sockets import ring_last_s
from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.network.measured_links import (
    CARD_BYTES_PER_S,
    FLOW_BYTES_PER_S,
    JUMBO_SEGMENT_BYTES,
    P3,
    SOCKETS_ON_AWS,
    P3Constants,
    p3_gloo_link,
    p3_nccl_link,
)
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.errors import SpecError, one_of

PIECES = {
    "all_reduce": ("all_reduce",),
    "reduce+broadcast": ("reduce", "broadcast"),
    "all_to_all+all_gather": ("all_to_all", "exchange"),
}
"""The calls of each test of the second campaign, in sequence."""


def p3_s(
    kind: str,
    backend: str,
    workers: int,
    nbytes: float,
    delay_s: float | None = None,
    bytes_per_s: float | None = None,
    *,
    pieces: bool = False,
    constants: P3Constants = P3,
) -> FloatOrArray:
    """Return the seconds of a collective, of a send, or of a composite.

    Args:
        kind: a collective, ``send``, or one of ``PIECES``.
        backend: ``gloo`` or ``nccl``.
        workers: P.
        nbytes: n, of the tensor on each worker.
        delay_s: one way, set on each sender; None: the data centre's own.
        bytes_per_s: the rate that is set; None: the card's.
        pieces: whether it is done in P calls of n/P bytes, as the second campaign did.
        constants: constants of the machines.

    Raises:
        SpecError: an unknown collective or backend, or one that the library does not have.
    """
    if backend not in ("gloo", "nccl"):
        raise SpecError("backend", backend, "'gloo' or 'nccl'")
    if workers < 1:
        raise SpecError("nodes", workers, "at least 1")
    if kind == "send":
        return _send_s(backend, nbytes, delay_s, bytes_per_s, constants)
    if backend == "nccl" and (pieces or "+" in kind):
        return _pieces_s(kind, workers, nbytes, delay_s, bytes_per_s, constants)
    if kind not in COLLECTIVES:
        raise SpecError("collective", kind, one_of([*COLLECTIVES, "send"], kind))
    link = (p3_gloo_link if backend == "gloo" else p3_nccl_link)(delay_s, bytes_per_s, constants)
    return collective_s(kind, workers, nbytes / workers if kind in ("all_gather", "gather") else nbytes, link)


def _send_s(
    backend: str, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    """Return the seconds of a send over idle connections; gloo's waits for a notice of the receiver."""
    line = CARD_BYTES_PER_S if bytes_per_s is None else min(bytes_per_s, CARD_BYTES_PER_S)
    near = constants.gloo_delay_s if delay_s is None else delay_s
    if backend == "nccl":
        tcp = Tcp(connections=2 * SOCKETS_ON_AWS, segment_bytes=JUMBO_SEGMENT_BYTES)
        return near + tcp.after_idling_s(nbytes, line * constants.efficiency, 2 * near)
    tcp = Tcp(flow_bytes_per_s=FLOW_BYTES_PER_S, segment_bytes=JUMBO_SEGMENT_BYTES)
    flow = np.minimum(line, FLOW_BYTES_PER_S) * constants.efficiency
    return 2 * near + tcp.after_idling_s(nbytes, flow, 2 * near)


def _pieces_s(
    kind: str, workers: int, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    """Return the seconds of P consecutive calls of n/P bytes; the fixed cost of a call is paid only once."""
    if kind not in PIECES:
        raise SpecError("collective", kind, one_of(PIECES, kind))
    if workers < 2:
        return 0.0
    rate = CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s
    link = p3_nccl_link(delay_s, rate, constants)
    link = replace(link, bandwidth_bytes_per_s=rate * constants.pieces_part)
    assert link.nccl is not None
    alpha, costs = link.latency_s, link.nccl
    if kind == "all_reduce":
        fixed_s = costs.fixed_s("nccl-ring", alpha)
        last = ring_last_s(nbytes / workers**2, link, costs)
        call_s = collective_s("all_reduce", workers, nbytes / workers, link) - fixed_s - last
        return workers * call_s + last + fixed_s
    exchanges, fixed_s = kind != "reduce+broadcast", costs.fixed_s("nccl-chain", alpha)
    call_s = collective_s("all_to_all" if exchanges else "broadcast", workers, nbytes, link) - fixed_s
    second_s = call_s - alpha if exchanges else call_s  # a second round of sends waits for no arrival of the first
    return call_s + second_s + fixed_s
