"""Passes over the rows (workers) of a step: how many rows a batched pass has, and where the gradients of rows go.

A batched pass stores the activations of all its rows. A pass that a GPU has no memory for is made in two halves, and
attention within it is computed by torch's fused kernels, which do not store the weights of all pairs of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from typing_extensions import override

T = TypeVar("T")


def activation_bytes(
    module: torch.nn.Module, forward: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> float:
    """Return the fewest bytes that a forward pass stores for the backward pass, without the parameters.

    They are the bytes of the tensors that autograd keeps; tensors that share memory count once. Attention is fused, and
    logits and the loss are in fp32.

    Args:
        module: the module on the meta device, whose parameters are converted to ``dtype``.
        forward: the module's forward pass to the logits.
        shape: shape of its input, ``(batch, ...)``.
        dtype: type in which the pass computes. Autocast stores at least as much as a pass in its type.
    """
    module = module.to(dtype)
    parameter_storages = {param.untyped_storage()._cdata for param in module.parameters()}  # the storages' addresses
    # By address of the storage. While a tensor is stored here, no other storage gets its address.
    stored: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        stored[x.untyped_storage()._cdata] = x
        return x

    inputs = torch.empty(shape, dtype=dtype, device="meta")
    with saved_tensors_hooks(pack, lambda x: x), attention_kernels(fused=True):
        forward(inputs).float().log_softmax(-1).sum()
    activations = [x for storage, x in stored.items() if storage not in parameter_storages]
    return float(sum(x.untyped_storage().nbytes() for x in activations))


def may_keep_mean(execution: str, device: torch.device | str) -> bool:
    """Return whether a task may store only the mean of workers' gradients: on CUDA, or if ``execution`` is ``loop``.

    The mean rounds differently. Other tasks store each worker's gradient, so that published results keep their bits.
    """
    return execution == "loop" or torch.device(device).type == "cuda"


class GradientRows:
    """The gradients of all workers, gathered pass by pass without a second copy of them.

    The gradients of the last step are freed first, so that the passes can use their memory.

    Args:
        params: parameters of all workers by name, ``(R, *s)``, whose ``.grad`` is set at the end.
        keeps_mean: whether to store only the mean over the rows, as a running sum; all rows then share its memory.
    """

    def __init__(self, params: Mapping[str, torch.nn.Parameter], keeps_mean: bool = False) -> None:
        self._params, self._keeps_mean = list(params.values()), keeps_mean
        self._parts: list[list[Tensor]] = [[] for _ in params]
        for param in self._params:
            param.grad = None

    def add(self, gradients: Iterable[Tensor]) -> None:
        """Add the gradients of the next rows, ``(rows, *s)``, in the order of the parameters."""
        for parts, gradient in zip(self._parts, gradients, strict=True):
            if not self._keeps_mean:
                parts.append(gradient)
            elif parts:
                parts[0].add_(gradient.sum(0))
            else:
                parts.append(gradient.sum(0, keepdim=True))  # the only part, a running sum over the rows

    def store(self) -> None:
        """Set each parameter's ``.grad``, ``(R, *s)``, and free the parts."""
        for param, parts in zip(self._params, self._parts, strict=True):
            if self._keeps_mean:
                (row_sum,) = parts
                param.grad = row_sum.div_(len(param)).expand(param.shape)
            else:
                param.grad = torch.cat(parts) if len(parts) > 1 else parts[0]
            parts.clear()


class PassSize:
    """The number of rows of a batched pass: all rows, until a GPU has no memory for them.

    Attributes:
        rows: largest number of rows of a pass; None if there is no limit yet.
    """

    def __init__(self, rows: int | None = None) -> None:
        self.rows = rows

    def results(self, num_rows: int, run_rows: Callable[[slice], T]) -> Iterator[T]:
        """Yield the results of passes over all rows, in order; a pass that runs out of memory is halved.

        Args:
            run_rows: function that computes the rows of a slice; it changes nothing if it raises an error.

        Raises:
            torch.cuda.OutOfMemoryError: memory does not suffice for a single row.
        """
        first = 0
        while first < num_rows:
            size = min(self.rows or num_rows, num_rows - first)
            try:
                result = run_rows(slice(first, first + size))
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
                self.rows = size // 2
                continue  # leaves the handler, so that the error releases the pass's memory
            yield result
            first += size


def _attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return causal attention by torch's own kernel.

    `_FusedAttention` does not replace this call, because the call has the argument ``attn_mask``.
    """
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=None, is_causal=True)


class _AttentionGradients(torch.autograd.Function):
    """The gradients of causal attention, which repeat its forward pass, so that only its inputs are stored."""

    @staticmethod
    def forward(queries: Tensor, keys: Tensor, values: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (queries, keys, values)]
            attended = _attention(*inputs)
        return torch.autograd.grad(attended, inputs, gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Store nothing, because no second derivative is needed."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        gradients = _AttentionGradients.apply(*_fold_rows_into_batch(info.batch_size, in_dims, tensors))
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in gradients), (0, 0, 0)  # rows first


class _CausalAttention(torch.autograd.Function):
    """Causal attention ``(batch, heads, time, size)`` that torch's ``vmap`` batches by folding the rows into the batch.

    Torch itself has no such rule for its fused kernels: it would call them row by row.
    """

    @staticmethod
    def forward(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return _attention(queries, keys, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _AttentionGradients.apply(*ctx.saved_tensors, gradient)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        attended: Tensor = _CausalAttention.apply(*_fold_rows_into_batch(info.batch_size, in_dims, tensors))
        return attended.unflatten(0, (info.batch_size, -1)), 0


def _fold_rows_into_batch(rows: int, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Return tensors ``(rows * batch, ...)`` for a kernel without a dimension of rows.

    Args:
        in_dims: dimension of the rows in each tensor; None for a tensor that all rows share.
        tensors: tensors ``(batch, ...)`` with one more dimension for the rows.
    """
    folded = []
    for x, dim in zip(tensors, in_dims, strict=True):
        rows_first = x.expand(rows, *x.shape) if dim is None else x.movedim(dim, 0)  # (rows, batch, ...)
        folded.append(rows_first.flatten(0, 1))
    return folded


class _FusedAttention(TorchFunctionMode):
    """A context in which torch computes causal attention by `_CausalAttention`."""

    @override
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention and kwargs == {"is_causal": True} and len(args) == 3:
            return _CausalAttention.apply(*args)
        return func(*args, **(kwargs or {}))


def attention_kernels(*, fused: bool) -> AbstractContextManager[object]:
    """Return a context for a pass that ``vmap`` batches: causal attention is computed by fused kernels, or by products.

    Products store ``(heads, time, time)`` weights, and are faster only for short windows on a CPU. On one core, their
    time for a step of 8 GPTs is 0.7 times that of fused kernels at 16 positions, 1.0 at 32, and 1.9 at 256.
    """
    return _FusedAttention() if fused else sdpa_kernel(SDPBackend.MATH)
