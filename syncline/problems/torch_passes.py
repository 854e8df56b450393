"""Training passes of a module for all rows, row by row or batched, and its evaluation on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_map

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.problems.network import with_autocast
from syncline.problems.random_draws import torch_generator
from syncline.problems.row_passes import GradientRows, PassSize, attention_kernels
from syncline.problems.torch_data import DataReader, Shards, seed_and_worker
from syncline.problems.torch_modules import (
    BatchLoss,
    ModuleOutput,
    SwappableModule,
    call_module,
    output_loss,
    to_device,
    type_name,
)
from syncline.randomness import seed_all


@dataclass(frozen=True)
class RowTensors:
    """The parameters and buffers of all workers.

    Attributes:
        params: trainable parameters by name, ``(R, *s)``.
        frozen: other parameters by name: ``(R, *s)``, or ``(1, *s)`` for all rows.
        buffers: buffers by name, ``(R, *s)``.
    """

    params: Mapping[str, torch.nn.Parameter]
    frozen: Mapping[str, Sequence[Tensor]]
    buffers: Mapping[str, Tensor]

    def frozen_params(self, replica: int) -> dict[str, Tensor]:
        """Return the frozen parameters of a replica by name."""
        params = {}
        for name, values in self.frozen.items():
            params[name] = values[replica] if len(values) > 1 else values[0]
        return params


@dataclass
class PassSettings:
    """Settings of the passes of a task.

    Attributes:
        loss: the user's loss, see `call_module`.
        autocast: type in which forward passes compute products; None: that of the parameters.
        keeps_mean: whether to keep only the mean of the rows' gradients, see `GradientRows`.
    """

    loss: BatchLoss | None
    device: torch.device
    autocast: torch.dtype | None = None
    keeps_mean: bool = False
    pass_size: PassSize = field(default_factory=PassSize)

    def compute_loss(self, module: Callable[..., Any], batch: Any) -> Tensor:
        """Return the loss of a module on a batch, computed with autocast if the settings have it."""

        def loss_on_batch() -> Tensor:
            return output_loss(call_module(module, batch, self.loss), self.loss)

        compute = with_autocast(loss_on_batch, self.device, self.autocast)
        return compute()


def gradients_by_loop(
    swappable: SwappableModule, tensors: RowTensors, shards: Shards, rows: Rows, step: int, settings: PassSettings
) -> Tensor:
    """Return the losses ``(R,)`` of a step, computed row by row, and set ``.grad`` and the buffers of all workers.

    The module draws from random streams of the seed, the worker and the step.
    """
    losses: list[Tensor] = []
    gradient_rows = GradientRows(tensors.params, settings.keeps_mean)
    for row in range(len(rows)):
        batches = shards.row_batches(row, step)
        buffers = load_row(swappable, tensors, rows, row)
        seed, worker = seed_and_worker(rows, row)
        seed_all(settings.device, seed, "module", worker, step)
        batch_losses: list[Tensor] = []
        with torch.enable_grad():
            for batch in batches:
                value = settings.compute_loss(swappable.module, batch) / len(batches)
                value.backward()
                batch_losses.append(value.detach())
        losses.append(sum(batch_losses[1:], start=batch_losses[0]))
        swappable.write_back_buffers(buffers)
        module_gradients = swappable.take_gradients()
        gradients = []
        for name, param in tensors.params.items():
            g = module_gradients[name]  # None if the parameter took no part in this row's loss
            gradients.append(torch.zeros_like(param[:1]) if g is None else g.unsqueeze(0))
        gradient_rows.add(gradients)
    gradient_rows.store()
    return torch.stack(losses).to(next(iter(tensors.params.values())).dtype)


def load_row(swappable: SwappableModule, tensors: RowTensors, rows: Rows, row: int) -> dict[str, Tensor]:
    """Let the module use the tensors of the worker in ``row``, and return the worker's buffers by name."""
    replica = row // len(rows.workers)
    params = {name: param.detach()[row] for name, param in tensors.params.items()}
    swappable.set_parameters(params | tensors.frozen_params(replica))
    buffers = {name: buffer[row] for name, buffer in tensors.buffers.items()}
    swappable.set_buffers(buffers)
    return buffers


def gradients_by_vmap(
    swappable: SwappableModule, tensors: RowTensors, batches: Sequence[Any], rows: Rows, settings: PassSettings
) -> Tensor:
    """Return the losses ``(R,)`` of micro-batches ``(R, batch, ...)``, and set ``.grad`` and buffers.

    One batched pass computes all rows, or several passes if a GPU has no memory for one.

    Raises:
        RuntimeError: torch cannot batch the module; many messages are possible.
    """
    params = {name: param.detach() for name, param in tensors.params.items()}
    frozen = {name: _expanded(values, rows) for name, values in tensors.frozen.items()}

    def loss_and_buffers(
        row_params: dict[str, Tensor], row_frozen: dict[str, Tensor], row_buffers: dict[str, Tensor], batch: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of one row and its buffers after the forward pass."""
        row_tensors = row_params | row_frozen | row_buffers

        def module(*args: Any, **named: Any) -> Any:
            return functional_call(swappable.module, row_tensors, args, named)

        loss = settings.compute_loss(module, batch)
        return loss, {name: row_tensors[name] for name in row_buffers}  # the module may have replaced them

    pass_of_rows = vmap(grad_and_value(loss_and_buffers, has_aux=True))  # derivatives by ``row_params``

    def run_rows(part: slice) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        """Return gradients, losses and buffers of a slice of the rows, after all its micro-batches."""
        part_params = {name: param[part] for name, param in params.items()}
        part_frozen = {name: param[part] for name, param in frozen.items()}
        # Copies, so that a pass that runs out of memory has changed nothing.
        buffers = {name: buffer[part].clone() for name, buffer in tensors.buffers.items()}
        gradient_sums: dict[str, Tensor] = {}
        loss_sums = torch.zeros(())
        with attention_kernels(fused=settings.device.type == "cuda"):
            for batch in batches:
                part_batch = tree_map(lambda x: x[part], batch)
                gradients, (losses, buffers) = pass_of_rows(part_params, part_frozen, buffers, part_batch)
                if not gradient_sums:  # the first micro-batch
                    gradient_sums, loss_sums = gradients, losses
                else:
                    gradient_sums = {name: gradient_sums[name] + gradients[name] for name in gradients}
                    loss_sums = loss_sums + losses
        gradient_means = gradient_sums
        if len(batches) > 1:
            gradient_means = {name: gradient / len(batches) for name, gradient in gradient_sums.items()}
        return gradient_means, loss_sums / len(batches), buffers

    gradient_rows, all_losses, first_row = GradientRows(tensors.params, settings.keeps_mean), [], 0
    for gradients, losses, buffers in settings.pass_size.results(len(rows), run_rows):
        gradient_rows.add(gradients[name] for name in tensors.params)
        all_losses.append(losses)
        for name, buffer in tensors.buffers.items():
            buffer[first_row : first_row + len(losses)] = buffers[name]
        first_row += len(losses)
    gradient_rows.store()
    return torch.cat(all_losses).to(next(iter(params.values())).dtype)


def _expanded(values: Sequence[Tensor], rows: Rows) -> Tensor:
    """Return a frozen parameter of each replica, or one for all replicas, as a tensor of all workers, ``(R, *s)``."""
    if len(values) == 1:
        return values[0].expand(len(rows), *values[0].shape)
    return torch.stack(list(values)).repeat_interleave(len(rows.workers), 0)


Evaluate = Callable[[Any, Any], Any]
"""A function ``evaluate(output, target)`` that returns a metric of a batch, or metrics by name, as means over its
items."""

MOST_TRAINING_ITEMS = 1024
"""Largest number of items of the training data that evaluations use without validation data."""

EVALUATION_SEED = 0
"""Seed of the choice and the order of evaluated items, the same for all seeds of a training."""


class Validation:
    """The batches that all evaluations of a task use.

    Args:
        reader: reader of the validation data, or if there is none, of the training data.
        is_training_data: whether ``reader`` reads the training data. Then at most 1,024 items are used, the same for
            every seed.
    """

    def __init__(self, reader: DataReader, is_training_data: bool, device: torch.device, dtype: torch.dtype) -> None:
        """Choose the items of the validation batches once, so that evaluations are comparable."""
        self._reader, self._is_training_data = reader, is_training_data
        self._device, self._dtype = device, dtype
        self._indices = None if reader.is_stream else self._chosen_indices()
        self._tensors = None if reader.tensors is None else to_device(list(reader.tensors), device, dtype)
        if self._indices is not None and not len(self._indices):
            raise SpecError(reader.field, "no items", "at least one item")

    def _chosen_indices(self) -> Tensor:
        """Return the indices of an evaluation's items in order: all items, or random items of the training data."""
        indices = torch.arange(len(self._reader.data))
        if self._reader.sampler is not None:
            indices = self._reader.order(self._device, EVALUATION_SEED, "evaluation", "items")
        if not self._is_training_data:
            return indices
        indices = indices.unique()  # a sampler may draw an item more than once
        random_order = torch.randperm(len(indices), generator=torch_generator(EVALUATION_SEED, "evaluation"))
        return indices[random_order][:MOST_TRAINING_ITEMS]

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yield each validation batch with its number of items.

        The method seeds the random generators. Call it inside `preserved`, which restores their states.
        """
        seed_all(self._device, EVALUATION_SEED, "evaluation")
        size = self._reader.batch_size
        if self._indices is None:  # a stream has no indices: take its first items
            items = self._reader.items_of_epoch(epoch=0)
            if self._is_training_data:
                items = islice(items, MOST_TRAINING_ITEMS)
            while part := list(islice(items, size)):
                yield to_device(self._reader.collate_items(part), self._device, self._dtype), len(part)
            return
        for indices in self._indices.split(size):
            if self._tensors is not None:
                yield [tensor[indices.to(self._device)] for tensor in self._tensors], len(indices)
            else:
                yield to_device(self._reader.fetch(indices.tolist()), self._device, self._dtype), len(indices)


def compute_metrics(
    module: Callable[..., Any], batch: Any, loss: BatchLoss | None, evaluate: Evaluate | None, device: torch.device
) -> dict[str, Tensor]:
    """Return ``loss`` and the user's metrics of a batch, as scalars in double precision.

    Raises:
        SpecError: a metric is not a number, or has the name of another metric.
    """
    result = call_module(module, batch, loss)
    metrics = {"loss": output_loss(result, loss)}
    if evaluate is not None:
        metrics |= _user_metrics(evaluate, result)
    return {name: torch.as_tensor(value, device=device).double() for name, value in metrics.items()}


def _user_metrics(evaluate: Evaluate, result: ModuleOutput) -> dict[str, Any]:
    """Return the metrics of ``evaluate`` by name; a single one has the function's name, or ``metric``."""
    evaluated = evaluate(result.output, result.target)
    if isinstance(evaluated, Mapping):
        metrics = dict(evaluated)
    else:
        name = type_name(evaluate)
        metrics = {name if name.isidentifier() else "metric": evaluated}
    for name, value in metrics.items():
        if not isinstance(name, str) or name == "loss":
            raise SpecError("problem.evaluate", name, "metrics by name, none of which is loss")
        is_number = not isinstance(value, str) and torch.as_tensor(value).dim() == 0
        if not is_number:
            raise SpecError("problem.evaluate", type_name(value), f"a number for {name}: the mean over the batch")
    return metrics


class MetricMeans:
    """Means of metrics over all items of batches of different sizes."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._items = 0

    def add(self, metrics: Mapping[str, Tensor], items: int) -> None:
        """Add the metrics of a batch, weighted by its number of items."""
        self._items += items
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * items

    def values(self) -> dict[str, Tensor]:
        """Return the mean of each metric by name."""
        return {name: total / self._items for name, total in self._sums.items()}
