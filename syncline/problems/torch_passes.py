"""The gradients of all rows of one module: row by row, or in one batched pass.

Evaluation data of a module, and the means over it.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.problems.random_draws import torch_generator
from syncline.problems.torch_data import Reading, Shards, replica_and_worker
from syncline.problems.torch_modules import (
    Answer,
    BatchLoss,
    TensorHolders,
    answer,
    loss_of,
    objective,
    to_device,
    type_name,
)
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


Evaluate = Callable[[Any, Any], Any]
"""``evaluate(output, target)`` of one batch: a number, or numbers by name; means over its items."""

PART_OF_TRAINING = 1024
"""Items of the training data that take the place of a validation set."""


class Validation:
    """Batches that all evaluations share.

    Args:
        reading: reader of the validation data, all of it in order; without validation data, of the training data.
        is_training_data: whether ``reading`` reads the training data, of which at most 1,024 items are used, the same
            for every seed.
    """

    def __init__(self, reading: Reading, is_training_data: bool, device: torch.device, dtype: torch.dtype) -> None:
        self._reading, self._part = reading, PART_OF_TRAINING if is_training_data else None
        self._device, self._dtype = device, dtype
        self._numbers = None if reading.is_stream else self._chosen(is_training_data)
        self._tensors = None if reading.tensors is None else to_device(list(reading.tensors), device, dtype)
        if self._numbers is not None and not len(self._numbers):
            raise SpecError(reading.field, "no items", "at least one item")

    def _chosen(self, is_training_data: bool) -> Tensor:
        every = torch.arange(len(self._reading.data))
        if self._reading.sampler is not None:
            every = self._reading.order(self._device, 0, "evaluation", "items")
        if not is_training_data:
            return every
        every = every.unique()
        return every[torch.randperm(len(every), generator=torch_generator(0, "evaluation"))][:PART_OF_TRAINING]

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yield each validation batch with its number of items.

        The method seeds the random generators. Call it inside `preserved`, which restores their states.
        """
        seed_all(self._device, 0, "evaluation")
        size = self._reading.batch_size
        if self._numbers is None:
            yield from self._of_stream(size)
            return
        for numbers in self._numbers.split(size):
            if self._tensors is not None:
                yield [tensor[numbers.to(self._device)] for tensor in self._tensors], len(numbers)
            else:
                yield to_device(self._reading.fetch(numbers.tolist()), self._device, self._dtype), len(numbers)

    def _of_stream(self, size: int) -> Iterator[tuple[Any, int]]:
        items = islice(self._reading.run(0), self._part)
        while part := list(islice(items, size)):
            yield to_device(self._reading.batch_of(part), self._device, self._dtype), len(part)


def metrics_of(
    module: Callable[..., Any], batch: Any, loss: BatchLoss | None, evaluate: Evaluate | None, like: Tensor
) -> dict[str, Tensor]:
    """Return ``loss`` and the user's metrics of a batch, as scalars.

    Raises:
        SpecError: a metric is not a number, or has the name of another metric.
    """
    result = answer(module, batch, loss)
    metrics = {"loss": loss_of(result, loss)}
    if evaluate is not None:
        metrics |= _user_metrics(evaluate, result)
    return {name: torch.as_tensor(value, device=like.device).double() for name, value in metrics.items()}


def _user_metrics(evaluate: Evaluate, result: Answer) -> dict[str, Any]:
    evaluated = evaluate(*result)
    name = getattr(evaluate, "__name__", type(evaluate).__name__)
    values = (
        dict(evaluated) if isinstance(evaluated, Mapping) else {name if name.isidentifier() else "metric": evaluated}
    )
    for key, value in values.items():
        if not isinstance(key, str) or key == "loss":
            raise SpecError("problem.evaluate", key, "metrics by name, none of which is loss")
        if isinstance(value, str) or torch.as_tensor(value).dim():
            raise SpecError("problem.evaluate", type_name(value), f"a number for {key}: the mean over the batch")
    return values


class Means:
    """Means over all items of batches of different sizes."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._items = 0

    def add(self, metrics: Mapping[str, Tensor], items: int) -> None:
        """Add the metrics of a batch, weighted by its number of items."""
        self._items += items
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * items

    def values(self) -> dict[str, Tensor]:
        """Return the mean of each quantity."""
        return {name: total / self._items for name, total in self._sums.items()}
