"""One stage of a pipeline in one process: it runs its tasks in the schedule's order and sends and receives tensors.

A stage computes with `syncline.sim.pipelines.gradients.PipelineMath`, the same code that the simulator's events run. A
receive blocks until its message has arrived. A separate thread sends the messages one after another, so that no stage
waits for its receiver to be ready: two stages that send to each other at the same time would deadlock.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from syncline.comm.transport import global_rank
from syncline.errors import SpecError
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.schedules import TASK_KINDS, PipelineTask, Schedule, source_stage, target_stage


class StageMessage(NamedTuple):
    """The shape and type of the activations, and of their gradients, that stages send each other."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def nbytes(self) -> int:
        """Return the bytes of one message."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def play_stage(
    schedule: Schedule,
    stage: int,
    math: PipelineMath,
    message: StageMessage,
    watch: Stopwatch,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Run the tasks of one stage in the order of the schedule.

    Each process has the ``math`` of all stages and uses the part of its own stage. Tensors travel through host memory.

    Args:
        schedule: a schedule with a task order for each stage; stage k is rank k.
        stage: the stage of this process.
        math: the math of the whole pipeline.
        message: the shape and type of the tensors between stages.
        watch: the stopwatch that records each task as ``forward``, ``backward`` or ``weight``, the update after it as
            ``optimizer``, and receives and sends; a record's step is the micro-batch.
        group: the gloo group of the stages.

    Raises:
        SpecError: if the order of the schedule depends on timing.
    """
    if not schedule.orders:
        raise SpecError("schedule", schedule.name, "one with a fixed order: processes do not choose what to run")
    stages, chunks = math.stages, schedule.chunks
    device = next(math.parts[stage].parameters()).device
    hooks = [math.optimizers[stage].register_step_pre_hook(lambda *_: watch.optimise())]
    sender = _Sender(watch, group)
    try:
        for task in schedule.orders[stage]:
            source, target = source_stage(task, stage, stages, chunks), target_stage(task, stage, stages, chunks)
            if source is not None:
                received = _receive(message, source, _tag(schedule, task, stage, stages), task, watch, group)
                math.incoming(stage, task, received.to(device))
            watch.begin(task.microbatch, _activity_name(schedule, task))
            math.effect(stage, task)()
            watch.end()
            if target is not None:
                part = task.chunk * stages + stage + (1 if task.kind == "forward" else -1)
                next_task = task._replace(chunk=part // stages)
                tag = _tag(schedule, next_task, part % stages, stages)
                sender.send(math.outgoing(stage, task).cpu().contiguous(), target, tag, task)
        sender.finish()
    finally:
        for hook in hooks:
            hook.remove()


def _activity_name(schedule: Schedule, task: PipelineTask) -> str:
    return task.kind if schedule.chunks == 1 else f"{task.kind}.{task.chunk}"


def _tag(schedule: Schedule, task: PipelineTask, stage: int, stages: int) -> int:
    """Return a number for the input of a task that is unique among the messages between the same two stages."""
    part = task.chunk * stages + stage
    return (TASK_KINDS.index(task.kind) * schedule.microbatches + task.microbatch) * stages * schedule.chunks + part


def _receive(
    message: StageMessage, source: int, tag: int, task: PipelineTask, watch: Stopwatch, group: dist.ProcessGroup | None
) -> Tensor:
    received = torch.empty(message.shape, dtype=message.dtype)
    start_ns = watch.now_ns()
    watch.progress.enter()
    dist.recv(received, global_rank(group, source), group=group, tag=tag)
    watch.progress.leave()
    watch.received(start_ns, watch.now_ns(), task.kind, message.nbytes, task.microbatch)
    return received


class _Sender:
    """A thread that sends tensors in the order in which it gets them."""

    def __init__(self, watch: Stopwatch, group: dist.ProcessGroup | None) -> None:
        self._watch, self._group = watch, group
        self._waiting: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, x: Tensor, target: int, tag: int, task: PipelineTask) -> None:
        """Queue a tensor, which the thread sends after those queued before it."""
        if self._error is not None:
            raise self._error
        self._waiting.put((x, target, tag, task))

    def finish(self) -> None:
        """Wait until the thread has sent all tensors."""
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (item := self._waiting.get()) is not None:
                x, target, tag, task = item  # x is in host memory already
                start_ns = self._watch.host_ns()
                dist.send(x, global_rank(self._group, target), group=self._group, tag=tag)
                nbytes = x.numel() * x.element_size()
                self._watch.sent(start_ns, self._watch.host_ns(), task.kind, nbytes, task.microbatch)
        except Exception as error:
            self._error = error
