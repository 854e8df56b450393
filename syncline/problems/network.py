"""Networks: classification by an ordinary module, one set of weights per row.

One batched pass over all workers, recorded once: compiled, or as a CUDA graph that the device runs by itself.

A pass is some hundred small operations, each of which Python launches. Recorded, they are one launch, and a compiler
joins those that only move numbers. What is recorded is what the pass does with tensors: nothing in it may depend on
values, which Python would have to look at.

The gradients of many workers of an ordinary module, each with its own parameters and its own batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline.comm import is_one_copy
from syncline.errors import (
    SpecError,
    one_of,
)
from syncline.problems.base import Rows

Loss = Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]
"""``loss(parameters of one worker, inputs, targets)``, a scalar."""

T = TypeVar("T")
Values = dict[str, Tensor]
Pass = Callable[[Values, Tensor, Tensor], tuple[Values, Tensor]]
"""Parameters ``(R, *s)`` by name, inputs and targets ``(R, batch, ...)`` to gradients by name and losses ``(R,)``."""


def batched(loss: Loss) -> Pass:
    """Return the pass that computes all rows at once."""
    of_all = vmap(grad_and_value(loss))

    def run(values: Values, inputs: Tensor, targets: Tensor) -> tuple[Values, Tensor]:
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no batching rule
            gradients, losses = of_all(values, inputs, targets)
        return gradients, losses

    return run


class RecordedPass:
    """A pass that is recorded at its first call, and replayed as long as its arguments keep their kind.

    The kind is the shape, strides, data type and device of each argument. A call with another kind records the pass
    again.

    Args:
        run: the pass.
        record: function that takes the pass and the arguments of the call, and returns the recorded pass.
        in_place: whether a replay reads the parameters at the memory addresses that they had at the recording; the pass
            is then also recorded again if a parameter has moved.
    """

    def __init__(
        self, run: Pass, record: Callable[[Pass, Values, Tensor, Tensor], Pass], *, in_place: bool = False
    ) -> None:
        self._run, self._record, self._in_place = run, record, in_place
        self._kind: object = None
        self._replayed: Pass | None = None

    def __call__(self, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses ``(R,)``, and write the gradients to ``.grad``."""
        values = {name: param.detach() for name, param in params.items()}
        kind = [(x.shape, x.stride(), x.dtype, x.device) for x in (*values.values(), inputs, targets)]
        places = [x.data_ptr() for x in values.values()] if self._in_place else []
        if self._replayed is None or (kind, places) != self._kind:
            self._replayed, self._kind = None, (kind, places)  # a graph's memory is free before the next one's is taken
            self._replayed = self._record(self._run, values, inputs, targets)
        gradients, losses = self._replayed(values, inputs, targets)
        for name, param in params.items():
            param.grad = gradients[name]
        return losses


def compiled_by(backend: str) -> Callable[[Pass, Values, Tensor, Tensor], Pass]:
    """Return a function that traces a pass as tensor operations and compiles it with one of torch's backends.

    Raises:
        SpecError: the returned function raises it if the pass branches on values, or this machine has no compiler.
    """

    def record(run: Pass, values: Values, inputs: Tensor, targets: Tensor) -> Pass:
        from torch.fx.experimental.proxy_tensor import make_fx  # half a second

        with _refused("compiled"):
            operations = make_fx(run)(values, inputs, targets)
            compiled: Pass = torch.compile(operations, backend=backend, dynamic=False)
            compiled(values, inputs, targets)
        return compiled

    return record


@contextmanager
def _refused(execution: str) -> Iterator[None]:
    """Raise torch's errors as a ``SpecError`` of one line, except out-of-memory errors, which pass through."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SpecError("execution", execution, f"eager, as torch refuses: {reason}") from error


class Graphs(Protocol):
    """A device's way to capture work as a graph."""

    def capture(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Return the result of the work, and a function that replays it in the same memory, also for its first run."""
        ...


WARM_UP = 3
"""Passes before a capture, in which libraries take the memory and choose the kernels that they stay with."""


class CudaGraphs:
    """Capture of work as CUDA graphs."""

    def capture(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Capture work as `Graphs` says, after some warm-up runs on a separate stream."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work()
        return result, graph.replay


def captured_by(graphs: Graphs) -> Callable[[Pass, Values, Tensor, Tensor], Pass]:
    """Return a function that records a pass as a graph, with parameters in place and its own memory for batches.

    Raises:
        SpecError: when it records, if the pass looks at values.
    """

    def record(run: Pass, values: Values, inputs: Tensor, targets: Tensor) -> Pass:
        x, y = inputs.clone(), targets.clone()
        with _refused("graph"):
            (gradients, losses), replay = graphs.capture(lambda: run(values, x, y))

        def replay_pass(_: Values, inputs: Tensor, targets: Tensor) -> tuple[Values, Tensor]:
            x.copy_(inputs)
            y.copy_(targets)
            replay()
            return {name: gradient.clone() for name, gradient in gradients.items()}, losses.clone()

        return replay_pass

    return record


# Measured on one CPU core: a row of the loop costs about 0.11 ms beyond its arithmetic, a vmap about 0.6 ms in all.
# So vmap wins when many rows have little arithmetic each, while a loop keeps the activations of larger rows in cache.
SMALL_PARAMETERS = 2**16
MANY_ROWS = 8

How = Literal["auto", "loop", "vmap", "compiled", "graph"]


def gradients_by(
    execution: How, loss: Loss, device: torch.device | str
) -> Callable[[Mapping[str, torch.nn.Parameter], Tensor, Tensor], Tensor]:
    """Return the function that computes gradients from parameters, inputs and targets in each step.

    Beside its ways there are ``compiled``, vmap's pass as torch's compiler has it, and ``graph``, that pass as a CUDA
    graph; both are recorded in the first step.

    Raises:
        SpecError: ``graph`` on what is no CUDA device.
    """
    if execution == "compiled":
        return RecordedPass(batched(loss), compiled_by("inductor"))
    if execution == "graph":
        if torch.device(device).type != "cuda":
            raise SpecError("execution", execution, "eager or compiled, as only a CUDA device keeps graphs")
        return RecordedPass(batched(loss), captured_by(CudaGraphs()), in_place=True)
    return partial(per_worker_gradients, loss, execution=execution)


def per_worker_gradients(
    loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor, execution: How = "auto"
) -> Tensor:
    """Return the losses of all rows; the gradient of each row's own loss goes to ``.grad``.

    ``l_r = loss({name: p[r]}, inputs[r], targets[r])`` and ``p.grad[r] = d l_r / d p[r]``.

    Args:
        loss: function that returns the loss of one worker for its weights, inputs and targets.
        params: stacked parameters, each ``(R, *s)``; their ``.grad`` becomes a new tensor.
        inputs: ``(R, batch, ...)``.
        targets: ``(R, batch, ...)``.
        execution: ``loop`` goes through the rows one by one: kernels of ordinary shape, fused attention, the
            activations of one row at a time. ``vmap`` computes all rows in one batched pass: few kernels, the
            activations of all rows. ``auto`` takes vmap on CUDA, and elsewhere for 8 or more rows of fewer than 2^16
            parameters; else the loop.

    Returns:
        The losses ``(R,)``.

    Raises:
        SpecError: ``execution`` is none of these.
    """
    if execution not in _WAYS:
        raise SpecError("problem.how", execution, one_of(_WAYS, execution))
    return _WAYS[execution](loss, params, inputs, targets)


def _auto(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    rows = len(inputs)
    small = sum(param.numel() for param in params.values()) < SMALL_PARAMETERS * rows
    compute = _vmap if inputs.is_cuda or (small and rows >= MANY_ROWS) else _loop
    return compute(loss, params, inputs, targets)


def _loop(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    losses, gradients = [], []
    alike = all(is_one_copy(param) for param in params.values())
    leaves: dict[str, Tensor] = {}
    for row, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        if not (leaves and alike):
            leaves = {name: param.detach()[row].requires_grad_() for name, param in params.items()}
        value = loss(leaves, x, y)
        gradients.append(torch.autograd.grad(value, list(leaves.values())))
        losses.append(value.detach())
    for param, rows in zip(params.values(), zip(*gradients, strict=True), strict=True):
        param.grad = torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)
    return torch.stack(losses)


def _vmap(loss: Loss, params: Mapping[str, torch.nn.Parameter], inputs: Tensor, targets: Tensor) -> Tensor:
    values = {name: param.detach() for name, param in params.items()}
    gradients, losses = batched(loss)(values, inputs, targets)
    for name, param in params.items():
        param.grad = gradients[name]
    return losses


_WAYS = {"auto": _auto, "loop": _loop, "vmap": _vmap}


class Data(Protocol):
    """The source of a network's examples."""

    validation: tuple[Tensor, Tensor]
    """Inputs and targets that all evaluations share."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of one step, drawn for each row on its own."""
        ...


def shape_only(module: Callable[[], T]) -> T:
    """Build a module without memory: weights on the meta device, and no draw from torch's global generator."""
    with torch.device("meta"):
        return module()


def parameter_count(module: torch.nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


class WithWeights:
    """A module that is called with weights that are not its own, as ``torch.func.functional_call`` does.

    Where each weight belongs is looked up once, not in every call, which for a small module takes as long as the call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        name_of: dict[int, str] = {id(p): name for name, p in module.named_parameters()}  # a tied one once
        self._places = [
            (part._parameters, key, p, name_of[id(p)])
            for part in module.modules()
            for key, p in part._parameters.items()
            if p is not None
        ]

    def __call__(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the module's output for inputs with these weights, by name."""
        try:
            for holder, key, _, name in self._places:
                holder[key] = weights[name]  # type: ignore[assignment]
            out: Tensor = self._module(inputs)
        finally:
            for holder, key, p, _ in self._places:
                holder[key] = p
        return out


class NetworkTask:
    """All rows of one classifier, with the mean cross-entropy (nats per target) as the loss.

    Args:
        module: an ordinary module without a worker axis and without buffers. Its own weights are never read: those of a
            row are put in their place for each call.
        params: weights of all rows by name, ``(R, *s)``.
        data: the batches and the validation set.
        rows: the rows to train.
        matrices: names of the weights between hidden layers.
        flops_per_step: FLOPs of one worker in one step.
        facts: facts that ``describe`` returns in addition to the parameter count.
        execution: how gradients are computed, see ``gradients_by``.
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
        execution: How,
    ) -> None:
        self.rows = rows
        self.module = module
        self.params = params
        self.matrices = matrices
        self.flops_per_step: float | None = flops_per_step
        self._data, self._facts = data, facts
        self._at_work = WithWeights(module)
        self._gradients = gradients_by(execution, self._loss, next(iter(params.values())).device)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each row's batch of this step; ``.grad`` is the gradient of each."""
        return self._gradients(self.params, *self._data.batch(step))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of a step."""
        return self._data.batch(step)

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` and ``accuracy`` of the mean parameters ``(S, *s)`` on the validation set."""
        inputs, targets = self._data.validation
        metrics = []
        for replica in range(len(self.rows.seeds)):
            logits = self._logits({name: mean[replica] for name, mean in means.items()}, inputs)
            hits = logits.argmax(-1) == targets
            metrics.append(torch.stack((_cross_entropy(logits, targets), hits.to(logits.dtype).mean())))
        loss, accuracy = torch.stack(metrics, dim=-1)
        return {"loss": loss, "accuracy": accuracy}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics, because a pass over the weights of all workers would cost as much as a step."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return the parameters of one worker and the facts of the data."""
        return {"parameters": parameter_count(self.module), **self._facts}

    def _logits(self, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return self._at_work(weights, inputs)

    def _loss(self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return _cross_entropy(self._logits(weights, inputs), targets)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all targets, of logits ``(..., classes)`` and targets ``(...)``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
