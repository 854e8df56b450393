"""Train workers at their own pace: the simulated events decide the order of the math."""

from __future__ import annotations

import time
from collections.abc import Callable

from syncline.comm.devices import training_device
from syncline.costmodel import Network
from syncline.errors import SpecError
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.problems import Problem, Rows, Task
from syncline.runs.folders.streams import SeedStream, TrainingStream
from syncline.runs.training.elastic.async_clock import AsyncTrained, async_plan
from syncline.runs.training.elastic.async_workers import AsyncWorkers, batches_of, problems_of
from syncline.runs.training.elastic.coincident_steps import teams_of
from syncline.runs.training.trained import Trained, base_s, build_task, task_tensors, throttled
from syncline.specs import MethodBase, Training
from syncline.training import Recorder


def train_async(
    spec: Training,
    method: MethodBase,
    network: Network | None,
    on_step: Callable[[int], None] | None = None,
    stream: TrainingStream | None = None,
) -> Trained:
    """Train an asynchronous method on a network, all workers and all seeds in this process.

    Args:
        spec: problem, workers, steps, seeds.
        method: an asynchronous method.
        network: the network, which decides the order in which updates arrive.
        on_step: see `syncline.runs.training.train_and_time.train_method`.
        stream: see `syncline.runs.training.train_and_time.train_method`.

    Raises:
        SpecError: no network, or one without a place for a server.
    """
    if network is None:
        raise SpecError("method.asynchronous", method.name, "a method without it, as no network says who comes when")
    start_s = time.perf_counter()
    device = training_device(spec.device)

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, device, spec.dtype, spec.execution)

    recorder = Recorder()
    seed_stream = stream and SeedStream(stream, spec.seeds, recorder, None)
    report = throttled(spec.steps, seed_stream and seed_stream.note, on_step)
    task = build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
    step_s = base_s(spec, task.flops_per_step)
    plan = async_plan(spec, method, task_tensors(task), step_s, network, batch_work(spec, method, step_s, build))
    math = AsyncWorkers(spec, method, build, recorder, report, teams_of(plan), task)
    math.evaluate(0)
    report(0)
    played = plan.play(math)
    done = len(recorder.losses)
    if recorder.eval_step[-1] != done:
        math.evaluate(done)
    if seed_stream:
        seed_stream.finish()
    return Trained(
        method.name,
        recorder.history(spec.seeds, played.interrupted),
        [],
        task.describe(),
        task.flops_per_step,
        time.perf_counter() - start_s,
        tuple(task_tensors(task)),
        apart=AsyncTrained(plan, played, done),
    )


def batch_work(
    spec: Training, method: MethodBase, whole_s: float, build: Callable[[Rows, Problem], Task]
) -> tuple[float, ...] | None:
    """Return the duration of each worker's step relative to the problem's own batch, or None if all are equal.

    If the spec gives seconds, the duration is proportional to the samples; else ``compute`` gives it for each batch.

    Args:
        spec: specification of the training.
        method: an asynchronous method.
        whole_s: seconds of a step of the problem's own batch.
        build: builds the task of some rows of a problem.
    """
    asynchronous = asynchronous_of(method)
    if asynchronous is None or asynchronous.dynamic_local_updates != "batch":
        return None
    batches = batches_of(spec, asynchronous)
    if spec.compute.seconds is not None:
        return tuple(samples / float(spec.problem.batch_size) for samples in batches)
    work_by_batch: dict[float, float] = {}
    for batch, problem in zip(batches, problems_of(spec, batches), strict=True):
        if batch not in work_by_batch:
            batch_spec = spec.model_copy(update={"problem": problem})
            task = build(Rows(spec.seeds, (0,), spec.workers), problem)
            work_by_batch[batch] = base_s(batch_spec, task.flops_per_step) / whole_s
    return tuple(work_by_batch[batch] for batch in batches)
