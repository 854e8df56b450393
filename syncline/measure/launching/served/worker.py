"""A worker's process: it receives the server's model, makes its local steps, sends its update, and repeats.

The heads of its messages are models of pydantic, by which the server checks them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, TypeVar

import cloudpickle
import torch
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from syncline.measure.launching.process import Launch
from syncline.measure.processes.messages import (
    ConnectionLost,
    CurveKeys,
    MalformedMessage,
    WorkerSocket,
    unpack_tensors,
)
from syncline.measure.processes.rejoining import Register
from syncline.measure.processes.stopwatch import Lap, Stopwatch
from syncline.measure.processes.watchdog import Progress
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.problems import Rows
from syncline.runs.training.async_training import batch_sizes_of, problems_of
from syncline.runs.training.async_workers import LocalWorker, lr_factors
from syncline.runs.training.trained import build_task
from syncline.specs import RunSpec

HEAD_BYTES, STEP_BYTES, LOSS_BYTES = 1 << 16, 1 << 11, 32
"""Largest size of a head in bytes: a base, an addition for each local step, and one for each loss of a step."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Nanoseconds = Count
Text = Annotated[str, StringConstraints(max_length=200)]


class _Head(BaseModel):
    """A base of the heads of messages, with exactly the declared fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JoinRequest(_Head):
    """A worker's first message, with the id of its process."""

    pid: Count


class RoundReport(_Head):
    """A worker's report on its local steps since the last model; its update follows.

    Attributes:
        begun_ns: time at which the worker had the model.
        steps: for each step: its number among the worker's steps, the two numbers of `StepNumber`, its begin, its end.
        losses: losses of each step, for each seed.
    """

    begun_ns: Nanoseconds
    steps: tuple[tuple[Count, Count, Count, Nanoseconds, Nanoseconds], ...]
    losses: tuple[tuple[float, ...], ...]
    laps: tuple[tuple[Text, Text, Text, Nanoseconds, Nanoseconds, Count, Count], ...]

    def check(self, steps: range, num_begun: int, seeds: int, zero_ns: int) -> None:
        """Refuse a report on other steps than the server assigned, or with impossible times.

        Args:
            steps: numbers of the assigned steps.
            num_begun: number of steps that all workers have begun.
        """
        if [number for number, *_ in self.steps] != list(steps):
            raise MalformedMessage("steps that the worker was not asked for")
        previous_begun, previous_ns = -1, max(zero_ns, self.begun_ns)
        for _, begun_before, not_lost_before, begun_ns, ended_ns in self.steps:
            if not previous_begun < begun_before < num_begun:
                raise MalformedMessage("a number that no step has")
            if not_lost_before > begun_before:
                raise MalformedMessage("more kept steps than steps")
            if not previous_ns <= begun_ns <= ended_ns:
                raise MalformedMessage("times out of order")
            previous_begun, previous_ns = begun_before, ended_ns
        if len(self.losses) != len(steps) or any(len(losses) != seeds for losses in self.losses):
            raise MalformedMessage("a different number of losses")
        now_ns = time.monotonic_ns()
        laps_are_ordered = all(lap.start_ns <= lap.end_ns <= now_ns for lap in map(Lap._make, self.laps))
        if self.begun_ns < zero_ns or previous_ns > now_ns or not laps_are_ordered:
            raise MalformedMessage("times out of order")


def longest_head(steps: int, seeds: int) -> int:
    """Return the maximum size in bytes of the head of a report on ``steps`` local steps."""
    return HEAD_BYTES + steps * (STEP_BYTES + LOSS_BYTES * seeds)


Head = TypeVar("Head", bound=_Head)


def read_head(kind: type[Head], content: bytes) -> Head:
    """Return the head of a message, checked by the pydantic model ``kind``."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise MalformedMessage(f"not a {kind.__name__}: {error.errors()[0]['type']}") from None


EXIT_CODE_WITHOUT_SERVER = 4
"""The exit code of a worker that lost its connection to the server, or whose message the server has refused."""


def worker_process(rank: int, packed: bytes, options: Launch, port: int, keys: CurveKeys, folder: Path) -> None:
    """Run a worker's process, with the spec pickled by cloudpickle as ``packed``."""
    spec: RunSpec = cloudpickle.loads(packed)
    torch.set_num_threads(spec.threads)
    processes = spec.workers + 1  # one is the server's
    progress = Progress.shared(folder / "progress", processes, rank)
    device = options.use_device(rank, processes)
    method = spec.method.in_precision(spec.number_format)
    asynchronous = asynchronous_of(method)
    assert asynchronous is not None
    problem = problems_of(spec, batch_sizes_of(spec, asynchronous))[rank]  # workers may have different batch sizes
    task = build_task(problem, Rows(spec.seeds, (rank,), spec.workers), device, **spec.arithmetic)
    local_worker = LocalWorker(spec, method, task, lr_factors(spec))
    watch = Stopwatch(progress, device)
    speeds = spec.relative_speeds or (1.0,) * spec.workers
    register = Register(folder / "register", spec.workers)
    progress.enter_collective()  # the worker waits for the first model
    server = WorkerSocket(port, keys, options.timeout_s)
    try:
        server.send({"pid": os.getpid()})
        # The fastest worker does not sleep; the others take longer by the ratio of the speeds.
        _work(server, local_worker, rank, watch, register, slowdown=max(speeds) / speeds[rank] - 1)
    except (ConnectionLost, MalformedMessage):
        os._exit(EXIT_CODE_WITHOUT_SERVER)


def _work(
    server: WorkerSocket, local_worker: LocalWorker, rank: int, watch: Stopwatch, register: Register, slowdown: float
) -> None:
    """Train in rounds, from a model of the server to an update for it, until the server ends the training.

    After each step, the worker sleeps ``slowdown`` times as long as the step took.
    """
    while True:
        waiting_since_ns = watch.synchronized_ns()
        head, frames = server.receive()
        if "end" in head:
            return
        if "refused" in head:
            raise ConnectionLost(head["refused"])
        model = unpack_tensors(frames, local_worker.params)
        watch.progress.leave_collective()
        local_worker.replace_model(model)
        begun_ns = watch.synchronized_ns()
        label = f"model {head['model']}"
        watch.record_receive(waiting_since_ns, begun_ns, label, nbytes=head["nbytes"], step=head["first"])
        steps: list[list[int]] = []
        losses = []
        for number in range(head["first"], head["first"] + head["steps"]):
            watch.begin(number)
            losses.append(local_worker.task.step_gradients(number))
            watch.begin_optimizer()
            step_number = register.begin_step(rank)
            local_worker.step(step_number.not_lost_before)
            if slowdown:
                watch.slow_down(slowdown)
            watch.end()
            steps.append([number, *step_number, watch.begun_ns, watch.ended_ns])
        update = local_worker.update()
        if not local_worker.wire.exact_dtype:
            update = [local_worker.wire.encode(u) for u in update]
        report = {"begun_ns": begun_ns, "steps": steps, "losses": torch.stack(losses).double().tolist()}
        server.send(report | {"laps": watch.take_laps()}, update)
        watch.progress.enter_collective()  # the worker waits for the next model
