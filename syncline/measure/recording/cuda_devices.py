"""CUDA for a script that is traced on a machine without a GPU: its tensors, ``torch.cuda`` and ``torch.accelerator``.

Tensors that the script moves to ``cuda`` stay on the CPU, are copied as for a GPU, and report ``cuda``. Their storage
has a mark, and the results of operations on marked tensors are marked. The files of torch see the real device, so that
they take the code paths of a CPU. All other files see the GPU.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from syncline.measure.recording import streams
from syncline.measure.recording.operations import tensors_in
from syncline.measure.recording.recorder import RECORDER, TORCH_FOLDER, Refusal, user_line
from syncline.measure.recording.streams import ClockReading

CPU = torch.device("cpu")

DISTRIBUTED_FOLDER = f"{TORCH_FOLDER}distributed/"
"""The folder of those files of torch that move tensors to the CPU for checkpoints and offloading."""


class GpuState:
    """The state of the simulated GPUs in this process.

    Attributes:
        current_index: the index of the current GPU, which ``cuda`` without an index means.
        script_uses_gpu: whether the script has used ``cuda`` so far; before that, no tensor is marked.
        default_gpu: the GPU that the script has made torch's default device; None if it has made none.
    """

    current_index = 0
    script_uses_gpu = False
    default_gpu: torch.device | None = None


def device_count() -> int:
    """Return the number of GPUs that a rank sees: those of ``CUDA_VISIBLE_DEVICES``, else one for each rank."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    names = [name.strip() for name in visible.split(",")]
    are_valid = [name[:1].isdigit() or name.startswith(("GPU-", "MIG-")) for name in names]  # an index or a unique name
    return [*are_valid, False].index(False)  # the names before the first invalid one: CUDA ignores all behind it


def simulated_gpu(device: Any) -> torch.device | None:
    """Return the GPU that a string such as ``"cuda:1"``, a device or a number means, and record that GPUs are used.

    None if the value means no GPU.
    """
    if isinstance(device, str):
        if not device.startswith("cuda"):
            return None
        device = torch.device(device)
    elif isinstance(device, int) and not isinstance(device, bool):  # in Python a bool is an int too
        device = torch.device("cuda", device)
    if not isinstance(device, torch.device) or device.type != "cuda":
        return None
    index = GpuState.current_index if device.index is None else device.index
    count = device_count()
    if index >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: cuda:{index}, where {count} GPUs are visible")
    GpuState.script_uses_gpu = True
    return torch.device("cuda", index)


def on_cpu(device: Any) -> Any:
    """Return the CPU for a GPU, else the device unchanged."""
    return CPU if simulated_gpu(device) is not None else device


def mark_device(value: Any, device: torch.device | None) -> None:
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


def device_index(x: Tensor) -> int:
    """Return the index of the GPU that a tensor is marked with, in place of ``Tensor.get_device``; -1 for the CPU."""
    gpu = marked_device(x)
    return x.get_device() if gpu is None else gpu.index


def calling_file(depth: int) -> str:
    """Return the file of the frame ``depth`` levels above the calling function.

    Frames of ``__torch_function__`` do not count, because they only pass a call on.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def is_called_by_torch(depth: int) -> bool:
    """Return whether the frame ``depth`` levels above the calling function is in a file of torch."""
    return calling_file(depth + 1).startswith(TORCH_FOLDER)


def moved_tensor(x: Tensor, gpu: torch.device | None, result: Tensor, is_asynchronous: bool = False) -> Tensor:
    """Return the result of a move of ``x`` to a GPU, or to the CPU if ``gpu`` is None, marked with its device.

    It is a copy if the devices differ. The host waits for values that come from a GPU, unless the move is asynchronous.

    Args:
        result: what torch's own function returned on the CPU, which may be ``x`` itself.
        is_asynchronous: the script's argument ``non_blocking``.
    """
    if gpu is None and not is_asynchronous and marked_device(x) is not None:
        RECORDER.record_host_wait()
    shares_memory = result.untyped_storage()._cdata == x.untyped_storage()._cdata
    if marked_device(x) != gpu and shares_memory:
        result = result.clone()
    mark_device(result, gpu)
    return result


def to(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``Tensor.to`` for a device, another tensor or a type; torch's own ``f`` runs on the CPU."""
    x, *other_args = args
    first_arg = other_args[0] if other_args else None
    model_tensor = kwargs.get("other", first_arg if isinstance(first_arg, Tensor) else None)  # whose device x gets
    device = None  # the device that the script names, if any
    if "device" in kwargs:
        device = kwargs["device"]
        kwargs = kwargs | {"device": on_cpu(device)}
    elif model_tensor is not None:
        device = marked_device(model_tensor) or model_tensor.device
    elif first_arg is not None and not isinstance(first_arg, torch.dtype):
        device = first_arg
        other_args[0] = on_cpu(device)
    file = calling_file(depth=1)
    if device == CPU and file.startswith(TORCH_FOLDER) and not file.startswith(DISTRIBUTED_FOLDER):
        device = None  # torch names the device that it sees of another tensor, such as a gradient; both are on the GPU
    result = f(x, *other_args, **kwargs)
    if not GpuState.script_uses_gpu:  # no tensor is marked yet
        return result
    gpu = marked_device(x) if device is None else simulated_gpu(device)
    return moved_tensor(x, gpu, result, is_asynchronous=bool(kwargs.get("non_blocking")))


def cuda(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the result of ``Tensor.cuda``: the tensor itself if it is marked with this GPU, else a marked copy."""
    x, *other_args = args
    device = kwargs.get("device", other_args[0] if other_args else None)
    return moved_tensor(x, simulated_gpu("cuda" if device is None else device), result=x)


def type_of(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``Tensor.type``, whose names of types contain the device: ``torch.cuda.FloatTensor``."""
    x, *other_args = args
    if not other_args and "dtype" not in kwargs:  # without arguments ``type`` returns a name
        name: str = f(x)
        return name if marked_device(x) is None else name.replace("torch.", "torch.cuda.", 1)
    dtype = other_args[0] if other_args else kwargs["dtype"]
    if not isinstance(dtype, str):
        return moved_tensor(x, marked_device(x), result=f(x, dtype))
    gpu = simulated_gpu("cuda") if ".cuda" in dtype else None
    return moved_tensor(x, gpu, result=f(x, dtype.replace(".cuda", "")))


def torch_device(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``torch.device``, which takes a plain number as the index of a GPU."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    return f(*args, **kwargs)


class CudaOnCpu(TorchFunctionMode):
    """A mode of torch that runs calls with ``cuda`` devices on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: dict[Any, Callable[..., Any]] = {  # functions that move tensors to GPUs or back
            Tensor.to: to, Tensor.cuda: cuda, Tensor.type: type_of, torch.device: torch_device,
            Tensor.cpu: lambda f, args, kwargs: moved_tensor(args[0], gpu=None, result=args[0]),
            Tensor.pin_memory: lambda f, args, kwargs: args[0].clone(),  # torch too returns a copy
        }  # fmt: skip
        # Functions that ask for the device of a tensor: the script gets these results, torch itself the originals.
        self.device_queries: dict[Any, Callable[[Tensor], Any]] = {
            Tensor.device.__get__: lambda x: marked_device(x) or x.device,
            Tensor.is_cuda.__get__: lambda x: marked_device(x) is not None or x.is_cuda,  # type: ignore[attr-defined]
            Tensor.get_device: device_index,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of torch on the CPU, and mark its result if the result is on a GPU for the script."""
        kwargs = kwargs or {}
        if func in self.device_queries:
            if not GpuState.script_uses_gpu or is_called_by_torch(depth=1):
                return func(*args, **kwargs)
            return self.device_queries[func](args[0])
        if func in self.moves:
            return self.moves[func](func, args, kwargs)
        target = kwargs.get("device")
        if target is not None:
            kwargs["device"] = on_cpu(target)
        kwargs.pop("pin_memory", None)  # torch refuses it without a GPU
        result = func(*args, **kwargs)
        if not GpuState.script_uses_gpu:
            return result
        if target is not None:
            mark_device(result, simulated_gpu(target))
            return result
        is_in_place = bool(args) and result is args[0]  # such a result has its mark already
        if isinstance(result, Tensor | list | tuple) and not is_in_place:
            devices = [marked_device(x) for x in tensors_in(args)]
            if not devices:  # a function without input tensors creates its result on the default device
                devices = [GpuState.default_gpu]
            gpus = [device for device in devices if device is not None]
            if gpus:  # all are the same GPU, as torch requires; other inputs may be on the CPU
                mark_device(result, gpus[0])
        return result


GPU = SimpleNamespace(
    name="NVIDIA A100-SXM4-80GB", major=8, minor=0, total_memory=80 * 2**30, multi_processor_count=108, warp_size=32,
    is_integrated=False, is_multi_gpu_board=False, gcnArchName="", regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, shared_memory_per_multiprocessor=164 * 2**10, L2_cache_size=40 * 2**20,
)  # fmt: skip
"""Properties of the GPU that a script sees, from NVIDIA's data sheet of the A100."""

DEFAULT_SEED = 67280421310721
"""The initial seed of torch's generator before any call of ``manual_seed``."""

DOING_NOTHING = (
    "init", "empty_cache", "ipc_collect", "set_per_process_memory_fraction", "reset_peak_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats", "set_sync_debug_mode", "check_error",
    "empty_host_cache",
)  # fmt: skip
"""Functions that change no value, which are replaced by functions that do nothing."""

RETURNING_ZERO = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached", "device_memory_used", "memory_usage", "utilization", "temperature", "power_draw", "clock_rate",
    "get_sync_debug_mode",
)  # fmt: skip
"""Functions that return a measurement, which are replaced by functions that return 0."""

REFUSED = {
    name: f"torch.cuda.{name}() records kernels of a GPU, and there is none: run the script without CUDA graphs"
    for name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle")
} | {
    name: f"torch.cuda.{name}() manages the memory of a GPU, and there is none"
    for name in ("MemPool", "CUDAPluggableAllocator", "change_current_allocator", "caching_allocator_alloc")
}


def set_device(device: Any) -> None:
    """Set the current GPU, which ``cuda`` without an index means; None and -1 change nothing."""
    gpu = None if device == -1 else simulated_gpu(device)
    if gpu is not None:
        GpuState.current_index = gpu.index


class CurrentDevice:
    """A stand-in for ``torch.cuda.device``: a context in which ``cuda`` means a given GPU."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.previous_index = GpuState.current_index
        set_device(self.device)

    def __exit__(self, *_: object) -> None:
        GpuState.current_index = self.previous_index


class DeviceOfTensor(CurrentDevice):
    """A stand-in for ``torch.cuda.device_of``: a context in which ``cuda`` means the GPU of a tensor."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(marked_device(obj))


def manual_seed(seed: int) -> None:
    """Seed torch's generator, in place of ``torch.cuda.manual_seed``, unless the script has seeded it already.

    The CPU and all GPUs share one generator here. If the script uses two different seeds, the record gets a note.
    """
    if is_called_by_torch(depth=1):  # torch.manual_seed seeds all devices
        return
    if torch.initial_seed() == DEFAULT_SEED:
        torch.default_generator.manual_seed(seed)
    elif torch.initial_seed() != seed:
        RECORDER.add_note(
            f"{user_line()}: torch.cuda.manual_seed({seed}) after torch.manual_seed({torch.initial_seed()}): one"
            " generator draws for the CPU and the GPU here, with the latter seed"
        )


class CudaStream(streams.VirtualStream):
    """A virtual stream in place of ``torch.cuda.Stream``, with the attributes that a script may read."""

    cuda_stream = 0  # torch's address of the stream; there is none
    priority = 0

    @property
    def device(self) -> torch.device:
        """Return the GPU on which the stream is, always the current one."""
        return torch.device("cuda", GpuState.current_index)

    def record_event(self, event: streams.VirtualEvent | None = None) -> streams.VirtualEvent:
        """Record an event in this stream, as ``torch.cuda.Stream.record_event`` does, and return the event."""
        return super().record_event(event or CudaEvent())


class CudaEvent(streams.VirtualEvent):
    """A virtual event in place of ``torch.cuda.Event``."""

    def elapsed_time(self, end: streams.VirtualEvent) -> float:
        """Return the milliseconds between two events during the recording, as a `ClockReading`."""
        if self.mark is None or end.mark is None:
            raise RuntimeError("elapsed_time() of an event that was not recorded")
        return ClockReading(super().elapsed_time(end))


def cuda_replacements() -> dict[str, Any]:
    """Return the replacements of functions of ``torch.cuda``, by name.

    Files of torch get the original results of the functions in `ORIGINAL_FOR_TORCH`.
    """
    return {
        "is_available": lambda: device_count() > 0,
        "is_initialized": lambda: True,
        "device_count": device_count,
        "current_device": lambda: GpuState.current_index,
        "set_device": set_device,
        "device": CurrentDevice,
        "device_of": DeviceOfTensor,
        "get_device_name": lambda *_, **__: GPU.name,
        "get_device_capability": lambda *_, **__: (GPU.major, GPU.minor),
        "get_device_properties": lambda *_, **__: GPU,
        "get_arch_list": lambda: ["sm_80"],
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "can_device_access_peer": lambda *_: True,
        "mem_get_info": lambda *_, **__: (GPU.total_memory, GPU.total_memory),
        "get_memory_info": lambda *_, **__: (GPU.total_memory, GPU.total_memory),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
        "list_gpu_processes": lambda *_, **__: "",
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed,
        "seed": torch.seed,
        "seed_all": torch.seed,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "default_generators": (torch.default_generator,) * device_count(),  # the CPU and all GPUs share one
        "is_current_stream_capturing": lambda: False,
        "cudart": lambda: SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0),
        "Stream": CudaStream,
        "Event": CudaEvent,
        "ExternalStream": CudaStream,
        "StreamContext": streams.StreamContext,
        "stream": streams.StreamContext,
        "set_stream": streams.set_stream,
        "current_stream": lambda *_: CudaStream(number=RECORDER.stream),
        "default_stream": lambda *_: CudaStream(number=0),
        "synchronize": streams.synchronize,
    }


ORIGINAL_FOR_TORCH = frozenset({"is_available", "is_initialized", "device_count", "current_device"})
"""Functions whose original results the files of torch get, so that torch takes the code paths of a CPU."""


def refusing(original: Any, sentence: str) -> Any:
    """Return a replacement for a function or class of torch that raises a `Refusal` with ``sentence`` when called.

    If ``original`` is a class, the replacement is a subclass, which works in type annotations and ``isinstance``.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise Refusal(sentence)

    if isinstance(original, type):
        return type(original.__name__, (original,), {"__new__": refuse})
    return refuse


def with_original_for_torch(replacement: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """Return a function that calls ``original`` for callers in files of torch, and ``replacement`` for all others."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_called_by_torch(depth=1):
            return original(*args, **kwargs)
        return replacement(*args, **kwargs)

    return call


def install_cuda_calls() -> None:
    """Replace the functions of ``torch.cuda`` and ``torch.accelerator`` by those of GPUs that do not exist."""
    replacements = cuda_replacements()
    for name in ORIGINAL_FOR_TORCH:
        replacements[name] = with_original_for_torch(replacements[name], getattr(torch.cuda, name))
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    for module in (torch.cuda, torch.accelerator):
        for name in DOING_NOTHING:
            setattr(module, name, lambda *_, **__: None)
        for name in RETURNING_ZERO:
            setattr(module, name, lambda *_, **__: 0)
    for name, sentence in REFUSED.items():
        setattr(torch.cuda, name, refusing(getattr(torch.cuda, name, None), sentence))
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, lambda *_, **__: 0)
    setattr(torch.cuda.nvtx, "range", lambda *_, **__: nullcontext())  # noqa: B010 - mypy knows another type
    for name in ("start", "stop", "init"):
        setattr(torch.cuda.profiler, name, lambda *_, **__: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
                 "reset_peak_memory_stats", "empty_cache", "mem_get_info", "memory_summary"):  # fmt: skip
        setattr(torch.cuda.memory, name, getattr(torch.cuda, name))
    torch.cuda.memory._record_memory_history = lambda *_, **__: None
    torch.cuda.memory._dump_snapshot = lambda *_, **__: None
    torch.cuda.nccl.version = lambda: (2, 27, 5)  # a version that scripts accept
    install_accelerator_calls()


def install_accelerator_calls() -> None:
    """Replace the functions of ``torch.accelerator`` by those that replace ``torch.cuda``."""
    replacements: dict[str, Callable[..., Any]] = {
        "is_available": lambda: device_count() > 0,
        "device_count": device_count,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: GpuState.current_index,
        "current_device_idx": lambda: GpuState.current_index,
    }
    for name, replacement in replacements.items():
        setattr(torch.accelerator, name, with_original_for_torch(replacement, getattr(torch.accelerator, name)))
    for name in ("set_device_index", "set_device_idx"):
        setattr(torch.accelerator, name, set_device)
    setattr(torch.accelerator, "device_index", CurrentDevice)  # noqa: B010 - mypy knows another type
    for name in ("synchronize", "current_stream", "set_stream", "memory_stats", "get_device_capability",
                 "get_memory_info"):  # fmt: skip
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, getattr(torch.cuda, name))
