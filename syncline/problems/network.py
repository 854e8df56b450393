"""A module with one set of weights for each worker: gradients of all workers, and the task of a classifier.

The gradients of all rows (workers) come from a loop over the rows, from one batched pass, or from a batched pass that
is recorded once: compiled, or as a CUDA graph. A recorded pass saves the time in which Python launches some hundred
small operations, but it must not branch on the values of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn import functional as F

from syncline.comm import rows_share_memory
from syncline.errors import SpecError, require_one_of
from syncline.problems.base import Rows
from syncline.problems.row_passes import GradientRows, PassSize, attention_kernels, may_keep_mean

Loss = Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]
"""A function ``loss(parameters of one worker by name, inputs, targets)`` that returns a scalar."""

P = ParamSpec("P")
T = TypeVar("T")
Values = dict[str, Tensor]
Pass = Callable[[Values, Tensor, Tensor], tuple[Values, Tensor]]
"""A function from parameters ``(R, *s)`` by name, inputs and targets ``(R, batch, ...)`` of R rows to the gradients by
name and the losses ``(R,)``."""

Record = Callable[[Pass, Values, Tensor, Tensor], Pass]
"""A function that takes a pass and its arguments, and returns the recorded pass."""


def batched_pass(loss: Loss, *, fused: bool = False) -> Pass:
    """Return a function that computes the gradients of all workers at once; for ``fused`` see `attention_kernels`."""
    gradients_of_rows = vmap(grad_and_value(loss))

    def run(values: Values, inputs: Tensor, targets: Tensor) -> tuple[Values, Tensor]:
        with attention_kernels(fused=fused):
            gradients, losses = gradients_of_rows(values, inputs, targets)
        return gradients, losses

    return run


class RecordedPass:
    """A pass that is recorded at its first call and replayed at the next ones.

    A call whose arguments have other shapes, strides, data types or devices records the pass again.

    Args:
        run: the pass.
        record: function that records the pass.
        in_place: whether a replay reads the parameters at the memory addresses that they had at the recording; the pass
            is then also recorded again if a parameter has moved.
    """

    def __init__(self, run: Pass, record: Record, *, in_place: bool = False) -> None:
        self._run, self._record, self._in_place = run, record, in_place
        self._signature: object = None
        self._recorded: Pass | None = None

    def __call__(self, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses ``(R,)``, and write the gradients to ``.grad``."""
        values = {name: param.detach() for name, param in params.items()}
        for param in params.values():
            param.grad = None  # free the last step's gradients before the pass
        layouts = [(x.shape, x.stride(), x.dtype, x.device) for x in (*values.values(), inputs, targets)]
        addresses = [x.data_ptr() for x in values.values()] if self._in_place else []  # a replay reads there
        signature = (layouts, addresses)
        if self._recorded is None or signature != self._signature:
            self._recorded, self._signature = None, signature  # free a graph's memory before the next graph
            self._recorded = self._record(self._run, values, inputs, targets)
        gradients, losses = self._recorded(values, inputs, targets)
        for name, param in params.items():
            param.grad = gradients[name]
        return losses


def compiling_recorder(backend: str) -> Record:
    """Return a function that records a pass: it traces the pass as tensor operations, and compiles them.

    Raises:
        SpecError: the returned function raises it if the pass branches on values, or this machine has no compiler.
    """

    def record(run: Pass, values: Values, inputs: Tensor, targets: Tensor) -> Pass:
        """Return the pass as a function that torch has compiled."""
        from torch.fx.experimental.proxy_tensor import make_fx  # takes half a second to import

        with _torch_errors_as_spec_errors("compiled"):
            operations = make_fx(run)(values, inputs, targets)
            compiled: Pass = torch.compile(operations, backend=backend, dynamic=False)
            compiled(values, inputs, targets)  # torch compiles at the first call, which may raise an error
        return compiled

    return record


@contextmanager
def _torch_errors_as_spec_errors(execution: str) -> Iterator[None]:
    """Raise torch's errors as a `SpecError` of one line, except out-of-memory errors, which pass through."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        message_lines = str(error).strip().splitlines()
        reason = message_lines[0] if message_lines else type(error).__name__
        raise SpecError("execution", execution, f"eager, because torch raises: {reason}") from error


WARM_UP_PASSES = 3
"""Passes before a capture, in which libraries allocate memory and choose kernels."""


class CudaGraphs:
    """A capture of GPU work as CUDA graphs, which replay it with a single launch."""

    def capture(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Record work as a graph after a warm-up; return its result, and a function that replays the graph.

        Each replay writes the result to the same memory. The result is valid only after a replay.
        """
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_PASSES):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work()
        return result, graph.replay


def graph_recorder(graphs: CudaGraphs) -> Record:
    """Return a function that records a pass as a CUDA graph.

    A replay reads the parameters in place. Each batch is copied to the fixed memory that a replay reads.

    Raises:
        SpecError: the returned function raises it if the pass branches on values.
    """

    def record(run: Pass, values: Values, inputs: Tensor, targets: Tensor) -> Pass:
        """Return the pass as a function that replays a CUDA graph of it."""
        graph_inputs, graph_targets = inputs.clone(), targets.clone()
        with _torch_errors_as_spec_errors("graph"):
            (gradients, losses), replay = graphs.capture(lambda: run(values, graph_inputs, graph_targets))

        def replay_pass(_: Values, inputs: Tensor, targets: Tensor) -> tuple[Values, Tensor]:
            """Replay the graph on a batch; return copies of its results, which the next replay overwrites."""
            graph_inputs.copy_(inputs)
            graph_targets.copy_(targets)
            replay()
            return {name: gradient.clone() for name, gradient in gradients.items()}, losses.clone()

        return replay_pass

    return record


SMALL_PARAMETERS, MANY_ROWS = 2**16, 8
"""On a CPU a batched pass is faster than a loop with fewer parameters per row, and at least as many rows.

Measured on one core: a row of the loop costs about 0.11 ms beyond its arithmetic, a batched pass about 0.6 ms in all. A
loop keeps the activations of larger rows in cache."""

Execution = Literal["auto", "loop", "vmap", "compiled", "graph"]
"""Ways to compute the gradients of all workers, see `gradient_function`."""

WAYS = ("auto", "loop", "vmap")
"""Ways of `PerWorkerGradients` to compute gradients."""


class PerWorkerGradients:
    """A function that computes the loss of each worker, and the gradient of this loss.

    Args:
        execution: ``loop`` computes one row at a time, with fused attention and the activations of one row. ``vmap``
            computes all rows, or as many as fit into a GPU's memory, in one batched pass of few kernels. ``auto`` takes
            the faster: vmap on CUDA, and elsewhere for 8 or more rows of fewer than 2^16 parameters; else the loop.

    Attributes:
        keeps_mean: whether only the mean of the rows' gradients is stored, as the ``.grad`` of every row.
    """

    def __init__(self, loss: Loss, execution: Execution = "auto") -> None:
        require_one_of("problem.how", execution, WAYS)
        self._loss, self._execution, self._pass_size = loss, execution, PassSize()
        self.keeps_mean = False

    def __call__(self, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses ``(R,)``, and set ``.grad``.

        Args:
            params: parameters of all workers by name, ``(R, *s)``.
            inputs: ``(R, batch, ...)``.
            targets: ``(R, batch, ...)``.
        """
        num_rows, execution = len(inputs), self._execution
        if execution == "auto":
            parameters_per_row = sum(param.numel() for param in params.values()) / num_rows
            are_many_and_small = num_rows >= MANY_ROWS and parameters_per_row < SMALL_PARAMETERS
            execution = "vmap" if inputs.is_cuda or are_many_and_small else "loop"
        gradients = GradientRows(params, self.keeps_mean)
        if execution == "vmap":
            losses = self._batched(params, inputs, targets, gradients)
        else:
            losses = self._one_by_one(params, inputs, targets, gradients)
        gradients.store()
        return losses

    def _batched(
        self, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor, gradients: GradientRows
    ) -> Tensor:
        """Compute all workers' gradients in as few batched passes as memory allows; return the losses ``(R,)``."""
        # On a CPU ``auto`` batches only small models, whose attention is faster without a fused kernel.
        run = batched_pass(self._loss, fused=inputs.is_cuda or self._execution == "vmap")
        values = {name: param.detach() for name, param in params.items()}

        def run_rows(part: slice) -> tuple[Values, Tensor]:
            return run({name: x[part] for name, x in values.items()}, inputs[part], targets[part])

        losses = []
        for part_gradients, part_losses in self._pass_size.results(len(inputs), run_rows):
            gradients.add(part_gradients[name] for name in params)
            losses.append(part_losses)
        return torch.cat(losses)

    def _one_by_one(
        self, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor, gradients: GradientRows
    ) -> Tensor:
        """Compute the gradients of one worker after another; return the losses ``(R,)``."""
        losses = []
        # Rows that share memory can use the leaves of the first row.
        all_equal = all(rows_share_memory(param) for param in params.values())
        leaves: dict[str, Tensor] = {}
        for row, (row_inputs, row_targets) in enumerate(zip(inputs, targets, strict=True)):
            if not leaves or not all_equal:
                leaves = {name: param.detach()[row].requires_grad_() for name, param in params.items()}
            value = self._loss(leaves, row_inputs, row_targets)
            gradients.add(g.unsqueeze(0) for g in torch.autograd.grad(value, list(leaves.values())))
            losses.append(value.detach())
        return torch.stack(losses)

    def keep_mean(self, device: torch.device | str) -> bool:
        """Keep only the mean of gradients from now on, and return True, where `may_keep_mean` allows it."""
        self.keeps_mean = may_keep_mean(self._execution, device)
        return self.keeps_mean


def with_autocast(loss: Callable[P, Tensor], device: torch.device, dtype: torch.dtype | None) -> Callable[P, Tensor]:
    """Return a loss whose forward pass computes products in ``dtype``, by torch's autocast; None changes nothing."""
    if dtype is None:
        return loss

    def cast_loss(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        with torch.autocast(device.type, dtype):
            return loss(*args, **kwargs)

    return cast_loss


def gradient_function(
    execution: Execution, loss: Loss, device: torch.device | str
) -> PerWorkerGradients | RecordedPass:
    """Return the function that computes the losses and gradients of all workers in each step.

    Args:
        execution: ``compiled`` and ``graph`` record the batched pass in the first step, by torch's compiler or as a
            CUDA graph; the others are those of `PerWorkerGradients`.

    Returns:
        A function from parameters ``(R, *s)`` by name, inputs and targets to losses ``(R,)``, which sets ``.grad``.
    """
    if execution == "compiled":
        return RecordedPass(batched_pass(loss), compiling_recorder("inductor"))
    if execution == "graph":
        if torch.device(device).type != "cuda":
            raise SpecError("execution", execution, "eager or compiled, as only a CUDA device keeps graphs")
        return RecordedPass(batched_pass(loss), graph_recorder(CudaGraphs()), in_place=True)
    return PerWorkerGradients(loss, execution)


class Data(Protocol):
    """The source of a network's examples."""

    validation: tuple[Tensor, Tensor]
    """Inputs and targets of all evaluations."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of one step, drawn for each row on its own."""
        ...


def shape_only(make_module: Callable[[], T]) -> T:
    """Return a module without memory: its weights are on the meta device, and no random numbers are drawn."""
    with torch.device("meta"):
        return make_module()


def parameter_count(module: torch.nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


class FunctionalModule:
    """A module that is called with other weights than its own, as by ``torch.func.functional_call``.

    It looks up the places of the weights only once, because in a small module this takes as long as a call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Note where in the module each parameter is, so that it can be replaced."""
        self._module = module
        names = {id(parameter): name for name, parameter in module.named_parameters()}  # a tied parameter gets one name
        self._weight_slots = []
        for part in module.modules():
            for key, parameter in part._parameters.items():
                if parameter is not None:
                    self._weight_slots.append((part._parameters, key, parameter, names[id(parameter)]))

    def __call__(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the module's output for inputs with these weights, by name."""
        try:
            for part_parameters, key, _own, name in self._weight_slots:
                part_parameters[key] = weights[name]  # type: ignore[assignment]
            logits: Tensor = self._module(inputs)
        finally:
            for part_parameters, key, own_weight, _name in self._weight_slots:
                part_parameters[key] = own_weight
        return logits


class NetworkTask:
    """The task of a classifier with the mean cross-entropy (nats per target) as the loss.

    Args:
        module: a module without a row axis and without buffers; its own weights are not read.
        params: weights of all workers by name, ``(R, *s)``.
        matrices: names of the weights between hidden layers.
        flops_per_step: FLOPs of one worker in one step.
        facts: facts that ``describe`` returns in addition to the parameter count.
        execution: how gradients are computed, see `gradient_function`.
        autocast: type in which the products of gradients are computed; None: that of the parameters.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        params: dict[str, torch.nn.Parameter],
        data: Data,
        rows: Rows,
        *,
        matrices: tuple[str, ...],
        flops_per_step: float,
        facts: Mapping[str, object],
        execution: Execution,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.rows = rows
        self.module = module
        self.params = params
        self.matrices = matrices
        self.flops_per_step: float | None = flops_per_step
        self._data, self._facts = data, facts
        self._logits = FunctionalModule(module)
        self._device = next(iter(params.values())).device
        self._gradients = gradient_function(execution, with_autocast(self._loss, self._device, autocast), self._device)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each worker's batch of this step, and set ``.grad`` to the gradients."""
        return self._gradients(self.params, *self._data.batch(step))

    def keep_mean_gradient(self) -> bool:
        """Store only the mean of the rows' gradients from now on, if that is possible; return whether it is."""
        return isinstance(self._gradients, PerWorkerGradients) and self._gradients.keep_mean(self._device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of a step."""
        return self._data.batch(step)

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` and ``accuracy`` of the mean parameters ``(S, *s)`` on the validation set."""
        inputs, targets = self._data.validation
        losses, accuracies = [], []
        for replica in range(len(self.rows.seeds)):
            logits = self._logits({name: mean[replica] for name, mean in means.items()}, inputs)
            losses.append(_cross_entropy(logits, targets))
            accuracies.append((logits.argmax(-1) == targets).to(logits.dtype).mean())
        return {"loss": torch.stack(losses), "accuracy": torch.stack(accuracies)}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics, because a pass over the weights of all workers would cost as much as a step."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return the number of parameters of one worker and the facts of the data."""
        return {"parameters": parameter_count(self.module), **self._facts}

    def _loss(self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        # Autocast leaves logits in 16 bits, in which a mean over many targets has too few digits.
        first_weight = next(iter(weights.values()))
        logits = self._logits(weights, inputs).to(first_weight.dtype)
        return _cross_entropy(logits, targets)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all targets, of logits ``(..., classes)`` and targets ``(...)``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
