"""The gradients of many workers of an ordinary module, each with its own parameters and its own batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from syncline.comm import is_one_copy
from syncline.errors import SpecError, one_of
from syncline.problems.captured import CudaGraphs, Loss, RecordedPass, batched, captured_by, compiled_by

# Measured on one CPU core: a row of the loop costs about 0.11 ms beyond its arithmetic, a vmap about 0.6 ms in all.
# So vmap wins when many rows have little arithmetic each, while a loop keeps the activations of larger rows in cache.
SMALL_PARAMETERS = 2**16
MANY_ROWS = 8

How = Literal["auto", "loop", "vmap", "compiled", "graph"]


def gradients_by(
    execution: How, loss: Loss, device: torch.device | str
) -> Callable[[Mapping[str, torch.nn.Parameter], Tensor, Tensor], Tensor]:
    """Return the function that computes gradients from parameters, inputs and targets in each step.

    Beside its ways there are ``compiled``, vmap's pass as torch's compiler has it, and ``graph``, that pass as a CUDA
    graph; both are recorded in the first step.

    Raises:
        SpecError: ``graph`` on what is no CUDA device.
    """
    if execution == "compiled":
        return RecordedPass(batched(loss), compiled_by("inductor"))
    if execution == "graph":
        if torch.device(device).type != "cuda":
            raise SpecError("execution", execution, "eager or compiled, as only a CUDA device keeps graphs")
        return RecordedPass(batched(loss), captured_by(CudaGraphs()), in_place=True)
    return partial(per_worker_gradients, loss, execution=execution)


def per_worker_gradients(
    loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor, execution: How = "auto"
) -> Tensor:
    """Return the losses of all rows; the gradient of each row's own loss goes to ``.grad``.

    ``l_r = loss({name: p[r]}, inputs[r], targets[r])`` and ``p.grad[r] = d l_r / d p[r]``.

    Args:
        loss: function that returns the loss of one worker for its weights, inputs and targets.
        params: stacked parameters, each ``(R, *s)``; their ``.grad`` becomes a new tensor.
        inputs: ``(R, batch, ...)``.
        targets: ``(R, batch, ...)``.
        execution: ``loop`` goes through the rows one by one: kernels of ordinary shape, fused attention, the
            activations of one row at a time. ``vmap`` computes all rows in one batched pass: few kernels, the
            activations of all rows. ``auto`` takes vmap on CUDA, and elsewhere for 8 or more rows of fewer than 2^16
            parameters; else the loop.

    Returns:
        The losses ``(R,)``.

    Raises:
        SpecError: ``execution`` is none of these.
    """
    if execution not in _WAYS:
        raise SpecError("problem.how", execution, one_of(_WAYS, execution))
    return _WAYS[execution](loss, params, inputs, targets)


def _auto(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    rows = len(inputs)
    small = sum(param.numel() for param in params.values()) < SMALL_PARAMETERS * rows
    compute = _vmap if inputs.is_cuda or (small and rows >= MANY_ROWS) else _loop
    return compute(loss, params, inputs, targets)


def _loop(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    losses, gradients = [], []
    alike = all(is_one_copy(param) for param in params.values())
    leaves: dict[str, Tensor] = {}
    for row, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        if not (leaves and alike):
            leaves = {name: param.detach()[row].requires_grad_() for name, param in params.items()}
        value = loss(leaves, x, y)
        gradients.append(torch.autograd.grad(value, list(leaves.values())))
        losses.append(value.detach())
    for param, rows in zip(params.values(), zip(*gradients, strict=True), strict=True):
        param.grad = torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)
    return torch.stack(losses)


def _vmap(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    values = {name: param.detach() for name, param in params.items()}
    gradients, losses = batched(loss)(values, inputs, targets)
    for name, param in params.items():
        param.grad = gradients[name]
    return losses


_WAYS = {"auto": _auto, "loop": _loop, "vmap": _vmap}
