"""One stage of a pipeline in a process of its own: the schedule's order, tensors by send and receive.

What a stage computes is `syncline.sim.pipelines.gradients.PipelineMath`, the same code that the simulator's events
drive. A receive blocks until its message is there. Sends go out one after another from a thread of their own, so that
no stage ever waits for the other end to be ready: stages that send to each other at the same time would wait for ever.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from syncline.comm.processes import global_rank
from syncline.errors import SpecError
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.schedules import TASK_KINDS, PipelineTask, Schedule, source_stage, target_stage


class StageMessage(NamedTuple):
    """The form of what stages send each other: activations, and gradients of them."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def nbytes(self) -> int:
        """Bytes of one."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def play_stage(
    schedule: Schedule,
    stage: int,
    math: PipelineMath,
    message: StageMessage,
    watch: Stopwatch,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Run one stage's tasks in their order, from the first to the last.

    Each process has all of ``math`` and uses its own stage of it. Tensors travel through the host's memory.

    Args:
        schedule: with an order for each stage; stage k is rank k.
        stage: which one this process is.
        math: of the whole pipeline.
        message: what stages send each other.
        watch: notes each task as ``forward``, ``backward`` or ``weight``, the update that follows as ``optimizer``,
            receives and sends; the step is the micro-batch.
        group: of gloo.

    Raises:
        SpecError: a schedule whose order depends on timing.
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
                here = _receive(message, source, _tag(schedule, task, stage, stages), task, watch, group)
                math.incoming(stage, task, here.to(device))
            watch.begin(task.microbatch, _what(schedule, task))
            math.effect(stage, task)()
            watch.end()
            if target is not None:
                part = task.chunk * stages + stage + (1 if task.kind == "forward" else -1)
                there = task._replace(chunk=part // stages)
                tag = _tag(schedule, there, part % stages, stages)
                sender.send(math.outgoing(stage, task).cpu().contiguous(), target, tag, task)
        sender.finish()
    finally:
        for hook in hooks:
            hook.remove()


def _what(schedule: Schedule, task: PipelineTask) -> str:
    return task.kind if schedule.chunks == 1 else f"{task.kind}.{task.chunk}"


def _tag(schedule: Schedule, task: PipelineTask, stage: int, stages: int) -> int:
    """A number for the input of a task, of which no two between the same stages have the same."""
    part = task.chunk * stages + stage
    return (TASK_KINDS.index(task.kind) * schedule.microbatches + task.microbatch) * stages * schedule.chunks + part


def _receive(
    message: StageMessage, source: int, tag: int, task: PipelineTask, watch: Stopwatch, group: dist.ProcessGroup | None
) -> Tensor:
    here = torch.empty(message.shape, dtype=message.dtype)
    start_ns = watch.now_ns()
    watch.progress.enter()
    dist.recv(here, global_rank(group, source), group=group, tag=tag)
    watch.progress.leave()
    watch.received(start_ns, watch.now_ns(), task.kind, message.nbytes, task.microbatch)
    return here


class _Sender:
    """Sends in the order in which they are given, from a thread."""

    def __init__(self, watch: Stopwatch, group: dist.ProcessGroup | None) -> None:
        self._watch, self._group = watch, group
        self._waiting: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, x: Tensor, target: int, tag: int, task: PipelineTask) -> None:
        """Let a tensor go out when those before it have."""
        if self._error is not None:
            raise self._error
        self._waiting.put((x, target, tag, task))

    def finish(self) -> None:
        """Wait until all have gone out."""
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (item := self._waiting.get()) is not None:
                x, target, tag, task = item  # on the host already
                start_ns = self._watch.host_ns()
                dist.send(x, global_rank(self._group, target), group=self._group, tag=tag)
                nbytes = x.numel() * x.element_size()
                self._watch.sent(start_ns, self._watch.host_ns(), task.kind, nbytes, task.microbatch)
        except Exception as error:
            self._error = error
