"""Counts of computation: the FLOPs and bytes of each operation that a rank dispatches.

Steps of torch's optimizers are counted once, because the inputs of a step determine its operations. Half of the
operations of a small model are the optimizer's; each takes some microseconds, and so does counting it.
"""

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
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass_type,
)
from torch.utils.flop_counter import flop_registry, register_flop_formula
from torch.utils.hooks import RemovableHandle

from syncline.costmodel.compute.operations import Kind, Operation
from syncline.measure.recording.record import Counted

VIEWS = frozenset({"view", "t", "transpose", "expand", "slice", "select", "detach", "alias", "permute", "unsqueeze",
                   "squeeze", "as_strided", "split", "chunk", "unbind", "_unsafe_view", "_reshape_alias", "lift_fresh",
                   "split_with_sizes", "is_same_size", "empty", "empty_like", "empty_strided", "new_empty",
                   "new_empty_strided", "unflatten", "view_as_real", "view_as_complex", "diagonal", "unfold",
                   "resize_", "set_", "_local_scalar_dense"})  # fmt: skip
"""Operations that move no data."""

OVERWRITING = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "normal_",
                         "uniform_"})  # fmt: skip
"""Operations that overwrite a tensor without reading it."""

LOOKING_UP = frozenset({"embedding", "index_select", "gather", "index"})
"""Operations that read only those parts of their first argument that they return."""

DECOMPOSITIONS: dict[str, Kind] = {"linalg_qr": "qr", "_linalg_eigh": "eigh"}
"""Decompositions of matrices, with the kinds of their prices."""

SILENT = frozenset({"c10d", "_c10d_functional", "profiler", "prim", "record_function"})
"""Namespaces of operations that do no computation."""

REGULAR = frozenset({
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.Adadelta,
    torch.optim.Adamax, torch.optim.NAdam, torch.optim.RMSprop,
})  # fmt: skip
"""Optimizers whose operations depend only on shapes, options, and whether a state exists.

The operations of other optimizers depend on values or on the number of steps.
"""

Costs = list[Counted]
"""Several operations."""

TORCH = Path(torch.__file__).parent
HOSTS = f"{TORCH}/optim/", f"{TORCH}/utils/data/"
WRAPPERS = f"{TORCH}/_compile.py", f"{TORCH}/_dynamo/", str(Path(__file__).parent)

Note = Callable[[Counted], None]


class KnownSteps:
    """A context that switches a counter off during optimizer steps that it has counted before.

    Args:
        counter: the active counter.
        note: called with the FLOPs and bytes of the operations of a step that is not counted again.
        num_events: returns a number that changes if a step does anything besides computation.
    """

    def __init__(self, counter: OperationCounter, note: Callable[[Costs], None], num_events: Callable[[], int]) -> None:
        """Begin without a known step."""
        self.counter, self.note, self.num_events = counter, note, num_events
        self.counted: Costs | None = None
        """The costs of the step that is being counted; None outside such a step."""
        self._known: dict[Any, Costs] = {}
        self._begun: tuple[Any, int] | None = None
        self._is_off = False
        self._plain: Any = None
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> KnownSteps:
        self._hooks = [register_optimizer_step_pre_hook(self._begins), register_optimizer_step_post_hook(self._ends)]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Switch the counter off if the step's operations are known; otherwise begin to note them."""
        if self._is_off:  # the previous step raised an error, and the script went on
            self._on()
        self._begun = self.counted = None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if type(optimizer) not in REGULAR or closure is not None or _get_current_dispatch_mode() is not self.counter:
            return
        if not self.counter.is_counting():
            return
        key = step_key(optimizer)
        costs = self._known.get(key)
        if costs is None:
            self._begun, self.counted = (key, self.num_events()), []
            return
        self.note(costs)
        self._is_off = True
        self.counter.__exit__(None, None, None)
        self._plain = torch._C.DisableTorchFunction()  # function modes need not see the step either
        self._plain.__enter__()

    def _ends(self, *_: Any) -> None:
        """Switch the counter on again, or keep the operations that were noted."""
        if self._is_off:
            self._on()
        elif self._begun is not None and self.counted is not None:
            key, num_events = self._begun
            if self.num_events() == num_events:
                self._known[key] = self.counted
        self._begun = self.counted = None

    def _on(self) -> None:
        """Switch the counter on again behind an optimizer step that was not counted."""
        self._is_off = False
        self._plain.__exit__(None, None, None)
        self.counter.__enter__()


def step_key(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return a key of everything that the operations of a step depend on.

    The learning rate is only a factor, so its type counts and its value does not.
    """
    state = optimizer.state
    key: list[Any] = [id(optimizer)]
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name == "lr":
                key.append(type(value))
            elif name != "params":
                key.append(value if isinstance(value, int | float | str | tuple | None) else type(value))
        for parameter in group["params"]:
            gradient = parameter.grad
            key += parameter.shape, None if gradient is None else gradient.layout, len(state.get(parameter, ()))
    return tuple(key)


class OperationCounter(TorchDispatchMode):
    """A dispatch mode that counts the operations that run while it is active, and changes no result.

    Matrix products, convolutions and attention have FLOPs by torch's formulas. For all other operations only the bytes
    that they read and write count.

    Args:
        note: called with each operation.
        is_counting: returns whether to count now; inside a collective it returns False.
        reads: called when the host reads the result of an operation, as ``.item()`` does.
    """

    def __init__(self, note: Note, is_counting: Callable[[], bool], reads: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.note, self.is_counting, self.reads = note, is_counting, reads
        self._known: dict[Any, tuple[Counted | None, bool]] = {}
        self.steps: KnownSteps | None = None

    @contextmanager
    def know_steps(self, note: Callable[[Costs], None], num_events: Callable[[], int]) -> Iterator[OperationCounter]:
        """Count operations in a ``with`` block, but those of equal optimizer steps only once, see ``KnownSteps``."""
        with KnownSteps(self, note, num_events) as self.steps, self:
            yield self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, as torch would else wrap each operation in two calls that take longer than counting it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operation, and run it."""
        for kind in types:
            if kind is not Tensor and kind is not Parameter and is_traceable_wrapper_subclass_type(kind):
                return NotImplemented  # the DTensor then dispatches operations on this rank's shard
        if func.namespace == "aten":
            with torch._C.DisableTorchFunction():  # else function modes see each operation again
                return self._counted(func, args, kwargs)
        return self._counted(func, args, kwargs)

    def _counted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run an operation, and count it if it is the script's."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        if self.is_counting():
            key: list[Any] = [func]
            add_shapes(args, key)
            add_shapes((result,), key)
            signature = tuple(key)
            entry = self._known.get(signature)
            if entry is None:
                entry = self._known[signature] = cost_of(func, args, kwargs=kwargs or {}, out=result), is_read(func)
            cost, is_read_now = entry
            if cost is not None:
                self.note(cost)
                if self.steps is not None and self.steps.counted is not None:
                    self.steps.counted.append(cost)
            if is_read_now and not is_of_host():
                self.reads()
        return result


def add_shapes(values: Iterable[Any], key: list[Any]) -> None:
    """Append the shapes and types of tensors to a key; an operation's cost depends on them."""
    for value in values:
        kind = type(value)
        if kind is list or kind is tuple:
            add_shapes(value, key)
            key.append(None)  # marks the end of the list
        elif kind is Tensor or kind is Parameter or isinstance(value, Tensor):  # the slow test comes last
            key.append(value.shape)
            key.append(value.dtype)


@cache
def is_read(func: Any) -> bool:
    """Return whether the host needs the result of an operation to go on: its value or its shape."""
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def is_of_host() -> bool:
    """Return whether torch's optimizers or data loaders call, whose counters and indices are in host memory."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(WRAPPERS):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HOSTS)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results, also in nested lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def cost_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Counted | None:
    """Return the FLOPs, bytes and shape of a dispatched operation; None if it takes no time."""
    packet = func._overloadpacket
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace in SILENT or name in VIEWS:
        return None
    formula = flop_registry.get(packet)
    flops = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    nbytes = float(moved_bytes(name, func._schema, args, kwargs, out))
    if name in DECOMPOSITIONS:
        matrix = args[0]
        sides = matrix.shape[-2:] if name == "linalg_qr" else matrix.shape[-1:]
        shape = (*map(float, sides), float(matrix[..., 0, 0].numel()))
        return Counted(0.0, nbytes, DECOMPOSITIONS[name], format_of(matrix.dtype), shape)
    if not flops:
        return Counted(0.0, nbytes)
    operands = [x for x in tensors_in([*args, *kwargs.values()]) if x.is_floating_point()]
    precision = format_of(operands[0].dtype)
    if "attention" in name:
        return _attention(name, func._schema, args, kwargs, Counted(flops, nbytes, precision=precision))
    return Counted(flops, nbytes, kind="product", precision=precision, shape=product_shape(name, operands, out, flops))


FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8"}
"""Number formats of products by the type of their operands; other types are fp32, or TF32 if the script allows it."""


def format_of(dtype: torch.dtype) -> str:
    """Return the number format of a product of tensors of this type."""
    return FORMATS.get(dtype, "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32")


def product_shape(name: str, operands: Sequence[Tensor], out: Any, flops: float) -> tuple[float, ...]:
    """Return ``(m, n, k)``, or ``(m, n, k, groups)`` of several products, of an operation with this many FLOPs.

    A convolution is the product of its patches and filters: n are its output channels.
    """
    result = next(iter(tensors_in(out)))
    groups = float(result.shape[0]) if name in ("bmm", "baddbmm") else 1.0
    n = float(result.shape[1] if "convolution" in name else result.shape[-1])
    m = result.numel() / n / groups
    shape = (m, n, flops / (2 * m * n * groups))
    return shape if groups == 1 else (*shape, groups)


def _attention(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], counted: Counted) -> Counted:
    """Return the FLOPs and shape of fused attention; a causal mask leaves half of the scores."""
    values = {
        argument.name: args[index] if index < len(args) else kwargs.get(argument.name)
        for index, argument in enumerate(schema.arguments)
    }
    query, key, causal = values["query"], values["key"], bool(values.get("is_causal"))
    assert query is not None and key is not None
    batch, heads, queries, head = (float(size) for size in query.shape)
    shape = (batch, heads, queries, float(key.shape[-2]), head)
    backward = "backward" in name
    flops = Operation("attention backward" if backward else "attention", shape, causal=causal).flops
    return counted._replace(
        flops=flops, kind="attention backward" if backward else "attention", shape=shape, causal=causal
    )


def moved_bytes(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the bytes that an operation reads and writes: of its arguments, and of its new results.

    An argument that the operation reads and changes counts twice.

    Args:
        name: torch's name of the operation.
        schema: torch's schema of the operation's arguments.
        args: the arguments passed by position.
        kwargs: the arguments passed by name.
        out: the results.
    """
    if name == "all_gather_copy_in":  # FSDP2 copies its inputs into this rank's part of the buffer
        return 2 * sum(x.numel() * x.element_size() for x in tensors_in(args[0]))
    results = list(tensors_in(out))
    read_bytes, written_bytes = 0, 0
    for index, argument in enumerate(schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        tensors = list(tensors_in(value))
        nbytes = sum(x.numel() * x.element_size() for x in tensors)
        writes = argument.alias_info is not None and argument.alias_info.is_write and argument.name != "grads"
        if writes:
            written_bytes += nbytes
            results = [x for x in results if not any(x is tensor for tensor in tensors)]
        if name in LOOKING_UP and index == 0:
            nbytes = min(nbytes, sum(x.numel() * x.element_size() for x in results))
        if not (writes and (name in OVERWRITING or argument.kwarg_only)):
            read_bytes += nbytes
    return read_bytes + written_bytes + sum(x.numel() * x.element_size() for x in results)


def flash_attention_on_cpu(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """Return the FLOPs of CPU attention, which torch's registry lacks: two products of the scores' size."""
    (batch, heads, queries, width), keys, out = query, key[-2], value[-1]
    return int(2 * batch * heads * queries * keys * (width + out))


def register_attention() -> None:
    """Register FLOP formulas for attention on a CPU; the backward pass has five products, the forward pass two."""
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    if forward not in flop_registry:
        register_flop_formula(forward)(flash_attention_on_cpu)
    if backward not in flop_registry:

        @register_flop_formula(backward)
        def of_backward(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
            return flash_attention_on_cpu(query, key, value) * 5 // 2
