"""One process of a launched pipeline: it runs the tasks of a stage, measures them, and writes its file.

A stage computes with `syncline.sim.pipelines.gradients.PipelineMath`, the same code that the simulator's events run. A
receive blocks until its message has arrived. A separate thread sends the messages one after another, so that no stage
waits for its receiver to be ready: two stages that send to each other at the same time would deadlock.
"""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.files import atomic_path
from syncline.measure.launching.process import Launch, join_local_processes, meet
from syncline.measure.processes.progress import Progress
from syncline.measure.processes.rendezvous import clock_offset_ns, group
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.problems import Rows, cut
from syncline.runs.training.delayed_gradients.pipeline_training import stage_optimizer
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.schedules import TASK_KINDS, PipelineTask, Schedule, source_stage, target_stage
from syncline.specs import PipelineSpec


class Stages:
    """The model of a pipeline spec in parts, with an optimizer for each stage: for one schedule, over all its repeats.

    Args:
        spec: a spec with a training.
    """

    def __init__(self, spec: PipelineSpec, schedule: str, device: torch.device | str = "cpu") -> None:
        assert spec.training is not None
        problem, self._seed = spec.training.problem, spec.training.seed
        self.schedule = spec.build_schedule(schedule)
        self.task = problem.build(Rows.whole_group(1, (self._seed,)), device=device)
        self.model = problem.weighted(self._seed).to(device)
        self.parts: list[nn.Module] = cut(self.model, spec.stages * self.schedule.chunks)
        every = self.schedule.updates == "every"
        delays = stage_delays(spec.stages).tolist() if every else [0] * spec.stages
        owned = [torch.nn.ModuleList(self.parts[k :: spec.stages]) for k in range(spec.stages)]
        names = {id(p): name for name, p in self.model.named_parameters()}
        self.optimizers = [
            stage_optimizer(
                spec.training.method, self.task, [(names[id(p)], p) for p in part.parameters()], k, delays, self._seed
            )
            for k, part in enumerate(owned)
        ]
        self.message = StageMessage((problem.batch_size, problem.context, problem.width))

    def math(self, number: int) -> PipelineMath:
        """Return the weights and gradients of one repetition, which continues from the weights of the one before."""
        first = number * self.schedule.microbatches

        def inputs(i: int) -> Tensor:
            return self.task.batch(first + i)[0][0]

        def loss(logits: Tensor, i: int) -> Tensor:
            return F.cross_entropy(logits.flatten(0, -2), self.task.batch(first + i)[1][0].flatten())

        return PipelineMath(self.schedule, self.parts, inputs, loss, self.optimizers)


def stage_process(rank: int, fields: dict[str, Any], options: Launch, port: int, folder: Path) -> None:
    """Run the process of ``syncline launch`` for one stage."""
    torch.set_num_threads(1)
    spec = PipelineSpec.model_validate(fields)
    store, place = join_local_processes(rank, spec.stages, port, options)
    machines = meet(spec, options, store, place)
    device = options.use_device(rank, spec.stages)
    progress = Progress.shared(folder / "progress", spec.stages, rank)
    with group(store, place, "gloo", 1.5 * options.timeout_s + 10.0), (folder / f"{rank}.jsonl").open("a") as file:
        offset_ns = clock_offset_ns(place, machines)
        watch = Stopwatch(progress, device)
        for name in spec.schedules:
            stages = Stages(spec, name, device)
            for number in range(spec.training.repeats if spec.training else 0):
                math = stages.math(number)
                dist.barrier()  # repeats begin together, so that each has its own timeline
                play_stage(stages.schedule, rank, math, stages.message, watch)
                losses = {i: float(loss) for i, loss in math.losses.items()}
                line = {"schedule": name, "repeat": number, "laps": watch.take_laps(), "losses": losses}
                file.write(json.dumps(line | {"offset_ns": offset_ns}) + "\n")
                file.flush()
            if options.keep_parameters:
                mine_only = torch.nn.ModuleList(stages.parts[rank :: spec.stages])
                names = {id(p): key for key, p in stages.model.named_parameters()}
                parameters = {names[id(p)]: p.detach().cpu() for p in mine_only.parameters()}
                with atomic_path(folder / f"{name}.{rank}.pt") as working:
                    torch.save(parameters, working)
        dist.barrier()


class StageMessage(NamedTuple):
    """The shape and type of the activations, and of their gradients, that stages send each other."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def nbytes(self) -> int:
        """Return the bytes of one message."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def play_stage(schedule: Schedule, stage: int, math: PipelineMath, message: StageMessage, watch: Stopwatch) -> None:
    """Run the tasks of one stage in the order of the schedule.

    Each process has the ``math`` of all stages and uses the part of its own stage. Tensors travel through host memory.

    Args:
        schedule: a schedule with a task order for each stage; stage k is rank k.
        message: the shape and type of the tensors between stages.
        watch: the stopwatch that records each task as ``forward``, ``backward`` or ``weight``, the update after it as
            ``optimizer``, and receives and sends; a record's step is the micro-batch.

    Raises:
        SpecError: if the order of the schedule depends on timing.
    """
    if not schedule.orders:
        raise SpecError("schedule", schedule.name, "one with a fixed order: processes do not choose what to run")
    stages, chunks = math.stages, schedule.chunks
    device = next(math.parts[stage].parameters()).device
    hooks = [math.optimizers[stage].register_step_pre_hook(lambda *_: watch.begin_optimizer())]
    sender = _Sender(watch)
    try:
        for task in schedule.orders[stage]:
            source, target = source_stage(task, stage, stages, chunks), target_stage(task, stage, stages, chunks)
            if source is not None:
                received = _receive(message, source, _tag(schedule, task, stage, stages), task, watch)
                math.incoming(stage, task, received.to(device))
            watch.begin(task.microbatch, task.kind if schedule.chunks == 1 else f"{task.kind}.{task.chunk}")
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


def _tag(schedule: Schedule, task: PipelineTask, stage: int, stages: int) -> int:
    """Return a number for the input of a task that is unique among the messages between the same two stages."""
    part = task.chunk * stages + stage
    return (TASK_KINDS.index(task.kind) * schedule.microbatches + task.microbatch) * stages * schedule.chunks + part


def _receive(message: StageMessage, source: int, tag: int, task: PipelineTask, watch: Stopwatch) -> Tensor:
    """Return the input of a task when its message has arrived, and record the wait."""
    received = torch.empty(message.shape, dtype=message.dtype)
    start_ns = watch.now_ns()
    watch.progress.enter()
    dist.recv(received, source, tag=tag)
    watch.progress.leave()
    watch.record_receive(start_ns, watch.now_ns(), task.kind, message.nbytes, task.microbatch)
    return received


class _Sender:
    """A thread that sends tensors in the order in which it gets them."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
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
        """Send the queued tensors until the end of the queue, and record each message."""
        try:
            while (item := self._waiting.get()) is not None:
                x, target, tag, task = item  # x is in host memory already
                start_ns = self._watch.host_ns()
                dist.send(x, target, tag=tag)
                nbytes = x.numel() * x.element_size()
                self._watch.record_send(start_ns, self._watch.host_ns(), task.kind, nbytes, task.microbatch)
        except Exception as error:
            self._error = error
