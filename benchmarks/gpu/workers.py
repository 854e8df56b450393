"""Steps of many workers of a small GPT on one device: tokens per second beside those of one worker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import timed
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.problems import TextGPT
from syncline.problems.network import parameter_count
from syncline.runs.training.limits import needed_bytes, step_activation_bytes, tensors_of_problem
from syncline.runs.training.trained import build_task
from syncline.specs import RunSpec
from syncline.training import parameter_groups, rows_of

GPT_16M = TextGPT(width=384, layers=9, heads=6, context=256, batch_size=8)
SMALLEST = TextGPT(width=16, layers=1, heads=2, context=16, batch_size=2, validation_windows=1)

WORKERS = (1, 4, 16, 64)
METHODS = ("ddp-adam", "diloco")
"""One copy of all workers' parameters, and a copy for each."""

PASSES = {
    "cuda": [(execution, autocast) for autocast in ("none", "bfloat16") for execution in ("eager", "loop", "graph")]
    + [("compiled", "none")],
    "cpu": [("eager", "none"), ("loop", "none"), ("eager", "bfloat16")],
}
"""Executions and autocasts of the gradients by device; the first is what the others are compared with.

A CPU has no graphs, and compiling takes long there."""


def workers(setting: Setting) -> Iterator[Row]:
    """One row per method, execution, autocast and number of workers, up to as many as there is memory for.

    Whole steps, batches too; what an execution has to record or compile comes before.
    """
    problem = SMALLEST if setting.tiny else GPT_16M
    for name in METHODS:
        alone_per_s = None
        for execution, autocast in PASSES[setting.device]:
            for count in WORKERS[:2] if setting.tiny else WORKERS:
                of_all = {"workers": count, "parameters": parameter_count(problem.module())}
                row: Row = {"method": name, "execution": execution, "autocast": autocast, **of_all}
                fields = {"workers": count, "execution": execution, "autocast": autocast, "device": setting.device}
                try:
                    row |= _measured(training(name, problem, **fields), setting)
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


def training(method: str, problem: TextGPT, **fields: Any) -> RunSpec:
    """Return the spec of a training, for the step and for the check of its memory."""
    run = {"kind": "run", "name": "workers", "steps": 1, "network": "10gbe", "method": method}
    return RunSpec.model_validate(run | {"problem": problem} | fields)


def _measured(spec: RunSpec, setting: Setting) -> Row:
    """Return the times of a step, and its largest memory beside the least that the check for memory counts."""
    comm = SimulatedCommunicator(spec.workers)
    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats(setting.on)
    task = build_task(spec.problem, rows_of(comm, (0,)), setting.on, **spec.arithmetic)
    method = spec.method.build(parameter_groups(task), comm)
    method.keep_only_mean_gradient(task.keep_mean_gradient)

    def step() -> None:
        task.step_gradients(method.steps_done)
        method.step()

    took = timed(step, setting.on, longest_s=4.0)
    tokens = spec.workers * spec.problem.batch_size * spec.problem.context
    row: Row = {"tokens_per_s": tokens / took["median_s"], **took}
    tensors = tensors_of_problem(spec.problem)
    activations = step_activation_bytes(spec, tensors)
    row["least_bytes"] = needed_bytes(spec, spec.method, tensors, activations, setting.device == "cuda").total
    if setting.device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated(setting.on)
    return row
