"""One training with late gradients: by a delay line where weights are stashed, else stage by stage in the events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.experiments.in_turn import histories_in_turn
from syncline.studies.staleness.late_events import train_by_events
from syncline.studies.staleness.late_rates import late_schedule
from syncline.studies.staleness.spec import LateMethod, StalenessSpec

if TYPE_CHECKING:
    from torch import Tensor

    from syncline.optim import Method
    from syncline.problems import DelayedTask, Task
    from syncline.specs import MethodBase
    from syncline.training import History


def delays_of(task: Task, stages: int, kind: str) -> dict[str, int | Tensor]:
    """By how many updates each parameter's gradient is late; on a landscape, each coordinate's.

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
    """Torch's parameter groups: runs of parameters of one delay that are matrices, or are not."""

    def key(item: tuple[str, Any]) -> tuple[int, bool]:
        delay = delays[item[0]]
        return (delay if isinstance(delay, int) else int(delay.max())), item[0] in task.matrices

    runs = groupby(task.params.items(), key=key)
    return [{"params": list(run), "matrix": matrix, "delay": delay} for (delay, matrix), run in runs]


def check_device(spec: StalenessSpec) -> None:
    """Refuse a device that is not there.

    Raises:
        SpecError: ``device: cuda`` where torch finds none.
    """
    from syncline.backend.devices import training_device

    training_device(spec.device)


def at_rate(method: MethodBase, lr: float) -> MethodBase:
    """A method at another learning rate; the rate of what is no matrix stays in proportion."""
    other = None if method.other_lr is None else method.other_lr * lr / method.lr
    return method if lr == method.lr else method.model_copy(update={"lr": lr, "other_lr": other})


def train_late(
    spec: StalenessSpec,
    late: LateMethod,
    stages: int,
    *,
    lr: float | None = None,
    seeds: Iterable[int] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> History:
    """Train one method at one depth, all seeds side by side.

    Args:
        spec: the problem, steps, schedule.
        late: the method and its remedy.
        stages: K.
        lr: another learning rate than the method's, to which ``other_lr`` keeps its proportion.
        seeds: others than the spec's.
        on_step: called with the number of completed steps.
    """
    import torch

    from syncline.comm import SimulatedCommunicator
    from syncline.problems import DelayedTask
    from syncline.training import rows_of, train

    torch.set_num_threads(spec.threads)
    chosen = tuple(spec.seeds if seeds is None else seeds)
    method = late.method if lr is None else at_rate(late.method, lr)
    if late.weights != "stashed" and stages > 1:
        return train_by_events(spec, late, method, stages, chosen, on_step)
    if method.one_seed_at_a_time and len(chosen) > 1:

        def train_seed(seed: int, report: Callable[[int], None] | None) -> History:
            return train_late(spec, late, stages, lr=lr, seeds=(seed,), on_step=report)

        return histories_in_turn(train_seed, chosen, spec.steps, on_step)
    comm = SimulatedCommunicator(1, replicas=len(chosen))
    task = spec.problem.build(rows_of(comm, chosen), device=spec.device)
    delays = delays_of(task, stages, spec.delay)
    optimizer = method.build(delay_groups(task, delays), comm)
    delayed = DelayedTask(task, delays, _prediction(late, task, optimizer, delays))
    _compensate(late, delayed, optimizer)
    schedule = late_schedule(spec, late, optimizer)
    return train(delayed, optimizer, chosen, spec.steps, eval_every=spec.eval_every, schedule=schedule, on_step=on_step)


def _prediction(
    late: LateMethod, task: Task, optimizer: Method, delays: dict[str, Any]
) -> Callable[[str, Tensor], Tensor] | None:
    if not late.remedy or late.remedy.kind != "look-ahead":
        return None
    from syncline.optim import look_ahead

    return lambda name, _: look_ahead(optimizer, task.params[name], delays[name])


def _compensate(late: LateMethod, task: DelayedTask, optimizer: Method) -> None:
    if not late.remedy or late.remedy.kind != "compensation":
        return
    from syncline.optim import DelayCompensation

    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    assert late.remedy.strength is not None
    strength, reducer = late.remedy.strength, optimizer.reducer
    optimizer.reducer = DelayCompensation(lambda number: task.stale[names[number]], strength, reducer)
