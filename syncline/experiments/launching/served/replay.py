"""The simulator's math in the order in which real processes came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from syncline.backend.devices import training_device
from syncline.experiments.elastic.workers_apart import WorkersApart
from syncline.experiments.trained import build_task
from syncline.training import History, Recorder

if TYPE_CHECKING:
    from syncline.problems import Problem, Rows, Task
    from syncline.specs import RunSpec


def in_order_of(spec: RunSpec, order: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Tensor], History]:
    """Train in this process, with events in an order that was recorded.

    Args:
        spec: what was launched.
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
    apart = WorkersApart(spec, method, build, recorder, lambda done: None)
    apart.evaluate(0)
    rows = zip(*(order[name] for name in ("event", "worker", "value", "count")), strict=True)
    for event, worker, value, count in rows:
        if event == "step":
            apart.step_as(int(worker), int(value), int(count))
        elif event == "arrive":
            apart.arrive(int(worker), int(value))
        elif event == "version":
            apart.version(int(value), 0)
        elif event == "reply":
            apart.reply(int(worker))
        else:
            apart.fail(int(worker))
    done = apart.done // spec.workers
    if recorder.eval_step[-1] != done:
        apart.evaluate(done)
    kept = {name: p.detach().cpu() for name, p in apart.server_task.params.items()}
    return kept, recorder.history(spec.seeds)


def replay_folder(folder: Path) -> tuple[dict[str, Tensor], History]:
    """The same, of a folder of ``syncline launch``."""
    import pyarrow.parquet as pq

    from syncline.specs import RunSpec, load_spec

    spec = load_spec(str(folder / "spec.yaml"), {}, RunSpec)
    assert isinstance(spec, RunSpec)
    return in_order_of(spec, pq.read_table(folder / "order.parquet").to_pydict())


def largest_difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Of any number of one from the other's; NaN where one of them is not finite."""
    most = [float((found[name].double() - x.double()).abs().max()) for name, x in expected.items() if x.numel()]
    return math.nan if any(math.isnan(one) for one in most) else max(most, default=0.0)
