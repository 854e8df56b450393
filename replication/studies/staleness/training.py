"""Single trainings of a staleness study.

With stashed weights a delay line holds the gradients back; otherwise the training follows the pipeline's events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from replication.studies.staleness.spec import LateMethod, StalenessSpec
from syncline.comm import SimulatedCommunicator
from syncline.comm.devices import training_device
from syncline.methods import MethodBase
from syncline.runs.training.delayed_gradients import DelayedTraining, delayed_setup, train_by_events
from syncline.runs.training.trained import sequential_history
from syncline.training import History, rows_of, train


def check_device(spec: StalenessSpec) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        SpecError: the spec has ``device: cuda`` but torch finds no GPU.
    """
    training_device(spec.device)


def at_rate(method: MethodBase, lr: float) -> MethodBase:
    """Return a method at another learning rate.

    The learning rate of parameters that are not matrices is scaled in proportion.
    """
    other_lr = None if method.other_lr is None else method.other_lr * lr / method.lr
    return method if lr == method.lr else method.model_copy(update={"lr": lr, "other_lr": other_lr})


def late_training(
    spec: StalenessSpec, delayed_method: LateMethod, stages: int, lr: float | None = None
) -> DelayedTraining:
    """Return the training of one method at one depth, at its own learning rate or at ``lr``."""
    return DelayedTraining(
        spec.problem, delayed_method.method if lr is None else at_rate(delayed_method.method, lr), stages, spec.steps,
        delayed_method.remedy, delayed_method.backward_weights, spec.delay, spec.schedule, spec.eval_every,
        spec.device,
    )  # fmt: skip


def train_late(
    spec: StalenessSpec,
    delayed_method: LateMethod,
    stages: int,
    *,
    lr: float | None = None,
    seeds: Iterable[int] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> History:
    """Train one method at one depth, all seeds side by side.

    Args:
        spec: the spec with the problem, the steps and the schedule.
        delayed_method: the method and its remedy.
        stages: number of stages K of the pipeline.
        lr: learning rate in place of the method's; ``other_lr`` is scaled in proportion.
        seeds: seeds in place of those of the spec.
        on_step: called with the number of completed steps.
    """
    torch.set_num_threads(spec.threads)
    chosen_seeds = tuple(spec.seeds if seeds is None else seeds)
    training = late_training(spec, delayed_method, stages, lr)
    if delayed_method.backward_weights != "stashed" and stages > 1:
        return train_by_events(training, chosen_seeds, on_step)
    if training.method.one_seed_at_a_time and len(chosen_seeds) > 1:

        def train_seed(seed: int, report: Callable[[int], None] | None) -> History:
            return train_late(spec, delayed_method, stages, lr=lr, seeds=(seed,), on_step=report)

        return sequential_history(train_seed, chosen_seeds, spec.steps, on_step)
    comm = SimulatedCommunicator(1, replicas=len(chosen_seeds))
    task = spec.problem.build(rows_of(comm, chosen_seeds), device=spec.device)
    delayed_task, optimizer, scheduler = delayed_setup(training, task, comm)
    return train(
        delayed_task, optimizer, chosen_seeds, spec.steps,
        eval_every=spec.eval_every, schedule=scheduler, on_step=on_step,
    )  # fmt: skip
