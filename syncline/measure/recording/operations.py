"""What computing is counted as: the FLOPs and bytes of each operation that a rank dispatches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils.flop_counter import flop_registry

from syncline.measure.recording.optimizers import Costs, KnownSteps

VIEWS = frozenset({"view", "t", "transpose", "expand", "slice", "select", "detach", "alias", "permute", "unsqueeze",
                   "squeeze", "as_strided", "split", "chunk", "unbind", "_unsafe_view", "_reshape_alias", "lift_fresh",
                   "split_with_sizes", "is_same_size", "empty", "empty_like", "empty_strided", "new_empty",
                   "new_empty_strided", "unflatten", "view_as_real", "view_as_complex", "diagonal", "unfold",
                   "resize_", "set_", "_local_scalar_dense"})  # fmt: skip
"""Operations that move nothing."""

OVERWRITING = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "normal_",
                         "uniform_"})  # fmt: skip
"""Operations that do not read what they write to."""

LOOKING_UP = frozenset({"embedding", "index_select", "gather", "index"})
"""Operations that read of their first argument only what they hand out."""

SILENT = frozenset({"c10d", "_c10d_functional", "profiler", "prim", "record_function"})
"""Namespaces of operations that compute nothing."""

TORCH = Path(torch.__file__).parent
HOSTS = f"{TORCH}/optim/", f"{TORCH}/utils/data/"
WRAPPERS = f"{TORCH}/_compile.py", f"{TORCH}/_dynamo/", str(Path(__file__).parent)

Note = Callable[[float, float], None]


class OperationCounter(TorchDispatchMode):
    """Counts what is dispatched while it is on, and changes nothing.

    Matrix products, convolutions and attention have FLOPs by torch's own formulas; of everything else the bytes that
    are read and written count alone.

    Args:
        note: told the FLOPs and bytes of each operation.
        listens: whether it counts now; inside a collective it does not.
        reads: told that the host reads what an operation has made.
    """

    def __init__(self, note: Note, listens: Callable[[], bool], reads: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.note, self.listens, self.reads = note, listens, reads
        self._known: dict[Any, tuple[tuple[float, float] | None, bool]] = {}
        self.steps: KnownSteps | None = None

    @contextmanager
    def know_steps(self, note: Callable[[Costs], None], others: Callable[[], int]) -> Iterator[OperationCounter]:
        """Count, and a step of an optimizer once; see ``KnownSteps``."""
        with KnownSteps(self, note, self.listens, others) as self.steps, self:
            yield self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would put two calls around each operation, which take longer than counting it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for one in types:
            if one is not Tensor and one is not Parameter and is_traceable_wrapper_subclass_type(one):
                return NotImplemented  # a DTensor's own operations follow, on what this rank has of it
        if func.namespace == "aten":
            with torch._C.DisableTorchFunction():  # else a mode of functions is told of each, and of each shape, again
                return self._counted(func, args, kwargs)
        return self._counted(func, args, kwargs)

    def _counted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        if self.listens():
            key: list[Any] = [func]
            add_shapes(args, key)
            add_shapes((out,), key)
            of = tuple(key)
            known = self._known.get(of)
            if known is None:
                known = self._known[of] = cost_of(func, args, kwargs or {}, out), is_read(func)
            cost, is_read_now = known
            if cost is not None:
                self.note(*cost)
                if self.steps is not None and self.steps.counted is not None:
                    self.steps.counted.append(cost)
            if is_read_now and not is_of_host():
                self.reads()
        return out


def add_shapes(values: Iterable[Any], key: list[Any]) -> None:
    """Add to a key what an operation's cost depends on of its arguments or results."""
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            key.append(value.shape)
            key.append(value.dtype)
        elif kind is list or kind is tuple:
            add_shapes(value, key)
            key.append(None)  # where it ends
        elif isinstance(value, Tensor):
            key.append(value.shape)
            key.append(value.dtype)


@cache
def is_read(func: Any) -> bool:
    """Whether the host cannot go on before it knows what an operation made: a number, or how many there are."""
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def is_of_host() -> bool:
    """Whether torch itself reads: counters and orders of examples, which are in the host's memory on any machine."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(WRAPPERS):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HOSTS)


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
    formula = flop_registry.get(packet)
    flops = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    return flops, float(moved_bytes(name, func._schema, args, kwargs, out))


def moved_bytes(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Bytes that an operation reads and writes: its arguments, those it changes twice, and results that are new."""
    if name == "all_gather_copy_in":  # FSDP2's own, into this rank's part of what it is handed
        return 2 * sum(x.numel() * x.element_size() for x in tensors_in(args[0]))
    made = list(tensors_in(out))
    read, changed = 0, 0
    for place, argument in enumerate(schema.arguments):
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        own = list(tensors_in(given))
        nbytes = sum(x.numel() * x.element_size() for x in own)
        writes = argument.alias_info is not None and argument.alias_info.is_write and argument.name != "grads"
        if writes:
            changed += nbytes
            made = [x for x in made if not any(x is one for one in own)]
        if name in LOOKING_UP and place == 0:
            nbytes = min(nbytes, sum(x.numel() * x.element_size() for x in made))
        if not (writes and (name in OVERWRITING or argument.kwarg_only)):
            read += nbytes
    return read + changed + sum(x.numel() * x.element_size() for x in made)


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
