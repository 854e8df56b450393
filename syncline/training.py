"""The training loop: problem + method + communicator, the same in every world. It keeps no clock."""

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
"""Steps between looks at whether a loss is still finite; the step itself is then found exactly."""

STEPS_PER_BLOCK = 1024
"""Tensors of single steps that are kept as one, see `StepLog`."""

Array = NDArray[Any]


@dataclass
class History:
    """What a training went through, for ``S`` seeds at once.

    Attributes:
        seeds: one per replica.
        steps: steps that were completed, ``T``.
        loss: ``(T, S)`` training loss, mean over the workers, at the parameters a step began with.
        trace: name -> ``(T, S, ...)`` cheap diagnostics of the task and of the method after each step.
        eval_step: ``(E,)`` completed steps at each evaluation, from 0.
        evaluation: name -> ``(E, S)`` metrics of the mean of the workers' parameters.
        diverged_at: per seed, the first step (from 0) whose training loss was not finite; T if only the evaluation
            after the last step was not; else None.
        interrupted: whether the user stopped it; everything above is then what was completed.
        watched: what measures along the way found, of all seeds.
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
    def side_by_side(cls, parts: Sequence[History]) -> History:
        """Histories of single seeds as one; where one ended early, the others go on beside NaN."""
        longest = max(parts, key=lambda part: part.steps)

        def padded(values: Array, length: int) -> Array:
            gap = np.full((length - len(values), *values.shape[1:]), np.nan)
            return np.concatenate([values, gap]) if len(gap) else values

        def at_evaluations(part: History, values: Array) -> Array:
            found = {step: row for step, row in zip(part.eval_step.tolist(), values, strict=True)}
            missing = np.full(values.shape[1:], np.nan)
            return np.stack([found.get(step, missing) for step in longest.eval_step.tolist()])

        def joined(of: Callable[[History], Array]) -> Array:
            return np.concatenate([of(part) for part in parts], axis=1)

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
            watched=[one for part in parts for one in part.watched],
        )

    def last_evaluation(self) -> dict[str, Array]:
        """Metrics after the last step, each ``(S,)``; NaN where a stop left no time to measure them."""
        measured = len(self.eval_step) and self.eval_step[-1] == self.steps
        return {
            name: v[-1] if measured else np.full_like(v[-1], np.nan) for name, v in self.evaluation.items() if len(v)
        }

    def final(self) -> list[dict[str, Any]]:
        """The last word on each seed: a flat record of metrics.

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
    """One tensor per step, all of one shape ``(*s)``, kept in blocks: by itself each would take 500 bytes and more."""

    def __init__(self) -> None:
        self._blocks: list[list[torch.Tensor] | torch.Tensor] = [[]]

    def append(self, value: torch.Tensor) -> None:
        """Note the next one; it is not looked at, so nobody waits for it."""
        last = self._blocks[-1]
        if len(last) == STEPS_PER_BLOCK:
            self._blocks[-1] = torch.stack(list(last))  # in one assignment: an interrupt finds a whole log
            self._blocks.append(last := [])
        cast("list[torch.Tensor]", last).append(value)

    def __len__(self) -> int:
        return STEPS_PER_BLOCK * (len(self._blocks) - 1) + len(self._blocks[-1])

    def part(self, first: int, last: int) -> torch.Tensor | None:
        """Those from ``first`` to ``last - 1``, ``(n, *s)``; None if there are none."""
        parts = []
        for number in range(first // STEPS_PER_BLOCK, min(-(-last // STEPS_PER_BLOCK), len(self._blocks))):
            before, block = number * STEPS_PER_BLOCK, self._blocks[number]
            some = block[max(first - before, 0) : last - before]
            if len(some):
                parts.append(torch.stack(some) if isinstance(some, list) else some)
        return torch.cat(parts) if parts else None


@dataclass
class Recorder:
    """What a training has measured so far; it can be read while the training goes on.

    It collects tensors without looking at them, so that a step never waits for a value.
    """

    losses: StepLog = field(default_factory=StepLog)
    trace: dict[str, StepLog] = field(default_factory=dict)
    eval_step: list[int] = field(default_factory=list)
    evaluation: dict[str, StepLog] = field(default_factory=dict)

    def all_lost(self, last: int) -> bool:
        """Whether each seed had a loss that was not finite in the last so many steps."""
        losses = self.losses.part(max(len(self.losses) - last, 0), len(self.losses))
        return losses is not None and not bool(torch.isfinite(losses).all(0).any())

    def part(self, seeds: tuple[int, ...], first: int, last: int) -> History:
        """What belongs to completed steps ``first`` to ``last - 1``, where 0 is before the first step."""
        evaluated = bisect_left(self.eval_step, first), bisect_left(self.eval_step, last)
        return self._history(seeds, (max(first, 1) - 1, min(last - 1, len(self.losses))), evaluated)

    def history(self, seeds: tuple[int, ...], interrupted: bool = False) -> History:
        """All of it."""
        # An interrupt can fall between two records of one moment: keep whole steps and whole evaluations only.
        evaluations = min((len(values) for values in self.evaluation.values()), default=0)
        history = self._history(seeds, (0, len(self.losses)), (0, evaluations))
        history.interrupted = interrupted
        return history

    def _history(self, seeds: tuple[int, ...], steps: tuple[int, int], evaluated: tuple[int, int]) -> History:
        measured = self.evaluation if evaluated[1] > evaluated[0] else {}
        empty = (0, len(seeds))
        history = History(
            seeds=seeds,
            steps=max(steps[1] - steps[0], 0),
            loss=_array(self.losses.part(*steps), empty),
            trace={name: _array(values.part(*steps), empty) for name, values in self.trace.items()},
            eval_step=np.array(self.eval_step[slice(*evaluated)], dtype=np.int64),
            evaluation={name: _array(values.part(*evaluated), empty) for name, values in measured.items()},
            diverged_at=(),
        )
        history.diverged_at = diverged_at(history)
        return history


def diverged_at(history: History) -> tuple[int | None, ...]:
    """Per seed, the first loss that is not finite; an evaluation after the last step counts as the loss of step T."""
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
    """The rows of a task that this method's communicator stands for."""
    return rows_of(method.comm, seeds)


def rows_of(comm: Any, seeds: Sequence[int]) -> Rows:
    """The rows that live with a communicator: its local workers, once per seed.

    Raises:
        SpecError: if the number of seeds is not the communicator's number of replicas.
    """
    if len(seeds) != comm.replicas:
        raise SpecError("seeds", tuple(seeds), f"{comm.replicas}, one per replica of the communicator")
    local = comm.local_workers[: len(comm.local_workers) // comm.replicas]
    return Rows(tuple(seeds), tuple(local), comm.world_size)


def parameter_groups(task: Task) -> list[dict[str, Any]]:
    """A task's named parameters as torch's groups, in their order: runs of matrices, and runs of what is none."""
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
    """Train for ``steps`` steps.

    Args:
        task: the problem at work, on the rows of ``method.comm``.
        method: steps the task's parameters.
        seeds: one per replica.
        steps: T.
        eval_every: steps between evaluations; there is always one before the first step and one after the last.
            0: only these two.
        schedule: stepped after each step.
        on_step: called with the number of completed steps, from 0. It may raise ``KeyboardInterrupt`` to end the
            training there, with an evaluation.
        recorder: where to collect, for those who want to read it meanwhile.
        watch: measures that look at the method on its way, see ``syncline.optim.watching``.

    Returns:
        The history. A loss that is not finite ends the training once it is so for every seed; Ctrl-C ends it too. Both
        are told in the history, with everything measured so far. Where workers may be absent (a membership of the
        communicator, see ``syncline.optim.PartialParticipation``), losses and evaluations are of those present in the
        step, and a task's trace is of all rows.
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
            last = done == steps or interrupted or (done % CHECK_EVERY == 0 and _all_lost(recorder, task, method.comm))
            if last or (eval_every and done % eval_every == 0):
                evaluate(done)
            if last:
                break
    except KeyboardInterrupt:
        interrupted = True
        _stops(on_step, len(recorder.losses))  # where the report says that the interrupt has arrived
    history = recorder.history(seeds, interrupted)
    history.watched = watch.values(seeds) if watch else []
    return history


def mean_parameters(task: Task, comm: Communicator, rows: Rows) -> dict[str, torch.Tensor]:
    """The means ``(S, *s)`` of a task's parameters, and buffers, over the workers; the ledger does not note it."""
    with torch.no_grad(), comm.ledger.paused():
        averaged = comm.all_reduce_coalesced(list(task.params.values()))  # one latency, not one per tensor
    means = dict(zip(task.params, averaged, strict=True)) | mean_buffers(getattr(task, "buffers", {}), comm)
    return {name: rows.by_replica(x)[:, 0] for name, x in means.items()}


def _all_lost(recorder: Recorder, task: Task, comm: Communicator) -> bool:
    """Whether no worker of the group has a seed left; asked of all, so that processes stop together."""
    left = torch.tensor([0.0 if recorder.all_lost(CHECK_EVERY) else 1.0] * len(comm.local_workers))
    with comm.ledger.paused():
        on_device = left.to(next(iter(task.params.values())).device)
        return not bool(comm.all_reduce_max(on_device).any())


def _stops(on_step: Callable[[int], None] | None, done: int) -> bool:
    """Tell how far the training is; whether the answer is to stop."""
    try:
        if on_step is not None:
            on_step(done)
    except KeyboardInterrupt:
        return True
    return False
