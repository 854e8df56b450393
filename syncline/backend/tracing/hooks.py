"""Where a script is listened to: its groups, its optimizers' steps, its losses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from syncline.backend.tracing.group import NAME, traced_group
from syncline.backend.tracing.record import Lost, Stepped
from syncline.backend.tracing.recorder import RECORDER

KNOWN = ("gloo", "nccl", "undefined", "cpu:gloo", "cuda:nccl", "cpu:gloo,cuda:nccl", NAME)
"""Backends that a script may ask for: it gets ours."""


def install() -> None:
    """Listen to everything in this process, from now on."""
    dist.Backend.register_backend(NAME, traced_group, extended_api=True, devices=["cpu"])
    for module, name, make in (
        (distributed_c10d, "init_process_group", starting),
        (distributed_c10d, "new_group", grouping),
    ):
        made = make(getattr(module, name))
        setattr(module, name, made)
        setattr(dist, name, made)
    depth = 0  # an optimizer may step others; the outermost one's is the step

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
    torch.autograd.backward = noting_losses(torch.autograd.backward)


def check_backend(backend: Any) -> None:
    """Refuse a backend of which nothing is known here."""
    if backend is not None and str(backend).lower() not in KNOWN:
        raise ValueError(f"backend: got {str(backend)!r}; a traced script may ask for 'gloo' or 'nccl', or for none")


def starting(init: Callable[..., Any]) -> Callable[..., Any]:
    """``init_process_group`` with our backend."""

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        check_backend(backend)
        kwargs.pop("device_id", None)
        with RECORDER.silence():
            return init(NAME, *args, **kwargs)

    return init_process_group


def grouping(new: Callable[..., Any]) -> Callable[..., Any]:
    """``new_group`` with our backend."""

    @functools.wraps(new)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        check_backend(backend)
        kwargs.pop("device_id", None)
        with RECORDER.silence():
            return new(ranks, timeout, None, *args, **kwargs)

    return new_group


def noting_losses(backward: Callable[..., Any]) -> Callable[..., Any]:
    """``autograd.backward`` that notes a loss of one number."""

    @functools.wraps(backward)
    def noted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        loss = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
        if loss.numel() == 1:
            with RECORDER.silence():
                value = float(loss.detach())
            RECORDER.note(Lost(value))
        return backward(tensors, *args, **kwargs)

    return noted
