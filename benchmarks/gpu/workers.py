"""Steps of many workers of a small GPT on one device: tokens per second beside those of one worker."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch

from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import timed
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.problems import TextGPT
from syncline.problems.network import parameter_count
from syncline.runs.training.trained import build_task
from syncline.training import parameter_groups, rows_of

GPT_16M = TextGPT(width=384, layers=9, heads=6, context=256, batch_size=8)
SMALLEST = TextGPT(width=16, layers=1, heads=2, context=16, batch_size=2, validation_windows=1)

WORKERS = (1, 4, 16, 64)
METHODS = ("ddp-adam", "diloco")
"""One copy of all workers' parameters, and a copy for each."""

EXECUTIONS = ("eager", "compiled", "graph")
"""Of the gradients; the first is what the others are beside. On a CPU it is alone, as compiling takes long."""


def workers(setting: Setting) -> Iterator[Row]:
    """One row per method, execution and number of workers, up to as many as there is memory for.

    Whole steps, batches too; what an execution has to record or compile comes before.
    """
    problem = SMALLEST if setting.tiny else GPT_16M
    for name in METHODS:
        alone_per_s = None
        for execution in EXECUTIONS if setting.device == "cuda" else EXECUTIONS[:1]:
            for count in WORKERS[:2] if setting.tiny else WORKERS:
                of_all = {"workers": count, "parameters": parameter_count(problem.module())}
                row: Row = {"method": name, "execution": execution, **of_all}
                try:
                    row |= _measured(name, problem, count, execution, setting)
                except torch.cuda.OutOfMemoryError:
                    yield row | {"out_of_memory": True}
                    break
                except SpecError as error:
                    yield row | {"failed": str(error)}
                    break
                finally:
                    if setting.device == "cuda":
                        gc.collect()
                        torch.cuda.empty_cache()
                alone_per_s = alone_per_s or row["tokens_per_s"]
                yield row | {"of_one": row["tokens_per_s"] / alone_per_s}


def _measured(name: str, problem: TextGPT, count: int, execution: str, setting: Setting) -> Row:
    comm = SimulatedCommunicator(count)
    task = build_task(problem, rows_of(comm, (0,)), setting.on, execution=execution)
    method = method_of(name).build(parameter_groups(task), comm)

    def step() -> None:
        task.step_gradients(method.steps_done)
        method.step()

    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats(setting.on)
    took = timed(step, setting.on, longest_s=5.0)
    row: Row = {"tokens_per_s": count * problem.batch_size * problem.context / took["median_s"], **took}
    if setting.device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated(setting.on)
    return row
