"""Replacements for ``torch.cuda`` and ``torch.accelerator`` in a script that is traced on a machine without a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from syncline.measure.recording import streams
from syncline.measure.recording.clocks import ClockReading
from syncline.measure.recording.cuda_devices import Current, cuda_of, device_count, from_torch, marked_device
from syncline.measure.recording.recorder import RECORDER, Refusal, user_line

GPU = SimpleNamespace(
    name="NVIDIA A100-SXM4-80GB", major=8, minor=0, total_memory=80 * 2**30, multi_processor_count=108, warp_size=32,
    is_integrated=False, is_multi_gpu_board=False, gcnArchName="", regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, shared_memory_per_multiprocessor=164 * 2**10, L2_cache_size=40 * 2**20,
)  # fmt: skip
"""Properties of the GPU that a script sees, from NVIDIA's data sheet of the A100."""

UNSEEDED = 67280421310721
"""The initial seed of torch's generator before any call of ``manual_seed``."""

NOTHING = (
    "init", "empty_cache", "ipc_collect", "set_per_process_memory_fraction", "reset_peak_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats", "set_sync_debug_mode", "check_error",
    "empty_host_cache",
)  # fmt: skip
"""Functions that change no value, which are replaced by functions that do nothing."""

ZERO = (
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
    """Set the current GPU, which ``cuda`` without an index means."""
    if device is None or device == -1:
        return
    if (meant := cuda_of(device)) is not None:
        Current.index = meant.index


class CurrentDevice:
    """A stand-in for ``torch.cuda.device``: a context in which ``cuda`` means a given GPU."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.before = Current.index
        set_device(self.device)

    def __exit__(self, *_: object) -> None:
        Current.index = self.before


class DeviceOfTensor(CurrentDevice):
    """A stand-in for ``torch.cuda.device_of``: a context in which ``cuda`` means the GPU of a tensor."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(marked_device(obj))


def manual_seed(seed: int) -> None:
    """Seed the generator, unless the script has seeded it already.

    The CPU and all GPUs share one generator here. If the script uses two different seeds, the record gets a note.
    """
    if from_torch(1):  # torch.manual_seed seeds all devices
        return
    if torch.initial_seed() == UNSEEDED:
        torch.default_generator.manual_seed(seed)
    elif torch.initial_seed() != seed:
        RECORDER.remark(
            f"{user_line()}: torch.cuda.manual_seed({seed}) after torch.manual_seed({torch.initial_seed()}): one"
            " generator draws for the CPU and the GPU here, with the latter seed"
        )


class CudaStream(streams.VirtualStream):
    """A virtual stream in place of ``torch.cuda.Stream``."""

    cuda_stream = 0
    priority = 0

    @property
    def device(self) -> torch.device:
        """Return the current GPU."""
        return torch.device("cuda", Current.index)

    def record_event(self, event: streams.VirtualEvent | None = None) -> streams.VirtualEvent:
        """Record an event, which can measure time, in this stream and return it."""
        return super().record_event(event or CudaEvent())


class CudaEvent(streams.VirtualEvent):
    """A virtual event in place of ``torch.cuda.Event``."""

    def elapsed_time(self, end: streams.VirtualEvent) -> float:
        """Return the milliseconds between two events during the recording.

        The script may print the result but may not branch on it.
        """
        if self.mark is None or end.mark is None:
            raise RuntimeError("elapsed_time() of an event that was not recorded")
        return ClockReading(super().elapsed_time(end))


def cuda_replacements() -> dict[str, Any]:
    """Return the replacements of functions of ``torch.cuda``, by name.

    Files of torch get the original results of the functions in `TRUTHS`.
    """
    return {
        "is_available": lambda: device_count() > 0,
        "is_initialized": lambda: True,
        "device_count": device_count,
        "current_device": lambda: Current.index,
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
        "default_generators": (torch.default_generator,) * device_count(),
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


TRUTHS = frozenset({"is_available", "is_initialized", "device_count", "current_device"})
"""Functions whose original results the files of torch get, so that torch takes the code paths of a CPU."""


def refusing(original: Any, sentence: str) -> Any:
    """Return a replacement for a function or class of torch that refuses calls; a class still works as a type."""

    def refused(*_: Any, **__: Any) -> Any:
        raise Refusal(sentence)

    return type(original.__name__, (original,), {"__new__": refused}) if isinstance(original, type) else refused


def original_for_torch(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``original`` for callers in files of torch, and ``replacement`` for all others."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return (original if from_torch(1) else replacement)(*args, **kwargs)

    return call


def install_cuda_calls() -> None:
    """Replace the functions of ``torch.cuda`` and ``torch.accelerator``."""
    for name, replacement in cuda_replacements().items():
        visible = original_for_torch(replacement, getattr(torch.cuda, name)) if name in TRUTHS else replacement
        setattr(torch.cuda, name, visible)
    for module in (torch.cuda, torch.accelerator):
        for name in NOTHING:
            setattr(module, name, lambda *_, **__: None)
        for name in ZERO:
            setattr(module, name, lambda *_, **__: 0)
    for name, sentence in REFUSED.items():
        setattr(torch.cuda, name, refusing(getattr(torch.cuda, name, None), sentence))
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, lambda *_, **__: 0)
    setattr(torch.cuda.nvtx, "range", lambda *_, **__: nullcontext())  # noqa: B010 - a type that mypy knows otherwise
    for name in ("start", "stop", "init"):
        setattr(torch.cuda.profiler, name, lambda *_, **__: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
                 "reset_peak_memory_stats", "empty_cache", "mem_get_info", "memory_summary"):  # fmt: skip
        setattr(torch.cuda.memory, name, getattr(torch.cuda, name))
    torch.cuda.memory._record_memory_history = lambda *_, **__: None
    torch.cuda.memory._dump_snapshot = lambda *_, **__: None
    torch.cuda.nccl.version = lambda: (2, 27, 5)
    accelerator()


def accelerator() -> None:
    """Replace the functions of ``torch.accelerator`` by those of ``torch.cuda``."""
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: device_count() > 0,
        "device_count": device_count,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: Current.index,
        "current_device_idx": lambda: Current.index,
    }
    for name, answer in answers.items():
        setattr(torch.accelerator, name, original_for_torch(answer, getattr(torch.accelerator, name)))
    for name in ("set_device_index", "set_device_idx"):
        setattr(torch.accelerator, name, set_device)
    setattr(torch.accelerator, "device_index", CurrentDevice)  # noqa: B010 - a type that mypy knows otherwise
    for name in ("synchronize", "current_stream", "set_stream", "memory_stats", "get_device_capability",
                 "get_memory_info"):  # fmt: skip
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, getattr(torch.cuda, name))
