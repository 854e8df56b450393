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
from syncline.methods import MethodBase
from syncline.methods.local import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, asynchronous_of
from syncline.optim.asynchronous import ServerRule
from syncline.problems import Problem, Rows, Task
from syncline.problems.base import DrawnBlocks
from syncline.runs.folders.streams import SeedStream, TrainingStream
from syncline.runs.training import async_workers
from syncline.runs.training.async_clock import AsyncTrained, async_plan
from syncline.runs.training.trained import Trained, build_task, task_tensors, throttled, undisturbed_step_s
from syncline.sim.online.server_interface import EndSimulation, EventObserver
from syncline.specs import Training
from syncline.training import CHECK_EVERY, Recorder, StepLog, parameter_groups


def train_async(
    spec: Training,
    method: MethodBase,
    network: Network | None,
    on_step: Callable[[int], None] | None,
    stream: TrainingStream | None,
) -> Trained:
    """Train an asynchronous method on a network, all workers and all seeds in this process.

    Args:
        network: the network, which decides the order in which updates arrive.

    Raises:
        SpecError: there is no network, or no place for a server on it.
    """
    if network is None:
        raise SpecError("method.asynchronous", method.name, "a method without it, as arrivals depend on a network")
    start_s = time.perf_counter()
    device = training_device(spec.device)

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, device, **spec.arithmetic)

    recorder = Recorder()
    seed_stream = SeedStream(stream, spec.seeds, recorder, ledger=None) if stream else None
    report = throttled(spec.steps, seed_stream.write_if_due if seed_stream else None, on_step)
    server_task = build(Rows(spec.seeds, (0,), spec.workers), spec.problem)  # the server has one model per seed
    step_s = undisturbed_step_s(spec, server_task.flops_per_step)
    plan = async_plan(
        spec, method, task_tensors(server_task), base_s=step_s, network=network,
        relative_durations=relative_batch_durations(spec, method, step_s, build),
    )  # fmt: skip
    workers = AsyncWorkers(
        spec, method, build, recorder, on_step=report, teams=async_workers.teams_of(plan), server_task=server_task
    )
    workers.evaluate(num_steps=0)
    report(0)
    result = plan.simulate(observer=workers)
    completed_steps = len(recorder.losses)
    if recorder.eval_step[-1] != completed_steps:
        workers.evaluate(completed_steps)
    if seed_stream:
        seed_stream.finish()
    wall_s = time.perf_counter() - start_s
    return Trained(
        method.name, recorder.history(spec.seeds, result.interrupted), ledger=[], facts=server_task.describe(),
        flops_per_step=server_task.flops_per_step, wall_s=wall_s, tensors=tuple(task_tensors(server_task)),
        asynchronous=AsyncTrained(plan, result, completed_steps),
    )  # fmt: skip


def relative_batch_durations(
    spec: Training, method: MethodBase, full_batch_s: float, build: Callable[[Rows, Problem], Task]
) -> tuple[float, ...] | None:
    """Return the duration of each worker's step relative to a step of the problem's batch size.

    The result is None unless the method adapts the batches to the workers' speeds. If the spec states the seconds of a
    step, the duration is proportional to the samples; otherwise it follows from the FLOPs of each batch.

    Args:
        full_batch_s: seconds of a step of the problem's batch size.
        build: function that builds the task of some rows of a problem.
    """
    asynchronous = asynchronous_of(method)
    if asynchronous is None or asynchronous.dynamic_local_updates != "batch":
        return None
    batch_sizes = batch_sizes_of(spec, asynchronous)
    if spec.compute.seconds is not None:
        return tuple(batch_size / float(spec.problem.batch_size) for batch_size in batch_sizes)
    duration_by_size: dict[float, float] = {}
    for batch_size, problem in zip(batch_sizes, problems_of(spec, batch_sizes), strict=True):
        if batch_size not in duration_by_size:
            batch_spec = spec.model_copy(update={"problem": problem})
            task = build(Rows(spec.seeds, (0,), spec.workers), problem)
            duration_by_size[batch_size] = undisturbed_step_s(batch_spec, task.flops_per_step) / full_batch_s
    return tuple(duration_by_size[batch_size] for batch_size in batch_sizes)


class ArrivedUpdate(NamedTuple):
    """An update that has arrived at a server.

    Attributes:
        weight: weight by the update's age.
        share: further weight by the update's local steps or samples, see `AsynchronousSpec.share`.
    """

    worker: int
    weight: float
    share: float


class AsyncWorkers(EventObserver):
    """The math of an asynchronous training: the simulation of `syncline.sim.online` calls a method at each event.

    ``S`` seeds run side by side, because the order of events does not depend on a seed. With P workers, every P local
    steps, whichever workers make them, count as one step of the training: its loss is their mean loss, and schedules
    and evaluations count these steps.

    Args:
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
        teams: async_workers.Teams | None = None,
        server_task: Task | None = None,
    ) -> None:
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.spec, self.asynchronous, self.recorder, self.on_step = spec, asynchronous, recorder, on_step
        self.has_local_steps = isinstance(method, DiLoCoSpec)
        self.wire = WIRE_FORMATS[method.wire_format]

        # Workers, in teams.
        self.batch_sizes = batch_sizes_of(spec, asynchronous)
        problems, drawn_blocks = problems_of(spec, self.batch_sizes), DrawnBlocks()
        self.teams: list[async_workers.Team] = []
        for workers in teams or async_workers.single_workers(spec.workers):
            rows = Rows(spec.seeds, workers, world_size=spec.workers, drawn=drawn_blocks)
            self.teams.append(async_workers.Team(workers, build(rows, problems[workers[0]]), len(spec.seeds)))
        self.team_of = {worker: team for team in self.teams for worker in team.workers}

        # The only server has the model; or a global server has it, and the server of each group of workers has a copy.
        self.server_task = server_task or build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
        async_workers.refuse_buffers(spec, self.server_task)
        params: list[Tensor] = list(self.server_task.params.values())
        self.models = [params]  # by server
        self.server_of = [0] * spec.workers
        if asynchronous.hierarchy is not None:
            group_sizes = asynchronous.hierarchy.groups_of(spec.workers)
            self.server_of = np.repeat(np.arange(len(group_sizes)), group_sizes).tolist()
            self.models = [[p.detach().clone() for p in params] for _ in group_sizes]
            self.global_server = async_workers.GlobalServer(asynchronous.hierarchy, params, self.models)
        self.lr_factors = async_workers.lr_factors(spec)
        self.rules: Sequence[ServerRule]  # by server
        self.optimizers: list[
            async_workers.ScheduledOptimizer
        ]  # by team in methods with local steps, else the server's alone
        if isinstance(method, DiLoCoSpec):
            self.inner_method = async_workers.inner_method_of(method)
            self.rules = async_workers.outer_rules(method, asynchronous, self.models)
            self.optimizers = [self._new_inner_optimizer(team) for team in self.teams]
        else:
            rule = async_workers.gradient_server(method, self.server_task, len(spec.seeds))
            self.rules = [rule]
            self.optimizers = [async_workers.ScheduledOptimizer(rule.optimizer, self.lr_factors, spec)]

        # State.
        self.snapshots: list[list[Tensor] | None] = [None] * len(self.models)  # by server, see `_snapshot`
        self.start_models: list[list[Tensor]] = []  # by worker: the model before its local steps
        for server in self.server_of:
            self.start_models.append(self._snapshot(server) if self.has_local_steps else [])
        self.steps_since_update = [0] * spec.workers
        self.arrived: list[list[ArrivedUpdate]] = [[] for _ in self.models]
        self.num_local_steps = self.num_updates = 0  # summed over all workers
        self.losses: list[Tensor] = []  # losses of local steps since the training's last step

    # Events, in their order.

    def step(self, worker: int, number: int) -> None:
        """Make a worker's local step ``number`` with the learning rate of the present time."""
        self.make_step(worker, number, lr_step=self.num_local_steps)

    def make_step(self, worker: int, number: int, lr_step: int) -> None:
        """Make a worker's local step ``number``; the first worker of a team computes the step of the whole team.

        ``lr_step`` gives the learning rate, see `ScheduledOptimizer.set_lr`.
        """
        team = self.team_of[worker]
        is_first_of_team = team.compute_step(worker, number)
        if is_first_of_team and self.has_local_steps:
            self.optimizers[self.teams.index(team)].step(lr_step)
        self.losses.append(team.loss_of(worker))
        self.num_local_steps += 1
        self.steps_since_update[worker] += 1
        if self.num_local_steps % self.spec.workers == 0:  # P local steps make a step of the training
            self._record_step()

    def arrive(self, worker: int, age: int) -> None:
        """Queue a worker's update at its server, weighted by the update's age and number of local steps.

        The update stays unchanged in the worker's rows until the server's next version or the worker's next model.
        """
        share = self.asynchronous.share(self.steps_since_update[worker], self.batch_sizes[worker])
        self.arrived[self.server_of[worker]].append(ArrivedUpdate(worker, self.asynchronous.weight(age), share))
        self.steps_since_update[worker] = 0

    def _reference_model(self, server: int, worker: int) -> list[Tensor]:
        """Return the model that a worker's update is relative to."""
        return self.models[server] if self.asynchronous.reference == "server" else self.start_models[worker]

    @torch.no_grad()
    def _apply_arrived(self, server: int) -> None:
        """Pass the updates that have arrived to the server's rule, in order of arrival."""
        for worker, weight, share in self.arrived[server]:
            team = self.team_of[worker]
            if self.has_local_steps:
                worker_model = [team.worker_rows(p, worker) for p in team.params]
                update = list(torch._foreach_sub(self._reference_model(server, worker), worker_model))
            else:
                update = [team.worker_rows(gradient, worker) for gradient in async_workers.gradients_of(team.params)]
            if not self.wire.exact_dtype:  # the update arrives as the wire format rounds it
                update = [self.wire.decode(self.wire.encode(tensor), tensor.dtype) for tensor in update]
            self.rules[server].add_update(update, weight, share)
        self.arrived[server] = []

    @torch.no_grad()
    def _try_to_apply_mean(self, server: int) -> bool:
        """Pass the arrived updates to the server's rule as one mean, and return whether this was possible.

        This needs the updates of one whole team, with equal weights, from the same model, sent without rounding.
        """
        arrived = self.arrived[server]
        is_single_update = len(arrived) < 2
        if is_single_update or not self.wire.exact_dtype:
            return False
        first = arrived[0]
        team, start_model = self.team_of[first.worker], self.start_models[first.worker]
        if tuple(arrival.worker for arrival in arrived) != team.workers:
            return False
        for arrival in arrived:
            if (arrival.weight, arrival.share) != (first.weight, first.share):
                return False
            if self.has_local_steps and self.start_models[arrival.worker] is not start_model:
                return False
        reference = self._reference_model(server, first.worker) if self.has_local_steps else None
        return self.rules[server].set_mean_update(team.mean_update(reference), first.weight)

    def version(self, count: int, server: int) -> None:
        """Make a new version of a server's model from the ``count`` updates that have arrived."""
        if not self.has_local_steps:  # the server's own optimizer applies the gradients
            self.optimizers[0].set_lr(self.num_updates)
        if self._try_to_apply_mean(server):
            self.arrived[server] = []
        else:  # the server's rule takes them one by one
            self._apply_arrived(server)
        self.rules[server].make_version()
        self.snapshots[server] = None  # the model has changed
        self.num_updates += count

    @torch.no_grad()
    def reply(self, worker: int) -> None:
        """Send a worker its server's current model; the worker is idle until the model arrives."""
        server, team = self.server_of[worker], self.team_of[worker]
        if any(arrival.worker == worker for arrival in self.arrived[server]):
            self._apply_arrived(server)  # the model will overwrite the parameters with the worker's update
        torch._foreach_copy_([team.worker_rows(p, worker) for p in team.params], self.models[server])
        if self.has_local_steps:
            self.start_models[worker] = self._snapshot(server)

    @torch.no_grad()
    def _snapshot(self, server: int) -> list[Tensor]:
        """Return a copy of a server's current model, which all workers that begin with it share."""
        snapshot = self.snapshots[server]
        if snapshot is None:
            snapshot = self.snapshots[server] = [x.detach().clone() for x in self.models[server]]
        return snapshot

    def fail(self, worker: int) -> None:
        """Reset the optimizer of a worker whose machine failed; the next model replaces the parameters."""
        if self.has_local_steps:
            self.steps_since_update[worker] = 0
            team = self.team_of[worker]  # with failures each worker is a team, see `teams_of`
            self.optimizers[self.teams.index(team)] = self._new_inner_optimizer(team)

    def _new_inner_optimizer(self, team: async_workers.Team) -> async_workers.ScheduledOptimizer:
        """Return a new inner optimizer of a team's workers, which do not communicate."""
        comm = SimulatedCommunicator(workers=1, replicas=team.rows)  # a worker steps alone, so each row is one
        optimizer = self.inner_method.build(parameter_groups(team.task), comm)
        return async_workers.ScheduledOptimizer(optimizer, self.lr_factors, self.spec)

    # Events between local servers and the global server above ("up").

    def send_up(self, server: int) -> None:
        """Send the update of a local server's model since its last merge to the global server."""
        self.global_server.send_update(server)

    def arrive_up(self, server: int, age: int) -> None:
        """Apply a local server's arrived update to the global model, with the same weight at any age."""
        self.global_server.apply_update(server)

    def reply_up(self, server: int) -> None:
        """Send the current global model to a local server, which continues meanwhile."""
        self.global_server.send_global_model(server)

    def merge(self, server: int) -> None:
        """Merge the global model that has arrived into a local server's model."""
        self._apply_arrived(server)  # earlier arrivals belong to the model before the merge
        self.global_server.merge(server)
        self.snapshots[server] = None  # the model has changed

    # Measurements.

    def evaluate(self, num_steps: int) -> None:
        """Evaluate the server's model after ``num_steps`` steps of the training."""
        self.recorder.eval_step.append(num_steps)
        for name, value in async_workers.evaluate_model(self.server_task).items():
            self.recorder.evaluation.setdefault(name, StepLog()).append(value)

    def _record_step(self) -> None:
        """Record a complete step of the training: P local steps of any workers."""
        for name, value in self.server_task.trace().items():
            self.recorder.trace.setdefault(name, StepLog()).append(value)
        self.recorder.losses.append(torch.stack(self.losses, 1).mean(1))
        self.losses = []
        done = self.num_local_steps // self.spec.workers
        self.on_step(done)
        if done == self.spec.steps:
            return  # the caller evaluates the end, when the last update has arrived
        if self.spec.eval_every and done % self.spec.eval_every == 0:
            self.evaluate(done)
        if done % CHECK_EVERY == 0 and self.recorder.all_diverged(CHECK_EVERY):
            raise EndSimulation


def batch_sizes_of(spec: Training, async_spec: AsynchronousSpec) -> tuple[float, ...]:
    """Return the batch size of each worker, in samples; 1 if the problem has no batch size.

    Raises:
        SpecError: the method adapts the batches to the workers' speeds, but the problem has no batch size.
    """
    batch_size = getattr(spec.problem, "batch_size", None)
    if batch_size is None:
        if async_spec.dynamic_local_updates == "batch":
            expected = f"yes or no, as {spec.problem.name} has no batch_size"
            raise SpecError("method.asynchronous.dynamic_local_updates", async_spec.dynamic_local_updates, expected)
        return (1.0,) * spec.workers
    speeds = spec.relative_speeds or (1.0,) * spec.workers  # equal without a spec of speeds
    return async_spec.batches(batch_size, speeds)


def problems_of(spec: Training, batch_sizes: Sequence[float]) -> list[Problem]:
    """Return the spec's problem once for each worker, with the worker's own batch size."""
    problems = []
    for batch_size in batch_sizes:
        is_changed = batch_size != getattr(spec.problem, "batch_size", 1)
        problems.append(replace(spec.problem, batch_size=int(batch_size)) if is_changed else spec.problem)
    return problems
