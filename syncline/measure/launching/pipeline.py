"""The command ``syncline launch`` for a pipeline: its stages as real processes of this machine, measured.

A stage computes with `syncline.sim.pipelines.gradients.PipelineMath`, the same code that the simulator's events run. A
receive blocks until its message has arrived. A separate thread sends the messages one after another, so that no stage
waits for its receiver to be ready: two stages that send to each other at the same time would deadlock.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.costmodel import Link
from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.errors import SpecError
from syncline.files import atomic_path
from syncline.measure.launching.launch import MEASURED, join_timelines, run_local_processes
from syncline.measure.launching.process import Launch, agree_on_spec, join_local_processes
from syncline.measure.launching.rank_files import lines_of, spans_from_laps
from syncline.measure.processes.rendezvous import clock_offset_ns, group, host_store
from syncline.measure.processes.stopwatch import Lap, Stopwatch
from syncline.measure.processes.watchdog import Progress
from syncline.problems import Rows, split_into_stages
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.pipeline import schedule_row
from syncline.runs.training.delayed_gradients import stage_optimizer
from syncline.runs.training.limits import check_processes
from syncline.runs.training.tables import timeline_columns
from syncline.sim import Timeline, chrome_trace, report, run_pipeline
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.schedules import TASK_KINDS, PipelineTask, Schedule, source_stage, target_stage
from syncline.sim.program.timeline import WAITING
from syncline.specs import PipelineSpec
from syncline.specs.study import Record


class Stages:
    """The model of a pipeline spec, cut into parts, with an optimizer for each stage, for all repeats of a schedule."""

    def __init__(self, spec: PipelineSpec, schedule: str, device: torch.device | str = "cpu") -> None:
        assert spec.training is not None
        problem, seed = spec.training.problem, spec.training.seed
        self.schedule = spec.build_schedule(schedule)
        self.task = problem.build(Rows.whole_group(1, (seed,)), device=device)  # one replica of all stages
        self.model = problem.initial_network(seed).to(device)
        self.parts: list[nn.Module] = split_into_stages(self.model, spec.stages * self.schedule.chunks)
        has_delayed_gradients = self.schedule.updates == "every"  # each micro-batch has an update
        delays = stage_delays(spec.stages).tolist() if has_delayed_gradients else [0] * spec.stages
        self.optimizers = [
            stage_optimizer(
                spec.training.method, self.task, named_params=list(self.parameters_of(stage).items()), stage=stage,
                delays=delays, seed=seed,
            )
            for stage in range(spec.stages)
        ]  # fmt: skip
        self.message = StageMessage((problem.batch_size, problem.context, problem.width))

    def parameters_of(self, stage: int) -> dict[str, nn.Parameter]:
        """Return the parameters of a stage, by their names in the whole model."""
        num_stages = len(self.parts) // self.schedule.chunks
        parts = nn.ModuleList(self.parts[stage::num_stages])  # stage k has the parts k, k + stages, and so on
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return {names[id(parameter)]: parameter for parameter in parts.parameters()}

    def math_of_repeat(self, repeat: int) -> PipelineMath:
        """Return the computation of one repeat, which continues from the weights of the repeat before."""
        first_batch = repeat * self.schedule.microbatches

        def inputs(microbatch: int) -> Tensor:
            inputs_by_row, _ = self.task.batch(first_batch + microbatch)
            return inputs_by_row[0]  # a stage holds one worker, which is one row

        def loss(logits: Tensor, microbatch: int) -> Tensor:
            _, targets_by_row = self.task.batch(first_batch + microbatch)
            return F.cross_entropy(logits.flatten(0, -2), targets_by_row[0].flatten())

        return PipelineMath(self.schedule, self.parts, inputs, loss, self.optimizers)


def stage_process(rank: int, fields: dict[str, Any], options: Launch, port: int, folder: Path) -> None:
    """Run the process of one stage: train with each schedule, and write a line for each repeat.

    Args:
        options: device, timeout, and whether to keep the parameters.
    """
    torch.set_num_threads(1)  # a pipeline's spec has no number of threads
    spec = PipelineSpec.model_validate(fields)
    store, place = join_local_processes(rank, spec.stages, port, options)
    machines = agree_on_spec(spec, options, store, place)
    device = options.use_device(rank, spec.stages)
    progress = Progress.shared(folder / "progress", spec.stages, rank)
    with group(store, place, "gloo", options.group_timeout_s), (folder / f"{rank}.jsonl").open("a") as file:
        offset_ns = clock_offset_ns(place, machines)
        watch = Stopwatch(progress, device)
        for name in spec.schedules:
            stages = Stages(spec, name, device)
            for repeat in range(spec.training.repeats if spec.training else 0):  # `check_pipeline` requires one
                math = stages.math_of_repeat(repeat)
                dist.barrier()  # repeats begin together, so that each has its own timeline
                run_stage(stages.schedule, rank, math, stages.message, watch)
                losses = {microbatch: float(loss) for microbatch, loss in math.losses.items()}
                line = {"schedule": name, "repeat": repeat, "laps": watch.take_laps(), "losses": losses}
                file.write(json.dumps(line | {"offset_ns": offset_ns}) + "\n")
                file.flush()
            if options.keep_parameters:
                parameters = {key: p.detach().cpu() for key, p in stages.parameters_of(rank).items()}
                with atomic_path(folder / f"{name}.{rank}.pt") as working:
                    torch.save(parameters, working)
        dist.barrier()  # no process leaves while others still communicate


class StageMessage(NamedTuple):
    """The shape and type of the activations, and of their gradients, that stages send each other."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def nbytes(self) -> int:
        """Return the bytes of a message between two stages."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def run_stage(schedule: Schedule, stage: int, math: PipelineMath, message: StageMessage, watch: Stopwatch) -> None:
    """Run the tasks of one stage in the order of the schedule.

    Each process has the ``math`` of all stages and uses that of its own stage. Tensors travel through host memory.

    Args:
        schedule: a schedule with a task order for each stage; stage k is rank k.
        math: the forward and backward passes and updates of one run through the schedule.
        watch: the stopwatch. Its laps are tasks (``forward``, ``backward``, ``weight``), updates (``optimizer``),
            receives and sends; the step of a lap is the micro-batch.
    """
    if not schedule.orders:
        raise SpecError("schedule", schedule.name, "one with a fixed order: processes do not choose what to run")
    stages = math.stages
    device = next(math.parts[stage].parameters()).device
    hook = math.optimizers[stage].register_step_pre_hook(lambda *_: watch.begin_optimizer())
    sender = _Sender(watch)
    try:
        for task in schedule.orders[stage]:
            part = task.chunk * stages + stage  # the number of the model's part that the task computes
            source = source_stage(task, stage, stages, schedule.chunks)
            target = target_stage(task, stage, stages, schedule.chunks)
            if source is not None:
                received = _receive(message, source, _tag(schedule, task, part, stages), task, watch)
                math.incoming(stage, task, received.to(device))
            watch.begin(task.microbatch, activity=_activity(schedule, task.kind, task.chunk))
            math.effect(stage, task)()  # the forward or backward pass, and an update that is due after it
            watch.end()
            if target is not None:
                # Activations go to the next part of the model, gradients to the previous one.
                target_part = part + 1 if task.kind == "forward" else part - 1
                tag = _tag(schedule, task, target_part, stages)
                output = math.outgoing(stage, task).cpu().contiguous()
                sender.send(output, target=target, tag=tag, task=task)
        sender.finish()
    finally:
        hook.remove()


def _activity(schedule: Schedule, kind: str, chunk: int) -> str:
    """Return the name of a task's laps: its kind, and the number of the chunk if a stage has several."""
    return kind if schedule.chunks == 1 else f"{kind}.{chunk}"


def _tag(schedule: Schedule, task: PipelineTask, part: int, stages: int) -> int:
    """Return the tag of the message to a part of the model with its input for a task's kind and micro-batch."""
    number_in_part = TASK_KINDS.index(task.kind) * schedule.microbatches + task.microbatch
    return number_in_part * stages * schedule.chunks + part


def _receive(message: StageMessage, source: int, tag: int, task: PipelineTask, watch: Stopwatch) -> Tensor:
    """Wait for the message with a task's input, record the wait, and return the input."""
    received = torch.empty(message.shape, dtype=message.dtype)
    start_ns = watch.synchronized_ns()
    watch.progress.enter_collective()  # a stage that waits for others is not the one that hangs
    dist.recv(received, source, tag=tag)
    watch.progress.leave_collective()
    end_ns = watch.synchronized_ns()
    watch.record_receive(start_ns, end_ns, task.kind, nbytes=message.nbytes, step=task.microbatch)
    return received


class _Sender:
    """A thread that sends tensors to other stages in the order in which they are queued."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        # Tensors with target, tag and task; None ends the thread.
        self._queue: queue.SimpleQueue[tuple[Tensor, int, int, PipelineTask] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None  # the error that ended the thread
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, x: Tensor, target: int, tag: int, task: PipelineTask) -> None:
        """Queue a tensor, which the thread sends after those queued before it."""
        if self._error is not None:
            raise self._error
        self._queue.put((x, target, tag, task))

    def finish(self) -> None:
        """Wait until the thread has sent all tensors."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        """Send the queued tensors until the end of the queue, and record each message."""
        try:
            for x, target, tag, task in iter(self._queue.get, None):  # x is in host memory already
                start_ns = self._watch.host_ns()
                dist.send(x, target, tag=tag)
                end_ns, nbytes = self._watch.host_ns(), x.numel() * x.element_size()
                self._watch.record_send(start_ns, end_ns, task.kind, nbytes=nbytes, step=task.microbatch)
        except Exception as error:
            self._error = error  # `send` and `finish` raise it in the thread that computes


UPDATE = "optimizer"
"""The name of an update on a measured timeline."""


def launch_pipeline(
    spec: PipelineSpec,
    out: Path,
    options: Launch | None = None,
    *,
    exact: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train through the spec's schedules with a process per stage, measure, and write the folder.

    Args:
        options: device, timeout; the backend is gloo.
        on_progress: called with the number of tasks that all stages have completed.

    Returns:
        ``rows`` (for each schedule, the measurements of the repeat with the median duration, and `replayed_s`),
        ``simulated`` (for each schedule, the simulation on the spec's first network), ``folder``, ``interrupted``,
        ``failed``.

    Raises:
        SynclineError: the training cannot start.
    """
    options = options or Launch()
    check_pipeline(spec, options)
    check_processes("stages", spec.stages)
    options.devices(spec.stages)
    store = host_store(options.port)
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        ranks_folder = folder.working / "ranks"
        ranks_folder.mkdir()
        stage_args = spec.model_dump(mode="json"), options, store.port, ranks_folder
        ended = run_local_processes(stage_process, spec.stages, stage_args, options, ranks_folder, on_progress)
        record: Record = {
            "wall_s": ended.wall_s, "interrupted": ended.interrupted,
            "failed": None if ended.failure is None else str(ended.failure),
            "launch": asdict(options) | {"processes": spec.stages}, **_write_results(folder, spec, ranks_folder),
        }  # fmt: skip
        folder.json("run", environment() | record)
        if options.keep_parameters and ended.failure is None:
            parameters: dict[str, dict[str, torch.Tensor]] = {name: {} for name in spec.schedules}
            for name in spec.schedules:
                for stage in range(spec.stages):
                    parameters[name] |= torch.load(ranks_folder / f"{name}.{stage}.pt", weights_only=True)
            with atomic_path(folder.working / "parameters.pt") as working:
                torch.save(parameters, working)
        shutil.rmtree(ranks_folder)
    names = ("rows", "simulated", "interrupted", "failed")
    return {name: record[name] for name in names} | {"folder": str(folder.path)}


def check_pipeline(spec: PipelineSpec, options: Launch) -> None:
    """Refuse settings of a pipeline that real processes do not support, such as replicas or NCCL."""
    if spec.training is None:
        raise SpecError("training", None, "a problem and a method, as in {problem: ..., method: ddp-adam}")
    problem = spec.training.problem
    parts = spec.stages * max(map(spec.chunks_of, spec.schedules))
    if problem.name != "text-gpt":
        raise SpecError("training.problem.kind", problem.name, "'text-gpt': a model of stages")
    if problem.layers < parts:
        raise SpecError("training.problem.layers", problem.layers, f"at least {parts}, a block for each part")
    if problem.tied and parts > 1:
        raise SpecError(
            "training.problem.tied", True, "false in a pipeline, as its first and its last stage each have a table"
        )
    if spec.replicas > 1:
        raise SpecError("replicas", spec.replicas, "1: real stages do not average over replicas")
    for i, name in enumerate(spec.schedules):
        if not spec.build_schedule(name).orders:
            raise SpecError(f"schedules.{i}", name, "one with a fixed order: processes do not choose what to run")
    if options.workers_per_process > 1:
        raise SpecError("workers_per_process", options.workers_per_process, "1: a stage is a process")
    if options.backend == "nccl":
        raise SpecError("backend", options.backend, "gloo: stages send through the host's memory")


def _write_results(folder: RunFolder, spec: PipelineSpec, ranks_folder: Path) -> Record:
    """Write measured and simulated timelines, the trace and the losses; return measured and simulated rows."""
    lines: list[dict[str, list[Record]]] = []  # for each stage and schedule, one line per repeat
    for stage in range(spec.stages):
        lines.append({})
        for line in lines_of(ranks_folder / f"{stage}.jsonl"):
            lines[stage].setdefault(line["schedule"], []).append(line)
    last_stage_lines = lines[-1]  # only the last stage has losses

    rows, simulated_rows, named_timelines = [], [], []
    tracks: dict[str, Timeline] = {}
    losses: dict[str, list[Any]] = {"schedule": [], "microbatch": [], "loss": []}
    link = spec.links[0]
    for name in spec.schedules:
        repeats = _timelines_of_repeats(lines, name)
        if not repeats:
            continue
        schedule = spec.build_schedule(name)
        repeat_s = [timeline.makespan_s for timeline in repeats]
        repeats_by_duration = [repeats[index] for index in np.argsort(repeat_s)]
        median_repeat = repeats_by_duration[len(repeats) // 2]
        schedule_losses = []
        for line in last_stage_lines[name]:
            schedule_losses += [line["losses"][str(microbatch)] for microbatch in range(spec.microbatches)]
        losses["schedule"] += [name] * len(schedule_losses)
        losses["microbatch"] += range(len(schedule_losses))
        losses["loss"] += schedule_losses

        measured = schedule_row(spec, name, MEASURED, report=_report_with_updates(median_repeat, spec, schedule))
        replay_s = replayed_s(repeats, schedule, spec.stages)
        rows.append(measured | {
            "repeats": len(repeats),
            "repeat_s": repeat_s,
            "optimizer_s": float(median_repeat.duration_s[median_repeat.what == UPDATE].sum()) / spec.stages,
            "loss": schedule_losses[-1],
            "replayed_s": replay_s,
            "replayed_error": replay_s / measured["makespan_s"] - 1,
        })  # fmt: skip
        simulated = run_pipeline(spec.pipeline(name), link)
        simulated_rows.append(schedule_row(spec, name, link.name, report(simulated, schedule, spec.stages)))
        named_timelines += [(name, MEASURED, median_repeat), (name, link.name, simulated)]
        tracks |= {f"{MEASURED}, {name}: worker": median_repeat, f"simulated, {name}: worker": simulated}
    if rows:
        folder.table("timeline", timeline_columns(named_timelines))
        folder.trace(chrome_trace(*join_timelines(tracks)))
        folder.table("losses", losses)
    return {"rows": rows, "simulated": simulated_rows}


def _report_with_updates(timeline: Timeline, spec: PipelineSpec, schedule: Schedule) -> Any:
    """Return the report of a measured timeline's tasks, in which updates count as computing."""
    task_report = report(timeline[timeline.what != UPDATE], schedule, spec.stages)  # the schedule has no updates
    utilisation = timeline.utilisation()
    stage_reports = zip(task_report.stages, utilisation.tolist(), strict=True)
    stages = tuple(replace(stage_report, utilisation=part) for stage_report, part in stage_reports)
    return replace(
        task_report, makespan_s=timeline.makespan_s, bubble=float(1 - utilisation.mean()), stages=stages,
        microbatches_per_s=spec.microbatches / timeline.makespan_s,
    )  # fmt: skip


def _timelines_of_repeats(lines: list[dict[str, list[Record]]], name: str) -> list[Timeline]:
    """Return a timeline for each repeat of a schedule that all stages have completed, from ``lines`` of each stage.

    A timeline starts with the first task, at 0, on the clock of stage 0.
    """
    timelines = []
    num_repeats = min(len(stage_lines.get(name, [])) for stage_lines in lines)
    for repeat in range(num_repeats):
        repeat_lines = [stage_lines[name][repeat] for stage_lines in lines]
        zero_ns = min(
            lap.start_ns - line["offset_ns"]  # this stage's clock minus that of stage 0
            for line in repeat_lines
            for lap in map(Lap._make, line["laps"])
            if lap.stream == "compute" and lap.what not in WAITING
        )
        spans = []
        for stage, line in enumerate(repeat_lines):
            for span in spans_from_laps(line["laps"], stage, zero_ns=zero_ns + line["offset_ns"]):
                if span.end_s > 0:  # before the first task the stages only wait
                    spans.append(span._replace(start_s=max(span.start_s, 0.0)))
        timelines.append(Timeline.from_spans(spans, len(lines)))
    return timelines


def replayed_s(measured: Sequence[Timeline], schedule: Schedule, stages: int) -> float:
    """Return the simulated makespan of a schedule in which each task takes the median of its measured times.

    An update counts as a part of the task before it, because a stage sends a task's result after the update. The replay
    is shorter than the measurement by the time of sends, and by the time in which processes wait for a core.

    Args:
        measured: timelines with ``forward``, ``backward``, ``weight`` and ``optimizer`` on the compute streams.
        schedule: a schedule with an order for each stage.
    """

    def median_s(stage: int, activity: str) -> float:
        seconds: list[float] = []
        for timeline in measured:
            is_activity = (timeline.worker == stage) & (timeline.what == activity)
            seconds.extend(timeline.duration_s[is_activity])
        return float(np.median(seconds)) if seconds else 0.0

    task_s = {kind: np.zeros((stages, schedule.microbatches)) for kind in TASK_KINDS}
    for stage, order in enumerate(schedule.orders):
        for kind in {task.kind for task in order}:
            chunk_s = [median_s(stage, _activity(schedule, kind, chunk)) for chunk in range(schedule.chunks)]
            task_s[kind][stage] = np.mean(chunk_s)  # the simulator has one time for all chunks of a stage
        last_task = order[-1]
        update_s = median_s(stage, UPDATE) / schedule.chunks  # each chunk gets its part of the update
        if schedule.updates == "every":
            task_s[last_task.kind][stage] += update_s
        else:
            task_s[last_task.kind][stage, last_task.microbatch] += update_s
    durations = Durations(task_s["forward"], task_s["backward"], task_s["weight"])
    instant_link = Link(latency_s=0.0, bandwidth_bytes_per_s=1e15)
    return float(run_pipeline(Pipeline(schedule, stages, durations), instant_link).makespan_s)
