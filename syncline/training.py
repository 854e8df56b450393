"""The training loop of a problem, a method and a communicator, simulated or distributed; it measures no times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.lr_scheduler import LRScheduler

from syncline.comm import Communicator
from syncline.errors import SpecError
from syncline.optim import Buffers, Method, PartialParticipation, mean_buffers
from syncline.optim.measures import Watch, WatchedValue
from syncline.problems import Rows, Task

CHECK_EVERY = 50
"""Number of steps between checks that losses are finite; `diverged_at` then finds the exact step."""

STEPS_PER_BLOCK = 1024
"""Number of single-step tensors that `StepLog` stores as one block."""

Array = NDArray[Any]


@dataclass
class History:
    """The history of a training: losses, diagnostics and evaluations for ``S`` seeds at once.

    Attributes:
        seeds: seed of each replica, ``(S,)``.
        steps: number of completed steps, ``T``.
        loss: training loss, mean over the workers, at the parameters before each step, ``(T, S)``.
        trace: diagnostics of the task and of the method after each step, by name, ``(T, S, ...)``.
        eval_step: number of completed steps at each of E evaluations, ``(E,)``.
        evaluation: metrics of the mean of the workers' parameters, by name, ``(E, S)``.
        diverged_at: per seed, the first step (from 0) whose training loss was not finite; T if only the evaluation
            after the last step was not finite; else None.
        interrupted: whether the user stopped the training; all fields then cover the completed steps.
        watched: values that a `Watch` measured during the training, of all seeds.
    """

    seeds: tuple[int, ...]
    steps: int
    loss: Array
    trace: dict[str, Array]
    eval_step: Array
    evaluation: dict[str, Array]
    diverged_at: tuple[int | None, ...]
    interrupted: bool = False
    watched: list[WatchedValue] = field(default_factory=list)

    @classmethod
    def concatenate(cls, parts: Sequence[History]) -> History:
        """Return one history of several seeds; shorter histories are padded with NaN."""
        longest = max(parts, key=lambda part: part.steps)

        def padded(values: Array) -> Array:
            """Return a history's values with NaN for the steps that only the longest history has."""
            padding = np.full((longest.steps - len(values), *values.shape[1:]), np.nan)
            return np.concatenate([values, padding]) if len(padding) else values

        def at_evaluations(part: History, name: str) -> Array:
            """Return a history's metric at the evaluations of the longest history; NaN where it has none."""
            values = part.evaluation[name]
            row_of_step = dict(zip(part.eval_step.tolist(), values, strict=True))
            not_trained = np.full(values.shape[1:], np.nan)
            return np.stack([row_of_step.get(step, not_trained) for step in longest.eval_step.tolist()])

        trace, evaluation = {}, {}  # axis 1 of their values is that of seeds
        for name in longest.trace:
            trace[name] = np.concatenate([padded(part.trace[name]) for part in parts], axis=1)
        for name in longest.evaluation:
            evaluation[name] = np.concatenate([at_evaluations(part, name) for part in parts], axis=1)
        return cls(
            seeds=tuple(seed for part in parts for seed in part.seeds), steps=longest.steps,
            loss=np.concatenate([padded(part.loss) for part in parts], axis=1), trace=trace,
            eval_step=longest.eval_step, evaluation=evaluation,
            diverged_at=tuple(step for part in parts for step in part.diverged_at),
            interrupted=any(part.interrupted for part in parts),
            watched=[watched_value for part in parts for watched_value in part.watched],
        )  # fmt: skip

    def last_evaluation(self) -> dict[str, Array]:
        """Return the metrics after the last step, each ``(S,)``; NaN if the training stopped before this evaluation."""
        is_complete = len(self.eval_step) and self.eval_step[-1] == self.steps
        metrics = {}
        for name, values in self.evaluation.items():
            if len(values):
                metrics[name] = values[-1] if is_complete else np.full_like(values[-1], np.nan)
        return metrics

    def final_records(self) -> list[dict[str, Any]]:
        """Return a flat record of final metrics for each seed.

        ``train_loss``, and ``NAME_mean`` of each diagnostic that is one number per seed, such as ``distance_mean``, are
        means over the last tenth of the steps.
        """
        num_last_steps = max(1, self.steps // 10)
        records = []
        for index, seed in enumerate(self.seeds):
            record: dict[str, Any] = {"seed": seed, "steps": self.steps, "diverged_at": self.diverged_at[index]}
            record |= {name: float(values[index]) for name, values in self.last_evaluation().items()}
            if self.steps:
                record["train_loss"] = float(self.loss[-num_last_steps:, index].mean())
                for name, values in self.trace.items():
                    if values.ndim == 2:  # (T, S): one number per seed; others have no flat column
                        record[f"{name}_mean"] = float(values[-num_last_steps:, index].mean())
            records.append(record)
        return records


class StepLog:
    """A log of one tensor per step, all of one shape, stored in blocks, because each tensor takes 500 extra bytes."""

    def __init__(self) -> None:
        self._blocks: list[list[torch.Tensor] | torch.Tensor] = [[]]

    def append(self, value: torch.Tensor) -> None:
        """Append the tensor of the next step without reading its values, so that the device need not finish it."""
        if len(self._blocks[-1]) == STEPS_PER_BLOCK:
            # An interrupt after this assignment leaves a complete log.
            self._blocks[-1] = torch.stack(list(self._blocks[-1]))
            self._blocks.append([])
        cast("list[torch.Tensor]", self._blocks[-1]).append(value)

    def __len__(self) -> int:
        return STEPS_PER_BLOCK * (len(self._blocks) - 1) + len(self._blocks[-1])

    def part(self, first: int, last: int) -> torch.Tensor | None:
        """Return the tensors of steps ``first`` to ``last - 1``, ``(last - first, ...)``; None if there are none."""
        pieces = []
        num_blocks = min(math.ceil(last / STEPS_PER_BLOCK), len(self._blocks))
        for index in range(first // STEPS_PER_BLOCK, num_blocks):
            block_start = index * STEPS_PER_BLOCK
            piece = self._blocks[index][max(first - block_start, 0) : last - block_start]
            if len(piece):
                pieces.append(torch.stack(piece) if isinstance(piece, list) else piece)
        return torch.cat(pieces) if pieces else None


@dataclass
class Recorder:
    """A recorder of a training's losses, diagnostics and evaluations, which can be read during the training.

    The recorder stores tensors without reading their values, so that a step never waits for the device.
    """

    losses: StepLog = field(default_factory=StepLog)
    trace: dict[str, StepLog] = field(default_factory=dict)
    eval_step: list[int] = field(default_factory=list)
    evaluation: dict[str, StepLog] = field(default_factory=dict)

    def all_diverged(self, num_steps: int) -> bool:
        """Return whether every seed had a loss that was not finite in the ``num_steps`` steps."""
        losses = self.losses.part(max(len(self.losses) - num_steps, 0), len(self.losses))
        return losses is not None and not bool(torch.isfinite(losses).all(0).any())

    def part(self, seeds: tuple[int, ...], first: int, last: int) -> History:
        """Return the history after ``first`` to ``last - 1`` completed steps; 0 is before the first step."""
        # The n-th completed step, counted from 1, is row n - 1 of the losses; 0 has an evaluation but no loss.
        steps = max(first, 1) - 1, min(last - 1, len(self.losses))
        evaluations = bisect_left(self.eval_step, first), bisect_left(self.eval_step, last)
        return self._history(seeds, steps, evaluations)

    def history(self, seeds: tuple[int, ...], interrupted: bool = False) -> History:
        """Return the history of all complete steps and evaluations."""
        # An interrupt can fall between two records of the same step: keep complete steps and evaluations only.
        num_evaluations = min((len(values) for values in self.evaluation.values()), default=0)
        history = self._history(seeds, steps=(0, len(self.losses)), evaluations=(0, num_evaluations))
        history.interrupted = interrupted
        return history

    def _history(self, seeds: tuple[int, ...], steps: tuple[int, int], evaluations: tuple[int, int]) -> History:
        """Return the history of some steps and evaluations, given by their first index and the index after the last."""
        (first_step, end_step), (first_evaluation, end_evaluation) = steps, evaluations
        metrics = self.evaluation if end_evaluation > first_evaluation else {}
        empty_shape = (0, len(seeds))
        history = History(
            seeds=seeds, steps=max(end_step - first_step, 0), loss=_as_array(self.losses.part(*steps), empty_shape),
            trace={name: _as_array(values.part(*steps), empty_shape) for name, values in self.trace.items()},
            eval_step=np.array(self.eval_step[first_evaluation:end_evaluation], dtype=np.int64),
            evaluation={name: _as_array(values.part(*evaluations), empty_shape) for name, values in metrics.items()},
            diverged_at=(),
        )  # fmt: skip
        history.diverged_at = diverged_at(history)
        return history


def diverged_at(history: History) -> tuple[int | None, ...]:
    """Return for each seed the step of the first loss that is not finite; None if all losses are finite.

    The loss of an evaluation after the last step counts as the loss of step T.
    """
    losses = history.loss
    if history.evaluation and history.eval_step[-1] == history.steps:
        losses = np.concatenate([losses, history.evaluation["loss"][-1:]])
    first_steps: list[int | None] = []
    for is_lost in ~np.isfinite(losses).T:  # for one seed: whether the loss of each step is lost
        first_steps.append(int(is_lost.argmax()) if is_lost.any() else None)
    return tuple(first_steps)


def _as_array(values: torch.Tensor | None, empty_shape: tuple[int, ...]) -> Array:
    """Return a tensor as an array; without a tensor, zeros of the shape ``empty_shape``."""
    if values is None:
        return np.zeros(empty_shape)
    values = values.cpu()
    # NumPy has no bfloat16, and means of many losses need more digits than 16 bits have.
    return (values.float() if values.dtype.itemsize < 4 else values).numpy()


def rows_of(comm: Any, seeds: Sequence[int]) -> Rows:
    """Return the rows of a task on a communicator: its local workers, once for each seed.

    Raises:
        SpecError: the number of seeds is not the communicator's number of replicas.
    """
    if len(seeds) != comm.replicas:
        raise SpecError("seeds", tuple(seeds), f"{comm.replicas}, one per replica of the communicator")
    workers_per_replica = len(comm.local_workers) // comm.replicas
    workers = comm.local_workers[:workers_per_replica]  # the same in all replicas
    return Rows(tuple(seeds), tuple(workers), comm.world_size)


def parameter_groups(task: Task, delays: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return torch's parameter groups of a task: consecutive matrices, and consecutive other parameters, in order.

    With ``delays`` of the gradients by parameter, in steps, a group has parameters of one delay. If a parameter's
    entries have different delays, as the coordinates of a landscape's point do, the largest counts.
    """
    groups: list[dict[str, Any]] = []
    for name, parameter in task.params.items():
        options: dict[str, Any] = {"matrix": name in task.matrices}
        if delays is not None:
            delay = delays[name]
            options["delay"] = int(delay.max()) if isinstance(delay, torch.Tensor) else delay
        if not groups or any(groups[-1][key] != value for key, value in options.items()):
            groups.append({"params": [], **options})
        groups[-1]["params"].append((name, parameter))
    return groups


def train(
    task: Task,
    method: Method,
    seeds: Sequence[int],
    steps: int,
    *,
    eval_every: int = 0,
    schedule: LRScheduler | None = None,
    on_step: Callable[[int], None] | None = None,
    recorder: Recorder | None = None,
    watch: Watch | None = None,
) -> History:
    """Train a task for a number of steps, and return the history.

    Args:
        task: the problem's task on the rows of ``method.comm``.
        method: method that updates the task's parameters.
        seeds: seed of each replica, ``(S,)``.
        steps: number of steps, T.
        eval_every: number of steps between evaluations; 0: no evaluation in between. There is always an evaluation
            before the first step and after the last step.
        schedule: learning-rate schedule, which advances after each step.
        on_step: function that is called with the number of completed steps, from 0. It may raise
            ``KeyboardInterrupt``, which ends the training with an evaluation.
        recorder: recorder of the results, for callers that read it during the training.
        watch: measures of the method during the training, see ``syncline.optim.measures``.

    Returns:
        The history. The training ends early once every seed had a loss that was not finite, or at Ctrl-C; the history
        says so, and has all values up to this point. If workers may be absent (a membership of the communicator, see
        ``syncline.optim.PartialParticipation``), losses and evaluations are means over the workers present in the step,
        and a task's trace covers all rows.
    """
    seeds = tuple(seeds)
    rows, recorder = rows_of(method.comm, seeds), recorder or Recorder()
    method.seeds = seeds
    method.on_average = watch.before_average if watch else None
    membership = getattr(method.comm, "membership", None)
    participation = PartialParticipation(method, membership) if membership else None
    _set_buffers(method, task, workers_may_be_absent=participation is not None)
    if watch is None and participation is None:  # nothing needs the gradient of each worker
        # A task without this function stores the gradient of each worker in any case.
        method.keep_only_mean_gradient(getattr(task, "keep_mean_gradient", lambda: False))

    def evaluate(completed_steps: int) -> None:
        """Record the metrics of the workers' mean parameters after this number of steps."""
        metrics = task.evaluate(mean_parameters(task, method.comm, rows))
        recorder.eval_step.append(completed_steps)
        for name, value in metrics.items():
            recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    if _asks_to_stop(on_step, completed_steps=0):
        return recorder.history(seeds, interrupted=True)
    interrupted = False
    try:
        evaluate(completed_steps=0)
        for step in range(steps):
            loss = _make_step(task, method, step, watch, participation)
            if schedule is not None:
                schedule.step()
            for name, value in (task.trace() | method.trace()).items():
                recorder.trace.setdefault(name, StepLog()).append(value)
            recorder.losses.append(participation.mean(loss, step) if participation else rows.by_replica(loss).mean(1))
            completed = step + 1
            interrupted = _asks_to_stop(on_step, completed) and completed < steps
            is_checked = completed % CHECK_EVERY == 0
            is_last = completed == steps or interrupted or (is_checked and _all_diverged(recorder, task, method.comm))
            if is_last or (eval_every and completed % eval_every == 0):
                evaluate(completed)
            if is_last:
                break
    except KeyboardInterrupt:
        interrupted = True
        _asks_to_stop(on_step, len(recorder.losses))  # ``on_step`` confirms the interrupt
    history = recorder.history(seeds, interrupted)
    history.watched = watch.values(seeds) if watch else []
    return history


def _set_buffers(method: Method, task: Task, workers_may_be_absent: bool) -> None:
    """Give the method the buffers of the task's module, if the module has any and the workers exchange them.

    Raises:
        SpecError: workers may be absent and the module has buffers.
    """
    buffers: Mapping[str, torch.Tensor] = getattr(task, "buffers", {})
    if not buffers:
        return
    if workers_may_be_absent:
        expected = "none, as the module has buffers, which a worker that returns would have to adopt"
        raise SpecError("faults.absences", "given", expected)
    method.buffers = Buffers(buffers, method.comm) if getattr(task, "shares_buffers", True) else None


def _make_step(
    task: Task, method: Method, step: int, watch: Watch | None, participation: PartialParticipation | None
) -> torch.Tensor:
    """Make one step of a training: gradients and the method's update; return the loss of each row before the step."""
    if participation:
        participation.join(step)
    loss = task.step_gradients(step)
    if watch:
        watch.before_step(method, step)
    with participation.frozen(step) if participation else nullcontext():
        method.step()
    if watch:
        watch.after_step(method, step)
    return loss


def mean_parameters(task: Task, comm: Communicator, rows: Rows) -> dict[str, torch.Tensor]:
    """Return the means of a task's parameters and buffers over the workers, by name; each is of shape ``(seeds, *s)``.

    The all-reduce that computes the means does not appear in the ledger, because it is no part of the method.
    """
    with torch.no_grad(), comm.ledger.paused():
        mean_params = comm.all_reduce_coalesced(list(task.params.values()))  # one latency, not one per tensor
    parameters = dict(zip(task.params, mean_params, strict=True))
    buffers = mean_buffers(getattr(task, "buffers", {}), comm)
    first_worker = 0  # after the all-reduce all workers have the mean
    return {name: rows.by_replica(mean)[:, first_worker] for name, mean in (parameters | buffers).items()}


def _all_diverged(recorder: Recorder, task: Task, comm: Communicator) -> bool:
    """Return whether every seed has diverged on all workers; an all-reduce lets all processes stop together."""
    device = next(iter(task.params.values())).device
    # 1.0 for each local worker if a seed of this process still has finite losses; the maximum over all workers decides.
    is_finite = torch.tensor([0.0 if recorder.all_diverged(CHECK_EVERY) else 1.0] * len(comm.local_workers))
    with comm.ledger.paused():
        return not bool(comm.all_reduce_max(is_finite.to(device)).any())


def _asks_to_stop(on_step: Callable[[int], None] | None, completed_steps: int) -> bool:
    """Call ``on_step`` with the number of completed steps, and return whether it stops the training."""
    try:
        if on_step is not None:
            on_step(completed_steps)
    except KeyboardInterrupt:
        return True
    return False
