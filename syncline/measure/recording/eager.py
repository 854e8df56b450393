"""Replacements for ``torch.compile``, ``spawn`` and ``elastic_launch``, which a trace runs differently or refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.launcher.api
import torch.multiprocessing

from syncline.measure.recording.child_ranks import ADVICE, install_child_ranks
from syncline.measure.recording.forks import reset_torch_generator
from syncline.measure.recording.recorder import RECORDER, Refusal


def install_eager() -> None:
    """Replace the functions of torch in this process."""
    torch.compile = uncompiled
    torch.nn.Module.compile = lambda module, *_, **__: uncompiled(module)  # type: ignore[method-assign]
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        module.spawn = module.start_processes = run_spawned  # type: ignore[attr-defined]
    setattr(torch.distributed.launcher.api, "launch_agent", refuse_launch)  # noqa: B010 - a type that mypy knows otherwise
    install_child_ranks()


def uncompiled(model: Any = None, **options: Any) -> Any:
    """Return the model uncompiled; compiled kernels have the same values up to rounding, and other costs."""
    RECORDER.remark("torch.compile: what it was given runs uncompiled, operation by operation")
    if model is None:
        return lambda module: uncompiled(module, **options)
    if isinstance(model, torch.nn.Module):
        object.__setattr__(model, "_orig_mod", model)
    return model


def refuse_launch(*_: Any, **__: Any) -> None:
    """Raise a refusal in place of ``elastic_launch``, which torchrun calls too."""
    raise Refusal(f"elastic_launch starts ranks; {ADVICE}")


def run_spawned(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> None:
    """Run the function of ``torch.multiprocessing.spawn`` in this rank, as the process with the rank's number.

    The function starts with a freshly seeded generator.

    Raises:
        Refusal: if the number of processes differs from the number of ranks, or for ``join=False``.
        SystemExit: in all ranks but the first one, which goes on alone as the parent process.
    """
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if nprocs != workers:
        raise Refusal(f"spawns {nprocs} processes, of {workers} ranks: use --workers {nprocs}")
    if not join:
        raise Refusal("spawns with join=False; a rank is the process that it would spawn: use join=True")
    reset_torch_generator()
    fn(rank, *args)
    if rank:
        raise SystemExit(0)
