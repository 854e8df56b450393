"""What torch offers beside the usual and a trace does otherwise, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.launcher.api
import torch.multiprocessing

from syncline.measure.recording.child_ranks import ADVICE, install_child_ranks
from syncline.measure.recording.forks import draw_anew
from syncline.measure.recording.recorder import RECORDER, Refusal


def install_eager() -> None:
    """In this process, from now on."""
    torch.compile = uncompiled
    torch.nn.Module.compile = compile_module  # type: ignore[method-assign]
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        module.spawn = module.start_processes = spawned  # type: ignore[attr-defined]
    setattr(torch.distributed.launcher.api, "launch_agent", launching)  # noqa: B010 - a type that mypy knows otherwise
    install_child_ranks()


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


def launching(*_: Any, **__: Any) -> None:
    """Refuse ``elastic_launch``, and torchrun itself."""
    raise Refusal(f"elastic_launch starts ranks; {ADVICE}")


def spawned(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> None:
    """``torch.multiprocessing.spawn``: this rank becomes the process of its number, from a fresh generator.

    Raises:
        Refusal: another number of processes than ranks, or ``join=False``.
        SystemExit: in all ranks but the first, which goes on alone as the process that spawned.
    """
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if nprocs != workers:
        raise Refusal(f"spawns {nprocs} processes, of {workers} ranks: use --workers {nprocs}")
    if not join:
        raise Refusal("spawns with join=False; a rank is the process that it would spawn: use join=True")
    draw_anew()
    fn(rank, *args)
    if rank:
        raise SystemExit(0)
