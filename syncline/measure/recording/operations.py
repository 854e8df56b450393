"""Counts of computation: the FLOPs and bytes of each operation that a rank dispatches.

Steps of torch's optimizers are counted once, because the inputs of a step determine its operations. Half of the
operations of a small model are the optimizer's; each takes some microseconds, and so does counting it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
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
from syncline.measure.recording.record import CountedOperation

VIEWS = frozenset({"view", "t", "transpose", "expand", "slice", "select", "detach", "alias", "permute", "unsqueeze",
                   "squeeze", "as_strided", "split", "chunk", "unbind", "_unsafe_view", "_reshape_alias", "lift_fresh",
                   "split_with_sizes", "is_same_size", "empty", "empty_like", "empty_strided", "new_empty",
                   "new_empty_strided", "unflatten", "view_as_real", "view_as_complex", "diagonal", "unfold",
                   "resize_", "set_", "_local_scalar_dense"})  # fmt: skip
"""Operations that move no data."""

OVERWRITING = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "normal_",
                         "uniform_"})  # fmt: skip
"""Operations that overwrite a tensor without reading it."""

LOOKUPS = frozenset({"embedding", "index_select", "gather", "index"})
"""Operations that read only those parts of their first argument that they return."""

DECOMPOSITIONS: dict[str, Kind] = {"linalg_qr": "qr", "_linalg_eigh": "eigh"}
"""Decompositions of matrices, with the kinds by which the cost model times them."""

TIMELESS_NAMESPACES = frozenset({"c10d", "_c10d_functional", "profiler", "prim", "record_function"})
"""Namespaces of operations that do no computation."""

SHAPE_ONLY_OPTIMIZERS = frozenset({
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.Adadelta,
    torch.optim.Adamax, torch.optim.NAdam, torch.optim.RMSprop,
})  # fmt: skip
"""Optimizers whose operations depend only on shapes, options, and whether a state exists.

The operations of other optimizers depend on values or on the number of steps.
"""

TORCH_FOLDER = Path(torch.__file__).parent

HOST_CODE = f"{TORCH_FOLDER}/optim/", f"{TORCH_FOLDER}/utils/data/"
"""Folders of torch's optimizers and data loaders, which read counters and indices that are in host memory."""

AUTOGRAD_ENGINE = f"{TORCH_FOLDER}/autograd/graph.py"
"""The file whose function enters the C++ code of backward passes."""

WRAPPERS = f"{TORCH_FOLDER}/_compile.py", f"{TORCH_FOLDER}/_dynamo/", str(Path(__file__).parent)
"""Files whose functions only pass calls on."""

AUTOGRAD_THREADS = "pt_autograd"
"""What the names of the threads that compute gradients on GPUs begin with."""

thread_name: Callable[[], str] = getattr(torch._C, "_get_thread_name", lambda: AUTOGRAD_THREADS)
"""The function that returns the name of the current thread; torch before 2.6 has none, and counts the operations."""


class KnownSteps:
    """A context that switches a counter off during optimizer steps that it has counted before.

    Args:
        counter: the active counter.
        add_operations: function that is called with the operations of a step that is not counted again.
        num_events: function that returns the number of events so far. A step with an event does more than compute, so
            it is counted each time.
    """

    def __init__(
        self,
        counter: OperationCounter,
        add_operations: Callable[[list[CountedOperation]], None],
        num_events: Callable[[], int],
    ) -> None:
        self.counter, self.add_operations, self.num_events = counter, add_operations, num_events
        self.operations_of_step: list[CountedOperation] | None = None
        """The operations so far of the step that is being counted; None outside such a step."""
        self._known_steps: dict[Any, list[CountedOperation]] = {}  # operations of counted steps, by `step_key`
        self._key_of_step: Any = None  # `step_key` of the step that is being counted
        self._num_events_before_step = 0
        self._is_counter_off = False
        self._disabled_function_modes: Any = None  # a context in which torch's function modes are off
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> KnownSteps:
        self._hooks = [
            register_optimizer_step_pre_hook(self._begin_step),
            register_optimizer_step_post_hook(self._end_step),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Switch the counter off if the step's operations are known; otherwise begin to collect them."""
        if self._is_counter_off:  # the previous step raised an error, and the script went on
            self._switch_counter_on()
        self.operations_of_step = None
        _, *step_arguments = args  # the optimizer comes first
        has_closure = kwargs.get("closure") is not None or any(value is not None for value in step_arguments)
        if type(optimizer) not in SHAPE_ONLY_OPTIMIZERS or has_closure:
            return
        if _get_current_dispatch_mode() is not self.counter or not self.counter.is_counting():
            return
        key = step_key(optimizer)
        if key not in self._known_steps:
            self._key_of_step, self._num_events_before_step = key, self.num_events()
            self.operations_of_step = []
            return
        self.add_operations(self._known_steps[key])
        self._is_counter_off = True
        self.counter.__exit__(None, None, None)
        # Function modes, such as `CudaOnCpu`, would only take time.
        self._disabled_function_modes = torch._C.DisableTorchFunction()
        self._disabled_function_modes.__enter__()

    def _end_step(self, *_: Any) -> None:
        """Switch the counter on again, or keep the collected operations of a step that did nothing but compute."""
        if self._is_counter_off:
            self._switch_counter_on()
        elif self.operations_of_step is not None and self.num_events() == self._num_events_before_step:
            self._known_steps[self._key_of_step] = self.operations_of_step
        self.operations_of_step = None

    def _switch_counter_on(self) -> None:
        """Switch the counter and torch's function modes on again after an optimizer step that was not counted."""
        self._is_counter_off = False
        self._disabled_function_modes.__exit__(None, None, None)
        self.counter.__enter__()


def step_key(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return a key of everything that the operations of an optimizer's step depend on.

    The learning rate is only a factor, so its type counts and its value does not.
    """
    key: list[Any] = [id(optimizer)]
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name == "params":
                continue
            is_hashable = isinstance(value, int | float | str | tuple | None)
            key.append(value if is_hashable and name != "lr" else type(value))
        for parameter in group["params"]:
            layout = None if parameter.grad is None else parameter.grad.layout
            num_state_tensors = len(optimizer.state.get(parameter, ()))  # 0 before the first step
            key += parameter.shape, layout, num_state_tensors
    return tuple(key)


class OperationCounter(TorchDispatchMode):
    """A dispatch mode that counts the operations that run while it is active, and changes no result.

    Matrix products, convolutions and attention have FLOPs by torch's formulas. For all other operations only the bytes
    that they read and write count.

    Args:
        add_operation: function that is called with each operation.
        is_counting: function that returns whether to count now; inside a collective it returns False.
        handle_read: function that is called when the host reads the result of an operation, as ``.item()`` does.
    """

    def __init__(
        self,
        add_operation: Callable[[CountedOperation], None],
        is_counting: Callable[[], bool],
        handle_read: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.add_operation, self.is_counting, self.handle_read = add_operation, is_counting, handle_read
        # By signature: the cost of an operation, and whether the host reads its result.
        self._known_costs: dict[Any, tuple[CountedOperation | None, bool]] = {}
        self.known_steps: KnownSteps | None = None

    @contextmanager
    def count_steps_once(
        self, add_operations: Callable[[list[CountedOperation]], None], num_events: Callable[[], int]
    ) -> Iterator[OperationCounter]:
        """Count the operations in a ``with`` block, but those of equal optimizer steps only once, see `KnownSteps`."""
        with KnownSteps(self, add_operations, num_events) as self.known_steps, self:
            yield self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; otherwise torch makes two more calls for each operation, which take longer than counting it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operation, and run it."""
        for tensor_class in types:
            if tensor_class not in (Tensor, Parameter) and is_traceable_wrapper_subclass_type(tensor_class):
                return NotImplemented  # a DTensor then dispatches operations on this rank's shard
        if func.namespace == "aten":
            with torch._C.DisableTorchFunction():  # function modes such as `CudaOnCpu` have handled this call already
                return self._run_and_count(func, args, kwargs)
        return self._run_and_count(func, args, kwargs)

    def _run_and_count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run an operation, and count it if it is the script's."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        tensor = next(tensors_in([result, *args]), None)
        if not self.is_counting() or is_called_by_gloo() or self.has_no_data(tensor):
            return result
        if getattr(tensor, "dtype", None) is torch.int32 and is_called_in_backward_by_cpp():
            self._count_usage(func, args)
            return result
        signature: list[Any] = [func]
        append_shapes(args, signature)
        append_shapes((result,), signature)
        key = tuple(signature)
        cost_and_is_read = self._known_costs.get(key)
        if cost_and_is_read is None:
            # The host waits for a result whose value or shape depends on data.
            is_read = bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))
            cost_and_is_read = cost_of(func, args, kwargs=kwargs or {}, out=result), is_read
            self._known_costs[key] = cost_and_is_read
        cost, is_read = cost_and_is_read
        if cost is not None:
            self.add_operation(cost)
            if self.known_steps is not None and self.known_steps.operations_of_step is not None:
                self.known_steps.operations_of_step.append(cost)
        if is_read and not is_called_on_host_data():
            self.handle_read()
        return result

    def _count_usage(self, func: Any, args: tuple[Any, ...]) -> None:
        """Count an operation of DDP on its map of used parameters, which is in host memory and on the device.

        Only the copies between the two take time on the device. The host waits for the one back, which blocks.
        """
        if func is not torch.ops.aten.copy_.default:
            return
        self.add_operation(CountedOperation(flops=0.0, nbytes=2.0 * tensor_bytes(args[:1])))
        is_asynchronous = len(args) > 2 and args[2]
        if not is_asynchronous:
            self.handle_read()

    def has_no_data(self, tensor: Any) -> bool:
        """Return whether an operation on a tensor only finds a shape: on the device ``meta``, or on fake tensors.

        A DTensor finds the shape of a new result by an operation on fake tensors of the whole tensor's size.
        """
        return isinstance(tensor, FakeTensor) or getattr(tensor, "is_meta", False)


def append_shapes(values: Iterable[Any], signature: list[Any]) -> None:
    """Append the shapes and types of tensors to an operation's signature, on which the operation's cost depends."""
    for value in values:
        value_type = type(value)
        if value_type is list or value_type is tuple:
            append_shapes(value, signature)
            signature.append(None)  # marks the end of the list
        elif value_type is Tensor or value_type is Parameter or isinstance(value, Tensor):  # the slow test comes last
            signature.append(value.shape)
            signature.append(value.dtype)


def caller_file() -> str:
    """Return the file of the function that called the operation, past `WRAPPERS`; empty if C++ code has in a thread."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(WRAPPERS):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def is_called_on_host_data() -> bool:
    """Return whether an optimizer or data loader of torch called the operation; they read numbers in host memory."""
    return caller_file().startswith(HOST_CODE)


def is_called_in_backward_by_cpp() -> bool:
    """Return whether C++ code has called the operation in a backward pass, without any function in Python between."""
    return caller_file() == AUTOGRAD_ENGINE


def is_called_by_gloo() -> bool:
    """Return whether gloo runs the operation for a collective, as when it copies what it has gathered to the tensors.

    Gloo's threads have the dispatch modes of the thread that started the collective. The other threads in which C++
    code runs operations compute gradients; a function in Python, such as a communication hook, is the script's.
    """
    return not caller_file() and not thread_name().startswith(AUTOGRAD_THREADS)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results, also in nested lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def cost_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> CountedOperation | None:
    """Return the FLOPs, bytes and shape of a dispatched operation; None if it takes no time."""
    packet = func._overloadpacket
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace in TIMELESS_NAMESPACES or name in VIEWS:
        return None
    formula = flop_registry.get(packet)
    flops = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    nbytes = float(moved_bytes(name, func._schema, args, kwargs, out))
    if name in DECOMPOSITIONS:
        matrices = args[0]
        *batch_sizes, rows, columns = matrices.shape
        matrix_shape = (rows, columns) if name == "linalg_qr" else (columns,)  # only square matrices have eigenvalues
        shape = tuple(float(size) for size in (*matrix_shape, math.prod(batch_sizes)))
        precision = format_of(matrices.dtype)
        return CountedOperation(0.0, nbytes, kind=DECOMPOSITIONS[name], precision=precision, shape=shape)
    if not flops:
        return CountedOperation(flops=0.0, nbytes=nbytes)
    operands = [x for x in tensors_in([*args, *kwargs.values()]) if x.is_floating_point()]
    precision = format_of(operands[0].dtype)
    if "attention" in name:
        return _attention_cost(name, func._schema, args, kwargs, CountedOperation(flops, nbytes, precision=precision))
    return CountedOperation(
        flops, nbytes, kind="product", precision=precision, shape=product_shape(name, operands, out, flops)
    )


FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8"}
"""Number formats of products by the type of their operands; other types are fp32, or TF32 if the script allows it."""


def format_of(dtype: torch.dtype) -> str:
    """Return the number format of a product of tensors of this type."""
    return FORMATS.get(dtype, "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32")


def product_shape(name: str, operands: Sequence[Tensor], out: Any, flops: float) -> tuple[float, ...]:
    """Return the shape of a matrix product, ``(m, n, k)`` for ``(m, k)`` times ``(k, n)``, from its number of FLOPs.

    A batch of products has the shape ``(m, n, k, products)``. A convolution multiplies patches by filters, and n is its
    number of output channels. Each product has ``2 m n k`` FLOPs, which determines k.
    """
    result = next(tensors_in(out))
    num_products = float(result.shape[0]) if name in ("bmm", "baddbmm") else 1.0
    n = float(result.shape[1] if "convolution" in name else result.shape[-1])
    m = result.numel() / n / num_products
    k = flops / (2 * m * n * num_products)
    return (m, n, k) if num_products == 1 else (m, n, k, num_products)


def _attention_cost(
    name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], counted: CountedOperation
) -> CountedOperation:
    """Return ``counted`` with the FLOPs and shape of fused attention; a causal mask leaves half of the scores."""
    names = [argument.name for argument in schema.arguments]
    arguments = dict(zip(names, args, strict=False)) | kwargs  # the last arguments may be left out
    causal = bool(arguments.get("is_causal"))
    batch, heads, num_queries, head_size = (float(size) for size in arguments["query"].shape)
    num_keys = float(arguments["key"].shape[-2])
    shape = (batch, heads, num_queries, num_keys, head_size)
    kind: Kind = "attention backward" if "backward" in name else "attention"
    return counted._replace(flops=Operation(kind, shape, causal=causal).flops, kind=kind, shape=shape, causal=causal)


def moved_bytes(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the bytes of the arguments that an operation reads, and of the arguments and results that it writes.

    An argument that the operation reads and changes counts twice.
    """
    if name == "all_gather_copy_in":  # FSDP2 copies its inputs into this rank's part of the buffer
        return 2 * tensor_bytes(tensors_in(args[0]))
    new_results = list(tensors_in(out))
    read_bytes = written_bytes = 0
    for index, argument in enumerate(schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        tensors = list(tensors_in(value))
        nbytes = tensor_bytes(tensors)
        # Fused optimizers declare that they change the gradients, but they do so only for a `GradScaler`.
        is_written = argument.alias_info is not None and argument.alias_info.is_write and argument.name != "grads"
        if is_written:
            written_bytes += nbytes
            new_results = [x for x in new_results if not any(x is tensor for tensor in tensors)]
        if name in LOOKUPS and index == 0:  # the table, of which only the returned rows are read
            nbytes = min(nbytes, tensor_bytes(new_results))
        is_only_written = is_written and (name in OVERWRITING or argument.kwarg_only)  # such as ``out=``
        if not is_only_written:
            read_bytes += nbytes
    return read_bytes + written_bytes + tensor_bytes(new_results)


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the number of bytes of some tensors together."""
    return sum(x.numel() * x.element_size() for x in tensors)


def flash_attention_on_cpu(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """Return the FLOPs of attention on a CPU: one product of queries and keys, and one of scores and values."""
    (batch, heads, num_queries, query_width), num_keys, value_width = query, key[-2], value[-1]
    return int(2 * batch * heads * num_queries * num_keys * (query_width + value_width))


def register_attention() -> None:
    """Register FLOP formulas of attention on a CPU, which torch lacks."""
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def backward_flops(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return flash_attention_on_cpu(query, key, value) * 5 // 2  # 5 products; the forward pass has 2

    for operation, formula in ((forward, flash_attention_on_cpu), (backward, backward_flops)):
        if operation not in flop_registry:
            register_flop_formula(operation)(formula)
