"""The results of a training, and what every way of training shares: tasks, reports, seeds in turn, step times."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from syncline.comm.devices import training_device
from syncline.costmodel import Call, TensorShape
from syncline.errors import SpecError
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.methods.parts.method_spec import FP32_BYTES
from syncline.problems import Problem, Rows, Task
from syncline.runs.training.regrouping import TrainedGroup
from syncline.runs.training.stage_updates import TrainedStages
from syncline.specs import MethodBase, Training
from syncline.specs.study import Report
from syncline.training import History

if TYPE_CHECKING:
    from syncline.runs.training.async_clock import AsyncTrained


SECONDS_BETWEEN_REPORTS = 0.05

WARM_UP_STEPS = 3
FEWEST_STEPS, MOST_STEPS = 5, 50
LONGEST_S = 1.0
"""Seconds after which timing ends, once the fewest steps are timed."""

AnyTraining = TypeVar("AnyTraining", bound=Training)

T = TypeVar("T")


def task_tensors(task: Task) -> list[TensorShape]:
    """Return the shapes of the parameters of one worker."""
    return [TensorShape(name, tuple(p.shape[1:]), name in task.matrices) for name, p in task.params.items()]


@dataclass
class Trained:
    """The results of one method's training: its history, its traffic, and facts about it.

    Args:
        method: name of the method.
        history: losses and traces.
        ledger: the calls of one worker; those of the first seed represent all.
        facts: facts about the problem.
        flops_per_step: FLOPs of one worker per step, if known.
        wall_s: wall-clock seconds of the training on this machine.
        tensors: the parameters of one worker, in order.
        readbacks: numbers that a worker read back from its device to decide whether to send, by step.
        state_bytes: bytes of the parameters and of the method's state, for one worker.
        asynchronous: order of arrivals of workers at their own pace; their training is that of one network.
        stages: work of the stages of a pipeline, if the model was cut into stages.
        group: members of each step of a group that forms anew; its training is that of one network.
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
        """Return the traffic of the completed steps, in the form that the clock takes; a worker alone sends nothing."""
        return [call for call in self.ledger if call.step < self.history.steps and call.group_size != 1]

    def readbacks_by_step(self) -> np.ndarray:
        """Return the numbers read back in each completed step, ``(T,)``."""
        return np.array([self.readbacks.get(step, 0) for step in range(self.history.steps)])


def state_bytes(method: MethodBase, tensors: Sequence[TensorShape], workers: int) -> float:
    """Return the bytes of one worker's parameters and of its method's state, in fp32: the size of a checkpoint."""
    parameters = sum(tensor.elements for tensor in tensors)
    return FP32_BYTES * (parameters + float(method.kept_elements(list(tensors), workers)))


def build_task(
    problem: Problem, rows: Rows, device: torch.device, dtype: str = "float32", execution: str = "eager"
) -> Task:
    """Return a problem built on a device, with a type of numbers and a kind of execution.

    The ``build`` of a user's problem needs no parameter for a setting that has its default.

    Raises:
        SpecError: a problem whose ``build`` does not take a requested setting.
    """
    options: dict[str, Any] = {} if device.type == "cpu" else {"device": device}
    options |= {} if dtype == "float32" else {"dtype": getattr(torch, dtype)}
    options |= {} if execution == "eager" else {"how": execution}
    parameters = inspect.signature(problem.build).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in options:
        if name not in parameters and not takes_all:
            field, default, requested = {
                "device": ("device", "cpu", device.type),
                "dtype": ("dtype", "float32", dtype),
                "how": ("execution", "eager", execution),
            }[name]
            raise SpecError(field, requested, f"{default}, as the method build of {problem.name} takes no {name}")
    return problem.build(rows, **options)


def base_s(spec: Training, flops: float | None) -> float:
    """Return the seconds of an undisturbed step; a token is a position of a context window."""
    samples, length = getattr(spec.problem, "batch_size", None), getattr(spec.problem, "context", None)
    tokens = None if samples is None or length is None else samples * length
    return spec.compute.base_s(flops, spec.problem.name, samples=samples, tokens=tokens)


def reforms(spec: Training, method: MethodBase) -> bool:
    """Return whether the group of a method re-forms when machines fail, so that its training depends on the clock."""
    failures = spec.failures
    return failures is not None and failures.recovery == "elastic" and asynchronous_of(method) is None


def goes_by_clock(spec: Training, method: MethodBase) -> bool:
    """Return whether a method's training depends on the network, because events decide which workers take part."""
    return asynchronous_of(method) is not None or reforms(spec, method)


def throttled(steps: int, *callbacks: Callable[[int], None] | None) -> Callable[[int], None]:
    """Return a function that calls each callback with the completed steps, at most every 50 ms and at the last step.

    Watching a fast training therefore costs nothing. The last callback may end the training.
    """
    last_s = 0.0

    def call(done: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if done == steps or now_s - last_s >= SECONDS_BETWEEN_REPORTS:
            last_s = now_s
            for callback in callbacks:
                if callback is not None:
                    callback(done)

    return call


def sequential_results(
    train_seed: Callable[[int, Report | None], T], seeds: Sequence[int], steps: int, on_step: Report | None
) -> Iterator[T]:
    """Train the seeds one after another, and yield the result of each.

    Args:
        train_seed: function that trains one seed; its second argument reports the number of finished steps.
        seeds: seeds, in the order in which they train.
        steps: number of steps of each training.
        on_step: function that is called with the progress of all seeds together, scaled to the range 0 to ``steps``.
    """
    for number, seed in enumerate(seeds):
        # Each training counts to T by itself.
        report = on_step and (lambda done, n=number: on_step((n * steps + done) // len(seeds)))  # type: ignore[misc]
        yield train_seed(seed, report)


def histories_in_turn(
    train_seed: Callable[[int, Report | None], History], seeds: Sequence[int], steps: int, on_step: Report | None
) -> History:
    """Train the seeds one after another, and return their histories as one; stop after an interrupted training."""
    parts: list[History] = []
    for part in sequential_results(train_seed, seeds, steps, on_step):
        parts.append(part)
        if part.interrupted:
            break
    return History.concatenate(parts)


def measured_step_s(spec: Training) -> float:
    """Return the seconds of a gradient step of a spec's first worker on this machine: the median after a warm-up.

    Raises:
        SpecError: a mistake that only the built problem shows.
    """
    device, before = training_device(spec.device), torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    try:
        task = build_task(spec.problem, Rows(spec.seeds[:1], (0,), spec.workers), device, spec.dtype, spec.execution)
        times_s: list[float] = []
        for step in range(WARM_UP_STEPS + MOST_STEPS):
            begun_s = time.perf_counter()
            task.step_gradients(step)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times_s.append(time.perf_counter() - begun_s)
            timed_s = times_s[WARM_UP_STEPS:]
            if len(timed_s) >= FEWEST_STEPS and sum(timed_s) >= LONGEST_S:
                break
    finally:
        torch.set_num_threads(before)
    return statistics.median(times_s[WARM_UP_STEPS:])


def with_measured_step(spec: AnyTraining) -> tuple[AnyTraining, float | None]:
    """Return the spec with measured seconds, and the seconds, if ``compute`` has ``measure``; else the spec and None.

    Raises:
        SpecError: a mistake that only the built problem shows.
    """
    if not spec.compute.measure:
        return spec, None
    step_s = measured_step_s(spec)
    return with_seconds(spec, step_s), step_s


def with_seconds(spec: AnyTraining, step_s: float) -> AnyTraining:
    """Return a spec with measured seconds of a step."""
    compute = spec.compute.model_copy(update={"measure": False, "seconds": step_s})
    return spec.model_copy(update={"compute": compute})
