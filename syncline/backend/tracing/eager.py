"""What torch offers beside the usual and a trace does otherwise, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from syncline.backend.tracing.forks import draw_anew
from syncline.backend.tracing.recorder import RECORDER, site


def install_eager() -> None:
    """In this process, from now on."""
    torch.compile = uncompiled
    torch.nn.Module.compile = compile_module  # type: ignore[method-assign]
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        module.spawn = spawned  # type: ignore[attr-defined]
    dist.is_nccl_available = lambda: True


def uncompiled(model: Any = None, **options: Any) -> Any:
    """``torch.compile`` as the identity: its kernels have the same values up to rounding, and other costs."""
    RECORDER.remark("torch.compile: what it was given runs uncompiled, operation by operation")
    if model is None:
        return lambda given: uncompiled(given, **options)
    if isinstance(model, torch.nn.Module):
        object.__setattr__(model, "_orig_mod", model)
    return model


def compile_module(self: torch.nn.Module, *_: Any, **__: Any) -> None:
    """``Module.compile`` as nothing."""
    uncompiled(self)


def spawned(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    """``torch.multiprocessing.spawn``: this rank becomes the process of its number, from a fresh generator.

    Raises:
        SystemExit: in all ranks but the first, which goes on alone as the process that spawned.
    """
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if nprocs != workers:
        raise NotImplementedError(f"{site()}: spawns {nprocs} processes, of {workers} ranks: use --workers {nprocs}")
    draw_anew()
    fn(rank, *args)
    if rank:
        raise SystemExit(0)
