"""The simulator's math in the order in which the updates of real processes arrived."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from syncline.comm.devices import training_device
from syncline.problems import Problem, Rows, Task
from syncline.runs.training.elastic.async_training import AsyncWorkers
from syncline.runs.training.trained import build_task
from syncline.specs import RunSpec
from syncline.training import History, Recorder


def in_order_of(spec: RunSpec, order: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Tensor], History]:
    """Train in this process, with events in a recorded order.

    Args:
        spec: the launched run.
        order: columns of ``order.parquet``.

    Returns:
        The parameters of the server's model, ``(S, *s)`` each, and the history.
    """
    import torch

    torch.set_num_threads(spec.threads)
    device, recorder = training_device(spec.device), Recorder()

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, device, spec.dtype, spec.execution)

    method = spec.method.in_precision(spec.number_format)
    workers = AsyncWorkers(spec, method, build, recorder, lambda done: None)
    workers.evaluate(0)
    rows = zip(*(order[name] for name in ("event", "worker", "value", "count")), strict=True)
    for event, worker, value, count in rows:
        if event == "step":
            workers.step_as(int(worker), int(value), int(count))
        elif event == "arrive":
            workers.arrive(int(worker), int(value))
        elif event == "version":
            workers.version(int(value), 0)
        elif event == "reply":
            workers.reply(int(worker))
        else:
            workers.fail(int(worker))
    done = workers.num_steps // spec.workers
    if recorder.eval_step[-1] != done:
        workers.evaluate(done)
    parameters = {name: p.detach().cpu() for name, p in workers.server_task.params.items()}
    return parameters, recorder.history(spec.seeds)


def replay_folder(folder: Path) -> tuple[dict[str, Tensor], History]:
    """Train in the recorded order of a folder of ``syncline launch``."""
    import pyarrow.parquet as pq

    from syncline.specs import RunSpec, load_spec

    spec = load_spec(str(folder / "spec.yaml"), {}, RunSpec)
    assert isinstance(spec, RunSpec)
    return in_order_of(spec, pq.read_table(folder / "order.parquet").to_pydict())


def largest_difference(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the largest difference between two sets of tensors; NaN if a difference is not a number."""
    differences = [float((actual[name].double() - x.double()).abs().max()) for name, x in expected.items() if x.numel()]
    return math.nan if any(math.isnan(difference) for difference in differences) else max(differences, default=0.0)
