"""Steps of DDP, DiLoCo and local SGD on four AWS g6e.2xlarge (one L40S each), NCCL 2.29 over shaped TCP.

A step that synchronises computes, then sends. A collective takes what `collective_s` says on the machines' link, which
is the preset ``g6e.2xlarge`` (`syncline.costmodel.network.measured_links.g6e_nccl_link`): with n bytes of parameters
among P workers and R bytes per second of payload, the rings take about ``2 n (P - 1)/(P R)``. Behind a token bucket of
50 Mbit/s a fourth of all bytes is sent twice, at 1 Gbit/s nothing.

**DDP** sends more than its gradients: before each forward pass it broadcasts the module's buffers from the first
worker, and the model's six layers have each a cache of rotary embeddings of 131,072 x 8 complex numbers, 50.3 MB in
all, 0.27 of what a ring of the gradients sends. Its rings overlap the backward pass.

Source: github.com/Adnan082/diloco-measured (Apache-2.0): experiments/01_cu_grid/train_driver*.py (what is timed; an
all-reduce per tensor in DiLoCo); pytorch/torchtitan at 624c312b67: models/llama3/__init__.py and models/common/rope.py
(a cache per layer, ``max_seq_len=131072``); torch.nn.parallel.DistributedDataParallel (``broadcast_buffers``).
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class L40sConstants:
    """Constants measured on these machines or set by their software.

    Args:
        workers: P, number of machines.
        compute_s: seconds of an inner step, AdamW included.
        reference_work: parameters x sequences x tokens of that step.
        ddp_compute_s: seconds of DDP's forward and backward pass.
        ddp_update_s: seconds of DDP's optimizer.
        call_s: seconds of an all-reduce per tensor, on top of its bytes.
        buffers_bytes: bytes that DDP broadcasts before each forward pass.
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


def l40s_step(
    algorithm: str,
    params: float,
    batch: float,
    seq: float,
    steps: int,
    syncs: int,
    link: Link,
    constants: L40sConstants = L40S,
) -> L40sStep:
    """Return the predicted seconds of a run's steps.

    Args:
        algorithm: ``ddp``, ``diloco`` or ``localsgd``.
        params: number of fp32 parameters.
        batch: sequences of a micro-batch.
        seq: tokens of a sequence.
        steps: number of measured steps.
        syncs: number of these steps that synchronise.
        link: link of the machines.
        constants: constants of the machines.

    Raises:
        SpecError: another algorithm, or a number that cannot be.
    """
    if algorithm not in ALGORITHMS_MEASURED:
        raise SpecError("algorithm", algorithm, one_of(ALGORITHMS_MEASURED, algorithm))
    require(0 <= syncs <= steps and steps > 0, "n_sync", syncs, "at most the steps, of which there are some")
    nbytes, scale = 4.0 * params, params * batch * seq / constants.reference_work
    ring_s = float(collective_s("all_reduce", constants.workers, nbytes, link))
    inner_s = constants.compute_s * scale
    if algorithm == "ddp":
        backward_s = constants.ddp_compute_s * scale * 2 / 3
        buffers_s = float(collective_s("broadcast", constants.workers, constants.buffers_bytes, link))
        exposed_s = max(ring_s - backward_s, 0.0)  # the output layer's gradient, the largest, is the first
        sync_s = (constants.ddp_compute_s + constants.ddp_update_s) * scale + buffers_s + exposed_s
    else:
        sync_s = inner_s + ring_s + constants.call_s
    mean_s = ((steps - syncs) * inner_s + syncs * sync_s) / steps
    return L40sStep(inner_s, sync_s, mean_s)
