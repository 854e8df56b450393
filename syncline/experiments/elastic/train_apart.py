"""Train workers at their own pace: events decide what the math sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from syncline.backend.devices import training_device
from syncline.costmodel import Network
from syncline.errors import SpecError
from syncline.experiments.elastic.clock_apart import TrainedApart, plan_apart
from syncline.experiments.elastic.workers_apart import WorkersApart, problems_of
from syncline.experiments.trained import Trained, base_s, both_told, build_task, seldom, task_tensors
from syncline.training import Recorder

if TYPE_CHECKING:
    from syncline.experiments.streams import TrainingStream
    from syncline.problems import Problem, Rows, Task
    from syncline.specs import MethodBase, Training


def train_apart(
    spec: Training,
    method: MethodBase,
    network: Network | None,
    on_step: Callable[[int], None] | None = None,
    stream: TrainingStream | None = None,
) -> Trained:
    """Train an asynchronous method on a network, all workers and all seeds in this process.

    Args:
        spec: problem, workers, steps, seeds.
        method: one that is asynchronous.
        network: on which; who comes when depends on it.
        on_step: see `syncline.experiments.trained.train_method`.
        stream: likewise.

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
    noted = stream and stream.of_seeds(spec.seeds, recorder, None)
    report = seldom(both_told(on_step, noted.note if noted else None), spec.steps)
    math = WorkersApart(spec, method, build, recorder, report)
    task = math.server_task
    work = batch_work(
        spec, math.how.adapt, math.batches, [one.flops_per_step for one in math.tasks], task.flops_per_step
    )
    plan = plan_apart(spec, method, task_tensors(task), base_s(spec, task.flops_per_step), network, work)
    math.evaluate(0)
    report(0)
    played = plan.play(math)
    done = len(recorder.losses)
    if recorder.eval_step[-1] != done:
        math.evaluate(done)
    if noted:
        noted.finish()
    return Trained(
        method.name,
        recorder.history(spec.seeds, played.interrupted),
        [],
        task.describe(),
        task.flops_per_step,
        time.perf_counter() - start_s,
        tuple(tensor.elements for tensor in task_tensors(task)),
        apart=TrainedApart(plan, played, done),
    )


def batch_work(
    spec: Training, adapt: bool | str, batches: Sequence[float], flops: Sequence[float | None], whole: float | None
) -> tuple[float, ...] | None:
    """Of each worker's step, what its batch takes next to the problem's own; None: all alike.

    As their samples, where seconds are given; else as ``compute`` says of that batch.

    Args:
        spec: of the training.
        adapt: whether they do, see `syncline.methods.parts.asynchronous.AsynchronousSpec`.
        batches: of each worker.
        flops: of each worker's step.
        whole: of a step of the problem's own batch.
    """
    if adapt != "batch":
        return None
    whole_s = base_s(spec, whole)
    batch = float(spec.problem.batch_size)
    if spec.compute.seconds is not None:
        return tuple(one / batch for one in batches)
    own = [spec.model_copy(update={"problem": problem}) for problem in problems_of(spec, batches)]
    return tuple(base_s(one, of_step) / whole_s for one, of_step in zip(own, flops, strict=True))
