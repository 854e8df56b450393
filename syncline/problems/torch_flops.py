"""A torch module as shapes: its parameters and the work of a token, counted on the meta device, in no memory.

The first look at a module: what it does with one batch, before anything is trained.
"""

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
from syncline.problems.torch_modules import BatchLoss, TensorHolders, answer, error_clause, loss_of, matrix_names
from syncline.randomness import GlobalState

REUSED = (nn.modules.conv._ConvNd, nn.RNNBase)
"""Layers that multiply with a weight more than once for a token, so that their weights do not tell their work."""


def module_shape(model: Any, name: str, path: str = "model") -> ModuleShape:
    """Return the shape of a module that was made with the meta device as torch's default (`shape_only`), or elsewhere.

    What is learned (frozen parameters are not) becomes `TensorShape`s, matrices as `matrix_names` says. Of a module
    alone the work of a token is ``6 N``, with N the weights that it is multiplied with: those of two dimensions and
    more, but for tables of embeddings that are no linear layer's weight too. Attention's scores are not in it, nor a
    head that multiplies with a table by hand. With an example input torch's ``FlopCounterMode`` counts forward and
    backward instead, operation by operation, per token of the input: each number of an integer tensor is one; of other
    tensors each row is, a sample.

    Args:
        model: a module, or ``(module, inputs)``, where inputs is a tensor or a tuple of what the module is called with.
        name: name of the model in tables and errors.
        path: the field's name, for the error line.

    Raises:
        SpecError: the value is not a module, has no trainable parameters, or its work cannot be counted.

    >>> net = module_shape((nn.Linear(8, 4, bias=False), torch.zeros(2, 8)), "net")
    >>> net.parameters, net.flops_per_token, 2 * 32 + 2 * 32  # forward, and the weights' gradient
    (32, 128.0, 128)
    """
    module, inputs = model if isinstance(model, tuple) and len(model) == 2 else (model, None)
    if not isinstance(module, nn.Module):
        raise SpecError(path, name, f"what returns a torch module, or (module, inputs), not {type(model).__name__}")
    matrices = matrix_names(module, None)
    tensors = tuple(
        TensorShape(label, tuple(p.shape), is_matrix=label in matrices)
        for label, p in module.named_parameters()
        if p.requires_grad
    )
    if not tensors:
        raise SpecError(path, name, "a module that has parameters to learn")
    if inputs is None:
        return ModuleShape(name, tensors, 6.0 * multiplied_parameters(module, name, path))
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    on_meta = tree_map(lambda value: value.to("meta") if isinstance(value, Tensor) else value, inputs)
    flops, tokens, samples = _counted(module, tuple(on_meta), name, path)
    return ModuleShape(name, tensors, flops / tokens, sequence=max(1, tokens // samples))


def multiplied_parameters(module: nn.Module, name: str, path: str = "model") -> int:
    """Return the number of parameters in weights that each token is multiplied with, exactly once.

    This is N of the approximation of 6 N FLOPs per token.

    Args:
        module: the model.
        name: name of the model, for the error line.
        path: path of the field, for the error line.

    Raises:
        SpecError: the module has layers that use a weight several times per token, or an unknown number of times.
    """
    for part in module.modules():
        if isinstance(part, REUSED):
            expected = f"an example input beside the module, (module, inputs): the weights of a {type(part).__name__}"
            raise SpecError(path, name, f"{expected} do not tell its work")
    heads = {id(part.weight) for part in module.modules() if isinstance(part, nn.Linear)}
    looked_up = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)}
    idle = looked_up - heads
    return sum(p.numel() for p in module.parameters() if p.ndim >= 2 and id(p) not in idle)


def _without_memory(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of the module's parameters and buffers on the meta device, without their values."""
    learned = {name: p.detach().to("meta").requires_grad_(p.requires_grad) for name, p in module.named_parameters()}
    return learned | {name: buffer.to("meta") for name, buffer in module.named_buffers()}


def _counted(module: nn.Module, inputs: tuple[Any, ...], name: str, path: str) -> tuple[float, int, int]:
    """Return FLOPs of forward and backward, tokens and samples of the inputs."""
    first = next((leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.ndim), None)
    if first is None or not first.numel():
        raise SpecError(path, name, "inputs that begin with a tensor of at least one sample")
    tokens = first.shape[0] if first.is_floating_point() else first.numel()
    try:
        with FlopCounterMode(display=False) as counter:
            returned = functional_call(module, _without_memory(module), inputs)
            for output in ("logits", "loss"):  # of models that return an object of several
                returned = returned if getattr(returned, output, None) is None else getattr(returned, output)
            ends = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor) and leaf.requires_grad]
            if ends:
                torch.autograd.backward(ends, [torch.empty_like(leaf) for leaf in ends])
    except Exception as error:  # whatever a user's module raises is told as what is wrong with this field
        message = " ".join(str(error).split())
        expected = f"a module that computes on torch's meta device; it says: {type(error).__name__}: {message}"
        raise SpecError(path, name, expected) from error
    if not ends:
        raise SpecError(path, name, "a module that returns tensors which depend on its parameters")
    return float(counter.get_total_flops()), tokens, first.shape[0]


@dataclass(frozen=True)
class ModuleProperties:
    """Measured properties of a module.

    Attributes:
        flops: FLOPs of the forward and backward pass of a batch; None if they were not counted.
        draws: whether the module draws from a global generator.
    """

    flops: float | None
    draws: bool


@contextmanager
def _separate_kernels() -> Iterator[None]:
    """Disable oneDNN, because torch does not count the FLOPs of its fused recurrent layers."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def measure_module(places: TensorHolders, batch: Any, loss: BatchLoss | None, device: torch.device) -> ModuleProperties:
    """Take a batch through the module and back. For inside of `preserved`, with tensors put that may change.

    The multiplications and additions of products of matrices, convolutions and attention are counted, as torch counts
    them; what is elementwise is not. Fused kernels are taken apart, so that recurrent layers and attention count too.

    Raises:
        SpecError: the module raises an error, or there is no scalar loss.
    """
    name = type(places.module).__name__
    before = GlobalState.capture(device)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
        _separate_kernels(),
        FlopCounterMode(display=False) as counter,
    ):
        try:
            result = answer(places.module, batch, loss)
        except Exception as error:
            raise SpecError(
                "problem.make_model", name, f"a module that takes a batch; {error_clause(error)}"
            ) from error
        draws = not before.equals(GlobalState.capture(device))
        try:
            value = loss_of(result, loss)
        except SpecError:
            raise
        except Exception as error:
            expected = f"a function of output and target; {error_clause(error)}"
            raise SpecError("problem.loss", getattr(loss, "__name__", type(loss).__name__), expected) from error
        if not value.requires_grad:
            raise SpecError("problem.loss", "a number", "a loss that depends on the trainable parameters")
        value.backward()
        draws = draws or not before.equals(GlobalState.capture(device))
    places.gradients()
    return ModuleProperties(float(counter.get_total_flops()) or None, draws)
