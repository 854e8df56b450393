"""A communicator and a task that forward each call to another one and time it with a stopwatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import DENSE, PLAIN, Communicator, Details, Ledger, WireFormat
from syncline.comm.base import Handle, PerPeer, PerWorker, ReduceOp
from syncline.costmodel import Call
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.problems import Task

T = TypeVar("T")


class MeasuredCommunicator(Communicator):
    """A communicator that times each collective from the call to the moment when its result can be read.

    The stopwatch records the ledger's call, so labels and bytes are those of the ledger. The time of a collective
    includes its encoding, copying and local reduction. An asynchronous collective ends when the caller waits for it,
    because the communicator cannot see an earlier end. Calls that the ledger does not record are not timed.

    Args:
        comm: the communicator that runs the collectives.
        watch: the stopwatch that records the times.
        on_done: called with the ledger's call when a collective is done; with None if the ledger has no call.
    """

    def __init__(
        self, comm: Communicator, watch: Stopwatch, on_done: Callable[[Call | None], object] = lambda _: None
    ) -> None:
        self._comm, self._watch, self._on_done = comm, watch, on_done
        self.ledger: Ledger = comm.ledger
        self.world_size, self.local_workers, self.replicas = comm.world_size, comm.local_workers, comm.replicas

    def _noted(self, collective: Callable[[], T]) -> tuple[T, Call | None]:
        """Return the result of a collective and the call that it added to the ledger, or None if it added no call."""
        num_calls = len(self.ledger)
        self._watch.progress.enter()
        result = collective()
        self._watch.progress.leave()
        return result, self.ledger.records[-1] if len(self.ledger) > num_calls else None

    def _timed(self, collective: Callable[[], T]) -> T:
        start_ns = self._watch.now_ns()
        result, call = self._noted(collective)
        if call is not None:
            end_ns = self._watch.now_ns()
            self._watch.waited(start_ns, end_ns, call.label)
            self._watch.carried(start_ns, end_ns, call)
        self._on_done(call)
        return result

    def _started(self, collective: Callable[[], Handle]) -> Handle:
        start_ns = self._watch.now_ns()
        handle, call = self._noted(collective)

        def finish() -> list[Tensor]:
            wait_start_ns = self._watch.now_ns()
            self._watch.progress.enter()
            result = handle.wait()
            self._watch.progress.leave()
            if call is not None:
                end_ns = self._watch.now_ns()
                self._watch.waited(wait_start_ns, end_ns, call.label)
                self._watch.carried(start_ns, end_ns, call)
            self._on_done(call)
            return result

        return Handle(finish)

    @override
    def all_reduce_coalesced(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> list[Tensor]:
        return self._timed(lambda: self._comm.all_reduce_coalesced(xs, op, wire, label, details))

    @override
    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        return self._timed(lambda: self._comm.all_gather(x, wire, label, details))

    @override
    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        return self._timed(lambda: self._comm.mean_within(xs, size, wire, label, details))

    @override
    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        return self._timed(lambda: self._comm.all_gather_across(x, size, label, details))

    @override
    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        return self._timed(lambda: self._comm.all_gather_within(x, size, label, details))

    @override
    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        return self._timed(lambda: self._comm.gather(x, root, wire, label, details))

    @override
    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        return self._timed(lambda: self._comm.all_to_all(x, wire, label, details))

    @override
    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        return self._timed(lambda: self._comm.reduce_scatter(x, op, wire, label, details))

    @override
    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        return self._timed(lambda: self._comm.broadcast(x, root, wire, label, details))

    @override
    def start_all_reduce(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> Handle:
        return self._started(lambda: self._comm.start_all_reduce(xs, op, wire, label, details))

    @override
    def start_all_gather(
        self, x: Tensor, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> Handle:
        return self._started(lambda: self._comm.start_all_gather(x, wire, label, details))


class MeasuredTask(Task):
    """A task whose gradients are timed as the first part of a step.

    The task has no trace, because a trace covers all workers and this process has one worker. An evaluation uses the
    mean parameters, which are the same in every process, so only one process needs to evaluate.

    Args:
        task: the task that computes gradients and metrics.
        watch: the stopwatch that records the times.
        on_evaluation: called with the metrics of each evaluation; if None, this process does not evaluate.
        meet: called after each evaluation; a barrier, so that the next step does not include waiting for the process
            that evaluates.
    """

    def __init__(
        self,
        task: Task,
        watch: Stopwatch,
        on_evaluation: Callable[[dict[str, Tensor]], object] | None = None,
        meet: Callable[[], object] = lambda: None,
    ) -> None:
        self._task, self._watch, self._on_evaluation, self._meet = task, watch, on_evaluation, meet
        self.params, self.matrices, self.flops_per_step = task.params, task.matrices, task.flops_per_step
        self.buffers: Mapping[str, Tensor] = getattr(task, "buffers", {})
        self.shares_buffers: bool = getattr(task, "shares_buffers", True)
        self.loss = torch.zeros(0)

    @override
    def step_gradients(self, step: int) -> Tensor:
        self._watch.begin(step)
        self.loss = self._task.step_gradients(step)
        return self.loss

    @override
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        metrics = {} if self._on_evaluation is None else self._task.evaluate(means)
        if self._on_evaluation is not None:
            self._on_evaluation(metrics)
        self._meet()
        return metrics

    def trace(self) -> dict[str, Tensor]:
        """Return no metrics, because a trace covers all workers."""
        return {}

    @override
    def describe(self) -> dict[str, object]:
        return self._task.describe()


def timed(optimizer: torch.optim.Optimizer, watch: Stopwatch) -> None:
    """Register hooks that time each step of an optimizer, as the last part of a training step."""

    def before(*_: Any) -> None:
        watch.optimise()

    def after(*_: Any) -> None:
        watch.end()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
