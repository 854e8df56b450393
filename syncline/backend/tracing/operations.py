"""What computing is counted as: the FLOPs and bytes of each operation that a rank dispatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

VIEWS = frozenset({"view", "t", "transpose", "expand", "slice", "select", "detach", "alias", "permute", "unsqueeze",
                   "squeeze", "as_strided", "split", "chunk", "unbind", "_unsafe_view", "_reshape_alias", "lift_fresh",
                   "split_with_sizes", "is_same_size", "empty", "empty_like", "empty_strided"})  # fmt: skip
"""Operations that move nothing."""

SILENT = frozenset({"c10d", "_c10d_functional", "profiler", "prim", "record_function"})
"""Namespaces of operations that compute nothing."""

Note = Callable[[float, float], None]


class OperationCounter(TorchDispatchMode):
    """Counts what is dispatched while it is on, and changes nothing.

    Matrix products, convolutions and attention have FLOPs by torch's own formulas; of everything else the bytes that
    are read and written count alone.

    Args:
        note: told the FLOPs and bytes of each operation.
        listens: whether it counts now; inside a collective it does not.
    """

    def __init__(self, note: Note, listens: Callable[[], bool]) -> None:
        super().__init__()
        self.note, self.listens = note, listens
        self._known: dict[Any, tuple[float, float] | None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self.listens():
            key = func, tuple(shape_of(x) for x in tensors_in(args)), tuple(shape_of(x) for x in tensors_in(out))
            if key not in self._known:
                self._known[key] = cost_of(func, args, kwargs, out)
            if (cost := self._known[key]) is not None:
                self.note(*cost)
        return out


def shape_of(x: Tensor) -> tuple[Any, ...]:
    """What an operation's cost depends on."""
    return x.shape, x.dtype


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)


def cost_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[float, float] | None:
    """FLOPs and bytes of an operation; None if it is none that takes time."""
    packet = func._overloadpacket
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace in SILENT or name in VIEWS:
        return None
    nbytes = sum(x.numel() * x.element_size() for x in (*tensors_in(args), *tensors_in(out)))
    formula = flop_registry.get(packet)
    flops = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    return flops, float(nbytes)


def flash_attention_on_cpu(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """FLOPs of attention as torch computes it on a CPU, which its registry lacks: two products of scores."""
    (batch, heads, asked, width), known, out = query, key[-2], value[-1]
    return int(2 * batch * heads * asked * known * (width + out))


def register_attention() -> None:
    """Count attention on a CPU, forward and backward (which makes five products where the forward pass makes two)."""
    from torch.utils.flop_counter import register_flop_formula

    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    if forward not in flop_registry:
        register_flop_formula(forward)(flash_attention_on_cpu)
    if backward not in flop_registry:

        @register_flop_formula(backward)
        def of_backward(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
            return flash_attention_on_cpu(query, key, value) * 5 // 2
