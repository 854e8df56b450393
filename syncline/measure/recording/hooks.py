"""Functions of torch that a trace replaces in the process of a rank.

`install` lets process groups, steps of optimizers and losses be recorded. `replace_compile_and_spawn` replaces
``torch.compile``, ``spawn`` and ``elastic_launch``, which a trace runs differently or refuses. `install_cuda` lets
functions that take a device run on the CPU for a script that uses ``cuda``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.launcher.api
import torch.multiprocessing
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.optimizer import (
    _default_to_fused_or_foreach,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from syncline.measure.recording.cuda_devices import (
    CPU,
    CudaOnCpu,
    GpuState,
    device_count,
    install_cuda_calls,
    is_called_by_torch,
    marked_device,
    on_cpu,
    refusing,
    simulated_gpu,
)
from syncline.measure.recording.group import BACKEND_NAME, traced_group
from syncline.measure.recording.rank_processes import (
    ADVICE,
    end_trace_if_child,
    pass_rank_to_children,
    reset_torch_generator,
)
from syncline.measure.recording.record import Loss, Stepped
from syncline.measure.recording.recorder import RECORDER, Refusal
from syncline.measure.recording.streams import install_streams

CPU_BACKENDS = ("gloo", "undefined", "cpu:gloo", "cpu:gloo,cuda:nccl", BACKEND_NAME)
"""Backends that a script may request without a GPU; the trace uses its own backend instead."""

GPU_BACKENDS = ("nccl", "cuda:nccl")
"""Backends that need a GPU."""

NCCL_ARGUMENTS = ("device_id", "pg_options")
"""Arguments of groups that only NCCL supports, so that the backend of the trace does not get them."""


def install(make_group: Callable[..., Any] = traced_group, losses: bool = True) -> None:
    """Replace functions of torch so that the groups, steps and losses of this process are recorded.

    Args:
        make_group: the function by which torch creates the process groups of the script.
        losses: whether to record losses; fake tensors have none.
    """
    install_streams()
    dist.Backend.register_backend(BACKEND_NAME, make_group, extended_api=True, devices=["cpu"])
    barrier = distributed_c10d.monitored_barrier
    replacements = [(barrier, refusing(barrier, "monitored_barrier() asks who is late; a record cannot know that"))]
    for name, replacement in (
        ("init_process_group", init_process_group),
        ("new_group", new_group),
        ("get_backend", get_backend),
    ):
        original = getattr(distributed_c10d, name)
        replacements.append((original, wrap(original, replacement)))
    replace_everywhere(*replacements)
    depth = 0  # an optimizer may step other optimizers; only the outermost step counts

    def begin_step(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def end_step(*_: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            RECORDER.record_event(Stepped())

    register_optimizer_step_pre_hook(begin_step)
    register_optimizer_step_post_hook(end_step)
    if losses:
        torch.autograd.backward = wrap(torch.autograd.backward, record_loss)


def replace_everywhere(*replacements: tuple[Any, Any]) -> None:
    """Replace functions in all modules of torch, also where they have imported them by name.

    Args:
        replacements: pairs of the old function and the new one.
    """
    new_by_id = {id(old): new for old, new in replacements}
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch"):
            for name, value in list(vars(module).items()):
                if id(value) in new_by_id:
                    setattr(module, name, new_by_id[id(value)])


REQUESTED_BACKENDS: dict[str, str] = {}
"""The backend that the script requested for each group, by name."""


def check_backend(backend: Any) -> None:
    """Check that the trace supports the backend that a script requests."""
    name = "undefined" if backend is None else str(backend).lower()
    if name in GPU_BACKENDS and not device_count():
        raise Refusal(f"backend: got {name!r}; expected 'gloo' or none, as the script sees no GPU")
    if name not in (*CPU_BACKENDS, *GPU_BACKENDS):
        raise Refusal(f"backend: got {str(backend)!r}; a traced script may ask for 'gloo' or 'nccl', or for none")


def wrap(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``replacement(original, *args, **kwargs)``, with the name of ``original``."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return wrapper


# Each of the following functions runs in place of a function of torch, which is its first argument.


def init_process_group(original: Callable[..., Any], backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make the default group with the backend of the trace."""
    end_trace_if_child()  # a process that a rank has started must not join a group
    check_backend(backend)
    for name in NCCL_ARGUMENTS:  # the backend of the trace does not know them
        kwargs.pop(name, None)
    RECORDER.num_worlds += 1
    REQUESTED_BACKENDS["default"] = str(backend or "undefined").lower()
    with RECORDER.silence():
        return original(BACKEND_NAME, *args, **kwargs)


def new_group(
    original: Callable[..., Any], ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Make a group with the backend of the trace, whichever backend the script requests."""
    check_backend(backend)
    for name in NCCL_ARGUMENTS:  # the backend of the trace does not know them
        kwargs.pop(name, None)
    with RECORDER.silence():
        group = original(ranks, timeout, None, *args, **kwargs)  # None: the backend of the default group
    if isinstance(group, dist.ProcessGroup) and backend is not None:
        REQUESTED_BACKENDS[group.group_name] = str(backend).lower()
    return group


def get_backend(original: Callable[..., Any], group: Any = None) -> Any:
    """Return the backend that the script requested for a group; return the backend of the trace to torch itself."""
    backend = original(group)
    if backend != BACKEND_NAME or is_called_by_torch(depth=2):  # depth 1 is the wrapper that `wrap` returns
        return backend
    requested = REQUESTED_BACKENDS["default"]
    if group is not None:
        requested = REQUESTED_BACKENDS.get(group.group_name, requested)
    is_nccl = requested == "undefined" and device_count()
    return "nccl" if is_nccl else requested.rpartition(":")[2]  # "cpu:gloo,cuda:nccl" counts as NCCL


def record_loss(original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward pass, and record its loss if the loss is one number."""
    loss = tensors if isinstance(tensors, torch.Tensor) else tensors[0]  # torch allows a sequence of tensors
    if loss.numel() == 1:
        with RECORDER.silence():
            value = float(getattr(loss, "unscaled_loss", loss).detach())  # see `scale_loss`
        RECORDER.record_event(Loss(value))
    return original(tensors, *args, **kwargs)


def replace_compile_and_spawn() -> None:
    """Replace ``torch.compile`` and ``spawn`` in this process, and refuse ``elastic_launch``."""
    torch.compile = uncompiled
    torch.nn.Module.compile = lambda module, *_, **__: uncompiled(module)  # type: ignore[method-assign]
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        module.spawn = module.start_processes = run_spawned  # type: ignore[attr-defined]
    # A script starts ranks itself by ``elastic_launch`` or by torchrun; both call this function.
    torch.distributed.launcher.api.launch_agent = refusing(None, f"elastic_launch starts ranks; {ADVICE}")
    pass_rank_to_children()


def uncompiled(model: Any = None, **options: Any) -> Any:
    """Return a model uncompiled, in place of ``torch.compile``, and add a note to the record."""
    RECORDER.add_note("torch.compile: the function runs uncompiled, operation by operation")
    if model is None:  # called as a decorator with options
        return lambda module: uncompiled(module, **options)
    if isinstance(model, torch.nn.Module):
        object.__setattr__(model, "_orig_mod", model)  # scripts find the uncompiled model under this name
    return model


def run_spawned(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> None:
    """Run the function of ``torch.multiprocessing.spawn`` in this rank, as the process with the rank's number.

    Afterwards the first rank goes on alone as the parent process; the others exit.
    """
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if nprocs != workers:
        raise Refusal(f"spawns {nprocs} processes, of {workers} ranks: use --workers {nprocs}")
    if not join:
        raise Refusal("spawns with join=False; a rank is the process that it would spawn: use join=True")
    reset_torch_generator()
    fn(rank, *args)
    if rank > 0:
        raise SystemExit(0)


def install_cuda() -> AbstractContextManager[object]:
    """Let the script see GPUs, if `device_count` is not 0, and return the context in which it must run."""
    if not device_count():
        return nullcontext()
    dist.is_nccl_available = lambda: True
    install_cuda_calls()
    scaler = torch.amp.grad_scaler.GradScaler
    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch._C._nn, "_parse_to", parse_to),
        (torch.nn.parallel.DistributedDataParallel, "__init__", init_ddp),
        (torch.nn.parallel.DistributedDataParallel, "register_comm_hook", register_comm_hook),
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
    for owner, name, replacement in replacements:
        setattr(owner, name, wrap(getattr(owner, name), replacement))
    replace_everywhere((_default_to_fused_or_foreach, wrap(_default_to_fused_or_foreach, default_to_foreach)))
    torch.get_autocast_gpu_dtype = torch.get_autocast_cpu_dtype
    torch.Generator = Generator  # type: ignore[misc]
    return CudaOnCpu()


# Each of the following functions runs in place of a function of torch, which is its first argument.


def parse_to(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Parse the arguments of ``Module.to``; a plain number is the index of a GPU."""
    if args and isinstance(args[0], int) and not isinstance(args[0], bool):  # in Python a bool is an int too
        args = (torch.device("cuda", args[0]), *args[1:])
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = torch.device("cuda", kwargs["device"])
    return original(*args, **kwargs)


def init_ddp(
    original: Callable[..., Any], self: Any, module: Any, device_ids: Any = None, output_device: Any = None,
    *args: Any, **kwargs: Any,
) -> None:  # fmt: skip
    """Make a ``DistributedDataParallel``, without ``device_ids`` if the script has the module on a GPU.

    The module is on the CPU in fact, where torch allows neither ``device_ids`` nor ``output_device``.
    """
    if any(marked_device(parameter) is not None for parameter in module.parameters()):
        device_ids = output_device = None
    original(self, module, device_ids, output_device, *args, **kwargs)


def register_comm_hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Register a communication hook of DDP with a version of CUDA, without which torch refuses hooks that send bf16."""
    version, torch.version.cuda = torch.version.cuda, torch.version.cuda or "12.6"
    try:
        original(*args, **kwargs)
    finally:
        torch.version.cuda = version


def init_mesh(original: Callable[..., Any], self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
    """Make a ``DeviceMesh``; the device type ``"cuda"`` becomes ``"cpu"``."""
    original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)
    if device_type == "cuda":
        GpuState.script_uses_gpu = True


def init_loader(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    """Make a ``DataLoader`` without ``pin_memory``, because there is no GPU."""
    if len(args) > 7:  # pin_memory is the eighth argument
        args = (*args[:7], False, *args[8:])
    original(self, *args, **{name: value for name, value in kwargs.items() if not name.startswith("pin_memory")})


def init_autocast(
    original: Callable[..., Any], self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any
) -> None:
    """Make an ``autocast``; ``"cuda"`` runs on the CPU with the same type, float16 by default."""
    if device_type == "cuda":
        GpuState.script_uses_gpu = True
        device_type, dtype = "cpu", dtype or torch.float16
    original(self, device_type, dtype, *args, **kwargs)


def init_scaler(original: Callable[..., Any], self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
    """Make a ``GradScaler``, of the CPU for ``"cuda"``."""
    original(self, "cpu" if device == "cuda" else device, *args, **kwargs)


def scale_loss(original: Callable[..., Any], self: Any, outputs: Any) -> Any:
    """Scale a loss as ``GradScaler.scale`` does, and attach the unscaled loss, which `record_loss` reads."""
    scaled_loss = original(self, outputs)
    if isinstance(scaled_loss, torch.Tensor):
        scaled_loss.unscaled_loss = outputs.detach()  # type: ignore[attr-defined]
    return scaled_loss


def set_default_device(original: Callable[..., Any], device: Any) -> None:
    """Set torch's default device to the CPU for a GPU, and keep the GPU for the script."""
    original(on_cpu(device))
    GpuState.default_gpu = None if device is None else simulated_gpu(device)


def get_default_device(original: Callable[..., Any]) -> Any:
    """Return the script's default GPU, or torch's default device if there is none or torch itself calls."""
    if GpuState.default_gpu is None or is_called_by_torch(depth=2):
        return original()
    return GpuState.default_gpu


def load(original: Callable[..., Any], f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Load tensors to the CPU, and mark them with the GPU that the script names.

    `CudaOnCpu` marks new tensors with the default GPU, which therefore is the named GPU for the time of loading.
    """
    previous_default = GpuState.default_gpu
    if isinstance(map_location, dict):  # it maps devices of the file to others, all of which are the CPU here
        map_location = CPU
    elif map_location is not None and not callable(map_location):
        GpuState.default_gpu = simulated_gpu(map_location) or previous_default
        map_location = on_cpu(map_location)
    try:
        return original(f, map_location, *args, **kwargs)
    finally:
        GpuState.default_gpu = previous_default


def default_to_foreach(
    original: Callable[..., tuple[bool, bool]], params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return whether an optimizer updates by fused kernels, and whether by kernels for many tensors.

    On a GPU torch's default is the latter, on a CPU it is a loop over the parameters.
    """
    fused, foreach = original(params, differentiable, use_fused)
    return fused, foreach or (GpuState.script_uses_gpu and not fused and not differentiable)


def with_cpu_type(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with ``"cpu"`` for the device type ``"cuda"`` in the first argument.

    Without arguments, torch means CUDA. If a script that uses CUDA makes such a call, the function gets ``"cpu"``.
    """
    if not args and not kwargs and GpuState.script_uses_gpu and not is_called_by_torch(depth=2):
        args = ("cpu",)
    elif args and args[0] == "cuda":
        args = ("cpu", *args[1:])
    return original(*args, **kwargs)


def with_cpu_keyword(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with ``"cpu"`` for ``"cuda"`` in the keyword argument ``device_type``."""
    if kwargs.get("device_type") == "cuda":
        kwargs["device_type"] = "cpu"
    return original(*args, **kwargs)


class _AnyGenerator(type):
    """A metaclass by which every generator of torch counts as an instance of `Generator` below."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(metaclass=_AnyGenerator):
    """A stand-in for ``torch.Generator`` that accepts ``"cuda"`` and creates generators of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Return a new generator of the CPU."""
        return torch._C.Generator(device=on_cpu(device))
