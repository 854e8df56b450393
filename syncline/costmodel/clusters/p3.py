"""gloo and NCCL on AWS p3.2xlarge: one V100 and one network card each, links with a delay and a rate.

Ten constants, fitted to 158 of 322 published times (`syncline validate clusters` reads them and fits them again with
groups left out); all else is Linux's, AWS's or NCCL's own number.

``netem`` holds back what a worker *sends*: it has the shaped rate out and the card's whole rate in.

Source: github.com/BinhangYuan/tc_cluster_setting: results (Feb. to April 2022), and the scripts that made them:
pytorch_collective_test.py (one call, a barrier before it), pytorch_group_collective_test.py (P calls of n/P bytes, one
after another on one stream; ``reduce+broadcast``: all reduces, then all broadcasts; ``all_to_all+all_gather``: grouped
sends, then grouped sends), tc_script/tc_netem_delay_bandwdith.sh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.collectives.gloo.reduce import gloo_reduce_s
from syncline.costmodel.collectives.gloo.times import GLOO_ALGORITHMS, tree_children
from syncline.costmodel.collectives.nccl.sockets import SOCKETS_ON_AWS, nccl_sockets_s, ring_last_s
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.nccl_costs import NCCL_RUNS, NcclCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.errors import SpecError, one_of

CARD_BYTES_PER_S = 10e9 / 8
"""Of a p3.2xlarge. Source: AWS, EC2 instance types (up to 10 Gbit/s)."""

FLOW_BYTES_PER_S = 5e9 / 8
"""Of one connection outside a placement group. Source: AWS, EC2 instance network bandwidth (5 Gbit/s for a flow)."""

JUMBO_SEGMENT_BYTES = 8949
"""MSS in AWS's frames of 9,001 bytes, with time stamps: 8949 of 9015 bytes on the line."""


@dataclass(frozen=True)
class P3Constants:
    """Constants fitted to measurements on these machines.

    Args:
        efficiency: payload's part of a shaped rate.
        ring_latencies: of an all-reduce of NCCL's, once, beside what its description has: starting together, windows.
        chain_latencies: of its broadcasts, reduces and exchanges, once, likewise.
        nccl_bytes_per_s: that NCCL's calls get of a card that nothing shapes.
        nccl_delay_s: one way there, with all software.
        gloo_message_s: software per message and notice of gloo's.
        gloo_delay_part: by how much more than the delay its messages wait, as a part of it.
        gloo_delay_s: one way where nothing is set.
        pieces_part: fraction of the rate that several calls reach in the second campaign.
        stored_part: of a ring's step that must be there before the next.
    """

    efficiency: FloatOrArray = 0.9904
    ring_latencies: FloatOrArray = 3.33
    chain_latencies: FloatOrArray = 27.3
    nccl_bytes_per_s: FloatOrArray = 1.119e9
    nccl_delay_s: FloatOrArray = 0.87e-3
    gloo_message_s: FloatOrArray = 0.618e-3
    gloo_delay_part: FloatOrArray = 0.0694
    gloo_delay_s: FloatOrArray = 0.231e-3
    pieces_part: FloatOrArray = 0.844
    stored_part: FloatOrArray = 0.675


P3 = P3Constants()

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
    if backend == "gloo":
        return _gloo_s(kind, workers, nbytes, delay_s, bytes_per_s, constants)
    if pieces or "+" in kind:
        return _pieces_s(kind, workers, nbytes, delay_s, bytes_per_s, constants)
    rate = constants.nccl_bytes_per_s if bytes_per_s is None else bytes_per_s * constants.efficiency
    alpha = constants.nccl_delay_s if delay_s is None else delay_s
    if kind == "send":
        line = np.minimum(CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s, CARD_BYTES_PER_S)
        tcp = Tcp(connections=2 * SOCKETS_ON_AWS, segment_bytes=JUMBO_SEGMENT_BYTES)
        near = constants.gloo_delay_s if delay_s is None else delay_s
        return near + tcp.after_idling_s(nbytes, line * constants.efficiency, 2 * near)
    if kind in ("all_gather", "gather"):
        nbytes = nbytes / workers
    return _nccl_s(kind, workers, nbytes, Link(alpha, rate), constants) + fixed_call_s(kind, workers, alpha, constants)


def _nccl_s(kind: str, workers: int, nbytes: float, link: Link, constants: P3Constants) -> FloatOrArray:
    return nccl_sockets_s(kind, workers, nbytes, link, stored_part=constants.stored_part)


def fixed_call_s(kind: str, workers: int, alpha: FloatOrArray, constants: P3Constants = P3) -> FloatOrArray:
    """Return the seconds per call beyond NCCL's description: synchronised start, opening of windows."""
    in_ring = NCCL_RUNS.get(kind) == "nccl-ring"
    return (constants.ring_latencies if in_ring else constants.chain_latencies) * alpha if workers > 1 else 0.0


def _pieces_s(
    kind: str, workers: int, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    """Return the seconds of P consecutive calls of n/P bytes; the fixed cost of a call is paid only once."""
    if kind not in PIECES:
        raise SpecError("collective", kind, one_of(PIECES, kind))
    card = CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s
    alpha = constants.nccl_delay_s if delay_s is None else delay_s
    link = Link(alpha, card * constants.efficiency * constants.pieces_part)
    if workers < 2:
        return 0.0
    if kind == "all_reduce":
        last = ring_last_s(nbytes / workers**2, link, NcclCosts(), constants.stored_part)
        call_s = _nccl_s("all_reduce", workers, nbytes / workers, link, constants) - last
        return workers * call_s + last + fixed_call_s("all_reduce", workers, alpha, constants)
    exchanges = kind != "reduce+broadcast"
    call_s = _nccl_s("all_to_all" if exchanges else "broadcast", workers, nbytes, link, constants)
    second_s = call_s - alpha if exchanges else call_s  # a second round of sends waits for no arrival of the first
    return call_s + second_s + fixed_call_s("broadcast", workers, alpha, constants)


def _gloo_s(
    kind: str, workers: int, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    out = (CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s) * constants.efficiency
    tcp = Tcp(flow_bytes_per_s=FLOW_BYTES_PER_S, segment_bytes=JUMBO_SEGMENT_BYTES)
    near = constants.gloo_delay_s if delay_s is None else delay_s
    alpha = near * (1 + constants.gloo_delay_part) + constants.gloo_message_s
    flow = np.minimum(out, FLOW_BYTES_PER_S * constants.efficiency)
    if kind == "send":
        return 2 * near + tcp.after_idling_s(nbytes, flow, 2 * near)
    if kind == "broadcast":
        return _tree_s(workers, nbytes, alpha, out, flow)
    if kind == "reduce":
        line = Link(alpha, CARD_BYTES_PER_S * constants.efficiency, upload_bytes_per_s=flow)
        return gloo_reduce_s(workers, nbytes, line, tcp)
    if kind not in GLOO_ALGORITHMS:
        raise SpecError("collective", kind, one_of([*GLOO_ALGORITHMS, "reduce", "send"], kind))
    if kind in ("all_gather", "gather"):
        nbytes = nbytes / workers
    form: Callable[..., FloatOrArray] = GLOO_ALGORITHMS[kind].form
    shared = out if kind == "all_to_all" else flow
    if workers < 2:
        return 0.0
    return form(np.asarray(workers), np.asarray(nbytes, dtype=np.float64), alpha, Link(alpha, shared), 4)


def _tree_s(workers: int, nbytes: float, alpha: FloatOrArray, line: FloatOrArray, flow: FloatOrArray) -> FloatOrArray:
    """Return the seconds of a tree broadcast: children share their parent's line, each at most at ``flow``."""
    if workers < 2:
        return 0.0
    parent_s = [
        len(children) * alpha + alpha + sum(nbytes * np.maximum(count / line, 1 / flow) for count in children)
        for children in tree_children(workers)
    ]
    slowest: FloatOrArray = np.max(np.broadcast_arrays(*parent_s), axis=0)
    return slowest
