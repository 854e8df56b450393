"""The math of workers at their own pace: each steps from the server's model of its time, with data of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.experiments.elastic.level_above import LevelAbove
from syncline.methods.ddp import DDPSpec
from syncline.methods.diloco import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, asynchronous_of
from syncline.optim import Method, Nesterov
from syncline.optim.servers import DelayedNesterov, GradientServer, OuterServer, ServerRule
from syncline.problems import Rows, Task
from syncline.sim.online.served import EndPlay
from syncline.training import CHECK_EVERY, Recorder, StepLog, parameter_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncline.problems import Problem
    from syncline.specs import MethodBase, Training


class WorkersApart:
    """Workers' tasks and optimizers, and the server's: what `syncline.sim.online` tells happens in.

    Of ``S`` seeds side by side: the order of events does not depend on a seed. ``P`` steps of whichever workers count
    as one step of the training: its loss is their mean, and schedules and evaluations go by it.

    Args:
        spec: of the training.
        method: an asynchronous one.
        build: the task of some rows of a problem, whose batches may be a worker's own.
        recorder: where to collect.
        on_step: called with the number of completed steps of the training.

    Raises:
        SpecError: a module with buffers, or batches that shall adapt where a problem has none.
    """

    def __init__(
        self,
        spec: Training,
        method: MethodBase,
        build: Callable[[Rows, Problem], Task],
        recorder: Recorder,
        on_step: Callable[[int], None],
    ) -> None:
        how = asynchronous_of(method)
        assert how is not None
        self.spec, self.how, self.recorder, self.on_step = spec, how, recorder, on_step
        self.local = isinstance(method, DiLoCoSpec)
        self.batches = batches_of(spec, how)
        self.tasks = [
            build(Rows(spec.seeds, (worker,), spec.workers), problem)
            for worker, problem in enumerate(problems_of(spec, self.batches))
        ]
        self.server_task = build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
        if getattr(self.server_task, "buffers", {}):
            expected = "a module without buffers, of which a server would have to make one"
            raise SpecError("problem", spec.problem.name, expected)
        self.params: list[Tensor] = list(self.server_task.params.values())
        self.wire = WIRE_FORMATS[method.travels_as]
        self.comm = SimulatedCommunicator(1, len(spec.seeds))
        groups = () if how.above is None else how.above.groups_of(spec.workers)
        self.of = [s for s, size in enumerate(groups or (spec.workers,)) for _ in range(size)]
        self.models = [[p.detach().clone() for p in self.params] for _ in groups] or [self.params]
        self.servers, self.optimizers = self._parts(method)
        self.above = LevelAbove(how.above, self.params, self.models) if how.above is not None else None
        self.factors = lr_factors(spec)
        self.rates = {id(one): [group["lr"] for group in one.param_groups] for one in self.optimizers}
        self.begins: list[list[Tensor]] = [[] for _ in range(spec.workers)]
        if self.local:
            self.begins = [[p.detach().clone() for p in task.params.values()] for task in self.tasks]
        self.since = [0] * spec.workers  # local steps of each worker since its last update
        self.done = self.taken = 0
        self.loss: Tensor | None = None

    def _parts(self, method: MethodBase) -> tuple[Sequence[ServerRule], list[Method]]:
        """Each server's rule, and the optimizers whose rate follows the schedule: the workers', or the server's."""
        if not isinstance(method, DiLoCoSpec):
            alone = method.model_copy(update={"asynchronous": None})
            optimizer = alone.build(parameter_groups(self.server_task), self.comm)
            return [GradientServer(optimizer)], [optimizer]
        knobs: dict[str, Any] = {name: getattr(method, name) for name in INNER}
        self.inner = DDPSpec(**knobs)
        optimizers = [self.inner.build(parameter_groups(task), self.comm) for task in self.tasks]
        lr, momentum = method.outer_lr, method.outer_momentum
        if self.how.momentum == "delayed":
            n, c = self.how.buffer, self.how.activation
            return [DelayedNesterov(model, lr, momentum, n, c) for model in self.models], optimizers
        return [OuterServer(model, Nesterov(lr, momentum)) for model in self.models], optimizers

    # What happens, in the order of events.

    def step(self, worker: int, number: int) -> None:
        """A local step: its gradient, and in local methods its update."""
        loss = self.tasks[worker].step_gradients(number)
        if self.local:
            self._step_with(self.optimizers[worker], self.done)
        self.loss = loss if self.loss is None else self.loss + loss
        self.done += 1
        self.since[worker] += 1
        if self.done % self.spec.workers == 0:
            self._note()

    @torch.no_grad()
    def arrive(self, worker: int, age: int) -> None:
        """What came of its steps, in the wire format in which it travelled."""
        params = self.tasks[worker].params.values()
        if self.local:
            begins = self.models[self.of[worker]] if self.how.start == "server" else self.begins[worker]
            update = [begin - p for begin, p in zip(begins, params, strict=True)]
        else:
            update = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        if not self.wire.exact_dtype:
            update = [self.wire.decode(self.wire.encode(u), u.dtype) for u in update]
        self.servers[self.of[worker]].take(
            update, self.how.weight(age), self.how.share(self.since[worker], self.batches[worker])
        )
        self.since[worker] = 0

    def version(self, count: int, server: int) -> None:
        """A version of a server's model."""
        if not self.local:
            self._set_rate(self.optimizers[0], self.taken)
        self.servers[server].version()
        self.taken += count

    @torch.no_grad()
    def reply(self, worker: int) -> None:
        """Its server's model, as it is now; the worker has nothing to do until it comes."""
        model = self.models[self.of[worker]]
        for p, x in zip(self.tasks[worker].params.values(), model, strict=True):
            p.copy_(x)
        for begin, x in zip(self.begins[worker], model, strict=False):
            begin.copy_(x)

    def fail(self, worker: int) -> None:
        """What its optimizer keeps is gone with its machine; its parameters are, when the next model comes."""
        if self.local:
            self.since[worker] = 0
            rates = self.rates.pop(id(self.optimizers[worker]))
            self.optimizers[worker] = new = self.inner.build(parameter_groups(self.tasks[worker]), self.comm)
            self.rates[id(new)] = rates

    # Of local servers, with one above.

    def send_up(self, server: int) -> None:
        """What came of its versions."""
        self._above.send_up(server)

    def arrive_up(self, server: int, age: int) -> None:
        """A version above."""
        self._above.arrive_up(server)

    def reply_up(self, server: int) -> None:
        """The model from above, as it is now, for a local server that goes on meanwhile."""
        self._above.reply_up(server)

    def merge(self, server: int) -> None:
        """It has come."""
        self._above.merge(server)

    @property
    def _above(self) -> LevelAbove:
        assert self.above is not None
        return self.above

    # What is measured.

    def evaluate(self, done: int) -> None:
        """The server's model after so many steps of the training."""
        with torch.no_grad():
            metrics = self.server_task.evaluate({name: p.detach() for name, p in self.server_task.params.items()})
        self.recorder.eval_step.append(done)
        for name, value in metrics.items():
            self.recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    def _note(self) -> None:
        """A step of the training is complete: P of whichever workers."""
        assert self.loss is not None
        for name, value in self.server_task.trace().items():
            self.recorder.trace.setdefault(name, StepLog()).append(value)
        self.recorder.losses.append(self.loss / self.spec.workers)
        self.loss = None
        done = self.done // self.spec.workers
        self.on_step(done)
        if done == self.spec.steps:
            return  # evaluated when the last update has arrived
        if self.spec.eval_every and done % self.spec.eval_every == 0:
            self.evaluate(done)
        if done % CHECK_EVERY == 0 and self.recorder.all_lost(CHECK_EVERY):
            raise EndPlay

    def _step_with(self, optimizer: Method, count: int) -> None:
        self._set_rate(optimizer, count)
        optimizer.step()

    def _set_rate(self, optimizer: Method, count: int) -> None:
        """The learning rate of the training's step in which the ``count``-th of all local steps is."""
        if self.factors is not None:
            factor = self.factors[min(count // self.spec.workers, self.spec.steps - 1)]
            for group, lr in zip(optimizer.param_groups, self.rates[id(optimizer)], strict=True):
                group["lr"] = lr * factor


def batches_of(spec: Training, how: AsynchronousSpec) -> tuple[float, ...]:
    """Samples of each worker's step; 1 where a problem has no batch.

    Raises:
        SpecError: there is none that could adapt.
    """
    batch = getattr(spec.problem, "batch_size", None)
    if batch is None:
        if how.adapt == "batch":
            expected = f"yes or no, as {spec.problem.name} has no batch_size"
            raise SpecError("method.asynchronous.adapt", how.adapt, expected)
        return (1.0,) * spec.workers
    return how.batches(batch, spec.relative_speeds or (1.0,) * spec.workers)


def problems_of(spec: Training, batches: Sequence[float]) -> list[Problem]:
    """The problem with each worker's batches."""
    batch = getattr(spec.problem, "batch_size", 1)
    return [spec.problem if one == batch else replace(spec.problem, batch_size=int(one)) for one in batches]


INNER = ("rule", "lr", "other_lr", "weight_decay", "clip_norm")
"""What a worker's own optimizer has of its method."""


def lr_factors(spec: Training) -> list[float] | None:
    """By what the learning rate is multiplied in each step; None: by 1 in all."""
    probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = spec.schedule.build(probe, spec.steps)
    if schedule is None:
        return None
    factors = []
    for _ in range(spec.steps):
        factors.append(float(probe.param_groups[0]["lr"]))
        probe.step()
        schedule.step()
    return factors
