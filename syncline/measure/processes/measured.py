"""A communicator and a task that forward each call to another one and time it with a stopwatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, Ledger
from syncline.comm.base import Handle
from syncline.costmodel import Call
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.problems import Task


def _timed(name: str) -> Callable[..., Any]:
    """Return a method that runs a blocking collective of the inner communicator and records its time."""

    def collective(self: MeasuredCommunicator, *args: Any, **kwargs: Any) -> Any:
        start_ns = self._watch.now_ns()
        result, call = self._run(name, args, kwargs)
        self._record(call, start_ns, start_ns)
        return result

    return collective


def _started(name: str) -> Callable[..., Any]:
    """Return a method that starts an asynchronous collective; its time is recorded when the caller waits for it."""

    def collective(self: MeasuredCommunicator, *args: Any, **kwargs: Any) -> Handle:
        start_ns = self._watch.now_ns()
        handle, call = self._run(name, args, kwargs)

        def finish() -> list[Tensor]:
            wait_start_ns = self._watch.now_ns()
            self._watch.progress.enter()
            result: list[Tensor] = handle.wait()
            self._watch.progress.leave()
            self._record(call, start_ns, wait_start_ns)
            return result

        return Handle(finish)

    return collective


class MeasuredCommunicator(Communicator):
    """A communicator that times each collective from the call to the moment when its result can be read.

    The stopwatch records the ledger's call, so labels and bytes are those of the ledger. The time of a collective
    includes its encoding, copying and local reduction. An asynchronous collective ends when the caller waits for it,
    because the communicator cannot see an earlier end. Calls that the ledger does not record are not timed.

    Args:
        on_done: called with the ledger's call when a collective is done; with None if the ledger has no call.
    """

    def __init__(
        self, comm: Communicator, watch: Stopwatch, on_done: Callable[[Call | None], object] = lambda _: None
    ) -> None:
        self._comm, self._watch, self._on_done = comm, watch, on_done
        self.ledger: Ledger = comm.ledger
        self.world_size, self.local_workers, self.replicas = comm.world_size, comm.local_workers, comm.replicas

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Call | None]:
        """Return the result of a collective and the call that it added to the ledger, or None if it added no call."""
        num_calls = len(self.ledger)
        self._watch.progress.enter()
        result = getattr(self._comm, name)(*args, **kwargs)
        self._watch.progress.leave()
        return result, self.ledger.records[-1] if len(self.ledger) > num_calls else None

    def _record(self, call: Call | None, start_ns: int, wait_start_ns: int) -> None:
        """Record a collective that is done, and the time since ``wait_start_ns`` in which the process waited for it."""
        if call is not None:
            end_ns = self._watch.now_ns()
            self._watch.record_wait(wait_start_ns, end_ns, call.label)
            self._watch.record_transfer(start_ns, end_ns, call)
        self._on_done(call)

    all_reduce_coalesced = _timed("all_reduce_coalesced")
    all_gather = _timed("all_gather")
    mean_within = _timed("mean_within")
    all_gather_across = _timed("all_gather_across")
    all_gather_within = _timed("all_gather_within")
    gather = _timed("gather")
    all_to_all = _timed("all_to_all")
    reduce_scatter = _timed("reduce_scatter")
    broadcast = _timed("broadcast")
    start_all_reduce = _started("start_all_reduce")
    start_all_gather = _started("start_all_gather")


class MeasuredTask(Task):
    """A task whose gradients are timed as the first part of a step.

    The task has no trace, because a trace covers all workers and this process has one worker. An evaluation uses the
    mean parameters, which are the same in every process, so only one process needs to evaluate.

    Args:
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


def time_optimizer_steps(optimizer: torch.optim.Optimizer, watch: Stopwatch) -> None:
    """Register hooks that time each step of an optimizer, as the last part of a training step."""
    optimizer.register_step_pre_hook(lambda *_: watch.begin_optimizer())
    optimizer.register_step_post_hook(lambda *_: watch.end())
