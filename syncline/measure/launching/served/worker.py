"""A worker's process: it receives the server's model, makes its local steps, sends its update, and repeats."""

from __future__ import annotations

import os
from pathlib import Path

import cloudpickle
import torch

from syncline.measure.launching.process import Launch
from syncline.measure.processes.messages import (
    ConnectionLost,
    CurveKeys,
    MalformedMessage,
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


def worker_process(rank: int, packed: bytes, options: Launch, port: int, keys: CurveKeys, folder: Path) -> None:
    """Run a worker's process; cloudpickle packs the spec, because it may hold objects from a notebook."""
    spec: RunSpec = cloudpickle.loads(packed)
    torch.set_num_threads(spec.threads)
    progress = Progress.shared(folder / "progress", spec.workers + 1, rank)
    device = options.use_device(rank, spec.workers + 1)
    method = spec.method.in_precision(spec.number_format)
    asynchronous = asynchronous_of(method)
    assert asynchronous is not None
    problem = problems_of(spec, batches_of(spec, asynchronous))[rank]
    task = build_task(problem, Rows(spec.seeds, (rank,), spec.workers), device, spec.dtype, spec.execution)
    local_worker = LocalWorker(spec, method, task, lr_factors(spec))
    watch = Stopwatch(progress, device)
    speeds = spec.relative_speeds or (1.0,) * spec.workers
    register = Register(folder / "register", spec.workers)
    progress.enter()
    server = WorkerSocket(port, keys, options.timeout_s)
    try:
        server.send({"pid": os.getpid()})
        _work(server, local_worker, rank, watch, register, max(speeds) / speeds[rank] - 1)
    except (ConnectionLost, MalformedMessage):
        os._exit(WITHOUT_SERVER)


def _work(
    server: WorkerSocket, local_worker: LocalWorker, rank: int, watch: Stopwatch, register: Register, slower: float
) -> None:
    """Work in rounds, from a model of the server to an update for it, until the server reports the end of the training.

    Args:
        local_worker: the worker's parameters, optimizer and task.
        register: the counters of all workers.
        slower: how long the worker sleeps after each step, relative to the duration of the step.

    Raises:
        ConnectionLost: the connection to the server is gone, or the server has refused a message.
        MalformedMessage: a model of another shape.
    """
    while True:
        waited_ns = watch.now_ns()
        head, frames = server.receive()
        if "end" in head:
            return
        if "refused" in head:
            raise ConnectionLost(head["refused"])
        model = unpack_tensors(frames, local_worker.params)
        watch.progress.leave()
        local_worker.take(model)
        begun_ns = watch.now_ns()
        watch.record_receive(waited_ns, begun_ns, f"model {head['model']}", head["nbytes"], head["first"])
        steps: list[list[int]] = []
        losses = []
        for number in range(head["first"], head["first"] + head["steps"]):
            watch.begin(number)
            losses.append(local_worker.gradients(number))
            watch.begin_optimizer()
            drawn = register.draw(rank)
            local_worker.step(drawn.counted)
            if slower:
                watch.slow_down(slower)
            watch.end()
            steps.append([number, *drawn, watch.begun_ns, watch.ended_ns])
        update = local_worker.update()
        if not local_worker.wire.exact_dtype:
            update = [local_worker.wire.encode(u) for u in update]
        report = {"begun_ns": begun_ns, "steps": steps, "losses": torch.stack(losses).double().tolist()}
        server.send(report | {"laps": watch.take_laps()}, update)
        local_worker.since = 0
        watch.progress.enter()
