"""Asynchronous trainings: each worker steps at its own pace from a past version of the server's model.

A simulation of the clock decides the order of all events, and the math follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.comm.devices import training_device
from syncline.costmodel import Network
from syncline.errors import SpecError
from syncline.methods.local import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, asynchronous_of
from syncline.optim.asynchronous import ServerRule
from syncline.problems import Problem, Rows, Task
from syncline.problems.base import DrawnBlocks
from syncline.runs.folders.streams import SeedStream, TrainingStream
from syncline.runs.training.async_clock import AsyncTrained, async_plan
from syncline.runs.training.async_workers import (
    GlobalServer,
    Rates,
    Team,
    Teams,
    alone,
    evaluate_model,
    gradient_server,
    inner_of,
    lr_factors,
    outer_rules,
    refuse_buffers,
    teams_of,
)
from syncline.runs.training.trained import Trained, base_s, build_task, task_tensors, throttled
from syncline.sim.online.server_interface import EndSimulation, EventObserver
from syncline.specs import MethodBase, Training
from syncline.training import CHECK_EVERY, Recorder, StepLog, parameter_groups


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
        network: the network, which decides the order in which updates arrive.
        on_step: see `syncline.runs.training.train_and_time.train_method`.
        stream: see `syncline.runs.training.train_and_time.train_method`.

    Raises:
        SpecError: there is no network, or no place for a server on it.
    """
    if network is None:
        raise SpecError("method.asynchronous", method.name, "a method without it, as no network says who comes when")
    start_s = time.perf_counter()
    device = training_device(spec.device)

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, device, **spec.arithmetic)

    recorder = Recorder()
    seed_stream = SeedStream(stream, spec.seeds, recorder, ledger=None) if stream else None
    report = throttled(spec.steps, seed_stream.note if seed_stream else None, on_step)
    task = build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
    step_s = base_s(spec, task.flops_per_step)
    plan = async_plan(
        spec, method, task_tensors(task), base_s=step_s, network=network, work=batch_work(spec, method, step_s, build)
    )
    math = AsyncWorkers(spec, method, build, recorder, on_step=report, teams=teams_of(plan), server_task=task)
    math.evaluate(0)
    report(0)
    played = plan.play(math)
    num_losses = len(recorder.losses)
    if recorder.eval_step[-1] != num_losses:
        math.evaluate(num_losses)
    if seed_stream:
        seed_stream.finish()
    wall_s = time.perf_counter() - start_s
    return Trained(
        method.name, recorder.history(spec.seeds, played.interrupted), ledger=[], facts=task.describe(),
        flops_per_step=task.flops_per_step,
        wall_s=wall_s, tensors=tuple(task_tensors(task)), asynchronous=AsyncTrained(plan, played, num_losses),
    )  # fmt: skip


def batch_work(
    spec: Training, method: MethodBase, whole_s: float, build: Callable[[Rows, Problem], Task]
) -> tuple[float, ...] | None:
    """Return the duration of each worker's step relative to a step of the problem's batch size.

    The result is None unless the method adapts the batches to the workers' speeds. If the spec states the seconds of a
    step, the duration is proportional to the samples; otherwise it follows from the FLOPs of each batch.

    Args:
        whole_s: seconds of a step of the problem's batch size.
        build: function that builds the task of some rows of a problem.
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


class ArrivedUpdate(NamedTuple):
    """An update that has arrived at a server: worker, weight by age, and weight by local steps or samples."""

    worker: int
    weight: float
    share: float


class AsyncWorkers(EventObserver):
    """The math of an asynchronous training: the simulation of `syncline.sim.online` calls a method at each event.

    ``S`` seeds run side by side, because the order of events does not depend on a seed. Every ``P`` local steps of any
    workers count as one step of the training: its loss is their mean, and schedules and evaluations follow it.

    Args:
        build: function that builds the task of some rows of a problem, which may have a worker's own batch size.
        recorder: object that collects losses and metrics.
        on_step: function that is called with the number of completed steps of the training.
        teams: workers with equal batches whose simultaneous steps form one batch; single workers by default.
        server_task: task whose parameters are the server's model; built by default.

    Raises:
        SpecError: a module with buffers, or adaptive batches for a problem without batches.
    """

    def __init__(
        self,
        spec: Training,
        method: MethodBase,
        build: Callable[[Rows, Problem], Task],
        recorder: Recorder,
        on_step: Callable[[int], None],
        teams: Teams | None = None,
        server_task: Task | None = None,
    ) -> None:
        """Build the workers' tasks in teams, and the servers."""
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.spec, self.asynchronous, self.recorder, self.on_step = spec, asynchronous, recorder, on_step
        self.local = isinstance(method, DiLoCoSpec)
        self.batches = batches_of(spec, asynchronous)
        problems, drawn_blocks = problems_of(spec, self.batches), DrawnBlocks()
        self.teams = [
            Team(
                workers,
                build(Rows(spec.seeds, workers, world_size=spec.workers, drawn=drawn_blocks), problems[workers[0]]),
                len(spec.seeds),
            )
            for workers in teams or alone(spec.workers)
        ]
        self.team = {worker: team for team in self.teams for worker in team.workers}
        self.server_task = server_task or build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
        refuse_buffers(spec, self.server_task)
        self.params: list[Tensor] = list(self.server_task.params.values())
        self.wire = WIRE_FORMATS[method.wire_format]
        groups = () if asynchronous.hierarchy is None else asynchronous.hierarchy.groups_of(spec.workers)
        self.server_of = np.repeat(np.arange(max(len(groups), 1)), groups or spec.workers).tolist()
        self.models = [[p.detach().clone() for p in self.params] for _ in groups] or [self.params]
        self.factors = lr_factors(spec)
        self.servers: Sequence[ServerRule]
        self.rates: list[Rates]  # of the optimizers that follow the schedule: workers' or the server's
        if isinstance(method, DiLoCoSpec):
            self.inner = inner_of(method)
            self.servers = outer_rules(method, asynchronous, self.models)
            self.rates = [self._rates_of(team) for team in self.teams]
        else:
            server = gradient_server(method, self.server_task, len(spec.seeds))
            self.servers, self.rates = [server], [Rates(server.optimizer, self.factors, spec)]
        if asynchronous.hierarchy is not None:
            self.above = GlobalServer(asynchronous.hierarchy, self.params, self.models)
        self.snapshots: list[list[Tensor] | None] = [None] * len(self.models)
        self.begins = [self._snapshot(self.server_of[worker]) if self.local else [] for worker in range(spec.workers)]
        self.num_since = [0] * spec.workers  # local steps of each worker since its last update
        self.arrived: list[list[ArrivedUpdate]] = [[] for _ in self.models]
        self.num_steps = self.num_updates = 0
        self.losses: list[Tensor] = []  # of local steps since the training's last step

    # Events, in their order.

    def step(self, worker: int, number: int) -> None:
        """Make a worker's local step; the first worker of a team computes the step of the whole team."""
        self.step_as(worker, number, self.num_steps)

    def step_as(self, worker: int, number: int, count: int) -> None:
        """Make a worker's local step, with the learning rate of step ``count``, see `Rates.set`."""
        team = self.team[worker]
        if team.steps(worker, number) and self.local:
            rates = self.rates[self.teams.index(team)]
            rates.set(count)
            rates.optimizer.step()
        self.losses.append(team.loss_of(worker))
        self.num_steps += 1
        self.num_since[worker] += 1
        if self.num_steps % self.spec.workers == 0:
            self._note()

    def arrive(self, worker: int, age: int) -> None:
        """Queue a worker's update at its server, with weights by its age and its number of local steps.

        The update stays unchanged in the worker's rows until the server's next version or the worker's next model.
        """
        share = self.asynchronous.share(self.num_since[worker], self.batches[worker])
        self.arrived[self.server_of[worker]].append(ArrivedUpdate(worker, self.asynchronous.weight(age), share))
        self.num_since[worker] = 0

    @torch.no_grad()
    def _take(self, server: int) -> None:
        """Pass the updates that have arrived to the server's rule, in order of arrival."""
        for arrival in self.arrived[server]:
            team = self.team[arrival.worker]
            if self.local:
                begins = self.models[server] if self.asynchronous.reference == "server" else self.begins[arrival.worker]
                ends = [team.worker_rows(p, arrival.worker) for p in team.params]
                update = list(torch._foreach_sub(begins, ends))
            else:
                update = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in team.params]
                update = [team.worker_rows(g, arrival.worker) for g in update]
            if not self.wire.exact_dtype:
                update = [self.wire.decode(self.wire.encode(u), u.dtype) for u in update]
            self.servers[server].add_update(update, arrival.weight, arrival.share)
        self.arrived[server] = []

    @torch.no_grad()
    def _taken_together(self, server: int) -> bool:
        """Pass a team's updates to the server as one mean, if they alone have arrived, and with equal weights.

        Return whether this was done.
        """
        arrived = self.arrived[server]
        team = self.team[arrived[0].worker] if arrived else None
        if team is None or len(arrived) == 1 or not self.wire.exact_dtype:
            return False
        workers = tuple(arrival.worker for arrival in arrived)
        first = self.begins[arrived[0].worker]
        if workers != team.workers or len({arrival[1:] for arrival in arrived}) > 1:
            return False
        if self.local and any(self.begins[worker] is not first for worker in workers):
            return False
        begins = self.models[server] if self.asynchronous.reference == "server" else first
        return self.servers[server].set_mean_update(team.mean(begins if self.local else None), arrived[0].weight)

    def version(self, count: int, server: int) -> None:
        """Make a new version of a server's model from the updates that have arrived."""
        if not self.local:
            self.rates[0].set(self.num_updates)
        if self._taken_together(server):
            self.arrived[server] = []
        self._take(server)
        self.servers[server].make_version()
        self.snapshots[server] = None
        self.num_updates += count

    @torch.no_grad()
    def reply(self, worker: int) -> None:
        """Send a worker its server's current model; the worker is idle until the model arrives."""
        server, team = self.server_of[worker], self.team[worker]
        if any(arrival.worker == worker for arrival in self.arrived[server]):
            self._take(server)
        torch._foreach_copy_([team.worker_rows(p, worker) for p in team.params], self.models[server])
        if self.local:
            self.begins[worker] = self._snapshot(server)

    @torch.no_grad()
    def _snapshot(self, server: int) -> list[Tensor]:
        """Return a copy of a server's current model, which all workers that begin with it share."""
        snapshot = self.snapshots[server]
        if snapshot is None:
            snapshot = self.snapshots[server] = [x.detach().clone() for x in self.models[server]]
        return snapshot

    def fail(self, worker: int) -> None:
        """Reset a worker's optimizer, whose state a failing machine loses; the next model replaces the parameters."""
        if self.local:
            self.num_since[worker] = 0
            number = self.teams.index(self.team[worker])  # a team of one
            self.rates[number] = self._rates_of(self.teams[number])

    def _rates_of(self, team: Team) -> Rates:
        """Return a new inner optimizer of a team's workers, which do not communicate, with its learning rates."""
        optimizer = self.inner.build(parameter_groups(team.task), SimulatedCommunicator(1, team.rows))
        return Rates(optimizer, self.factors, self.spec)

    # Events of local servers below a global one.

    def send_up(self, server: int) -> None:
        """Send a local server's progress to the global server."""
        self.above.send_up(server)

    def arrive_up(self, server: int, age: int) -> None:
        """Apply a local server's update to the global model."""
        self.above.arrive_up(server)

    def reply_up(self, server: int) -> None:
        """Send the current global model to a local server, which continues meanwhile."""
        self.above.reply_up(server)

    def merge(self, server: int) -> None:
        """Merge the global model that has arrived into the local model."""
        self._take(server)  # earlier arrivals meet the model before the merge
        self.above.merge(server)
        self.snapshots[server] = None

    # Measurements.

    def evaluate(self, done: int) -> None:
        """Evaluate the server's model after ``done`` steps of the training."""
        self.recorder.eval_step.append(done)
        for name, value in evaluate_model(self.server_task).items():
            self.recorder.evaluation.setdefault(name, StepLog()).append(value)

    def _note(self) -> None:
        """Record a complete step of the training: P local steps of any workers."""
        for name, value in self.server_task.trace().items():
            self.recorder.trace.setdefault(name, StepLog()).append(value)
        self.recorder.losses.append(torch.stack(self.losses, 1).mean(1))
        self.losses = []
        rounds_done = self.num_steps // self.spec.workers
        self.on_step(rounds_done)
        if rounds_done == self.spec.steps:
            return  # evaluated when the last update has arrived
        if self.spec.eval_every and rounds_done % self.spec.eval_every == 0:
            self.evaluate(rounds_done)
        if rounds_done % CHECK_EVERY == 0 and self.recorder.all_diverged(CHECK_EVERY):
            raise EndSimulation


def batches_of(spec: Training, async_spec: AsynchronousSpec) -> tuple[float, ...]:
    """Return the number of samples in each worker's step; 1 if the problem has no batch size.

    Raises:
        SpecError: the method adapts the batches to the workers' speeds, but the problem has no batch size.
    """
    batch = getattr(spec.problem, "batch_size", None)
    if batch is None:
        if async_spec.dynamic_local_updates == "batch":
            expected = f"yes or no, as {spec.problem.name} has no batch_size"
            raise SpecError("method.asynchronous.dynamic_local_updates", async_spec.dynamic_local_updates, expected)
        return (1.0,) * spec.workers
    return async_spec.batches(batch, spec.relative_speeds or (1.0,) * spec.workers)


def problems_of(spec: Training, batches: Sequence[float]) -> list[Problem]:
    """Return the problem with each worker's batch size."""
    batch = getattr(spec.problem, "batch_size", 1)
    return [spec.problem if samples == batch else replace(spec.problem, batch_size=int(samples)) for samples in batches]
