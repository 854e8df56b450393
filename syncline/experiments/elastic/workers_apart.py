"""The math of workers at their own pace: each steps from the server's model of its time, with data of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from syncline.errors import SpecError
from syncline.experiments.elastic.level_above import LevelAbove
from syncline.experiments.elastic.one_worker import OneWorker
from syncline.experiments.elastic.rates import lr_factors
from syncline.experiments.elastic.servers import Servers
from syncline.methods.parts.asynchronous import AsynchronousSpec, asynchronous_of
from syncline.problems import Rows, Task
from syncline.sim.online.served import EndPlay
from syncline.training import CHECK_EVERY, Recorder, StepLog

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
        self.batches = batches_of(spec, how)
        self.tasks = [
            build(Rows(spec.seeds, (worker,), spec.workers), problem)
            for worker, problem in enumerate(problems_of(spec, self.batches))
        ]
        self.server_task = build(Rows(spec.seeds, (0,), spec.workers), spec.problem)
        factors = lr_factors(spec)
        self.servers = Servers(spec, method, self.server_task, factors)
        self.workers = [OneWorker(spec, method, task, factors) for task in self.tasks]
        self.above: LevelAbove | None = None
        if how.above is not None:
            self.above = LevelAbove(how.above, self.servers.params, self.servers.models)
        self.done = 0
        self.loss: Tensor | None = None

    # What happens, in the order of events.

    def step(self, worker: int, number: int) -> None:
        """A local step: its gradient, and in local methods its update."""
        self.step_as(worker, number, self.done)

    def step_as(self, worker: int, number: int, count: int) -> None:
        """The same as number ``count`` of all workers' steps."""
        loss = self.workers[worker].gradients(number)
        self.workers[worker].step(count)
        self.loss = loss if self.loss is None else self.loss + loss
        self.done += 1
        if self.done % self.spec.workers == 0:
            self._note()

    def arrive(self, worker: int, age: int) -> None:
        """What came of its steps."""
        one = self.workers[worker]
        self.servers.take(worker, one.update(), age, one.since, self.batches[worker])
        one.since = 0

    def version(self, count: int, server: int) -> None:
        """A version of a server's model."""
        self.servers.version(count, server)

    def reply(self, worker: int) -> None:
        """Its server's model, as it is now; the worker has nothing to do until it comes."""
        self.workers[worker].take(self.servers.model_of(worker))

    def fail(self, worker: int) -> None:
        """What its optimizer keeps is gone with its machine."""
        self.workers[worker].fail()

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
        self.recorder.eval_step.append(done)
        for name, value in self.servers.evaluate().items():
            self.recorder.evaluation.setdefault(name, StepLog()).append(value)

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
