"""Late gradients by a delay line: if stages stash their weights, all seeds train side by side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.methods.parts.remedies import RemedySpec
from syncline.runs.training.delayed_gradients.config import DelayedTraining

if TYPE_CHECKING:
    from torch import Tensor

    from syncline.comm import Communicator
    from syncline.optim import Method
    from syncline.problems import DelayedTask, Task


class DelayedParts(NamedTuple):
    """The inputs of the training loop: the task with late gradients, its optimizer, and torch's scheduler."""

    task: DelayedTask
    optimizer: Method
    schedule: Any


def delays_of(task: Task, stages: int, kind: str) -> dict[str, int | Tensor]:
    """Return the delay of each parameter's gradient, in updates; on a landscape, each coordinate's.

    Raises:
        SpecError: more stages than the model has blocks or coordinates.
    """
    from syncline.problems import coordinate_delays, parameter_stages

    names = list(task.params)
    if kind == "uniform" or stages == 1:
        return dict.fromkeys(names, stages - 1)
    per_stage = stage_delays(stages).tolist()
    if names == ["x"]:
        count = task.params["x"][0].numel()
        if stages > count:
            raise SpecError("stages", stages, f"at most {count}, as many as there are coordinates")
        return {"x": coordinate_delays(count, stages, per_stage).to(task.params["x"].device)}
    return {name: per_stage[stage] for name, stage in parameter_stages(names, stages).items()}


def delay_groups(task: Task, delays: dict[str, Any]) -> list[dict[str, Any]]:
    """Return torch's parameter groups: runs of parameters of one delay that are matrices, or are not."""

    def key(item: tuple[str, Any]) -> tuple[int, bool]:
        delay = delays[item[0]]
        return (delay if isinstance(delay, int) else int(delay.max())), item[0] in task.matrices

    runs = groupby(task.params.items(), key=key)
    return [{"params": list(run), "matrix": matrix, "delay": delay} for (delay, matrix), run in runs]


def delayed_parts(training: DelayedTraining, task: Task, comm: Communicator) -> DelayedParts:
    """Return a task with late gradients, its optimizer and its scheduler.

    Raises:
        SpecError: more stages than the model has blocks or coordinates.
    """
    from syncline.problems import DelayedTask

    delays = delays_of(task, training.stages, training.delay)
    optimizer = training.method.build(delay_groups(task, delays), comm)
    delayed = DelayedTask(task, delays, _prediction(training.remedy, task, optimizer, delays))
    _compensate(training.remedy, delayed, optimizer)
    return DelayedParts(delayed, optimizer, training.rates(optimizer))


def _prediction(
    remedy: RemedySpec | None, task: Task, optimizer: Method, delays: dict[str, Any]
) -> Callable[[str, Tensor], Tensor] | None:
    if not remedy or remedy.kind != "look-ahead":
        return None
    from syncline.optim import look_ahead

    return lambda name, _: look_ahead(optimizer, task.params[name], delays[name])


def _compensate(remedy: RemedySpec | None, task: DelayedTask, optimizer: Method) -> None:
    if not remedy or remedy.kind != "compensation":
        return
    from syncline.optim import DelayCompensation

    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    assert remedy.strength is not None
    strength, reducer = remedy.strength, optimizer.reducer
    optimizer.reducer = DelayCompensation(lambda number: task.stale[names[number]], strength, reducer)
