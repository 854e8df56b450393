"""Scripts that use ``cuda``, on the CPU: this module replaces the functions of torch that take a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import DataLoader

from syncline.measure.recording import cuda_calls
from syncline.measure.recording.cuda_devices import (
    CPU,
    CudaOnCpu,
    Current,
    cuda_of,
    device_count,
    from_torch,
    marked_device,
    on_cpu,
)
from syncline.measure.recording.hooks import wrapping


def install_cuda() -> AbstractContextManager[object]:
    """Replace functions of torch so that the script sees GPUs, if the options allow it any.

    Returns:
        The context manager in which the script must run.
    """
    if not device_count():
        return nullcontext()
    dist.is_nccl_available = lambda: True
    cuda_calls.install_cuda_calls()
    scaler = torch.amp.grad_scaler.GradScaler
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch._C._nn, "_parse_to", parse_to),
        (torch.nn.parallel.DistributedDataParallel, "__init__", init_ddp),
        (DeviceMesh, "__init__", init_mesh),
        (DataLoader, "__init__", init_loader),
        (torch.amp.autocast_mode.autocast, "__init__", init_autocast),
        (scaler, "__init__", init_scaler),
        (scaler, "scale", scale_loss),
        (torch, "set_default_device", set_default_device),
        (torch, "get_default_device", get_default_device),
        (torch, "load", load),
        (torch, "is_autocast_enabled", with_cpu_type),
        (torch, "get_autocast_dtype", with_cpu_type),
        (torch, "set_autocast_enabled", with_cpu_type),
        (torch, "set_autocast_dtype", with_cpu_type),
        (torch.amp, "custom_fwd", with_cpu_keyword),
        (torch.amp, "custom_bwd", with_cpu_keyword),
    ]
    for owner, name, call in replaced:
        setattr(owner, name, wrapping(getattr(owner, name), call))
    torch.get_autocast_gpu_dtype = torch.get_autocast_cpu_dtype
    torch.Generator = Generator  # type: ignore[misc]
    return CudaOnCpu()


# Each of the following functions runs in place of a function of torch, which is its first argument.


def parse_to(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Parse the arguments of ``Module.to``; a plain number is the index of a GPU."""
    first = [torch.device("cuda", x) if isinstance(x, int) and not isinstance(x, bool) else x for x in args[:1]]
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = torch.device("cuda", kwargs["device"])
    return original(*first, *args[1:], **kwargs)


def init_ddp(
    original: Callable[..., Any], self: Any, module: Any, device_ids: Any = None, output_device: Any = None,
    *args: Any, **kwargs: Any,
) -> None:  # fmt: skip
    """Make a ``DistributedDataParallel``; if the module is on a GPU, drop the device arguments.

    If the module is on the CPU, torch gets both arguments and refuses them.
    """
    on_gpu = any(marked_device(parameter) is not None for parameter in module.parameters())
    original(self, module, *((None, None) if on_gpu else (device_ids, output_device)), *args, **kwargs)


def init_mesh(original: Callable[..., Any], self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
    """Make a ``DeviceMesh``, of the CPU for the device type ``"cuda"``."""
    original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)
    if device_type == "cuda":
        Current.touched = True


def init_loader(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    """Make a ``DataLoader`` without ``pin_memory``, because there is no GPU."""
    args = (*args[:7], False, *args[8:]) if len(args) > 7 else args
    original(self, *args, **{name: x for name, x in kwargs.items() if not name.startswith("pin_memory")})


def init_autocast(
    original: Callable[..., Any], self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any
) -> None:
    """Make an ``autocast``; ``"cuda"`` runs on the CPU with the same type, float16 by default."""
    if device_type == "cuda":
        Current.touched = True
        device_type, dtype = "cpu", dtype or torch.float16
    original(self, device_type, dtype, *args, **kwargs)


def init_scaler(original: Callable[..., Any], self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
    """Make a ``GradScaler``, of the CPU for ``"cuda"``."""
    original(self, "cpu" if device == "cuda" else device, *args, **kwargs)


def scale_loss(original: Callable[..., Any], self: Any, outputs: Any) -> Any:
    """Scale a loss as ``GradScaler.scale`` does, and store the unscaled loss in the result."""
    scaled = original(self, outputs)
    if isinstance(scaled, torch.Tensor):
        scaled.traced_loss = outputs.detach()  # type: ignore[attr-defined]
    return scaled


def set_default_device(original: Callable[..., Any], device: Any) -> None:
    """Set torch's default device to the CPU for a GPU, and keep the GPU for the script."""
    original(on_cpu(device))
    Current.default = None if device is None else cuda_of(device)


def get_default_device(original: Callable[..., Any]) -> Any:
    """Return the script's default GPU, or torch's default device if there is none or torch itself calls."""
    return original() if Current.default is None or from_torch(2) else Current.default


def load(original: Callable[..., Any], f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Load tensors to the CPU, and mark them with the script's device."""
    device = None
    if isinstance(map_location, dict):
        map_location = CPU
    elif map_location is not None and not callable(map_location):
        device, map_location = cuda_of(map_location), on_cpu(map_location)
    before, Current.default = Current.default, device or Current.default
    try:
        return original(f, map_location, *args, **kwargs)
    finally:
        Current.default = before


def with_cpu_type(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with ``"cpu"`` for the device type ``"cuda"`` in the first argument.

    If a script that uses CUDA calls the function without arguments, the function gets ``"cpu"``.
    """
    if not args and not kwargs and Current.touched and not from_torch(2):
        args = ("cpu",)
    return original(*("cpu" if x == "cuda" else x for x in args[:1]), *args[1:], **kwargs)


def with_cpu_keyword(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with ``"cpu"`` for ``"cuda"`` in the keyword argument ``device_type``."""
    if kwargs.get("device_type") == "cuda":
        kwargs["device_type"] = "cpu"
    return original(*args, **kwargs)


class _AnyGenerator(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(metaclass=_AnyGenerator):
    """A stand-in for ``torch.Generator`` that accepts ``"cuda"`` and creates generators of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Return a new generator of the CPU."""
        return torch._C.Generator(device=on_cpu(device))
