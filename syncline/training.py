"""The training loop of a problem, a method and a communicator, simulated or distributed; it measures no times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.lr_scheduler import LRScheduler

from syncline.comm import Communicator
from syncline.errors import SpecError
from syncline.optim import Buffers, Method, PartialParticipation, mean_buffers
from syncline.optim.watching import Watch, WatchedValue
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
        loss: ``(T, S)`` training loss, mean over the workers, at the parameters before each step.
        trace: name -> ``(T, S, ...)`` cheap diagnostics of the task and of the method after each step.
        eval_step: ``(E,)`` completed steps at each evaluation, from 0.
        evaluation: name -> ``(E, S)`` metrics of the mean of the workers' parameters.
        diverged_at: per seed, the first step (from 0) whose training loss was not finite; T if only the evaluation
            after the last step was not finite; else None.
        interrupted: whether the user stopped the training; all fields then cover the completed steps.
        watched: values of the measures during the training (`Watch`), of all seeds.
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

        def padded(values: Array, length: int) -> Array:
            gap = np.full((length - len(values), *values.shape[1:]), np.nan)
            return np.concatenate([values, gap]) if len(gap) else values

        def at_evaluations(part: History, values: Array) -> Array:
            row_of_step = {step: row for step, row in zip(part.eval_step.tolist(), values, strict=True)}
            missing = np.full(values.shape[1:], np.nan)
            return np.stack([row_of_step.get(step, missing) for step in longest.eval_step.tolist()])

        def joined(values_of: Callable[[History], Array]) -> Array:
            return np.concatenate([values_of(part) for part in parts], axis=1)

        return cls(
            seeds=tuple(seed for part in parts for seed in part.seeds),
            steps=longest.steps,
            loss=joined(lambda part: padded(part.loss, longest.steps)),
            trace={name: joined(lambda p, n=name: padded(p.trace[n], longest.steps)) for name in longest.trace},  # type: ignore[misc]
            eval_step=longest.eval_step,
            evaluation={
                name: joined(lambda p, n=name: at_evaluations(p, p.evaluation[n]))  # type: ignore[misc]
                for name in longest.evaluation
            },
            diverged_at=tuple(step for part in parts for step in part.diverged_at),
            interrupted=any(part.interrupted for part in parts),
            watched=[watched_value for part in parts for watched_value in part.watched],
        )

    def last_evaluation(self) -> dict[str, Array]:
        """Return the metrics after the last step, each ``(S,)``; NaN if the training stopped before this evaluation."""
        measured = len(self.eval_step) and self.eval_step[-1] == self.steps
        return {
            name: v[-1] if measured else np.full_like(v[-1], np.nan) for name, v in self.evaluation.items() if len(v)
        }

    def final_records(self) -> list[dict[str, Any]]:
        """Return a flat record of final metrics for each seed.

        ``distance_mean`` is the mean over the last tenth of the steps, for tasks that trace a distance.
        """
        tenth = max(1, self.steps // 10)
        rows = []
        for s, seed in enumerate(self.seeds):
            row: dict[str, Any] = {"seed": seed, "steps": self.steps, "diverged_at": self.diverged_at[s]}
            row |= {name: float(values[s]) for name, values in self.last_evaluation().items()}
            if self.steps:
                row["train_loss"] = float(self.loss[-tenth:, s].mean())
                row |= {
                    f"{name}_mean": float(values[-tenth:, s].mean())
                    for name, values in self.trace.items()
                    if values.ndim == 2
                }
            rows.append(row)
        return rows


class StepLog:
    """A log of one tensor per step, all of shape ``(*s)``, stored in blocks, as single tensors take 500 bytes each."""

    def __init__(self) -> None:
        self._blocks: list[list[torch.Tensor] | torch.Tensor] = [[]]

    def append(self, value: torch.Tensor) -> None:
        """Append the tensor of the next step without reading its values, so that the device need not finish it."""
        last = self._blocks[-1]
        if len(last) == STEPS_PER_BLOCK:
            self._blocks[-1] = torch.stack(list(last))  # one assignment, so that an interrupt leaves a complete log
            self._blocks.append(last := [])
        cast("list[torch.Tensor]", last).append(value)

    def __len__(self) -> int:
        return STEPS_PER_BLOCK * (len(self._blocks) - 1) + len(self._blocks[-1])

    def part(self, first: int, last: int) -> torch.Tensor | None:
        """Return the tensors of steps ``first`` to ``last - 1``, ``(n, *s)``; None if there are none."""
        parts = []
        for number in range(first // STEPS_PER_BLOCK, min(-(-last // STEPS_PER_BLOCK), len(self._blocks))):
            before, block = number * STEPS_PER_BLOCK, self._blocks[number]
            some = block[max(first - before, 0) : last - before]
            if len(some):
                parts.append(torch.stack(some) if isinstance(some, list) else some)
        return torch.cat(parts) if parts else None


@dataclass
class Recorder:
    """A recorder of a training's losses, diagnostics and evaluations, which can be read during the training.

    It stores tensors without reading their values, so that a step never waits for the device.
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
        """Return the history of completed steps ``first`` to ``last - 1``, where 0 is before the first step."""
        evaluated = bisect_left(self.eval_step, first), bisect_left(self.eval_step, last)
        return self._history(seeds, (max(first, 1) - 1, min(last - 1, len(self.losses))), evaluated)

    def history(self, seeds: tuple[int, ...], interrupted: bool = False) -> History:
        """Return the history of all complete steps and evaluations."""
        # An interrupt can fall between two records of the same step: keep complete steps and evaluations only.
        evaluations = min((len(values) for values in self.evaluation.values()), default=0)
        history = self._history(seeds, (0, len(self.losses)), (0, evaluations))
        history.interrupted = interrupted
        return history

    def _history(self, seeds: tuple[int, ...], steps: tuple[int, int], evaluated: tuple[int, int]) -> History:
        measured = self.evaluation if evaluated[1] > evaluated[0] else {}
        empty = (0, len(seeds))
        history = History(
            seeds=seeds, steps=max(steps[1] - steps[0], 0), loss=_array(self.losses.part(*steps), empty),
            trace={name: _array(values.part(*steps), empty) for name, values in self.trace.items()},
            eval_step=np.array(self.eval_step[slice(*evaluated)], dtype=np.int64),
            evaluation={name: _array(values.part(*evaluated), empty) for name, values in measured.items()},
            diverged_at=(),
        )  # fmt: skip
        history.diverged_at = diverged_at(history)
        return history


def diverged_at(history: History) -> tuple[int | None, ...]:
    """Return for each seed the step of the first loss that is not finite; else None.

    The loss of an evaluation after the last step counts as the loss of step T.
    """
    losses = history.loss
    if history.evaluation and history.eval_step[-1] == history.steps:
        losses = np.concatenate([losses, history.evaluation["loss"][-1:]])
    lost = ~np.isfinite(losses)
    return tuple(int(column.argmax()) if column.any() else None for column in lost.T)


def _array(values: torch.Tensor | None, empty: tuple[int, ...]) -> Array:
    if values is None:
        return np.zeros(empty)
    values = values.cpu()
    # NumPy has no bfloat16, and means of many losses need more digits than 16 bits have.
    return (values.float() if values.dtype.itemsize < 4 else values).numpy()


def local_rows(method: Method, seeds: Sequence[int]) -> Rows:
    """Return the rows of a task on this method's communicator: its local workers, once per seed."""
    return rows_of(method.comm, seeds)


def rows_of(comm: Any, seeds: Sequence[int]) -> Rows:
    """Return the rows of a task on a communicator: its local workers, once per seed.

    Raises:
        SpecError: the number of seeds is not the communicator's number of replicas.
    """
    if len(seeds) != comm.replicas:
        raise SpecError("seeds", tuple(seeds), f"{comm.replicas}, one per replica of the communicator")
    local = comm.local_workers[: len(comm.local_workers) // comm.replicas]
    return Rows(tuple(seeds), tuple(local), comm.world_size)


def parameter_groups(task: Task) -> list[dict[str, Any]]:
    """Return torch's parameter groups of a task: consecutive matrices, and consecutive other parameters, in order."""
    runs = groupby(task.params.items(), key=lambda item: item[0] in task.matrices)
    return [{"params": list(run), "matrix": matrix} for matrix, run in runs]


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
        eval_every: number of steps between evaluations; 0: none in between. There is always an evaluation before the
            first step and after the last one.
        schedule: learning-rate schedule, which advances after each step.
        on_step: function that is called with the number of completed steps, from 0. It may raise
            ``KeyboardInterrupt``, which ends the training with an evaluation.
        recorder: recorder of the results, for callers that read it during the training.
        watch: measures of the method during the training, see ``syncline.optim.watching``.

    Returns:
        The history. The training ends early once every seed had a loss that was not finite, or at Ctrl-C; the history
        says so, and has all values up to this point. If workers may be absent (a membership of the communicator, see
        ``syncline.optim.PartialParticipation``), losses and evaluations are means over the workers present in the step,
        and a task's trace covers all rows.
    """
    seeds = tuple(seeds)
    rows, recorder = local_rows(method, seeds), recorder or Recorder()
    method.seeds, method.on_average = seeds, watch.before_average if watch else None
    membership = getattr(method.comm, "membership", None)
    participation = PartialParticipation(method, membership) if membership else None
    buffers: Mapping[str, torch.Tensor] = getattr(task, "buffers", {})
    if buffers:
        if participation:
            expected = "none, as the module has buffers, which a worker that returns would have to adopt"
            raise SpecError("faults.absences", "given", expected)
        method.buffers = Buffers(buffers, method.comm) if getattr(task, "shares_buffers", True) else None

    def evaluate(done: int) -> None:
        metrics = task.evaluate(mean_parameters(task, method.comm, rows))
        recorder.eval_step.append(done)
        for name, value in metrics.items():
            recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    if _stops(on_step, 0):
        return recorder.history(seeds, interrupted=True)
    interrupted = False
    try:
        evaluate(0)
        for t in range(steps):
            if participation:
                participation.join(t)
            loss = task.step_gradients(t)
            if watch:
                watch.before_step(method, t)
            with participation.frozen(t) if participation else nullcontext():
                method.step()
            if watch:
                watch.after_step(method, t)
            if schedule is not None:
                schedule.step()
            for name, value in (task.trace() | method.trace()).items():
                recorder.trace.setdefault(name, StepLog()).append(value)
            recorder.losses.append(participation.mean(loss, t) if participation else rows.by_replica(loss).mean(1))
            done = t + 1
            interrupted = _stops(on_step, done) and done < steps
            last = (
                done == steps or interrupted or (done % CHECK_EVERY == 0 and _all_diverged(recorder, task, method.comm))
            )
            if last or (eval_every and done % eval_every == 0):
                evaluate(done)
            if last:
                break
    except KeyboardInterrupt:
        interrupted = True
        _stops(on_step, len(recorder.losses))  # the report confirms the interrupt
    history = recorder.history(seeds, interrupted)
    history.watched = watch.values(seeds) if watch else []
    return history


def mean_parameters(task: Task, comm: Communicator, rows: Rows) -> dict[str, torch.Tensor]:
    """Return the means ``(S, *s)`` of a task's parameters and buffers over the workers, without a ledger entry."""
    with torch.no_grad(), comm.ledger.paused():
        averaged = comm.all_reduce_coalesced(list(task.params.values()))  # one latency, not one per tensor
    means = dict(zip(task.params, averaged, strict=True)) | mean_buffers(getattr(task, "buffers", {}), comm)
    return {name: rows.by_replica(x)[:, 0] for name, x in means.items()}


def _all_diverged(recorder: Recorder, task: Task, comm: Communicator) -> bool:
    """Return whether every seed has diverged on all workers; an all-reduce lets all processes stop together."""
    has_seed = torch.tensor([0.0 if recorder.all_diverged(CHECK_EVERY) else 1.0] * len(comm.local_workers))
    with comm.ledger.paused():
        on_device = has_seed.to(next(iter(task.params.values())).device)
        return not bool(comm.all_reduce_max(on_device).any())


def _stops(on_step: Callable[[int], None] | None, done: int) -> bool:
    """Report the number of completed steps, and return whether the caller asks to stop."""
    try:
        if on_step is not None:
            on_step(done)
    except KeyboardInterrupt:
        return True
    return False
