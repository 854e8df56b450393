"""Predictions of measurements on two clusters: calls on AWS p3.2xlarge, and steps of trainings on AWS g6e.2xlarge.

**Calls of gloo and NCCL on p3.2xlarge** (`p3_s`): sends, collectives in pieces, and single collectives. A single
collective takes what `collective_s` says on the machines' links, the presets ``p3.2xlarge`` and ``p3.2xlarge-gloo``.

Source: github.com/BinhangYuan/tc_cluster_setting: pytorch_collective_test.py (one call, a barrier before it),
pytorch_group_collective_test.py (P calls of n/P bytes, one after another on one stream; ``reduce+broadcast``: all
reduces, then all broadcasts; ``all_to_all+all_gather``: grouped sends, then grouped sends).

**Steps of DDP, DiLoCo and local SGD on four g6e.2xlarge** (`l40s_step`; one L40S each), NCCL 2.29 over shaped TCP. A
step that synchronises computes, then sends. A collective takes what `collective_s` says on the machines' link, the
preset ``g6e.2xlarge``: with n bytes of parameters among P workers and R bytes per second of payload, the rings take
about ``2 n (P - 1)/(P R)``. Behind a token bucket of 50 Mbit/s a fourth of all bytes is sent twice, at 1 Gbit/s
nothing. DDP sends more than its gradients: before each forward pass it broadcasts the module's buffers from the first
worker, and the model's six layers have each a cache of rotary embeddings of 131,072 x 8 complex numbers, 50.3 MB in
all, 0.27 of what a ring of the gradients sends. Its rings overlap the backward pass.

Source: github.com/Adnan082/diloco-measured (Apache-2.0): experiments/01_cu_grid/train_driver*.py (what is timed; an
all-reduce per tensor in DiLoCo); pytorch/torchtitan at 624c312b67: models/llama3/__init__.py and models/common/rope.py
(a cache per layer, ``max_seq_len=131072``); torch.nn.parallel.DistributedDataParallel (``broadcast_buffers``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.nccl import ring_end_s
from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.presets import (
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
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.errors import SpecError, one_of, require_one_of

CALLS_BY_TEST = {
    "all_reduce": ("all_reduce",),
    "reduce+broadcast": ("reduce", "broadcast"),
    "all_to_all+all_gather": ("all_to_all", "exchange"),
}
"""The calls of each test of the second campaign, in sequence, each in P calls of n/P bytes."""


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
    """Return the seconds of a collective, of a send, or of a test of `CALLS_BY_TEST` on p3.2xlarge machines.

    Args:
        kind: a collective, ``send``, or one of `CALLS_BY_TEST`.
        backend: ``gloo`` or ``nccl``.
        workers: number of workers P.
        nbytes: bytes n of the tensor on each worker.
        delay_s: latency one way that is set on each sender; None: that of the data centre.
        bytes_per_s: rate that is set on each sender; None: that of the network card.
        pieces: whether NCCL's collective is done in P calls of n/P bytes, as in the second measurement campaign.
    """
    if backend not in ("gloo", "nccl"):
        raise SpecError("backend", backend, "'gloo' or 'nccl'")
    require(workers >= 1, "nodes", workers, "at least 1")
    if kind == "send":
        return _send_s(backend, nbytes, delay_s, bytes_per_s, constants)
    if backend == "nccl" and (pieces or "+" in kind):  # "+" joins the collectives of a test
        return _pieces_s(kind, workers, nbytes, delay_s, bytes_per_s, constants)
    if kind not in COLLECTIVES:
        raise SpecError("collective", kind, one_of([*COLLECTIVES, "send"], kind))
    link_of = p3_gloo_link if backend == "gloo" else p3_nccl_link
    link = link_of(delay_s, bytes_per_s, constants)
    if kind in ("all_gather", "gather"):  # a worker contributes its part of the tensor
        nbytes = nbytes / workers
    return collective_s(kind, workers, nbytes, link)


def _send_s(
    backend: str, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    """Return the seconds of a send over idle connections; gloo's sender waits until the receiver says it is ready."""
    line_bytes_per_s = CARD_BYTES_PER_S if bytes_per_s is None else min(bytes_per_s, CARD_BYTES_PER_S)
    one_way_s = constants.gloo_delay_s if delay_s is None else delay_s  # without software, unlike `nccl_delay_s`
    round_trip_s = 2 * one_way_s
    if backend == "nccl":
        tcp = Tcp(connections=2 * SOCKETS_ON_AWS, segment_bytes=JUMBO_SEGMENT_BYTES)  # NCCL opens two channels
        return one_way_s + tcp.transfer_after_idling_s(nbytes, line_bytes_per_s * constants.efficiency, round_trip_s)
    tcp = Tcp(flow_bytes_per_s=FLOW_BYTES_PER_S, segment_bytes=JUMBO_SEGMENT_BYTES)
    flow_bytes_per_s = np.minimum(line_bytes_per_s, FLOW_BYTES_PER_S) * constants.efficiency
    return round_trip_s + tcp.transfer_after_idling_s(nbytes, flow_bytes_per_s, round_trip_s)


def _pieces_s(
    kind: str, workers: int, nbytes: float, delay_s: float | None, bytes_per_s: float | None, constants: P3Constants
) -> FloatOrArray:
    """Return the seconds of a test of `CALLS_BY_TEST`, in which each collective is done in P calls of n/P bytes.

    A call does not wait for the end of the one before it, so that the fixed cost counts once. The P calls of a
    collective other than an all-reduce take as long as one call of n bytes.
    """
    require_one_of("collective", kind, CALLS_BY_TEST)
    if workers < 2:
        return 0.0
    rate = CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s
    link = replace(p3_nccl_link(delay_s, rate, constants), bandwidth_bytes_per_s=rate * constants.pieces_part)
    assert link.nccl is not None
    alpha, costs = link.latency_s, link.nccl
    if kind == "all_reduce":
        fixed_s = costs.fixed_s("nccl-ring", alpha)
        last_slice_s = ring_end_s(nbytes / workers**2, link, costs)
        call_s = collective_s("all_reduce", workers, nbytes / workers, link) - fixed_s - last_slice_s
        return workers * call_s + last_slice_s + fixed_s
    fixed_s = costs.fixed_s("nccl-chain", alpha)
    if kind == "reduce+broadcast":
        broadcast_s = collective_s("broadcast", workers, nbytes, link) - fixed_s
        return broadcast_s + broadcast_s + fixed_s  # a reduce takes as long as a broadcast
    exchange_s = collective_s("all_to_all", workers, nbytes, link) - fixed_s
    # The calls of the second exchange do not wait for the messages of the first.
    return exchange_s + (exchange_s - alpha) + fixed_s


@dataclass(frozen=True)
class L40sConstants:
    """Constants of four g6e.2xlarge machines that were measured on them or set by their software.

    Args:
        workers: P, number of machines.
        compute_s: seconds of an inner step of DiLoCo and local SGD, AdamW included.
        reference_work: parameters x sequences x tokens of a sequence in the steps whose seconds are given here.
        ddp_compute_s: seconds of DDP's forward and backward pass.
        ddp_update_s: seconds of DDP's optimizer.
        call_s: fixed seconds of DiLoCo's and local SGD's all-reduces, one per tensor, in sum.
        buffers_bytes: bytes that DDP broadcasts before each forward pass: six layers' caches of complex numbers.
    """

    workers: int = 4
    compute_s: float = 25.4e-3
    reference_work: float = 30_846_720 * 4 * 512
    ddp_compute_s: float = 22.0e-3
    ddp_update_s: float = 4.5e-3
    call_s: float = 15e-3
    buffers_bytes: float = 6 * 131_072 * 8 * 8


L40S = L40sConstants()

ALGORITHMS_MEASURED = ("ddp", "diloco", "localsgd")


@dataclass(frozen=True)
class L40sStep:
    """Predicted seconds of a run's steps: of an inner step, of a step that synchronises, and the mean."""

    inner_s: float
    sync_s: float
    mean_s: float


def l40s_step(algorithm: str, params: float, batch: float, seq: float, steps: int, syncs: int, link: Link) -> L40sStep:
    """Return the predicted seconds of a training's steps on four g6e.2xlarge machines with an L40S each.

    Args:
        algorithm: ``ddp``, ``diloco`` or ``localsgd``.
        params: number of fp32 parameters.
        batch: sequences of a micro-batch.
        seq: tokens of a sequence.
        syncs: number of measured steps that synchronise.
    """
    require_one_of("algorithm", algorithm, ALGORITHMS_MEASURED)
    require(0 <= syncs <= steps and steps > 0, "n_sync", syncs, "at most the steps, of which there are some")
    scale = params * batch * seq / L40S.reference_work
    ring_s = float(collective_s("all_reduce", L40S.workers, 4.0 * params, link))
    inner_s = L40S.compute_s * scale
    if algorithm == "ddp":
        backward_s = L40S.ddp_compute_s * scale * 2 / 3  # a backward pass takes two forward passes
        buffers_s = float(collective_s("broadcast", L40S.workers, nbytes=L40S.buffers_bytes, network=link))
        exposed_s = max(ring_s - backward_s, 0.0)  # rings start early: the largest gradient is first
        sync_s = (L40S.ddp_compute_s + L40S.ddp_update_s) * scale + buffers_s + exposed_s
    else:
        sync_s = inner_s + ring_s + L40S.call_s
    mean_s = ((steps - syncs) * inner_s + syncs * sync_s) / steps
    return L40sStep(inner_s, sync_s, mean_s)
