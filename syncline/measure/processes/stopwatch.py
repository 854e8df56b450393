"""A stopwatch that cuts the steps of one process into gradients, optimizer and collectives.

`MeasuredCommunicator` and `MeasuredTask` forward each call to another communicator or task, and time it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, Ledger
from syncline.comm.base import Handle
from syncline.costmodel import Call
from syncline.measure.processes.watchdog import Progress
from syncline.problems import Task


class Lap(NamedTuple):
    """A span of time on one stream of a process, in nanoseconds of the monotonic clock.

    Attributes:
        stream: ``compute``, ``network`` or ``send``.
        what: the activity, such as ``compute``, ``optimizer``, ``wait``, or the name of a collective.
        label: for people: the activity, or what the collective or message transfers.
        nbytes: payload bytes of a collective or a message.
    """

    stream: str
    what: str
    label: str
    start_ns: int
    end_ns: int
    nbytes: int
    step: int


Instant = int | torch.cuda.Event
"""Nanoseconds, or within a step on a GPU the event at which the GPU's queued work is done."""


class Stopwatch:
    """A recorder of the laps of one process.

    On the compute stream, a step has the laps ``compute`` (before the optimizer's step), ``optimizer``, and ``wait``
    for each collective, which interrupts either. Between steps no lap is recorded.

    A lap contains the work that was started in it. On a CUDA device, the boundaries within a step are events on the
    current stream, and the process waits for the device only at the begin and at the end of a step. The time of an
    event is the clock's time at the end of the step, less the time between the two that the device has measured.

    Args:
        progress: counters that show a watching process how far this one has come.
        clock: function that returns nanoseconds, by default of a clock that all processes of a machine share.

    Attributes:
        laps: the laps since the last call of `take_laps`.
        begun_ns: begin of the current or last step.
        ended_ns: end of the last step.
    """

    def __init__(
        self, progress: Progress, device: torch.device | str = "cpu", clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.progress = progress
        self.laps: list[Lap] = []
        self.steps_done = 0
        self.begun_ns = self.ended_ns = 0
        self._clock, self._device = clock, torch.device(device)
        self._step, self._activity = 0, ""  # no activity between steps
        self._lap_start: Instant = 0
        self._unconverted_laps: list[tuple[Any, ...]] = []  # laps of the current step with events as their instants

    def instant(self) -> Instant:
        """Return the instant at which the device finishes its queued work: an event in a step, otherwise a time."""
        is_in_step = bool(self._activity)
        if self._device.type != "cuda" or not is_in_step:
            return self.synchronized_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def synchronized_ns(self) -> int:
        """Wait until the device has finished its queued work, and return the time in nanoseconds."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock()

    def host_ns(self) -> int:
        """Return the time in nanoseconds without waiting for the device's queued work."""
        return self._clock()

    def begin(self, step: int, activity: str = "compute") -> None:
        """Begin a step with its gradients, or with another kind of computation."""
        self.progress.record_step(step, self.steps_done)
        self.begun_ns = self._lap_start = self.synchronized_ns()
        self._step, self._activity = step, activity

    def begin_optimizer(self) -> None:
        """End the lap of the gradients and begin that of the optimizer."""
        self._end_lap(self.instant())
        self._activity = "optimizer"

    def slow_down(self, factor: float) -> None:
        """Sleep for ``factor`` times the duration of the step so far, to emulate a slower machine."""
        now_ns = self.synchronized_ns()
        self._end_lap(now_ns)
        time.sleep(factor * (now_ns - self.begun_ns) / 1e9)
        self._lap_start = self.synchronized_ns()
        self._record_lap("compute", "compute", "slowed", start=now_ns, end=self._lap_start, step=self._step)

    def end(self) -> None:
        """End the step, and record its last lap and the progress."""
        last = self.instant()
        self.ended_ns = last if isinstance(last, int) else self.synchronized_ns()
        self._end_lap(self.ended_ns)
        unconverted_laps, self._unconverted_laps = self._unconverted_laps, []  # CUDA knows their times only now
        for stream, activity, label, start, end, nbytes, step in unconverted_laps:
            start_ns, end_ns = self._time_ns(start, last), self._time_ns(end, last)
            self._record_lap(stream, activity, label, start_ns, end_ns, nbytes=nbytes, step=step)
        self._activity = ""
        self.steps_done += 1
        self.progress.record_step(self._step + 1, self.steps_done)

    def record_receive(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """Record the time in which the process waited for a message."""
        self._record_lap("compute", "recv", label, start_ns, end_ns, nbytes=nbytes, step=step)

    def record_send(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """Record a sent message; a sending thread calls this, not the thread that computes."""
        self._record_lap("send", "send", label, start_ns, end_ns, nbytes=nbytes, step=step)

    def record_wait(self, start: Instant, end: Instant, label: str) -> None:
        """Record that this process waited for a collective, which interrupts the current lap."""
        if self._activity:  # between steps nothing is recorded
            self._end_lap(start)
            self._record_lap("compute", "wait", label, start, end, step=self._step)
            self._lap_start = end

    def record_transfer(self, start: Instant, end: Instant, call: Call) -> None:
        """Record the time during which a collective was in progress on the network."""
        nbytes = int(call.payload_bytes)
        self._record_lap("network", call.collective, call.label, start, end, nbytes=nbytes, step=call.step)

    def take_laps(self) -> list[Lap]:
        """Return and clear the laps since the last call."""
        laps, self.laps = self.laps, []
        return laps

    def _end_lap(self, now: Instant) -> None:
        """End the current lap at this instant, and begin the next lap."""
        self._record_lap("compute", self._activity, self._activity, start=self._lap_start, end=now, step=self._step)
        self._lap_start = now

    def _record_lap(
        self, stream: str, activity: str, label: str, start: Instant, end: Instant, *, nbytes: int = 0, step: int
    ) -> None:  # fmt: skip
        """Record a lap unless its duration is 0; if its instants are events of CUDA, `end` converts it later."""
        if not isinstance(start, int) or not isinstance(end, int):
            self._unconverted_laps.append((stream, activity, label, start, end, nbytes, step))
        elif end > start:
            self.laps.append(Lap(stream, activity, label, start, end, nbytes, step))

    def _time_ns(self, instant: Instant, last: Instant) -> int:
        """Return an instant of the step in nanoseconds; ``last``, the end of the step, is at ``ended_ns``."""
        if isinstance(instant, int):
            return instant
        assert not isinstance(last, int)
        return self.ended_ns - round(1e6 * instant.elapsed_time(last))  # milliseconds


def _blocking_collective(name: str) -> Callable[..., Any]:
    """Return a method that runs the collective ``name`` of the wrapped communicator and records its time."""

    def collective(self: MeasuredCommunicator, *args: Any, **kwargs: Any) -> Any:
        start = self._watch.instant()
        result, call = self._run(name, args, kwargs)
        self._record(call, start, wait_start=start)
        return result

    return collective


def _asynchronous_collective(name: str) -> Callable[..., Any]:
    """Return a method that starts the collective ``name`` of the wrapped communicator and records waits for it."""

    def collective(self: MeasuredCommunicator, *args: Any, **kwargs: Any) -> Handle:
        start = self._watch.instant()
        handle, call = self._run(name, args, kwargs)

        def finish() -> list[Tensor]:
            wait_start = self._watch.instant()
            self._watch.progress.enter_collective()
            result: list[Tensor] = handle.wait()
            self._watch.progress.leave_collective()
            self._record(call, start, wait_start=wait_start)
            return result

        return Handle(finish)

    return collective


class MeasuredCommunicator(Communicator):
    """A communicator that wraps another one and times its collectives until the caller has their results.

    The time includes encoding, copying and local reduction. An asynchronous collective ends when the caller waits for
    it, because an earlier end cannot be seen. Labels and bytes are those of the ledger's call. A collective that the
    ledger leaves out, such as one of an evaluation, is not timed.

    Args:
        on_done: called with the ledger's call when a collective is done; with None if the ledger leaves it out.
    """

    def __init__(
        self, comm: Communicator, watch: Stopwatch, on_done: Callable[[Call | None], object] = lambda _: None
    ) -> None:
        self._comm, self._watch, self._on_done = comm, watch, on_done
        self.ledger: Ledger = comm.ledger
        self.world_size, self.local_workers, self.replicas = comm.world_size, comm.local_workers, comm.replicas

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Call | None]:
        """Run a collective; return its result and its call in the ledger, or None if the ledger got no call."""
        num_calls = len(self.ledger)
        self._watch.progress.enter_collective()
        result = getattr(self._comm, name)(*args, **kwargs)
        self._watch.progress.leave_collective()
        call = self.ledger.records[-1] if len(self.ledger) > num_calls else None
        return result, call

    def _record(self, call: Call | None, start: Instant, wait_start: Instant) -> None:
        """Record a collective that is done, and the time since ``wait_start`` in which the process waited for it."""
        if call is not None:
            end = self._watch.instant()
            self._watch.record_wait(wait_start, end, call.label)
            self._watch.record_transfer(start, end, call)
        self._on_done(call)

    all_reduce_coalesced = _blocking_collective("all_reduce_coalesced")
    all_gather = _blocking_collective("all_gather")
    mean_within = _blocking_collective("mean_within")
    all_gather_across = _blocking_collective("all_gather_across")
    all_gather_within = _blocking_collective("all_gather_within")
    gather = _blocking_collective("gather")
    reduce = _blocking_collective("reduce")
    send = _blocking_collective("send")
    all_to_all = _blocking_collective("all_to_all")
    reduce_scatter = _blocking_collective("reduce_scatter")
    broadcast = _blocking_collective("broadcast")
    start_all_reduce = _asynchronous_collective("start_all_reduce")
    start_all_gather = _asynchronous_collective("start_all_gather")


class MeasuredTask(Task):
    """A task that times the gradients of another task as the first part of a step.

    An evaluation uses the mean parameters, which are the same in every process, so only one process needs to evaluate.

    Args:
        watch: the stopwatch, which begins a step with the gradients.
        on_evaluation: called with the metrics of each evaluation; if None, this process does not evaluate.
        wait_for_all: a barrier, called after each evaluation, so that no step includes waiting for the evaluation.
    """

    def __init__(
        self,
        task: Task,
        watch: Stopwatch,
        on_evaluation: Callable[[dict[str, Tensor]], object] | None = None,
        wait_for_all: Callable[[], object] = lambda: None,
    ) -> None:
        self._task, self._watch, self._on_evaluation, self._wait_for_all = task, watch, on_evaluation, wait_for_all
        self.params, self.matrices, self.flops_per_step = task.params, task.matrices, task.flops_per_step
        self.buffers: Mapping[str, Tensor] = getattr(task, "buffers", {})
        self.shares_buffers: bool = getattr(task, "shares_buffers", True)
        self.loss = torch.zeros(0)  # until the first step

    @override
    def step_gradients(self, step: int) -> Tensor:
        self._watch.begin(step)
        self.loss = self._task.step_gradients(step)
        return self.loss

    @override
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Evaluate the mean parameters on one process; the others wait for it, and return no metrics."""
        metrics: dict[str, Tensor] = {}
        if self._on_evaluation is not None:  # this process evaluates
            metrics = self._task.evaluate(means)
            self._on_evaluation(metrics)
        self._wait_for_all()
        return metrics

    def trace(self) -> dict[str, Tensor]:
        """Return no metrics, because a task's metrics compare all workers, and a process has only its own workers."""
        return {}

    @override
    def describe(self) -> dict[str, object]:
        return self._task.describe()


def time_optimizer_steps(optimizer: torch.optim.Optimizer, watch: Stopwatch) -> None:
    """Register hooks that time each step of an optimizer, as the last part of a training step."""
    optimizer.register_step_pre_hook(lambda *_: watch.begin_optimizer())
    optimizer.register_step_post_hook(lambda *_: watch.end())
