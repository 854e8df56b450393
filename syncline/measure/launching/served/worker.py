"""A worker's process: it receives the server's model, makes its local steps, sends its update, and repeats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from syncline.measure.launching.process import Launch
from syncline.measure.processes.messages import (
    ConnectionLost,
    MalformedMessage,
    WorkerKeys,
    WorkerSocket,
    unpack_tensors,
)
from syncline.measure.processes.progress import Progress
from syncline.measure.processes.register import Register
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.problems import Rows
from syncline.runs.training.elastic.async_local_steps import LocalWorker, lr_factors
from syncline.runs.training.elastic.async_training import batches_of, problems_of
from syncline.runs.training.trained import build_task
from syncline.specs import RunSpec

WITHOUT_SERVER = 4
"""The exit code of a worker that lost its connection to the server, or whose message the server has refused."""


def worker_process(rank: int, packed: bytes, options: Launch, port: int, keys: WorkerKeys, folder: Path) -> None:
    """Run a worker's process; cloudpickle packs the spec, because it may hold objects from a notebook."""
    spec: RunSpec = cloudpickle.loads(packed)
    torch.set_num_threads(spec.threads)
    progress = Progress.shared(folder / "progress", spec.workers + 1, rank)
    device = options.devices(spec.workers + 1).for_process(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    method = spec.method.in_precision(spec.number_format)
    asynchronous = asynchronous_of(method)
    assert asynchronous is not None
    problem = problems_of(spec, batches_of(spec, asynchronous))[rank]
    task = build_task(problem, Rows(spec.seeds, (rank,), spec.workers), device, spec.dtype, spec.execution)
    worker_math = LocalWorker(spec, method, task, lr_factors(spec))
    watch = Stopwatch(progress, device)
    speeds = spec.relative_speeds or (1.0,) * spec.workers
    work = _Work(worker_math, rank, watch, Register(folder / "register", spec.workers), max(speeds) / speeds[rank] - 1)
    progress.enter()
    server = WorkerSocket(port, keys, options.timeout_s)
    try:
        server.send({"pid": os.getpid()})
        work.go(server, progress)
    except (ConnectionLost, MalformedMessage):
        os._exit(WITHOUT_SERVER)


class _Work:
    """Rounds of a worker.

    Args:
        local_worker: its math.
        rank: its number.
        watch: its stopwatch.
        register: counters of all workers.
        slower: part of a step that it waits after each step.
    """

    def __init__(
        self, local_worker: LocalWorker, rank: int, watch: Stopwatch, register: Register, slower: float
    ) -> None:
        self.one, self.rank, self.watch, self.register, self.slower = local_worker, rank, watch, register, slower

    def go(self, server: WorkerSocket, progress: Progress) -> None:
        """Work until the server reports the end of the training.

        Raises:
            ConnectionLost: the connection to the server is gone, or the server has refused a message.
            MalformedMessage: a model of another shape.
        """
        while True:
            waited_ns = self.watch.now_ns()
            head, frames = server.receive()
            if "end" in head:
                return
            if "refused" in head:
                raise ConnectionLost(head["refused"])
            model = unpack_tensors(frames, self.one.params)
            progress.leave()
            self.one.take(model)
            begun_ns = self.watch.now_ns()
            self.watch.received(waited_ns, begun_ns, f"model {head['model']}", head["nbytes"], head["first"])
            report = self._round(range(head["first"], head["first"] + head["steps"]))
            update = self.one.update()
            if not self.one.wire.exact_dtype:
                update = [self.one.wire.encode(u) for u in update]
            server.send({"begun_ns": begun_ns, **report}, update)
            self.one.since = 0
            progress.enter()

    def _round(self, numbers: range) -> dict[str, Any]:
        """Make the local steps, and return their report."""
        steps, losses, watch = [], [], self.watch
        for number in numbers:
            watch.begin(number)
            losses.append(self.one.gradients(number))
            watch.optimise()
            drawn = self.register.draw(self.rank)
            self.one.step(drawn.counted)
            if self.slower:
                watch.stretch(self.slower)
            watch.end()
            steps.append([number, *drawn, watch.begun_ns, watch.ended_ns])
        return {"steps": steps, "losses": torch.stack(losses).double().tolist(), "laps": watch.take_laps()}
