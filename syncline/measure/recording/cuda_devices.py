"""Tensors that a script puts on ``cuda``: they stay on the CPU, are copied where a GPU would copy, and say ``cuda``.

A tensor's storage carries a mark; what is computed of marked tensors is marked. Torch's own files are told the truth,
so that they take the paths of a CPU; all other files are told what a GPU would tell.
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
    """Of this process.

    Args:
        index: the device that was set.
        touched: whether the script has named ``cuda`` so far; before, nothing is marked.
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
    """The GPU that is meant: ``"cuda:1"``, a device, a number; None if it is not one.

    Raises:
        RuntimeError: a GPU that the rank does not see.
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
    """A device as it is here: the CPU for a GPU, else what was given."""
    return CPU if cuda_of(device) is not None else device


def mark(value: Any, device: torch.device | None) -> None:
    """Let tensors say that they are on a GPU; None: that they are not."""
    for x in tensors_in(value):
        try:
            x.untyped_storage().traced_device = device  # type: ignore[attr-defined]
        except (RuntimeError, NotImplementedError):  # a tensor without storage, such as a sparse one
            continue


def marked(x: Tensor) -> torch.device | None:
    """The GPU that a tensor is said to be on."""
    try:
        return getattr(x.untyped_storage(), "traced_device", None)
    except (RuntimeError, NotImplementedError):
        return None


def from_torch(depth: int) -> bool:
    """Whether the frame that many above the caller is one of torch's files, but for a mode that passes a call on."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(TORCHS)


def on_its_way(x: Tensor, to: torch.device | None, copied: Tensor, at_once: bool = False) -> Tensor:
    """What ``x`` became on its way to a device, where the CPU may have given itself: on another device it is a copy.

    The host waits for values that come from a GPU, unless it is to go on at once.
    """
    if to is None and not at_once and marked(x) is not None:
        RECORDER.host_waits()
    if marked(x) != to and copied.untyped_storage()._cdata == x.untyped_storage()._cdata:
        copied = copied.clone()
    mark(copied, to)
    return copied


def to(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``Tensor.to``: of a device, of a tensor's device, of a type alone."""
    x, *rest = args
    if "device" in kwargs:
        asked, kwargs = kwargs["device"], kwargs | {"device": on_cpu(kwargs["device"])}
    elif rest and isinstance(rest[0], Tensor):
        asked = marked(rest[0]) or rest[0].device
    elif rest and "other" not in kwargs and not isinstance(rest[0], torch.dtype):
        asked, rest[0] = rest[0], on_cpu(rest[0])
    elif "other" in kwargs:
        asked = marked(kwargs["other"]) or kwargs["other"].device
    else:
        asked = None
    out = f(x, *rest, **kwargs)
    if not Current.touched:
        return out
    return on_its_way(x, marked(x) if asked is None else cuda_of(asked), out, bool(kwargs.get("non_blocking")))


def cuda(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``Tensor.cuda``."""
    x, *rest = args
    device = kwargs.get("device", rest[0] if rest else None)
    return on_its_way(x, cuda_of("cuda" if device is None else device), x)


def cpu(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``Tensor.cpu``: a copy of what was on a GPU."""
    return on_its_way(args[0], None, args[0])


def type_of(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``Tensor.type``, whose names of types name devices."""
    x, *rest = args
    if not rest and "dtype" not in kwargs:
        name: str = f(x)
        return name if marked(x) is None else name.replace("torch.", "torch.cuda.", 1)
    asked = rest[0] if rest else kwargs["dtype"]
    name = asked if isinstance(asked, str) else ""
    out = f(x, name.replace(".cuda", "") or asked)
    return on_its_way(x, cuda_of("cuda") if ".cuda" in name else None if name else marked(x), out)


def pinned(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``Tensor.pin_memory``: a copy."""
    copy: Tensor = args[0].clone()
    return copy


def says_device(x: Tensor) -> torch.device:
    """``Tensor.device``."""
    return marked(x) or x.device


def says_cuda(x: Tensor) -> bool:
    """``Tensor.is_cuda``."""
    return marked(x) is not None or x.is_cuda


def says_number(x: Tensor) -> int:
    """``Tensor.get_device``."""
    device = marked(x)
    return x.get_device() if device is None else device.index


def device_made(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.device``, of which a bare number is a GPU's."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    return f(*args, **kwargs)


class CudaOnCpu(TorchFunctionMode):
    """Runs what names ``cuda`` on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: dict[Any, Callable[..., Any]] = {
            Tensor.to: to, Tensor.cuda: cuda, Tensor.cpu: cpu, Tensor.type: type_of, Tensor.pin_memory: pinned,
            torch.device: device_made,
        }  # fmt: skip
        # Answered to all files but torch's.
        self.questions: dict[Any, Callable[[Tensor], Any]] = {
            Tensor.device.__get__: says_device,
            Tensor.is_cuda.__get__: says_cuda,  # type: ignore[attr-defined]
            Tensor.get_device: says_number,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (answer := self.questions.get(func)) is not None:
            return func(*args, **kwargs) if not Current.touched or from_torch(1) else answer(args[0])
        if (move := self.moves.get(func)) is not None:
            return move(func, args, kwargs)
        asked = None
        if kwargs:
            if kwargs.get("device") is not None:
                asked = kwargs["device"]
                kwargs["device"] = on_cpu(asked)
            kwargs.pop("pin_memory", None)
        out = func(*args, **kwargs)
        if Current.touched:
            if asked is not None:
                mark(out, cuda_of(asked))
            elif isinstance(out, Tensor | list | tuple) and not (
                args and out is args[0]
            ):  # in place stays in its place
                device = next((one for x in tensors_in(args) if (one := marked(x)) is not None), None)
                if device is None and Current.default is not None and not any(True for _ in tensors_in(args)):
                    device = Current.default
                if device is not None:
                    mark(out, device)
        return out
