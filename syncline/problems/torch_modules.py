"""A torch module that a user brings: its tensors, and its calls on batches of any structure.

A batch is a tensor, or tuples, lists and mappings of tensors; its *leaves* are the objects inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from syncline.errors import SpecError, require_one_of
from syncline.randomness import preserved, seed_all

BatchLoss = Callable[[Any, Any], Tensor]
"""A function ``loss(output, target)`` that returns the mean over a batch, a tensor without dimensions."""


def map_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch with ``function`` of each of its leaves; mappings of any class become dicts."""
    if isinstance(batch, Mapping):
        return {key: map_leaves(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple takes its fields as arguments
        return type(batch)(*(map_leaves(function, value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_leaves(function, value) for value in batch)
    return function(batch)


def to_device(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Return a batch on a device, with floating-point numbers in ``dtype``."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, dtype) if leaf.is_floating_point() else leaf.to(device)
        return leaf.to(device) if hasattr(leaf, "to") else leaf

    return map_leaves(move, batch)


def stacked(batches: Sequence[Any]) -> Any | None:
    """Return the batches of R rows as one batch with leaves ``(R, ...)``.

    The result is None if a leaf is not a tensor, or if the leaves of two rows have different shapes.
    """
    leaves_of_batches: list[list[Any]] = []
    for batch in batches:
        leaves_of_batches.append([])
        map_leaves(leaves_of_batches[-1].append, batch)  # collects the leaves
    if any(len(batch_leaves) != len(leaves_of_batches[0]) for batch_leaves in leaves_of_batches):
        return None
    stacked_leaves = []
    for leaf_of_rows in zip(*leaves_of_batches, strict=True):
        if not all(isinstance(leaf, Tensor) and leaf.shape == leaf_of_rows[0].shape for leaf in leaf_of_rows):
            return None
        stacked_leaves.append(torch.stack(leaf_of_rows))
    # Put the stacked leaves, in order, into the structure of the first batch.
    remaining = iter(stacked_leaves)
    return map_leaves(lambda _: next(remaining), batches[0])


class ModuleOutput(NamedTuple):
    """A module's output for a batch, and the batch's target."""

    output: Any
    target: Any


def call_module(module: Callable[..., Any], batch: Any, loss: BatchLoss | None) -> ModuleOutput:
    """Call a module on a batch and return its output with the batch's target.

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
        output = module(**inputs)
    else:
        output = module(*inputs) if isinstance(inputs, list | tuple) else module(inputs)
    return ModuleOutput(output, target)


def output_loss(result: ModuleOutput, loss: BatchLoss | None) -> Tensor:
    """Return the value of ``loss`` for a module's output, or without ``loss`` the loss that the module returned."""
    if loss is not None:
        value = loss(*result)
        if not isinstance(value, Tensor) or value.dim():
            expected = "a function of output and target that returns a scalar tensor, such as a mean over the batch"
            raise SpecError("problem.loss", _describe(value), expected)
        return value
    output = result.output
    # An output without ``.loss`` may be the loss itself.
    module_loss: Any = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    if not isinstance(module_loss, Tensor) or module_loss.dim():
        expected = f"a function loss(output, target), as the module returns no scalar .loss but {_describe(output)}"
        raise SpecError("problem.loss", None, expected)
    return module_loss


def _describe(value: Any) -> str:
    """Return the type of a value, or the shape of a tensor, for an error line."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def loss_on_device(loss: BatchLoss | None, device: torch.device, dtype: torch.dtype) -> BatchLoss | None:
    """Return a loss; if it is a module, its tensors, such as weights of classes, are moved to a device and dtype."""
    return loss.to(device, dtype) if isinstance(loss, nn.Module) else loss


MakeModel = Callable[[], nn.Module] | nn.Module
"""A function that makes a module with fresh weights, or a module from whose weights every seed starts."""


def build_module(make_model: MakeModel, seed: int, device: torch.device) -> nn.Module:
    """Return a module with the start weights of the replica ``seed``; global generators are left as they were."""
    if isinstance(make_model, nn.Module):
        return deepcopy(make_model)
    with preserved(device):
        seed_all(device, seed, "weights")
        try:
            module: Any = make_model()
        except SpecError:
            raise
        except Exception as error:
            raise SpecError("problem.make_model", type_name(make_model), f"a module; {error_clause(error)}") from error
    if not isinstance(module, nn.Module):
        raise SpecError("problem.make_model", type_name(make_model), f"a module; it returns {type(module).__name__}")
    return module


def type_name(thing: Any) -> str:
    """Return the name of a function, a class or an object's class, for an error line."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def error_clause(error: Exception) -> str:
    """Return the type and message of an exception in one line, at most 300 characters of the message."""
    return f"it says: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def check_module(module: nn.Module) -> None:
    """Raise a SpecError if this package cannot train a module."""
    name = type(module).__name__
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise SpecError("problem.make_model", name, "a module whose shapes are known: call a lazy one on a batch first")
    if not any(p.requires_grad and p.numel() for p in module.parameters()):
        raise SpecError("problem.make_model", name, "a module with parameters that can be trained")
    for part_name, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
            raise SpecError("problem.make_model", f"{part_name or name}.sparse", "dense gradients: sparse=False")


def matrix_names(module: nn.Module, chosen: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names of the parameters that update rules for matrices apply to.

    By default these are the trainable parameters of two dimensions or more, also of convolutions, without tables of
    embeddings and without the output head. The head is the last of them, unless a linear layer shares a table's weight.

    Args:
        chosen: names that the user chose instead; None for the default.
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)}
    matrices = {name: p for name, p in module.named_parameters() if p.requires_grad and p.dim() >= 2}
    if chosen is not None:
        for name in chosen:
            require_one_of("problem.matrices", name, matrices)
        return tuple(chosen)
    head_is_table = any(isinstance(part, nn.Linear) and id(part.weight) in tables for part in module.modules())
    names = tuple(name for name, p in matrices.items() if id(p) not in tables)
    return names if head_is_table else names[:-1]  # without the head


class SwappableModule:
    """A module whose parameters and buffers can be replaced by those of a worker.

    Attributes:
        trained: trainable parameters by name; a tied parameter occurs once.
        frozen: other parameters by name.
        buffers: buffers by name; a tied buffer occurs once.
    """

    def __init__(self, module: nn.Module) -> None:
        """Note where in the module each buffer is, so that it can be replaced."""
        self.module = module
        parameters = dict(module.named_parameters())
        self.trained = {name: p for name, p in parameters.items() if p.requires_grad}
        self.frozen = {name: p for name, p in parameters.items() if not p.requires_grad}
        self.buffers = dict(module.named_buffers())
        name_of = {id(buffer): name for name, buffer in self.buffers.items()}
        self._buffer_slots = []
        for part in module.modules():
            for key, buffer in part._buffers.items():
                if buffer is not None:
                    self._buffer_slots.append((part, key, name_of[id(buffer)]))

    def set_parameters(self, tensors: Mapping[str, Tensor]) -> None:
        """Let the module use these parameters, trainable or not; in-place operations of the module change them."""
        for name, parameter in (self.trained | self.frozen).items():
            if name in tensors:
                parameter.data = tensors[name]

    def set_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Replace the module's buffers by these tensors, by name."""
        for part, key, name in self._buffer_slots:
            part._buffers[key] = buffers[name]

    def write_back_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Copy the values of buffers that the module replaced by new tensors into the ``buffers`` of `set_buffers`."""
        for part, key, name in self._buffer_slots:
            current = part._buffers[key]
            if current is not None and current is not buffers[name]:
                buffers[name].copy_(current.detach())

    def take_gradients(self) -> dict[str, Tensor | None]:
        """Return the gradients of the trainable parameters by name, and remove them from the module."""
        gradients = {name: p.grad for name, p in self.trained.items()}
        for parameter in self.trained.values():
            parameter.grad = None
        return gradients


def merge_equal_replicas(values: Sequence[Tensor], device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Return the tensors of S replicas on a device, or a single tensor if all have the same values."""
    moved: list[Tensor] = [to_device(value.detach(), device, dtype) for value in values]
    all_equal = all(torch.equal(moved[0], value) for value in moved[1:])
    return moved[:1] if all_equal else moved
