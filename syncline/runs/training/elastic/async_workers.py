"""The math of workers at their own pace: each steps from a past version of the server's model, with its own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods.diloco import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, asynchronous_of
from syncline.optim import Method
from syncline.optim.servers import GradientServer, ServerRule
from syncline.problems import Problem, Rows, Task
from syncline.problems.drawn_blocks import DrawnBlocks
from syncline.runs.training.elastic.async_local_steps import inner_of
from syncline.runs.training.elastic.coincident_steps import Team, Teams, alone
from syncline.runs.training.elastic.hierarchical_server import GlobalServer
from syncline.runs.training.elastic.rates import lr_factors
from syncline.runs.training.elastic.servers import outer_rules, server_optimizer
from syncline.sim.online.server_interface import EndSimulation, EventObserver
from syncline.specs import MethodBase, Training
from syncline.training import CHECK_EVERY, Recorder, StepLog, parameter_groups

if TYPE_CHECKING:
    from collections.abc import Callable


class ArrivedUpdate(NamedTuple):
    """An update that has arrived at its server: its worker, the weight for its age, and its share."""

    worker: int
    weight: float
    share: float


class AsyncWorkers(EventObserver):
    """The tasks and optimizers of workers and servers, on which `syncline.sim.online` performs its events.

    ``S`` seeds run side by side, because the order of events does not depend on a seed. Every ``P`` local steps of any
    workers count as one step of the training: its loss is their mean, and schedules and evaluations follow it.

    Args:
        spec: specification of the training.
        method: an asynchronous method.
        build: builds the task of some rows of a problem, which may have a worker's own batch size.
        recorder: collects losses and metrics.
        on_step: called with the number of completed steps of the training.
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
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.spec, self.how, self.recorder, self.on_step = spec, asynchronous, recorder, on_step
        self.local = isinstance(method, DiLoCoSpec)
        self.batches = batches_of(spec, asynchronous)
        problems, drawn = problems_of(spec, self.batches), DrawnBlocks()
        self.teams = [
            Team(workers, build(Rows(spec.seeds, workers, spec.workers, drawn), problems[workers[0]]), len(spec.seeds))
            for workers in teams or alone(spec.workers)
        ]
        self.team = {worker: team for team in self.teams for worker in team.workers}
        self.server_task = server_task or build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
        if getattr(self.server_task, "buffers", {}):
            expected = "a module without buffers, of which a server would have to make one"
            raise SpecError("problem", spec.problem.name, expected)
        self.params: list[Tensor] = list(self.server_task.params.values())
        self.wire = WIRE_FORMATS[method.travels_as]
        self.comm = SimulatedCommunicator(1, len(spec.seeds))
        groups = () if asynchronous.hierarchy is None else asynchronous.hierarchy.groups_of(spec.workers)
        self.of = [s for s, size in enumerate(groups or (spec.workers,)) for _ in range(size)]
        self.models = [[p.detach().clone() for p in self.params] for _ in groups] or [self.params]
        self.servers, self.optimizers = self._parts(method)
        self.above = (
            GlobalServer(asynchronous.hierarchy, self.params, self.models)
            if asynchronous.hierarchy is not None
            else None
        )
        self.factors = lr_factors(spec)
        self.rates = {id(optimizer): [group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers}
        self.snapshots: list[list[Tensor] | None] = [None] * len(self.models)
        self.begins = [self._snapshot(self.of[worker]) if self.local else [] for worker in range(spec.workers)]
        self.since = [0] * spec.workers  # local steps of each worker since its last update
        self.arrived: list[list[ArrivedUpdate]] = [[] for _ in self.models]
        self.done = self.taken = 0
        self.losses: list[Tensor] = []  # of local steps since the training's last step

    def _parts(self, method: MethodBase) -> tuple[Sequence[ServerRule], list[Method]]:
        """Return each server's rule, and the optimizers whose rate follows the schedule (workers' or server's)."""
        if not isinstance(method, DiLoCoSpec):
            optimizer = server_optimizer(method, self.server_task, self.comm)
            return [GradientServer(optimizer)], [optimizer]
        self.inner = inner_of(method)
        return outer_rules(method, self.how, self.models), [self._optimizer_of(team) for team in self.teams]

    # Events, in their order.

    def step(self, worker: int, number: int) -> None:
        """Make a worker's local step; the first worker of a team computes the step of the whole team."""
        self.step_as(worker, number, self.done)

    def step_as(self, worker: int, number: int, count: int) -> None:
        """Make a worker's local step as number ``count`` of all workers' steps, which schedules follow."""
        team = self.team[worker]
        if team.steps(worker, number) and self.local:
            self._step_with(self.optimizers[self.teams.index(team)], count)
        self.losses.append(team.loss_of(worker))
        self.done += 1
        self.since[worker] += 1
        if self.done % self.spec.workers == 0:
            self._note()

    def arrive(self, worker: int, age: int) -> None:
        """Queue a worker's update; it stays unchanged until the server's next version or the worker's next model."""
        share = self.how.share(self.since[worker], self.batches[worker])
        self.arrived[self.of[worker]].append(ArrivedUpdate(worker, self.how.weight(age), share))
        self.since[worker] = 0

    @torch.no_grad()
    def _take(self, server: int) -> None:
        """Pass the updates that have arrived to the server's rule, in order of arrival."""
        for arrival in self.arrived[server]:
            team = self.team[arrival.worker]
            if self.local:
                begins = self.models[server] if self.how.reference == "server" else self.begins[arrival.worker]
                ends = [team.worker_rows(p, arrival.worker) for p in team.params]
                update = list(torch._foreach_sub(begins, ends))
            else:
                update = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in team.params]
                update = [team.worker_rows(g, arrival.worker) for g in update]
            if not self.wire.exact_dtype:
                update = [self.wire.decode(self.wire.encode(u), u.dtype) for u in update]
            self.servers[server].take(update, arrival.weight, arrival.share)
        self.arrived[server] = []

    @torch.no_grad()
    def _taken_together(self, server: int) -> bool:
        """Pass a team's updates to the server as one mean, if nothing else has arrived and their weights are equal."""
        arrived = self.arrived[server]
        team = self.team[arrived[0].worker] if arrived else None
        if team is None or len(arrived) == 1 or not self.wire.exact_dtype:
            return False
        if (
            tuple(arrival.worker for arrival in arrived) != team.workers
            or len({arrival[1:] for arrival in arrived}) > 1
        ):
            return False
        begins = self.models[server] if self.how.reference == "server" else self.begins[arrived[0].worker]
        if any(self.begins[arrival.worker] is not self.begins[arrived[0].worker] for arrival in arrived) and self.local:
            return False
        return self.servers[server].take_all(team.mean(begins if self.local else None), arrived[0].weight)

    def version(self, count: int, server: int) -> None:
        """Make a new version of a server's model from the updates that have arrived."""
        if not self.local:
            self._set_rate(self.optimizers[0], self.taken)
        if self._taken_together(server):
            self.arrived[server] = []
        self._take(server)
        self.servers[server].version()
        self.snapshots[server] = None
        self.taken += count

    @torch.no_grad()
    def reply(self, worker: int) -> None:
        """Send a worker its server's current model; the worker is idle until the model arrives."""
        server, team = self.of[worker], self.team[worker]
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
        """Reset a worker's optimizer, which the machine loses when it fails; the next model replaces the parameters."""
        if self.local:
            self.since[worker] = 0
            number = self.teams.index(self.team[worker])  # a team of one
            rates = self.rates.pop(id(self.optimizers[number]))
            self.optimizers[number] = new = self._optimizer_of(self.teams[number])
            self.rates[id(new)] = rates

    def _optimizer_of(self, team: Team) -> Method:
        """Return the optimizer of a team's workers, each in a group by itself."""
        return self.inner.build(parameter_groups(team.task), SimulatedCommunicator(1, team.rows))

    # Events of local servers below a global one.

    def send_up(self, server: int) -> None:
        """Send a local server's progress to the global server."""
        self._above.send_up(server)

    def arrive_up(self, server: int, age: int) -> None:
        """Apply a local server's update to the global model."""
        self._above.arrive_up(server)

    def reply_up(self, server: int) -> None:
        """Send the current global model to a local server, which continues meanwhile."""
        self._above.reply_up(server)

    def merge(self, server: int) -> None:
        """Merge the global model that has arrived into the local model."""
        self._take(server)  # earlier arrivals meet the model before the merge
        self._above.merge(server)
        self.snapshots[server] = None

    @property
    def _above(self) -> GlobalServer:
        assert self.above is not None
        return self.above

    # Measurements.

    def evaluate(self, done: int) -> None:
        """Evaluate the server's model after ``done`` steps of the training."""
        with torch.no_grad():
            metrics = self.server_task.evaluate({name: p.detach() for name, p in self.server_task.params.items()})
        self.recorder.eval_step.append(done)
        for name, value in metrics.items():
            self.recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    def _note(self) -> None:
        """Record a complete step of the training: P local steps of any workers."""
        for name, value in self.server_task.trace().items():
            self.recorder.trace.setdefault(name, StepLog()).append(value)
        self.recorder.losses.append(torch.stack(self.losses, 1).mean(1))
        self.losses = []
        done = self.done // self.spec.workers
        self.on_step(done)
        if done == self.spec.steps:
            return  # evaluated when the last update has arrived
        if self.spec.eval_every and done % self.spec.eval_every == 0:
            self.evaluate(done)
        if done % CHECK_EVERY == 0 and self.recorder.all_diverged(CHECK_EVERY):
            raise EndSimulation

    def _step_with(self, optimizer: Method, count: int) -> None:
        self._set_rate(optimizer, count)
        optimizer.step()

    def _set_rate(self, optimizer: Method, count: int) -> None:
        """Set the learning rate of the training's step that contains the ``count``-th of all local steps."""
        if self.factors is not None:
            factor = self.factors[min(count // self.spec.workers, self.spec.steps - 1)]
            for group, lr in zip(optimizer.param_groups, self.rates[id(optimizer)], strict=True):
                group["lr"] = lr * factor


def batches_of(spec: Training, async_spec: AsynchronousSpec) -> tuple[float, ...]:
    """Return the samples of each worker's step; 1 if a problem has no batch.

    Raises:
        SpecError: the batches shall adapt, but the problem has none.
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
