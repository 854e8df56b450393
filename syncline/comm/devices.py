"""Which device each process computes on, and which backend of ``torch.distributed`` joins them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist

from syncline.errors import SpecError, one_of

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "gloo", "nccl")


class Devices(NamedTuple):
    """What the processes of one machine run on."""

    kind: str
    """``cpu`` or ``cuda``."""
    backend: str
    """``gloo`` or ``nccl``."""
    gpus: int
    """GPUs of this machine that are used."""

    def of(self, local_rank: int) -> torch.device:
        """The device of a process; processes share GPUs in turn where there are fewer."""
        return torch.device("cuda", local_rank % self.gpus) if self.kind == "cuda" else torch.device("cpu")


def training_device(device: str) -> torch.device:
    """What a training in one process runs on; ``auto`` is CUDA where there is a GPU.

    Raises:
        SpecError: ``cuda`` where torch finds no GPU.
    """
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        raise SpecError("device", device, "cpu, as torch finds no GPU here")
    return torch.device("cuda" if device != "cpu" and found else "cpu")


def name_of_device(device: torch.device) -> str:
    """What it is, for a record: ``cpu``, or a GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def devices(device: str, backend: str, local_processes: int, gpus: int | None = None) -> Devices:
    """What so many processes of one machine run on.

    ``auto`` is CUDA where there is a GPU; NCCL where each process has one of its own, else gloo, which also carries
    CUDA tensors.

    Args:
        device: one of ``DEVICES``.
        backend: one of ``BACKENDS``.
        local_processes: on this machine.
        gpus: of this machine; as torch finds them unless given.

    Raises:
        SpecError: a name that there is not, a GPU that is missing, or a backend that cannot serve.
    """
    for field, value, known in (("device", device, DEVICES), ("backend", backend, BACKENDS)):
        if value not in known:
            raise SpecError(field, value, one_of(known, value))
    gpus = torch.cuda.device_count() if gpus is None else gpus
    if device == "cuda" and not gpus:
        raise SpecError("device", device, "cpu, as torch finds no GPU here")
    kind = "cuda" if device == "cuda" or (device == "auto" and gpus) else "cpu"
    if backend == "nccl":
        if kind == "cpu":
            reason = "torch finds no GPU here" if not gpus else "the device is cpu"
            raise SpecError("backend", backend, f"gloo, as {reason}")
        if gpus < local_processes:
            here = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
            expected = f"gloo, as NCCL needs a GPU for each of the {local_processes} processes, and here is {here}"
            raise SpecError("backend", backend, expected)
        if not dist.is_nccl_available():
            raise SpecError("backend", backend, "gloo, as this torch is built without NCCL")
    own = kind == "cuda" and gpus >= local_processes and dist.is_nccl_available()
    return Devices(kind, ("nccl" if own else "gloo") if backend == "auto" else backend, gpus)
