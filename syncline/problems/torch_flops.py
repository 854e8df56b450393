"""The parameters and the FLOPs of a torch module: by its shapes on the meta device, or measured on one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from syncline.costmodel.compute.model_shape import ModuleShape
from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError
from syncline.problems import torch_modules
from syncline.randomness import GlobalState

WEIGHT_REUSING_LAYERS = (nn.modules.conv._ConvNd, nn.RNNBase)
"""Layers that multiply with a weight more than once for a token, so that their weights do not tell their FLOPs."""


def module_shape(model: Any, name: str, path: str = "model") -> ModuleShape:
    """Return the trainable parameters of a module and its FLOPs per token.

    Without example inputs the FLOPs per token are those of `weight_flops`. They leave out attention's scores, and an
    output head that is the embedding table itself. With example inputs, torch's ``FlopCounterMode`` counts the forward
    and backward pass on the meta device. A token is then a number of an integer tensor, or a row (a sample) of any
    other tensor.

    Args:
        model: a module, or ``(module, inputs)``, where inputs is a tensor or a tuple of the module's arguments.

    >>> net = module_shape((nn.Linear(8, 4, bias=False), torch.zeros(2, 8)), "net")
    >>> net.parameters, net.flops_per_token, 2 * 32 + 2 * 32  # forward, and the weights' gradient
    (32, 128.0, 128)
    """
    module, inputs = model if isinstance(model, tuple) and len(model) == 2 else (model, None)
    if not isinstance(module, nn.Module):
        raise SpecError(
            path, name, f"a callable that returns a torch module, or (module, inputs), not {type(model).__name__}"
        )
    matrices = torch_modules.matrix_names(module, chosen=None)
    tensors = tuple(
        TensorShape(label, tuple(p.shape), is_matrix=label in matrices)
        for label, p in module.named_parameters()
        if p.requires_grad
    )
    if not tensors:
        raise SpecError(path, name, "a module that has parameters to learn")
    if inputs is None:
        return ModuleShape(name, tensors, weight_flops(module, name, path))
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    on_meta = tree_map(lambda value: value.to("meta") if isinstance(value, Tensor) else value, inputs)
    flops, tokens, samples = _count_flops(module, tuple(on_meta), name, path)
    return ModuleShape(name, tensors, flops / tokens, sequence=max(1, tokens // samples))


def weight_flops(module: nn.Module, name: str, path: str = "model") -> float:
    """Return the FLOPs per token of the weights that multiply each token once: ``6 N + 4 F``.

    N is the number of trainable weights, F that of frozen ones, which have no gradient. Both count weights of two
    dimensions and more, except tables of embeddings that are not tied to a linear layer.
    """
    for part in module.modules():
        if isinstance(part, WEIGHT_REUSING_LAYERS):
            expected = f"an example input with the module, (module, inputs): the weights of a {type(part).__name__}"
            raise SpecError(path, name, f"{expected} do not determine its work")
    heads = {id(part.weight) for part in module.modules() if isinstance(part, nn.Linear)}
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)}
    only_looked_up = tables - heads
    weights = [p for p in module.parameters() if p.ndim >= 2 and id(p) not in only_looked_up]
    return sum((6.0 if p.requires_grad else 4.0) * p.numel() for p in weights)


def _count_flops(module: nn.Module, inputs: tuple[Any, ...], name: str, path: str) -> tuple[float, int, int]:
    """Return (FLOPs of the forward and backward pass, tokens, samples) of a module for inputs on the meta device.

    A token is a number of an integer tensor, or a row of any other tensor. ``name`` and ``path`` are for errors.
    """
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.ndim]
    if not tensors or not tensors[0].numel():
        raise SpecError(path, name, "inputs that begin with a tensor of at least one sample")
    samples = tensors[0].shape[0]
    tokens = samples if tensors[0].is_floating_point() else tensors[0].numel()
    on_meta = {}
    for label, p in module.named_parameters():
        on_meta[label] = p.detach().to("meta").requires_grad_(p.requires_grad)
    for label, buffer in module.named_buffers():
        on_meta[label] = buffer.to("meta")
    try:
        with FlopCounterMode(display=False) as counter:
            output = functional_call(module, on_meta, inputs)
            for attribute in ("logits", "loss"):  # some models return an object
                if getattr(output, attribute, None) is not None:
                    output = getattr(output, attribute)
            output_tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
            if output_tensors:
                # On the meta device gradients have no values.
                torch.autograd.backward(output_tensors, [torch.empty_like(leaf) for leaf in output_tensors])
    except Exception as error:  # any error of a user's module
        expected = f"a module that computes on torch's meta device; {torch_modules.error_clause(error)}"
        raise SpecError(path, name, expected) from error
    if not output_tensors:
        raise SpecError(path, name, "a module that returns tensors which depend on its parameters")
    return float(counter.get_total_flops()), tokens, samples


@dataclass(frozen=True)
class ModuleProperties:
    """Properties of a module, measured on one batch.

    Attributes:
        flops: FLOPs of the forward and backward pass of the batch; None if torch counts the FLOPs of none.
        is_random: whether the module draws from a global random generator.
    """

    flops: float | None
    is_random: bool


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Disable oneDNN, because torch does not count the FLOPs of its fused recurrent layers."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)


def measure_module(
    swappable: torch_modules.SwappableModule, batch: Any, loss: torch_modules.BatchLoss | None, device: torch.device
) -> ModuleProperties:
    """Return the FLOPs of a forward and a backward pass on a batch, and whether the passes draw random numbers.

    Torch counts the FLOPs of matrix products, convolutions and attention, not those of elementwise operations. Fused
    kernels are off, because torch does not count all of them. Call this function inside `preserved`; the passes may
    change tensors of the module.
    """
    name = type(swappable.module).__name__
    random_state = GlobalState.capture(device)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
        _without_onednn(),
        FlopCounterMode(display=False) as counter,
    ):
        try:
            result = torch_modules.call_module(swappable.module, batch, loss)
        except Exception as error:
            expected = f"a module that takes a batch; {torch_modules.error_clause(error)}"
            raise SpecError("problem.make_model", name, expected) from error
        is_random = not random_state.equals(GlobalState.capture(device))
        try:
            value = torch_modules.output_loss(result, loss)
        except SpecError:
            raise
        except Exception as error:
            expected = f"a function of output and target; {torch_modules.error_clause(error)}"
            raise SpecError("problem.loss", getattr(loss, "__name__", type(loss).__name__), expected) from error
        if not value.requires_grad:
            raise SpecError("problem.loss", "a number", "a loss that depends on the trainable parameters")
        value.backward()
        is_random = is_random or not random_state.equals(GlobalState.capture(device))  # the backward pass may draw, too
    swappable.take_gradients()  # removes them from the module
    flops = float(counter.get_total_flops())  # 0 if torch knows the FLOPs of no operation
    return ModuleProperties(flops if flops > 0 else None, is_random)
