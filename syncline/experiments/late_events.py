"""A training stage by stage, in the order of the events: where backward passes do not use the forward's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel import Link
from syncline.costmodel.pipelines import stage_delays
from syncline.errors import SpecError
from syncline.specs.staleness import LateMethod, StalenessSpec

if TYPE_CHECKING:
    from syncline.specs import MethodBase
    from syncline.training import History

FREE = Link(0.0, 1e15)
"""The order of an asynchronous schedule, and so its math, is the same on every network."""


def train_by_events(
    spec: StalenessSpec,
    late: LateMethod,
    method: MethodBase,
    stages: int,
    seeds: tuple[int, ...],
    on_step: Callable[[int], None] | None = None,
) -> History:
    """As `train_late`, seed by seed, each stage with an optimizer of its own."""
    from syncline.training import History

    parts = []
    for number, seed in enumerate(seeds):
        report = on_step and (lambda done, n=number: on_step((n * spec.steps + done) // len(seeds)))  # type: ignore[misc]
        parts.append(_train_seed(spec, late, method, stages, seed, report))
    return History.side_by_side(parts)


def _train_seed(
    spec: StalenessSpec,
    late: LateMethod,
    method: MethodBase,
    stages: int,
    seed: int,
    on_step: Callable[[int], None] | None,
) -> History:
    import torch
    from torch.nn import functional as F

    from syncline.comm import SimulatedCommunicator
    from syncline.experiments.late import late_schedule
    from syncline.problems import Rows, TextGPT, cut
    from syncline.sim import Durations, Pipeline, run_pipeline, schedule
    from syncline.sim.staged import StagedMath
    from syncline.training import History

    if not isinstance(spec.problem, TextGPT):
        expected = "'text-gpt' where weights are not stashed: a model of stages"
        raise SpecError("problem.kind", spec.problem.name, expected)
    if late.remedy and late.remedy.kind != "discount":
        raise SpecError("remedy.kind", late.remedy.kind, f"'discount', or stashed weights; they are {late.weights}")
    task = spec.problem.build(Rows.whole_group(1, (seed,)))
    model = spec.problem.weighted(seed)
    parts = cut(model, stages)
    optimizers, rates = [], []
    for part, delay in zip(parts, stage_delays(stages).tolist(), strict=True):
        named = list(part.named_parameters())
        groups = [
            {"params": [p for p in named if (p[0] in task.matrices) == matrix], "matrix": matrix, "delay": delay}
            for matrix in (True, False)
        ]
        optimizer = method.build([g for g in groups if g["params"]], SimulatedCommunicator(1), worker_axis=False)
        optimizers.append(optimizer)
        rates.append(late_schedule(spec, late, optimizer))
    made = schedule("async-1f1b", stages, spec.steps)
    evaluations: dict[int, dict[str, Any]] = {}

    def evaluate(done: int) -> None:
        means = {name: p.detach()[None] for name, p in model.named_parameters()}
        evaluations[done] = {name: value.numpy() for name, value in task.evaluate(means).items()}

    def batch(i: int) -> Any:
        inputs, targets = task.batch(i)
        return inputs[0], targets[0]

    targets: dict[int, Any] = {}

    def inputs(i: int) -> Any:
        x, targets[i] = batch(i)
        return x

    def loss(logits: Any, i: int) -> Any:
        return F.cross_entropy(logits.flatten(0, -2), targets.pop(i).flatten())

    def after_update(stage: int, done: int) -> None:
        rates[stage].step()
        if stage == 0:  # the last of all stages to have this update
            if on_step:
                on_step(done)
            if done == spec.steps or (spec.eval_every and done % spec.eval_every == 0):
                evaluate(done)

    torch.manual_seed(0)
    math = StagedMath(made, parts, inputs, loss, optimizers, late.weights, after_update=after_update)
    evaluate(0)
    run_pipeline(Pipeline(made, stages, Durations(), effects=math.effect), FREE)
    steps = sorted(evaluations)
    losses = np.array([[float(math.losses[i])] for i in range(spec.steps)])
    history = History(
        seeds=(seed,),
        steps=spec.steps,
        loss=losses,
        trace={},
        eval_step=np.array(steps, dtype=np.int64),
        evaluation={name: np.stack([evaluations[s][name] for s in steps]) for name in evaluations[0]},
        diverged_at=(int((~np.isfinite(losses[:, 0])).argmax()) if not np.isfinite(losses).all() else None,),
    )
    return history
