"""The server's process: it applies the workers' updates in the order of their arrival, and sends them its model."""

from __future__ import annotations

import heapq
import itertools
import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from syncline.comm.devices import name_of_device
from syncline.files import atomic_path
from syncline.measure.launching.process import Launch
from syncline.measure.launching.rank_files import LineFile, tensors_to_json
from syncline.measure.launching.served.events import SERVER_FILE
from syncline.measure.launching.served.worker import JoinRequest, RoundReport, longest_head, read_head
from syncline.measure.processes.messages import (
    ConnectionLost,
    CurveKeys,
    MalformedMessage,
    Message,
    ServerSocket,
    unpack_tensors,
)
from syncline.measure.processes.rejoining import Register
from syncline.measure.processes.rendezvous import machine
from syncline.measure.processes.watchdog import Progress
from syncline.problems import Rows
from syncline.runs.folders.result_files import json_value
from syncline.runs.training.async_clock import async_plan
from syncline.runs.training.async_training import batch_sizes_of
from syncline.runs.training.async_workers import SingleServer, lr_factors
from syncline.runs.training.trained import build_task, task_tensors, undisturbed_step_s
from syncline.sim.failures.costs import no_progress_line
from syncline.sim.online.server_interface import EventObserver
from syncline.sim.online.server_policy import ServerPolicy, ServerState
from syncline.specs import RunSpec
from syncline.training import CHECK_EVERY

POLL_S = 0.01
"""Seconds between checks for ended worker processes while no message comes."""


def server_process(
    rank: int, packed: bytes, options: Launch, listener: socket.socket, keys: CurveKeys, folder: Path
) -> None:
    """Run the server's process; ``packed`` is the spec, by cloudpickle because it may hold objects from a notebook."""
    spec: RunSpec = cloudpickle.loads(packed)
    torch.set_num_threads(spec.threads)
    device = options.use_device(rank, spec.workers + 1)
    server = _Server(spec, options, device, listener, keys, folder)
    server.run()
    server.socket.close()
    if options.keep_parameters:
        parameters = {name: p.detach().cpu() for name, p in server.math.task.params.items()}
        with atomic_path(folder / "server.pt") as working:
            torch.save(parameters, working)


class _Timer(NamedTuple):
    """A function to call at a time of the monotonic clock; the number orders timers of equal times."""

    due_s: float
    number: int
    call: Callable[[], object]


class _Server(EventObserver):
    """The server of a training with workers at their own pace, connected to the workers' processes.

    A `ServerPolicy` of the simulator decides when workers get models and when updates make a version of the model. The
    policy calls this class as its ``timing`` to send models, and as its ``observer`` to apply updates.
    """

    def __init__(
        self, spec: RunSpec, options: Launch, device: torch.device, listener: socket.socket, keys: CurveKeys,
        folder: Path,
    ) -> None:  # fmt: skip
        self.spec = spec
        workers = spec.workers
        self.progress = Progress.shared(folder / "progress", processes=workers + 1, rank=workers)
        self.progress.record_step(0, done=0)
        self.register = Register(folder / "register", workers)

        # The model, and the policy of the simulator.
        method = spec.method.in_precision(spec.number_format)
        task = build_task(spec.problem, Rows(spec.seeds, (0,), workers), device, **spec.arithmetic)
        # An unknown step time fails now rather than after the training.
        undisturbed_s = undisturbed_step_s(spec, task.flops_per_step)
        self.math = SingleServer(spec, method, task, lr_factors(spec))
        self.batch_sizes = batch_sizes_of(spec, self.math.asynchronous)
        tensors = task_tensors(task)
        settings = async_plan(spec, method, tensors, base_s=undisturbed_s, network=spec.network).settings
        self.model_bytes = int(settings.model_bytes)
        self.policy = ServerPolicy(settings, observer=self, timing=self)

        # The connections of the workers.
        self.update_templates = self.math.params  # tensors with the shapes and types of a worker's update
        if not self.math.wire.exact_dtype:  # updates travel in the method's wire format
            self.update_templates = [self.math.wire.encode(p.detach()) for p in self.math.params]
        head_bytes = longest_head(max(settings.local_steps), len(spec.seeds))
        longest_bytes = max(head_bytes, *(x.element_size() * x.numel() for x in self.update_templates))
        self.socket = ServerSocket(listener, keys, longest_bytes, options.timeout_s)
        self.connections: dict[int, bytes] = {}  # workers that have joined and are not lost
        self.ended_processes = [0] * workers  # number of each worker's processes that had ended when it joined

        # The state of the training.
        self.computing: set[int] = set()  # workers that have a model and steps
        self.model_queue: deque[int] = deque()  # workers that get a model next
        self.timers: list[_Timer] = []  # a heap
        self.timer_numbers = itertools.count()
        self.arrived_steps = [0] * workers  # number of each worker's steps whose update has arrived
        self.latest_update: tuple[list[Tensor], int] = ([], 0)  # tensors and number of local steps
        self.steps_before_event = 0  # number of steps that all workers have begun before the current event
        self.last_evaluation: int | None = None  # rounds of P steps before it; None: the training has not begun
        self.waited_in_vain = False  # whether no message came in the last wait
        self.losses: list[list[float]] = []
        self.last_failure_s = 0.0  # when the last worker was lost
        self.zero_ns = time.monotonic_ns()  # begin of the training, once `run` has set it
        self.file = LineFile(folder / SERVER_FILE)
        self.facts = {
            "pid": os.getpid(), "machine": machine(), "device": name_of_device(device),
            "problem": json_value(task.describe()), "flops_per_step": task.flops_per_step,
            "model_bytes": self.model_bytes, "tensors": tensors_to_json(tensors),
        }  # fmt: skip

    def _log_event(self, event: str, **fields: object) -> None:
        """Write an event with its time, and the number of steps before it, to the server's file."""
        common_fields = {"event": event, "at_s": self.time_s(), "steps_before": self.steps_before_event}
        self.file.write_line(common_fields | fields)

    def run(self) -> None:
        """Wait until all workers have joined, and serve them until the training ends."""
        while len(self.connections.keys() | self.register.gone_workers()) < self.spec.workers:
            self._process_messages()
        self.zero_ns = time.monotonic_ns()
        self.file.write_line(self.facts | {"zero_ns": self.zero_ns})
        self._evaluate(rounds_done=0)
        for worker in self.register.gone_workers() - self.connections.keys():
            self.policy.leave(worker)
        for worker in self.policy.assign_first_steps():
            self.reply(worker)
            self._send_model(worker)
        self._send_due_models()
        while any(server.num_under_way for server in self.policy.servers) and not self._diverged():
            self._process_messages()
        rounds_done = sum(self.arrived_steps) // self.spec.workers
        if self.last_evaluation != rounds_done:
            self._evaluate(rounds_done)
        stuck = None
        if self.policy.steps_left and not self._diverged():
            stuck = no_progress_line(self.last_failure_s)
        self.file.write_line({"versions": sum(server.versions for server in self.policy.servers), "stuck": stuck})
        for connection in self.connections.values():
            with suppress(ConnectionLost):
                self.socket.send(connection, {"end": True})

    # Workers that join, send updates and leave.

    def _process_messages(self) -> None:
        """Wait for the workers' next messages or the next timer, and process them."""
        timeout_s = POLL_S
        if self.timers:
            timeout_s = min(POLL_S, max(0.0, self.timers[0].due_s - time.monotonic()))
        # `enter_collective` reports progress to the watching process. A server without timers reports only the first of
        # consecutive waits, so that the watching process notices when no message comes any more.
        if self.timers or not self.waited_in_vain:
            self.progress.enter_collective()
        messages = self.socket.receive(timeout_s)
        self.waited_in_vain = not messages
        if messages:
            self.progress.leave_collective()
        for message in messages:
            self._process_message(message)
        for worker in list(self.connections):  # losing a worker changes the dict
            if self.register.num_ends(worker) > self.ended_processes[worker]:
                self._lose_worker(worker)
        if self.last_evaluation is not None:  # the training has begun
            self._remove_departed()
        while self.timers and self.timers[0].due_s <= time.monotonic():
            self._begin_event()
            heapq.heappop(self.timers).call()
        self._send_due_models()

    def _process_message(self, message: Message) -> None:
        """Process a worker's message; the sender of a malformed message counts as lost."""
        is_joined = self.connections.get(message.worker) == message.connection
        try:
            if is_joined:
                self._process_update(message)
            else:
                self._process_join(message)
        except MalformedMessage as error:
            if is_joined:
                self._lose_worker(message.worker)
            with suppress(ConnectionLost):
                self.socket.send(message.connection, {"refused": str(error)})

    def _process_join(self, message: Message) -> None:
        """Register a worker whose process has started, for the first time or again."""
        worker, request = message.worker, read_head(JoinRequest, message.head)
        unpack_tensors(message.frames, ())  # refuses a request that comes with tensors
        if worker in self.connections:  # the end of its old process was not noticed yet
            self._lose_worker(worker)
        self.connections[worker] = message.connection
        self.ended_processes[worker] = self.register.num_ends(worker)
        self._begin_event()
        self._log_event("join", worker=worker, pid=request.pid)
        server = self.policy.server_of[worker]
        will_get_model = worker in server.idle or worker in server.buffered or worker in self.model_queue
        if worker in self.policy.failed:
            self.policy.take_updates([worker])  # takes the notice of the failure, so that the worker gets a model
        elif not will_get_model:
            self.policy.sleeping.add(worker)
            self._wake_sleeping()

    def _process_update(self, message: Message) -> None:
        """Apply a worker's update after its local steps."""
        worker, report = message.worker, read_head(RoundReport, message.head)
        if worker not in self.computing:
            raise MalformedMessage("an update of a worker that has no model")
        first, num_steps = self.arrived_steps[worker], self.policy.assigned[worker]
        num_begun = self.register.next_step().begun_before
        report.check(range(first, first + num_steps), num_begun, seeds=len(self.spec.seeds), zero_ns=self.zero_ns)
        tensors = unpack_tensors(message.frames, self.update_templates)
        self._begin_event()
        self.file.write_line({"worker": worker, **report.model_dump()})
        self.arrived_steps[worker] += num_steps
        self.losses += map(list, report.losses)
        self.computing.discard(worker)
        *_, last_step_ended_ns = report.steps[-1]
        self.policy.begun_s[worker] = (report.begun_ns - self.zero_ns) / 1e9
        self.policy.sent_s[worker] = (last_step_ended_ns - self.zero_ns) / 1e9
        self.latest_update = tensors, num_steps
        self.policy.take_updates([worker])  # calls `arrive`
        rounds_done = sum(self.arrived_steps) // self.spec.workers
        self.progress.record_step(rounds_done, rounds_done * len(self.spec.seeds))

    def _lose_worker(self, worker: int) -> None:
        """Remove a worker whose connection or process has ended; the steps that it has not sent are lost."""
        del self.connections[worker]
        self._begin_event()
        self.policy.sleeping.discard(worker)
        self.last_failure_s = self.time_s()
        if worker in self.computing:
            self.computing.discard(worker)
            self.policy.fail(worker, for_good=False)  # takes back the worker's steps, and calls `fail`
        else:
            self.fail(worker)
        self._wake_sleeping()

    def _remove_departed(self) -> None:
        """Remove the workers that have left and will not come back."""
        for worker in self.register.gone_workers() - self.policy.departed - self.connections.keys():
            self._begin_event()
            if worker in self.policy.failed:  # the policy has taken back its steps
                self.policy.departed.add(worker)
                self.policy.take_updates([worker])  # takes the notice of the failure, and ends the wait for an update
            else:
                self.policy.leave(worker)
                self.policy.wake()
            self.model_queue = deque(queued for queued in self.model_queue if queued != worker)

    def _wake_sleeping(self) -> None:
        """Let workers that sleep take steps again, if steps are left."""
        if self.policy.steps_left and self.policy.sleeping:
            self.policy.wake()

    def _send_due_models(self) -> None:
        """Send models and steps to the queued workers."""
        while self.model_queue:
            worker = self.model_queue.popleft()
            self.policy.reply(worker)  # assigns steps, and calls this object's `reply`
            if worker in self.policy.departed:
                continue
            has_steps, is_connected = bool(self.policy.assigned[worker]), worker in self.connections
            if has_steps and is_connected:
                self._send_model(worker)
            elif has_steps:  # the worker gets its steps when it is back
                self.policy.fail(worker, for_good=False)
            elif is_connected:
                self.policy.sleeping.add(worker)
                self._wake_sleeping()

    def _send_model(self, worker: int) -> None:
        """Send a worker the model, its version, and the first and the number of its next steps."""
        first, version = self.arrived_steps[worker], self.policy.model_version[worker]
        head = {
            "steps": self.policy.assigned[worker], "first": first, "model": version, "nbytes": self.model_bytes,
        }  # fmt: skip
        self.computing.add(worker)
        start_s = self.time_s()
        try:
            self.socket.send(self.connections[worker], head, self.math.params)
        except ConnectionLost:
            self._lose_worker(worker)
            return
        self._log_event("sent", worker=worker, start_s=start_s, first=first, model=version)

    # The server's clock.

    def time_s(self) -> float:
        """Return the seconds since the training began."""
        return (time.monotonic_ns() - self.zero_ns) / 1e9

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after this number of seconds."""
        heapq.heappush(self.timers, _Timer(time.monotonic() + seconds, next(self.timer_numbers), call))

    def release_model(self, worker: int) -> None:
        """Queue a worker: it gets the model once all messages that have arrived by now are processed."""
        self.model_queue.append(worker)

    def updates_taken(self, server: ServerState) -> None:
        """Do nothing, because a launch has no global server to which this server would send updates."""

    def _begin_event(self) -> None:
        """Read the number of steps before the next event, and make the evaluations that are due before it."""
        self.steps_before_event, num_kept = self.register.next_step()
        every = self.spec.eval_every
        rounds_done = min(num_kept // self.spec.workers, self.spec.steps - 1)  # `run` evaluates after the last round
        if every and self.last_evaluation is not None:
            # Several evaluations are due at once if the workers have passed several rounds since the last event.
            next_evaluation = (self.last_evaluation // every + 1) * every
            for evaluated_round in range(next_evaluation, rounds_done + 1, every):
                self._evaluate(evaluated_round)

    # Reactions to the decisions of the simulator's servers.

    def arrive(self, worker: int, age: int) -> None:
        """Apply the latest update, which comes from a model that is ``age`` versions old."""
        sent_tensors, num_steps = self.latest_update
        if not self.math.wire.exact_dtype:  # the update came encoded
            sent_tensors = [
                self.math.wire.decode(u, p.dtype) for u, p in zip(sent_tensors, self.math.params, strict=True)
            ]
        self.math.add_update(sent_tensors, age, num_steps, self.batch_sizes[worker])
        contribution = self.policy.contributions[-1]._asdict()
        del contribution["replied_s"]  # the server has not replied yet
        self._log_event("arrive", **contribution)

    def version(self, count: int, server: int) -> None:
        """Make a new version of the model from the ``count`` updates that have arrived since the last one."""
        self.math.make_version(count)
        self._log_event("version", count=count)

    def reply(self, worker: int) -> None:
        """Log that a worker will get the current model; `_send_model` sends it."""
        self._log_event("reply", worker=worker)

    def fail(self, worker: int) -> None:
        """Record the loss of a worker's unsent steps; its optimizer's state is lost with its process."""
        num_lost = self.register.mark_lost(worker, num_arrived=self.arrived_steps[worker])
        self._log_event("fail", worker=worker, lost=num_lost)

    # Evaluations and losses.

    def _evaluate(self, rounds_done: int) -> None:
        """Evaluate the server's model, and write the metrics to the file as those after this number of rounds."""
        self.last_evaluation = rounds_done
        metrics = {name: value.double().tolist() for name, value in self.math.evaluate().items()}
        self.file.write_line({"evaluated": rounds_done, "metrics": metrics})

    def _diverged(self) -> bool:
        """Return whether each seed has had an infinite loss or NaN among the last steps."""
        num_checked = CHECK_EVERY * self.spec.workers
        if len(self.losses) < num_checked or math.isfinite(sum(self.losses[-1])):  # the last step usually suffices
            return False
        last_losses = np.array(self.losses[-num_checked:])  # by step and seed
        return bool((~np.isfinite(last_losses)).any(axis=0).all())
