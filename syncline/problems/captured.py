"""One batched pass over all workers, recorded once: compiled, or as a CUDA graph that the device runs by itself.

A pass is some hundred small operations, each of which Python launches. Recorded, they are one launch, and a compiler
joins those that only move numbers. What is recorded is what the pass does with tensors: nothing in it may depend on
values, which Python would have to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline.errors import SpecError

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
