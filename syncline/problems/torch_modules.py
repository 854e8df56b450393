"""One module for all rows: whose parameters and buffers it works with is a matter of what is put in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from syncline.errors import SpecError, one_of
from syncline.randomness import preserved, seed_all

MakeModel = Callable[[], nn.Module] | nn.Module
"""What makes a module with fresh weights, or a module, whose weights every seed then starts from."""


def build_module(make_model: MakeModel, seed: int, device: torch.device) -> nn.Module:
    """Return the module with the weights that a replica starts from; global generators are left as they were.

    Raises:
        SpecError: the function returns no module, or raises an error.
    """
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
    """Return the name of a function, a class or an object's class, for a message."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def error_clause(error: Exception) -> str:
    """Return an exception in one line."""
    return f"it says: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def check_module(module: nn.Module) -> None:
    """Refuse a module that this package cannot train.

    Raises:
        SpecError: the module has no trainable parameters, shapes that are not known yet, or sparse gradients.
    """
    name = type(module).__name__
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise SpecError("problem.make_model", name, "a module whose shapes are known: call a lazy one on a batch first")
    if not any(p.requires_grad and p.numel() for p in module.parameters()):
        raise SpecError("problem.make_model", name, "a module with parameters that can be trained")
    for where, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
            raise SpecError("problem.make_model", f"{where or name}.sparse", "dense gradients: sparse=False")


def matrix_names(module: nn.Module, chosen: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names of the parameters that rules for matrices take.

    Trainable ones of two dimensions or more (weights of convolutions too), but for tables of embeddings and the last of
    the others by order of registration, which is taken for the output head. A parameter that is tied to a table is one;
    where a linear layer's is, that layer is the head.

    Args:
        module: the module.
        chosen: names that the user chose instead; None for the rule above.

    Raises:
        SpecError: a chosen name is not a parameter of the module, or the parameter has fewer than two dimensions.
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)}
    wide = {name: p for name, p in module.named_parameters() if p.requires_grad and p.dim() >= 2}
    if chosen is not None:
        for name in chosen:
            if name not in wide:
                raise SpecError("problem.matrices", name, one_of(wide, name))
        return tuple(chosen)
    head_is_table = any(isinstance(part, nn.Linear) and id(part.weight) in tables for part in module.modules())
    inside = tuple(name for name, p in wide.items() if id(p) not in tables)
    return inside if head_is_table else inside[:-1]


class TensorHolders:
    """The holders of a module's tensors.

    Attributes:
        module: the module.
        trained: trainable parameters by name; a tied parameter occurs once.
        frozen: other parameters by name.
        buffers: buffers by name; a tied buffer occurs once.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = dict(module.named_parameters())
        self.trained = {name: p for name, p in parameters.items() if p.requires_grad}
        self.frozen = {name: p for name, p in parameters.items() if not p.requires_grad}
        self.buffers = dict(module.named_buffers())
        name_of = {id(buffer): name for name, buffer in self.buffers.items()}
        self._holders = [
            (part, key, name_of[id(buffer)])
            for part in module.modules()
            for key, buffer in part._buffers.items()
            if buffer is not None
        ]

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Let the module use these parameters, trainable or not; in-place operations of the module change them."""
        for name, parameter in (self.trained | self.frozen).items():
            if name in tensors:
                parameter.data = tensors[name]

    def put_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Let the module use these buffers."""
        for part, key, name in self._holders:
            part._buffers[key] = buffers[name]

    def keep_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Copy buffers that the module replaced, rather than wrote to, back into the given tensors."""
        for part, key, name in self._holders:
            now = part._buffers[key]
            if now is not None and now is not buffers[name]:
                buffers[name].copy_(now.detach())

    def gradients(self) -> dict[str, Tensor | None]:
        """Take the gradients of the trainable parameters."""
        gradients = {name: p.grad for name, p in self.trained.items()}
        for parameter in self.trained.values():
            parameter.grad = None
        return gradients


def per_replica(values: Sequence[Tensor], device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Return the start values of the seeds, ``S`` tensors; one tensor where all are the same."""
    placed = [value.detach().to(device, dtype) if value.is_floating_point() else value.to(device) for value in values]
    same = all(torch.equal(placed[0], value) for value in placed[1:])
    return placed[:1] if same else placed
