"""Tensors that a script moves to ``cuda``: they stay on the CPU, are copied as for a GPU, and report ``cuda``.

The storage of such a tensor has a mark, and the results of operations on marked tensors are marked. The files of torch
see the real device, so that they take the code paths of a CPU. All other files see the GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import takewhile
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from syncline.measure.recording.operations import tensors_in
from syncline.measure.recording.recorder import RECORDER, TORCHS

CPU = torch.device("cpu")


class Current:
    """The state of the simulated GPUs in this process.

    Args:
        index: the index of the current GPU.
        touched: whether the script has used ``cuda`` so far; before that, no tensor is marked.
    """

    index = 0
    touched = False
    default: torch.device | None = None


def device_count() -> int:
    """Return the number of GPUs that a rank sees: those of ``CUDA_VISIBLE_DEVICES``, else one for each rank."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    names = (name.strip() for name in visible.split(","))
    return sum(1 for _ in takewhile(lambda name: name[:1].isdigit() or name.startswith(("GPU-", "MIG-")), names))


def cuda_of(device: Any) -> torch.device | None:
    """Return the GPU that a string such as ``"cuda:1"``, a device or a number means; None if it means no GPU.

    Raises:
        RuntimeError: if the rank does not see the GPU.
    """
    if isinstance(device, str):
        if not device.startswith("cuda"):
            return None
        device = torch.device(device)
    elif isinstance(device, int) and not isinstance(device, bool):
        device = torch.device("cuda", device)
    if not isinstance(device, torch.device) or device.type != "cuda":
        return None
    index, count = Current.index if device.index is None else device.index, device_count()
    if index >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: cuda:{index}, where {count} GPUs are visible")
    Current.touched = True
    return torch.device("cuda", index)


def on_cpu(device: Any) -> Any:
    """Return the CPU for a GPU, else the device unchanged."""
    return CPU if cuda_of(device) is not None else device


def mark(value: Any, device: torch.device | None) -> None:
    """Mark the tensors in a value as being on a GPU; None removes the mark."""
    for x in tensors_in(value):
        try:
            x.untyped_storage().traced_device = device  # type: ignore[attr-defined]
        except (RuntimeError, NotImplementedError):  # a tensor without storage, such as a sparse one
            continue


def marked_device(x: Tensor) -> torch.device | None:
    """Return the GPU that a tensor is marked with, or None."""
    try:
        return getattr(x.untyped_storage(), "traced_device", None)
    except (RuntimeError, NotImplementedError):
        return None


def from_torch(depth: int) -> bool:
    """Return whether the frame ``depth`` levels above the caller is in a file of torch.

    Frames of ``__torch_function__`` only pass a call on, so the function skips them.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(TORCHS)


def moved_tensor(x: Tensor, device: torch.device | None, copied: Tensor, is_asynchronous: bool = False) -> Tensor:
    """Return the result of a move of ``x`` to a device: a copy if the device differs, marked with the device.

    The host waits for values that come from a GPU, unless the move is asynchronous.
    """
    if device is None and not is_asynchronous and marked_device(x) is not None:
        RECORDER.host_waits()
    if marked_device(x) != device and copied.untyped_storage()._cdata == x.untyped_storage()._cdata:
        copied = copied.clone()
    mark(copied, device)
    return copied


def to(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``Tensor.to`` for a device, another tensor or a type."""
    x, *rest = args
    if "device" in kwargs:
        target, kwargs = kwargs["device"], kwargs | {"device": on_cpu(kwargs["device"])}
    elif rest and isinstance(rest[0], Tensor):
        target = marked_device(rest[0]) or rest[0].device
    elif rest and "other" not in kwargs and not isinstance(rest[0], torch.dtype):
        target, rest[0] = rest[0], on_cpu(rest[0])
    elif "other" in kwargs:
        target = marked_device(kwargs["other"]) or kwargs["other"].device
    else:
        target = None
    out = f(x, *rest, **kwargs)
    if not Current.touched:
        return out
    device = marked_device(x) if target is None else cuda_of(target)
    return moved_tensor(x, device, out, bool(kwargs.get("non_blocking")))


def cuda(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the result of ``Tensor.cuda`` where there is no GPU: the tensor, or a copy, labelled with a virtual GPU.

    Args:
        f: torch's ``Tensor.cuda``.
        args: the tensor, and the device if it was given by position.
        kwargs: the other arguments of the call.
    """
    x, *rest = args
    device = kwargs.get("device", rest[0] if rest else None)
    return moved_tensor(x, cuda_of("cuda" if device is None else device), x)


def cpu(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the result of ``Tensor.cpu``: the tensor, or a copy if the tensor is marked with a GPU."""
    return moved_tensor(args[0], None, args[0])


def type_of(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``Tensor.type``, whose type names contain the device."""
    x, *rest = args
    if not rest and "dtype" not in kwargs:
        name: str = f(x)
        return name if marked_device(x) is None else name.replace("torch.", "torch.cuda.", 1)
    dtype = rest[0] if rest else kwargs["dtype"]
    name = dtype if isinstance(dtype, str) else ""
    out = f(x, name.replace(".cuda", "") or dtype)
    return moved_tensor(x, cuda_of("cuda") if ".cuda" in name else None if name else marked_device(x), out)


def torch_device(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``torch.device``, which takes a plain number as the index of a GPU."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    return f(*args, **kwargs)


class CudaOnCpu(TorchFunctionMode):
    """A mode of torch that runs calls with ``cuda`` devices on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: dict[Any, Callable[..., Any]] = {
            Tensor.to: to, Tensor.cuda: cuda, Tensor.cpu: cpu, Tensor.type: type_of, torch.device: torch_device,
            Tensor.pin_memory: lambda f, args, kwargs: args[0].clone(),
        }  # fmt: skip
        # The script gets these answers; files of torch get the originals.
        self.questions: dict[Any, Callable[[Tensor], Any]] = {
            Tensor.device.__get__: lambda x: marked_device(x) or x.device,
            Tensor.is_cuda.__get__: lambda x: marked_device(x) is not None or x.is_cuda,  # type: ignore[attr-defined]
            Tensor.get_device: lambda x: x.get_device() if (gpu := marked_device(x)) is None else gpu.index,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (answer := self.questions.get(func)) is not None:
            return func(*args, **kwargs) if not Current.touched or from_torch(1) else answer(args[0])
        if (move := self.moves.get(func)) is not None:
            return move(func, args, kwargs)
        target = None
        if kwargs:
            if kwargs.get("device") is not None:
                target = kwargs["device"]
                kwargs["device"] = on_cpu(target)
            kwargs.pop("pin_memory", None)
        out = func(*args, **kwargs)
        if Current.touched:
            if target is not None:
                mark(out, cuda_of(target))
            elif isinstance(out, Tensor | list | tuple) and not (args and out is args[0]):  # not in place
                inputs = list(tensors_in(args))
                device = next((gpu for x in inputs if (gpu := marked_device(x)) is not None), None)
                if not inputs:
                    device = Current.default
                if device is not None:
                    mark(out, device)
        return out
