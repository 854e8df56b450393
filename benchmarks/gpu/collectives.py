"""Collectives that need no network: one rank alone, and several that share the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.gpu.parts import Row, one_line
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import WARM_UP, host_s, queued_s, summary
from tests.processes import run_processes

ALONE_BYTES = (4, 2**12, 2**20, 2**24, 2**28)
SHARED_BYTES = (4, 2**12, 2**16, 2**20, 2**24, 2**26)
SHARED_RANKS = (2, 3, 4)
TINY_BYTES = (4, 64)

# The name that torch 2.13 gave all_gather_into_tensor.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def calls(device: torch.device, nbytes: int) -> dict[str, Callable[[], object]]:
    """The collectives by name, on so many bytes of each rank."""
    x = torch.zeros(nbytes // 4, device=device)
    gathered: Tensor = torch.empty(dist.get_world_size() * len(x), device=device)
    return {"all_reduce": lambda: dist.all_reduce(x), "all_gather": lambda: _all_gather(gathered, x)}


def repeats_of(nbytes: int) -> int:
    """How often: fixed before, as all ranks have to agree."""
    return 30 if nbytes <= 2**20 else 5


def alone(setting: Setting) -> Iterator[Row]:
    """One rank of NCCL (gloo on the CPU): what a call costs that has nothing to send."""
    backend = "nccl" if setting.device == "cuda" else "gloo"
    sizes = TINY_BYTES if setting.tiny else ALONE_BYTES
    (rows,) = run_processes(_alone, 1, setting, sizes, backend=backend)
    for row in rows:
        yield {"backend": backend, "ranks": 1, **row}


def _alone(setting: Setting, sizes: tuple[int, ...]) -> list[Row]:
    """From an idle device to an idle one, and queued one behind the other."""
    _settle(setting.on)
    rows = []
    for nbytes in sizes:
        for collective, work in calls(setting.on, nbytes).items():
            seconds = [host_s(work, setting.on) for _ in range(WARM_UP + repeats_of(nbytes))][WARM_UP:]
            queued = queued_s(work, setting.on, calls=20)
            rows.append({"collective": collective, "nbytes": nbytes, **summary(seconds), "queued_s": queued})
    return rows


def shared(setting: Setting) -> Iterator[Row]:
    """Ranks of gloo that share the device, and for comparison the same with tensors of the CPU."""
    sizes = TINY_BYTES if setting.tiny else SHARED_BYTES
    for ranks in (2,) if setting.tiny else SHARED_RANKS:
        for device in dict.fromkeys((setting.on, torch.device("cpu"))):
            for row in _among(ranks, device, sizes, "gloo"):
                yield {"device": device.type, **row}


def nccl(setting: Setting) -> Iterator[Row]:
    """NCCL with a GPU for each rank, from two GPUs on (gloo on the CPU): seconds, and bytes per second of a GPU's link.

    The link's bytes are those of a ring: 2 (P - 1) / P of an all-reduce's bytes, P - 1 times those of an all-gather.
    """
    backend, gpus = ("nccl", torch.cuda.device_count()) if setting.device == "cuda" else ("gloo", 2)
    if gpus < 2:
        yield {"backend": backend, "ranks": gpus, "failed": "one GPU, which NCCL lets no two ranks share"}
        return
    for ranks in sorted({min(2**power, gpus) for power in range(1, gpus.bit_length() + 1)}):
        for row in _among(ranks, None, TINY_BYTES if setting.tiny else ALONE_BYTES, backend):
            if "median_s" in row:
                shares = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": ranks - 1}
                row["bus_bytes_per_s"] = shares[row["collective"]] * row["nbytes"] / row["median_s"]
            yield row


def _among(ranks: int, device: torch.device | None, sizes: tuple[int, ...], backend: str) -> Iterator[Row]:
    """One row per collective and size among ranks that share a device; None: each has its own."""
    by_rank = run_processes(_shared, ranks, device, sizes, backend=backend)
    for key, first in by_rank[0].items():
        row: Row = {"backend": backend, "ranks": ranks, "collective": key[0], "nbytes": key[1]}
        if isinstance(first, str):
            yield row | {"failed": first}
            continue
        # A collective takes as long as the rank for which it takes longest.
        others = [other[key] for other in by_rank[1:]]
        yield row | summary([max(times) for times in zip(first, *others, strict=True)])


def _shared(device: torch.device | None, sizes: tuple[int, ...]) -> dict[tuple[str, int], list[float] | str]:
    """Seconds by collective and size, or why a backend does not do it with tensors of this device."""
    if device is None:
        device = torch.device("cuda", dist.get_rank()) if dist.get_backend() == "nccl" else torch.device("cpu")
    _settle(device)
    out: dict[tuple[str, int], list[float] | str] = {}
    for nbytes in sizes:
        for collective, work in calls(device, nbytes).items():
            seconds = []
            try:
                for _ in range(WARM_UP + repeats_of(nbytes)):
                    dist.barrier()
                    seconds.append(host_s(work, device))
                out[collective, nbytes] = seconds[WARM_UP:]
            except RuntimeError as error:
                out[collective, nbytes] = one_line(error)
    return out


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
