"""The device on which each process computes, and the ``torch.distributed`` backend that connects the processes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist

from syncline.errors import SpecError, require_one_of

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "gloo", "nccl")


class Devices(NamedTuple):
    """The kind of device, the backend and the number of GPUs of the processes of one machine."""

    kind: str
    """``cpu`` or ``cuda``."""
    backend: str
    """``gloo`` or ``nccl``."""
    gpus: int
    """Number of GPUs of this machine that are used."""

    def for_process(self, local_rank: int) -> torch.device:
        """Return the device of a process; if there are fewer GPUs than processes, they share GPUs in turn."""
        return torch.device("cuda", local_rank % self.gpus) if self.kind == "cuda" else torch.device("cpu")


def training_device(device: str) -> torch.device:
    """Return the device for a training in one process; ``auto`` is CUDA if there is a GPU, else the CPU."""
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise SpecError("device", device, "cpu, as torch finds no GPU here")
    return torch.device("cuda" if device != "cpu" and has_gpu else "cpu")


def name_of_device(device: torch.device) -> str:
    """Return the name of a device for a record: ``cpu``, or the model name of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def devices(device: str, backend: str, local_processes: int, gpus: int | None = None) -> Devices:
    """Return the device kind and the backend for the processes of one machine.

    The device ``auto`` is CUDA if there is a GPU. The backend ``auto`` is NCCL if each process has a GPU to itself,
    else gloo, which also carries CUDA tensors.
    """
    for field, value, names in (("device", device, DEVICES), ("backend", backend, BACKENDS)):
        require_one_of(field, value, names)
    gpus = torch.cuda.device_count() if gpus is None else gpus
    if device == "cuda" and not gpus:
        raise SpecError("device", device, "cpu, as torch finds no GPU here")
    kind = "cuda" if device == "cuda" or (device == "auto" and gpus) else "cpu"
    if backend == "nccl":
        if kind == "cpu":
            reason = "torch finds no GPU here" if not gpus else "the device is cpu"
            raise SpecError("backend", backend, f"gloo, as {reason}")
        if gpus < local_processes:
            gpu_count = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
            reason = f"NCCL needs a GPU for each of the {local_processes} processes, and this machine has {gpu_count}"
            raise SpecError("backend", backend, f"gloo, as {reason}")
        if not dist.is_nccl_available():
            raise SpecError("backend", backend, "gloo, as this torch is built without NCCL")
    if backend == "auto":
        has_gpu_each = kind == "cuda" and gpus >= local_processes
        backend = "nccl" if has_gpu_each and dist.is_nccl_available() else "gloo"
    return Devices(kind, backend, gpus)
