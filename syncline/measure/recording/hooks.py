"""Hooks by which a trace records a script: its groups, the steps of its optimizers, its losses."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from syncline.measure.recording.child_ranks import end_if_child
from syncline.measure.recording.cuda_devices import device_count, from_torch
from syncline.measure.recording.group import NAME, traced_group
from syncline.measure.recording.record import Lost, Stepped
from syncline.measure.recording.recorder import RECORDER, Refusal
from syncline.measure.recording.streams import install_streams

ON_CPU = ("gloo", "undefined", "cpu:gloo", "cpu:gloo,cuda:nccl", NAME)
"""Backends that a script may request without a GPU; the trace uses its own backend instead."""

ON_GPU = ("nccl", "cuda:nccl")
"""Backends that need a GPU."""

FOR_NCCL = ("device_id", "pg_options")
"""Arguments that gloo does not support."""


def install(make_group: Callable[..., Any] = traced_group, losses: bool = True) -> None:
    """Install the hooks in this process.

    Args:
        make_group: the function by which torch creates the process groups of the script.
        losses: whether to record losses; without values there are none.
    """
    install_streams()
    dist.Backend.register_backend(NAME, make_group, extended_api=True, devices=["cpu"])
    for name, call in (
        ("init_process_group", init_process_group),
        ("new_group", new_group),
        ("get_backend", get_backend),
        ("monitored_barrier", refuse_monitored_barrier),
    ):
        original = getattr(distributed_c10d, name)
        replace_everywhere(original, wrapping(original, call))
    depth = 0  # an optimizer may step other optimizers; only the outermost step counts

    def begins(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def ends(*_: Any) -> None:
        nonlocal depth
        depth -= 1
        if not depth:
            RECORDER.note(Stepped())

    register_optimizer_step_pre_hook(begins)
    register_optimizer_step_post_hook(ends)
    if losses:
        torch.autograd.backward = wrapping(torch.autograd.backward, record_loss)


def replace_everywhere(old: Any, new: Any) -> None:
    """Replace a function in all modules of torch, also where they have imported it by name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch"):
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)


ASKED: dict[str, str] = {}
"""The backend that the script requested for each group, by name."""


def check_backend(backend: Any) -> None:
    """Check that the trace supports the backend that a script requests."""
    name = "undefined" if backend is None else str(backend).lower()
    if name in ON_GPU and not device_count():
        raise Refusal(f"backend: got {name!r}; expected 'gloo' or none, as the script sees no GPU")
    if name not in (*ON_CPU, *ON_GPU):
        raise Refusal(f"backend: got {str(backend)!r}; a traced script may ask for 'gloo' or 'nccl', or for none")


def wrapping(original: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes the original and its own arguments to ``call``."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    return wrapper


# Each of the following functions runs in place of a function of torch, which is its first argument.


def init_process_group(original: Callable[..., Any], backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make the default group with the backend of the trace."""
    end_if_child()
    check_backend(backend)
    for name in FOR_NCCL:
        kwargs.pop(name, None)
    RECORDER.worlds += 1
    ASKED["default"] = str(backend or "undefined").lower()
    with RECORDER.silence():
        return original(NAME, *args, **kwargs)


def new_group(
    original: Callable[..., Any], ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Make a group with the backend of the trace."""
    check_backend(backend)
    for name in FOR_NCCL:
        kwargs.pop(name, None)
    with RECORDER.silence():
        group = original(ranks, timeout, None, *args, **kwargs)
    if isinstance(group, dist.ProcessGroup) and backend is not None:
        ASKED[group.group_name] = str(backend).lower()
    return group


def get_backend(original: Callable[..., Any], group: Any = None) -> Any:
    """Return the backend that the script requested for a group; torch itself gets that of the trace."""
    backend = original(group)
    if backend != NAME or from_torch(2):
        return backend
    requested = ASKED["default"] if group is None else ASKED.get(group.group_name, ASKED["default"])
    return "nccl" if requested == "undefined" and device_count() else requested.rpartition(":")[2]


def refuse_monitored_barrier(*_: Any, **__: Any) -> None:
    """Refuse ``monitored_barrier``, because a record cannot know which rank is late."""
    raise Refusal("monitored_barrier() asks who is late; a record cannot know that")


def record_loss(original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward pass, and record its loss if the loss is one number."""
    loss = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
    if loss.numel() == 1:
        with RECORDER.silence():
            value = float(getattr(loss, "traced_loss", loss).detach())  # the loss before a GradScaler scaled it
        RECORDER.note(Lost(value))
    return original(tensors, *args, **kwargs)
