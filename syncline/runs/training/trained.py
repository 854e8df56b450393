"""The results of one method's training, and functions that all kinds of training share."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from syncline.comm.devices import training_device
from syncline.costmodel import Call, TensorShape
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.methods.parts.method_spec import FP32_BYTES
from syncline.problems import Problem, Rows, Task
from syncline.runs.training.regrouping import TrainedGroup
from syncline.runs.training.stage_updates import TrainedStages
from syncline.specs import Training
from syncline.specs.study import Report
from syncline.training import History

if TYPE_CHECKING:
    from syncline.runs.training.async_clock import AsyncTrained


SECONDS_BETWEEN_REPORTS = 0.05

WARM_UP_STEPS = 3
FEWEST_TIMED_STEPS, MOST_TIMED_STEPS = 5, 50
"""Fewest and most steps that are timed to measure the seconds of a step."""
MEASUREMENT_S = 1.0
"""Seconds of timed steps after which the measurement ends, if the fewest steps are timed."""

AnyTraining = TypeVar("AnyTraining", bound=Training)

T = TypeVar("T")


def task_tensors(task: Task) -> list[TensorShape]:
    """Return the shapes of one worker's parameters, without the task's leading axis of rows (workers and seeds)."""
    return [TensorShape(name, tuple(p.shape[1:]), name in task.matrices) for name, p in task.params.items()]


@dataclass
class Trained:
    """The results of training a method: history, traffic, and facts about the training.

    Args:
        ledger: the collectives of one worker; those of the first seed represent all seeds.
        flops_per_step: FLOPs of one worker per step, if known.
        wall_s: wall-clock seconds of the training on this machine.
        tensors: the parameters of one worker, in order.
        readbacks: by step, the number of values that a worker copied from its device to decide whether to send.
        state_bytes: bytes of the parameters and of the method's state, for one worker.
        asynchronous: the simulated order of events, if the method is asynchronous; it holds for one network.
        stages: work of the stages, if the model was cut into pipeline stages.
        group: members of each step, if the group re-forms after failures; it holds for one network.
    """

    method: str
    history: History
    ledger: list[Call]
    facts: dict[str, Any]
    flops_per_step: float | None
    wall_s: float
    tensors: tuple[TensorShape, ...] = ()
    readbacks: Mapping[int, int] = field(default_factory=dict)
    state_bytes: float = 0.0
    asynchronous: AsyncTrained | None = None
    stages: TrainedStages | None = None
    group: TrainedGroup | None = None

    def calls(self) -> list[Call]:
        """Return the collectives of the completed steps that have at least two members."""
        return [call for call in self.ledger if call.step < self.history.steps and call.group_size != 1]

    def readbacks_by_step(self) -> np.ndarray:
        """Return the number of values copied from the device in each completed step, ``(T,)``."""
        return np.array([self.readbacks.get(step, 0) for step in range(self.history.steps)])


def state_bytes(method: MethodBase, tensors: Sequence[TensorShape], workers: int) -> float:
    """Return the size of a checkpoint: bytes of one worker's parameters and of the method's state, in fp32."""
    parameters = sum(tensor.elements for tensor in tensors)
    return FP32_BYTES * (parameters + float(method.kept_elements(list(tensors), workers)))


def build_task(
    problem: Problem,
    rows: Rows,
    device: torch.device,
    dtype: str = "float32",
    execution: str = "eager",
    autocast: str = "none",
) -> Task:
    """Return the task that a problem builds on a device, for some rows (pairs of worker and seed).

    Settings with their default are not passed on, so a user's ``build`` needs no parameters for them.

    Raises:
        SpecError: the problem's ``build`` has no parameter for a setting that differs from its default.
    """
    parameters = inspect.signature(problem.build).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    options: dict[str, Any] = {}

    def add_option(name: str, requested: str, default: str, value: Any) -> None:
        if requested == default:
            return
        if name not in parameters and not takes_any:
            raise SpecError(name, requested, f"{default}, as the method build of {problem.name} takes no {name}")
        options[name] = value

    add_option("device", device.type, default="cpu", value=device)
    add_option("dtype", dtype, default="float32", value=getattr(torch, dtype))
    add_option("execution", execution, default="eager", value=execution)
    add_option("autocast", autocast, default="none", value=getattr(torch, autocast, None))
    return problem.build(rows, **options)


def undisturbed_step_s(spec: Training, flops: float | None) -> float:
    """Return the seconds of a worker's gradient step without disturbances, for the batch of the spec's problem.

    Args:
        flops: FLOPs of a worker's step; None if they cannot be counted.
    """
    samples = getattr(spec.problem, "batch_size", None)
    context_length = getattr(spec.problem, "context", None)
    tokens = None if samples is None or context_length is None else samples * context_length
    return spec.compute.undisturbed_step_s(flops, spec.problem.name, samples=samples, tokens=tokens)


def regroups_after_failures(spec: Training, method: MethodBase) -> bool:
    """Return whether the workers of a synchronous method form a new group when a machine fails."""
    failures = spec.failures
    return failures is not None and failures.recovery == "elastic" and asynchronous_of(method) is None


def depends_on_clock(spec: Training, method: MethodBase) -> bool:
    """Return whether the math of a training depends on the network: simulated events decide which workers take part."""
    return asynchronous_of(method) is not None or regroups_after_failures(spec, method)


def throttled(steps: int, *callbacks: Callable[[int], None] | None) -> Callable[[int], None]:
    """Return a function that calls each callback with the completed steps, at most every `SECONDS_BETWEEN_REPORTS`.

    It also calls them at the last step. A callback that may raise an error to end the training must come last.
    """
    reported_at_s = 0.0

    def report(done: int) -> None:
        nonlocal reported_at_s
        now_s = time.monotonic()
        if done == steps or now_s - reported_at_s >= SECONDS_BETWEEN_REPORTS:
            reported_at_s = now_s
            for callback in callbacks:
                if callback is not None:
                    callback(done)

    return report


def sequential_results(
    train_seed: Callable[[int, Report | None], T], seeds: Sequence[int], steps: int, on_step: Report | None
) -> Iterator[T]:
    """Train the seeds one after another, and yield the result of each.

    Args:
        train_seed: function that trains one seed; its second argument reports the number of finished steps.
        on_step: function that is called with the progress of all seeds together, scaled to the range 0 to ``steps``.
    """

    def report_all_seeds(on_step: Report, seed_index: int, done: int) -> None:
        on_step((seed_index * steps + done) // len(seeds))

    for seed_index, seed in enumerate(seeds):
        yield train_seed(seed, None if on_step is None else partial(report_all_seeds, on_step, seed_index))


def sequential_history(
    train_seed: Callable[[int, Report | None], History], seeds: Sequence[int], steps: int, on_step: Report | None
) -> History:
    """Train the seeds one after another, see `sequential_results`, and return one history of all.

    No seed begins after an interrupted one.
    """
    histories: list[History] = []
    for history in sequential_results(train_seed, seeds, steps, on_step):
        histories.append(history)
        if history.interrupted:
            break
    return History.concatenate(histories)


def measured_step_s(spec: Training) -> float:
    """Return the median seconds of a gradient step of a spec's first worker, measured here after a warm-up."""
    device, num_threads = training_device(spec.device), torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    try:
        task = build_task(spec.problem, Rows(spec.seeds[:1], (0,), spec.workers), device, **spec.arithmetic)
        times_s: list[float] = []
        for step in range(WARM_UP_STEPS + MOST_TIMED_STEPS):
            start_s = time.perf_counter()
            task.step_gradients(step)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times_s.append(time.perf_counter() - start_s)
            timed_s = times_s[WARM_UP_STEPS:]
            if len(timed_s) >= FEWEST_TIMED_STEPS and sum(timed_s) >= MEASUREMENT_S:
                break
    finally:
        torch.set_num_threads(num_threads)
    return statistics.median(times_s[WARM_UP_STEPS:])


def with_measured_step(spec: AnyTraining) -> tuple[AnyTraining, float | None]:
    """Return a spec with measured seconds of a step, and the seconds; the same spec and None if it measures nothing."""
    if not spec.compute.measure:
        return spec, None
    step_s = measured_step_s(spec)
    return with_seconds(spec, step_s), step_s


def with_seconds(spec: AnyTraining, step_s: float) -> AnyTraining:
    """Return a spec whose ``compute`` has measured seconds of a step, instead of a request to measure them."""
    compute = spec.compute.model_copy(update={"measure": False, "seconds": step_s})
    return spec.model_copy(update={"compute": compute})
