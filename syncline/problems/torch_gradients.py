"""The gradients of all rows of one module: row by row, or in one batched pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline.problems.base import Rows
from syncline.problems.torch_batches import BatchLoss, objective
from syncline.problems.torch_modules import TensorHolders
from syncline.problems.torch_shards import Shards, replica_and_worker
from syncline.randomness import seed_all


@dataclass(frozen=True)
class Stacked:
    """The tensors of all rows.

    Attributes:
        params: trainable parameters by name, ``(R, *s)``.
        frozen: other parameters by name, one for each replica, or one for all.
        buffers: buffers by name, ``(R, *s)``.
    """

    params: Mapping[str, torch.nn.Parameter]
    frozen: Mapping[str, Sequence[Tensor]]
    buffers: Mapping[str, Tensor]

    def of_replica(self, replica: int) -> dict[str, Tensor]:
        """Return the frozen tensors of a replica."""
        return {name: values[replica if len(values) > 1 else 0] for name, values in self.frozen.items()}


def by_loop(
    places: TensorHolders,
    tensors: Stacked,
    shards: Shards,
    rows: Rows,
    step: int,
    loss: BatchLoss | None,
    device: torch.device,
) -> Tensor:
    """Return the losses ``(R,)`` of a step, row by row; ``.grad`` and buffers are new ones of all rows.

    The module is called as in any training loop, its own parameters being those of the row. Draws are on the stream
    of the seed, the worker and the step.
    """
    losses: list[Tensor] = []
    gradients_of: dict[str, list[Tensor | None]] = {name: [] for name in tensors.params}
    for row in range(len(rows)):
        batches = shards.of_row(row, step)
        buffers = put_row(places, tensors, rows, row)
        seed, worker = replica_and_worker(rows, row)
        seed_all(device, seed, "module", worker, step)
        total: Tensor | None = None
        with torch.enable_grad():
            for batch in batches:
                value = objective(places.module, batch, loss) / len(batches)
                value.backward()
                total = value.detach() if total is None else total + value.detach()
        assert total is not None
        losses.append(total)
        places.keep_buffers(buffers)
        for name, gradient in places.gradients().items():
            gradients_of[name].append(gradient)
    for name, param in tensors.params.items():
        of_rows = [torch.zeros_like(param[0]) if g is None else g for g in gradients_of[name]]
        param.grad = torch.stack(of_rows) if len(of_rows) > 1 else of_rows[0].unsqueeze(0)
    return torch.stack(losses).to(next(iter(tensors.params.values())).dtype)


def put_row(places: TensorHolders, tensors: Stacked, rows: Rows, row: int) -> dict[str, Tensor]:
    """Let the module work with the tensors of a row; returns its buffers."""
    frozen = tensors.of_replica(row // len(rows.workers))
    places.put({name: param.detach()[row] for name, param in tensors.params.items()} | frozen)
    buffers = {name: buffer[row] for name, buffer in tensors.buffers.items()}
    places.put_buffers(buffers)
    return buffers


def by_vmap(
    places: TensorHolders, tensors: Stacked, batches: Sequence[Any], rows: Rows, loss: BatchLoss | None
) -> Tensor:
    """Return the losses ``(R,)`` of micro-batches ``(R, batch, ...)`` in one pass; renew ``.grad`` and buffers.

    Raises:
        RuntimeError: torch cannot batch the module; many messages are possible.
    """
    params = {name: param.detach() for name, param in tensors.params.items()}
    frozen = {name: _over_rows(values, rows) for name, values in tensors.frozen.items()}

    def of_row(
        params: dict[str, Tensor], frozen: dict[str, Tensor], buffers: dict[str, Tensor], batch: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        tensors_of = params | frozen | buffers
        value = objective(lambda *args, **named: functional_call(places.module, tensors_of, args, named), batch, loss)
        return value, {name: tensors_of[name] for name in buffers}

    batched = vmap(grad_and_value(of_row, has_aux=True))
    buffers = {name: buffer.clone() for name, buffer in tensors.buffers.items()}
    total, sums = torch.zeros(()), {name: torch.zeros(()) for name in params}
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no batching rule
        for number, batch in enumerate(batches):
            gradients, (losses, buffers) = batched(params, frozen, buffers, batch)
            total = losses if number == 0 else total + losses
            sums = gradients if number == 0 else {name: sums[name] + gradients[name] for name in sums}
    for name, param in tensors.params.items():
        param.grad = sums[name] if len(batches) == 1 else sums[name] / len(batches)
    for name, buffer in tensors.buffers.items():
        buffer.copy_(buffers[name])
    return total / len(batches)


def _over_rows(values: Sequence[Tensor], rows: Rows) -> Tensor:
    """Return frozen tensors expanded over the rows, ``(R, *s)``."""
    if len(values) == 1:
        return values[0].expand(len(rows), *values[0].shape)
    return torch.stack(list(values)).repeat_interleave(len(rows.workers), 0)
