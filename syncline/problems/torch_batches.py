"""A batch: tensors in tuples, lists and mappings; how it is moved, stacked, and handed to a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from syncline.errors import SpecError

BatchLoss = Callable[[Any, Any], Tensor]
"""``loss(output, target)``: the mean over a batch, a tensor without dimensions."""


def map_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch with ``function`` of each of its leaves; mappings of any class become dicts."""
    if isinstance(batch, Mapping):
        return {key: map_leaves(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_leaves(function, value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_leaves(function, value) for value in batch)
    return function(batch)


def to_device(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Return a batch on a device, its floating-point numbers in ``dtype``."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, dtype) if leaf.is_floating_point() else leaf.to(device)
        return leaf.to(device) if hasattr(leaf, "to") else leaf

    return map_leaves(move, batch)


def leaves(batch: Any) -> list[Any]:
    """Return the leaves of a batch, in order."""
    parts: list[Any] = []
    map_leaves(parts.append, batch)
    return parts


def stacked(batches: Sequence[Any]) -> Any | None:
    """Return the rows' batches as one, with leaves ``(R, ...)``; None if a leaf is no tensor, or shapes differ."""
    columns = list(zip(*map(leaves, batches), strict=False))
    same = len({len(leaves(batch)) for batch in batches}) == 1
    if not same or not all(
        isinstance(leaf, Tensor) and leaf.shape == column[0].shape for column in columns for leaf in column
    ):
        return None
    joined = iter([torch.stack(column) for column in columns])
    return map_leaves(lambda _: next(joined), batches[0])


class Answer(NamedTuple):
    """A module's output for a batch, and the batch's target."""

    output: Any
    target: Any


def answer(module: Callable[..., Any], batch: Any, loss: BatchLoss | None) -> Answer:
    """Call a module on a batch.

    With a ``loss``, the last part of a tuple or list is the target, and the other parts are the module's arguments; a
    batch of another form, or of one part, is both input and target. Without a ``loss``, the module gets the whole
    batch. A mapping is passed as keyword arguments.
    """
    inputs = target = batch
    if isinstance(batch, list | tuple) and len(batch) == 1:
        inputs = target = batch[0]
    elif isinstance(batch, list | tuple) and loss is not None:
        *arguments, target = batch
        inputs = arguments[0] if len(arguments) == 1 else arguments
    if isinstance(inputs, Mapping):
        return Answer(module(**inputs), target)
    return Answer(module(*inputs) if isinstance(inputs, list | tuple) else module(inputs), target)


def loss_of(result: Answer, loss: BatchLoss | None) -> Tensor:
    """Return the loss of an answer: the value of ``loss``, or without it the loss that the module returned.

    Raises:
        SpecError: the loss is not a scalar tensor, or the module returned none.
    """
    if loss is not None:
        value = loss(*result)
        if not isinstance(value, Tensor) or value.dim():
            expected = "a function of output and target that returns a scalar tensor, such as a mean over the batch"
            raise SpecError("problem.loss", _kind(value), expected)
        return value
    output = result.output
    module_loss: Any = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    if not isinstance(module_loss, Tensor) or module_loss.dim():
        expected = f"a function loss(output, target), as the module returns no scalar .loss but {_kind(output)}"
        raise SpecError("problem.loss", None, expected)
    return module_loss


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def objective(module: Callable[..., Any], batch: Any, loss: BatchLoss | None) -> Tensor:
    """Return the loss of a module on a batch."""
    return loss_of(answer(module, batch, loss), loss)


def placed_loss(loss: BatchLoss | None, device: torch.device, dtype: torch.dtype) -> BatchLoss | None:
    """Return a loss that is a module itself, with its tensors (weights of classes) where the batches are."""
    return loss.to(device, dtype) if isinstance(loss, nn.Module) else loss
