"""Scripts that use ``cuda``, on the CPU: this module replaces the functions of torch that take a device."""

from __future__ import annotations

import functools
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


def install_cuda() -> AbstractContextManager[object]:
    """Replace functions of torch so that the script sees GPUs, if the options allow it any.

    Returns:
        The context manager in which the script must run.
    """
    if not device_count():
        return nullcontext()
    dist.is_nccl_available = lambda: True
    cuda_calls.install_cuda_calls()
    torch._C._nn._parse_to = device_parser(torch._C._nn._parse_to)
    replace(torch.nn.parallel.DistributedDataParallel, "__init__", ddp_constructor)
    replace(DeviceMesh, "__init__", mesh_constructor)
    replace(DataLoader, "__init__", loader_constructor)
    replace(torch.amp.autocast_mode.autocast, "__init__", autocast_constructor)
    replace(torch.amp.grad_scaler.GradScaler, "__init__", scaler_constructor)
    replace(torch.amp.grad_scaler.GradScaler, "scale", loss_scaler)
    replace(torch, "set_default_device", default_device_setter)
    replace(torch, "get_default_device", default_device_getter)
    replace(torch, "load", tensor_loader)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        replace(torch, name, with_cpu_type)
    for name in ("custom_fwd", "custom_bwd"):
        replace(torch.amp, name, with_cpu_keyword)
    torch.get_autocast_gpu_dtype = torch.get_autocast_cpu_dtype
    torch.Generator = Generator  # type: ignore[misc]
    return CudaOnCpu()


def replace(owner: Any, name: str, make_wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function of a module or class by a wrapper that is made from the original."""
    plain = getattr(owner, name)
    setattr(owner, name, functools.wraps(plain)(make_wrapper(plain)))


def device_parser(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the argument parser of ``Module.to`` that takes a plain number as the index of a GPU."""

    def parsed(*args: Any, **kwargs: Any) -> Any:
        positional = [
            torch.device("cuda", x) if isinstance(x, int) and not isinstance(x, bool) else x for x in args[:1]
        ]
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return original(*positional, *args[1:], **kwargs)

    return parsed


def ddp_constructor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of ``DistributedDataParallel`` that drops the device arguments if the module is on a GPU.

    If the module is on the CPU, the constructor passes both arguments on, so that torch refuses them.
    """

    def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kw: Any) -> None:
        on_gpu = any(marked_device(parameter) is not None for parameter in module.parameters())
        original(self, module, *((None, None) if on_gpu else (device_ids, output_device)), *args, **kw)

    return init


def mesh_constructor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of ``DeviceMesh`` that makes a CPU mesh for the device type ``"cuda"``."""

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)
        if device_type == "cuda":
            Current.touched = True

    return init


def loader_constructor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of ``DataLoader`` that ignores ``pin_memory``, because there is no GPU."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        args = (*args[:7], False, *args[8:]) if len(args) > 7 else args
        original(self, *args, **{name: x for name, x in kwargs.items() if not name.startswith("pin_memory")})

    return init


def autocast_constructor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of ``autocast`` that runs ``"cuda"`` on the CPU with the same type, float16 by default."""

    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            Current.touched = True
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *args, **kwargs)

    return init


def scaler_constructor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of ``GradScaler`` that replaces ``"cuda"`` by ``"cpu"``."""

    def init(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    return init


def loss_scaler(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method ``GradScaler.scale`` that stores the unscaled loss in its result."""

    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if isinstance(scaled, torch.Tensor):
            scaled.traced_loss = outputs.detach()  # type: ignore[attr-defined]
        return scaled

    return scale


def default_device_setter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function ``torch.set_default_device`` that keeps a GPU for the script and sets the CPU."""

    def set_default_device(device: Any) -> None:
        original(on_cpu(device))
        Current.default = None if device is None else cuda_of(device)

    return set_default_device


def default_device_getter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function ``torch.get_default_device`` that returns the script's GPU, except to torch itself."""
    return lambda: original() if Current.default is None or from_torch(1) else Current.default


def tensor_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of ``torch.load``, which loads tensors to the CPU and marks them with the script's device.

    Args:
        original: torch's own function.
    """

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
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

    return load


def with_cpu_type(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that replaces the device type ``"cuda"`` by ``"cpu"`` in the first argument.

    If a script that uses CUDA calls the function without arguments, the wrapper passes ``"cpu"``.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs and Current.touched and not from_torch(1):
            args = ("cpu",)
        return original(*("cpu" if x == "cuda" else x for x in args[:1]), *args[1:], **kwargs)

    return called


def with_cpu_keyword(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that replaces ``"cuda"`` by ``"cpu"`` in the keyword argument ``device_type``."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_type") == "cuda":
            kwargs["device_type"] = "cpu"
        return original(*args, **kwargs)

    return called


class _AnyGenerator(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(metaclass=_AnyGenerator):
    """A stand-in for ``torch.Generator`` that accepts ``"cuda"`` and creates generators of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Return a new generator of the CPU."""
        return torch._C.Generator(device=on_cpu(device))
