"""The math of the workers and servers of an asynchronous training.

A worker makes local steps, and an update from them. Workers that step at the same times form a team; their steps are
one batch. A single server, or several below a global one, apply the updates to their models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.ddp import DDPSpec
from syncline.methods.local import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, HierarchySpec, asynchronous_of
from syncline.optim import Method, Nesterov
from syncline.optim.asynchronous import DelayedNesterov, GradientServer, OuterServer, ServerRule
from syncline.problems import Task
from syncline.specs import Training
from syncline.training import parameter_groups

if TYPE_CHECKING:
    from syncline.runs.training.async_clock import AsyncPlan


INNER_FIELDS = ("rule", "lr", "other_lr", "weight_decay", "clip_norm")
"""Fields of a method that a worker's inner optimizer takes over."""


def inner_method_of(method: DiLoCoSpec) -> DDPSpec:
    """Return the inner optimizer of a worker of DiLoCo, as a method that sends nothing."""
    inner_fields: dict[str, Any] = {name: getattr(method, name) for name in INNER_FIELDS}
    return DDPSpec(**inner_fields)


class ScheduledOptimizer:
    """An optimizer whose learning rates follow the schedule of the training.

    Args:
        lr_factors: learning-rate factor of each step of the training; None for a constant rate. See `lr_factors`.
    """

    def __init__(self, optimizer: Method, lr_factors: Sequence[float] | None, spec: Training) -> None:
        self.optimizer, self.lr_factors, self.workers, self.steps = optimizer, lr_factors, spec.workers, spec.steps
        self.initial_lrs = [group["lr"] for group in optimizer.param_groups]

    def set_lr(self, lr_step: int) -> None:
        """Set the learning rate for local step ``lr_step``, counted from 0 over all P workers.

        P local steps count as one step of the schedule.
        """
        if self.lr_factors is not None:
            factor = self.lr_factors[min(lr_step // self.workers, self.steps - 1)]
            for group, initial_lr in zip(self.optimizer.param_groups, self.initial_lrs, strict=True):
                group["lr"] = initial_lr * factor

    def step(self, lr_step: int) -> None:
        """Make a step with the learning rate of local step ``lr_step``, see `set_lr`."""
        self.set_lr(lr_step)
        self.optimizer.step()


def lr_factors(spec: Training) -> list[float] | None:
    """Return the factor of the learning rate in each step, from the spec's schedule; None without a schedule."""
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


def gradients_of(params: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of each parameter; zeros for a parameter without a gradient."""
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in params]


class LocalWorker:
    """An asynchronous worker in a process of its own: its task and, in methods with local steps, its optimizer."""

    def __init__(self, spec: Training, method: MethodBase, task: Task, lr_factors: Sequence[float] | None) -> None:
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.asynchronous, self.task, self.wire = asynchronous, task, WIRE_FORMATS[method.wire_format]
        self.params: list[Tensor] = list(task.params.values())
        self.optimizer: ScheduledOptimizer | None = None
        self.start_model: list[Tensor] = []  # the model before local steps; empty in a method without them
        if isinstance(method, DiLoCoSpec):
            self.start_model = [p.detach().clone() for p in self.params]
            comm = SimulatedCommunicator(workers=1, replicas=len(spec.seeds))
            optimizer = inner_method_of(method).build(parameter_groups(task), comm)
            self.optimizer = ScheduledOptimizer(optimizer, lr_factors, spec)

    def step(self, lr_step: int) -> None:
        """Step the optimizer, in methods with local steps; see `ScheduledOptimizer.set_lr` for ``lr_step``."""
        if self.optimizer is not None:
            self.optimizer.step(lr_step)

    @torch.no_grad()
    def update(self) -> list[Tensor]:
        """Return the worker's update: the model before its local steps minus the model after them.

        In a method without local steps the update is the gradients. If the method's ``reference`` is ``server``, it is
        the model after the local steps, which the server subtracts from its current model.
        """
        if self.optimizer is None:
            return gradients_of(self.params)
        if self.asynchronous.reference == "server":
            return [p.detach() for p in self.params]
        return [start - p for start, p in zip(self.start_model, self.params, strict=True)]

    @torch.no_grad()
    def replace_model(self, model: list[Tensor]) -> None:
        """Replace the worker's model by the server's."""
        torch._foreach_copy_(self.params, model)
        if self.start_model:
            torch._foreach_copy_(self.start_model, model)


Teams = tuple[tuple[int, ...], ...]
"""The workers of each team; every worker is in exactly one team."""


class Team:
    """Workers whose steps are computed together, as rows of one task.

    Args:
        workers: indices of the W workers, in order.
        task: task of these workers and S seeds.
    """

    def __init__(self, workers: tuple[int, ...], task: Task, seeds: int) -> None:
        self.workers, self.task, self.seeds = workers, task, seeds
        self.params: list[Tensor] = list(task.params.values())
        self._index_of_worker = {worker: index for index, worker in enumerate(workers)}
        self._comm = SimulatedCommunicator(len(workers), seeds)
        self._losses: Tensor | None = None  # losses of the latest batch
        self._yet_to_step: set[int] = set()  # workers that have not made the step of the latest batch

    @property
    def rows(self) -> int:
        """Return the number of rows of the task, S x W."""
        return self.seeds * len(self.workers)

    def compute_step(self, worker: int, step: int) -> bool:
        """Compute the gradients of a worker's step; return True if this call computed those of the whole team.

        The members of a team step at the same simulated times. The first member that steps at such a time computes the
        gradients of all members in one batch. The other members use the gradients of that batch.
        """
        is_first = worker not in self._yet_to_step
        if is_first:
            self._losses = self.task.step_gradients(step)
            self._yet_to_step = set(self.workers)
        self._yet_to_step.discard(worker)
        return is_first

    def loss_of(self, worker: int) -> Tensor:
        """Return a worker's losses in its last step, one for each of the S seeds."""
        assert self._losses is not None
        return self.worker_rows(self._losses, worker)

    def worker_rows(self, x: Tensor, worker: int) -> Tensor:
        """Return one worker's rows, ``(S, *s)``, of a tensor with the rows of the whole team, ``(S W, *s)``."""
        if len(self.workers) == 1:
            return x
        return x.view(self.seeds, len(self.workers), *x.shape[1:])[:, self._index_of_worker[worker]]

    def mean_update(self, start_model: list[Tensor] | None) -> list[Tensor]:
        """Return the mean of the workers' updates, ``(S, *s)`` each, bit for bit as an all-reduce computes it.

        Args:
            start_model: the model from which the workers' models are subtracted; None if an update is a gradient.
        """
        num_workers = len(self.workers)
        if start_model is None:
            updates = gradients_of(self.params)
        else:
            updates = []
            for start, p in zip(start_model, self.params, strict=True):
                updates.append(start.repeat_interleave(num_workers, 0).sub_(p.detach()))
        # After the all-reduce the rows of a seed's workers are equal: the first one is kept.
        return [x[::num_workers].clone() for x in self._comm.all_reduce_coalesced(updates)]


def single_workers(workers: int) -> Teams:
    """Return one team for each worker, as each worker computes by itself."""
    return tuple((worker,) for worker in range(workers))


def teams_of(plan: AsyncPlan) -> Teams:
    """Return the teams of workers that always step at exactly the same simulated times.

    One batch for a team gives the same results as separate steps, because nothing happens between them. The order of
    events does not depend on the math, so that a simulation without math finds the teams.
    """
    workers = plan.settings.workers
    batches_differ = plan.relative_durations is not None
    # A failed worker steps at other times than its team, and a team needs equal batches.
    if plan.spec.failures is not None or batches_differ or not plan.pace().has_equal_workers():
        return single_workers(workers)
    result = plan.simulate()
    group_sizes = plan.settings.groups or (workers,)
    server_of_worker = np.repeat(np.arange(len(group_sizes)), group_sizes).tolist()
    teams: dict[tuple[int, bytes], list[int]] = {}  # by server and times of all steps
    for worker in range(workers):
        ends_s = result.step_end_s[result.step_worker == worker]
        makes_two_steps_at_once = not (np.diff(ends_s) > 0).all()
        if makes_two_steps_at_once:  # the order of events decides which step is the team's
            return single_workers(workers)
        teams.setdefault((server_of_worker[worker], ends_s.tobytes()), []).append(worker)
    return tuple(tuple(members) for members in teams.values())


def gradient_server(method: MethodBase, task: Task, seeds: int) -> GradientServer:
    """Return the update rule of a server that receives gradients: the method's optimizer on the task's parameters."""
    synchronous_method = method.model_copy(update={"asynchronous": None})
    comm = SimulatedCommunicator(workers=1, replicas=seeds)  # the server alone
    return GradientServer(synchronous_method.build(parameter_groups(task), comm))


def refuse_buffers(spec: Training, task: Task) -> None:
    """Refuse a module with buffers, such as running means: each worker has its own, but the server needs one."""
    if getattr(task, "buffers", {}):
        expected = "a module without buffers, as a server has no rule for them"
        raise SpecError("problem", spec.problem.name, expected)


@torch.no_grad()
def evaluate_model(task: Task) -> dict[str, Tensor]:
    """Return the metrics of a task's model on the CPU, ``(S,)`` each for S seeds."""
    metrics = task.evaluate({name: p.detach() for name, p in task.params.items()})
    return {name: value.cpu() for name, value in metrics.items()}


def outer_rules(
    method: DiLoCoSpec, async_spec: AsynchronousSpec, models: Sequence[Sequence[Tensor]]
) -> list[DelayedNesterov] | list[OuterServer]:
    """Return for each server the rule that applies the updates from local steps (pseudo-gradients) to its model."""
    lr, momentum = method.outer_lr, method.outer_momentum
    if async_spec.momentum == "delayed":
        buffer_size, activation = async_spec.buffer_size, async_spec.momentum_activation
        return [DelayedNesterov(model, lr, momentum, buffer_size, activation) for model in models]
    return [OuterServer(model, Nesterov(lr, momentum)) for model in models]


class SingleServer:
    """The only server of an asynchronous training, run as a process of its own: the model and the update rule.

    Args:
        method: an asynchronous method without a global server above the server.
    """

    def __init__(self, spec: Training, method: MethodBase, task: Task, lr_factors: Sequence[float] | None) -> None:
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.asynchronous, self.task = asynchronous, task
        refuse_buffers(spec, task)
        self.wire = WIRE_FORMATS[method.wire_format]
        self.params: list[Tensor] = list(task.params.values())
        # With this reference workers send models, and the server subtracts them from its own.
        self.receives_models = isinstance(method, DiLoCoSpec) and asynchronous.reference == "server"
        self.optimizer: ScheduledOptimizer | None = None  # only if the server receives gradients
        self.num_updates = 0
        self.rule: ServerRule
        if isinstance(method, DiLoCoSpec):
            (self.rule,) = outer_rules(method, asynchronous, [self.params])
        else:
            rule = gradient_server(method, task, len(spec.seeds))
            self.rule, self.optimizer = rule, ScheduledOptimizer(rule.optimizer, lr_factors, spec)

    @torch.no_grad()
    def add_update(self, update: Sequence[Tensor], age: int, steps: int, tokens: float) -> None:
        """Pass a worker's update to the rule.

        Args:
            update: the update, see `LocalWorker.update`, decoded from its wire format.
            age: number of versions that the model is newer than the worker's.
            steps: number of local steps in the update.
            tokens: tokens or samples of each step.
        """
        if self.receives_models:
            update = [x - worker_x for x, worker_x in zip(self.params, update, strict=True)]
        self.rule.add_update(update, self.asynchronous.weight(age), self.asynchronous.share(steps, tokens))

    def make_version(self, count: int) -> None:
        """Make a new version of the model from the last ``count`` updates."""
        if self.optimizer is not None:
            self.optimizer.set_lr(self.num_updates)
        self.rule.make_version()
        self.num_updates += count

    def evaluate(self) -> dict[str, Tensor]:
        """Return the metrics of the model, ``(S,)`` each for S seeds."""
        return evaluate_model(self.task)


class GlobalServer:
    """The global server above local servers: it applies their updates, and they merge its model into their models.

        local update:   d = y - x, where x is the local model, and y the local model after its last merge
        global version: z <- delayed Nesterov(z, d), where z is the global model
        merge:          x <- (1 - alpha) x + alpha z;  y <- x

    Args:
        spec: learning rate, momentum, size of the momentum's buffer, and alpha of the global server.
        params: z, the global model.
        models: x of each local server, which `merge` changes in place; at first equal to z.

    Source: HALoS (Kim et al., 2025), Algorithm 1. The progress that a local model makes between sending and merging
    never reaches the global model, as in the public code of HALoS.
    """

    def __init__(self, spec: HierarchySpec, params: Sequence[Tensor], models: Sequence[Sequence[Tensor]]) -> None:
        self.alpha, self.params, self.models = spec.merge_weight, list(params), models
        self.rule = DelayedNesterov(self.params, spec.lr, spec.momentum, spec.buffer_size)
        # By local server, as the class names them: y; d on the way to the global server; z on the way back.
        self.merged_models = [[x.clone() for x in model] for model in models]
        self.sent_updates: list[list[Tensor]] = [[] for _ in models]
        self.sent_global_models: list[list[Tensor]] = [[] for _ in models]

    def send_update(self, server: int) -> None:
        """Store the update that a local server sends, because its model changes during the transfer."""
        pairs = zip(self.merged_models[server], self.models[server], strict=True)
        self.sent_updates[server] = [y - x for y, x in pairs]

    def apply_update(self, server: int) -> None:
        """Apply the arrived update of a local server to the global model."""
        self.rule.add_update(self.sent_updates[server], weight=1.0)
        self.rule.make_version()

    @torch.no_grad()
    def send_global_model(self, server: int) -> None:
        """Store the global model that goes to a local server, because it changes during the transfer."""
        self.sent_global_models[server] = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def merge(self, server: int) -> None:
        """Merge the arrived global model into the local server's model."""
        for x, y, z in zip(
            self.models[server], self.merged_models[server], self.sent_global_models[server], strict=True
        ):
            x.mul_(1 - self.alpha).add_(z, alpha=self.alpha)
            y.copy_(x)
