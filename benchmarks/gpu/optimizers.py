"""Steps of the methods for one worker on the parameters of the GPTs."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.gpu.parts import Row, one_line
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import host_s, repeated, summary
from syncline.comm import SimulatedCommunicator
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.methods import MethodBase, method_of
from syncline.training import parameter_groups

METHODS = (
    "ddp-adam",
    "ddp-lion",
    "ddp-muon",
    "mt-dao",
    "dion",
    "curvadion",
    "demo",
    "lion-cub",
    "lion-cub-1bit",
    "basis-rotation-1st-uni",
    "basis-rotation",
    "soap",
)
"""The cheapest first, so that what the time does not suffice for are the dearest."""

STEPS = 10
LONGEST_S = 8.0


def optimizers(setting: Setting) -> Iterator[Row]:
    """One row per model and method."""
    for shape in setting.models:
        params = parameters(shape, setting.on)
        for name in METHODS:
            row: Row = {"model": shape.name, "method": name}
            try:
                yield row | _measured(method_of(name), shape, params, setting)
            except torch.cuda.OutOfMemoryError:
                yield row | {"out_of_memory": True}
            except Exception as error:  # one method's failure is not the others'
                yield row | {"failed": one_line(error)}
            if setting.device == "cuda":
                gc.collect()
                torch.cuda.empty_cache()


def parameters(shape: ModelShape, device: torch.device) -> dict[str, torch.nn.Parameter]:
    """One worker's parameters ``(1, *s)`` with gradients that stay: no cost depends on their values."""
    out = {}
    for tensor in shape.tensors:
        out[tensor.name] = parameter = torch.nn.Parameter(0.02 * torch.randn(1, *tensor.shape, device=device))
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return out


def _measured(spec: MethodBase, shape: ModelShape, params: dict[str, torch.nn.Parameter], setting: Setting) -> Row:
    matrices = tuple(tensor.name for tensor in shape.tensors if tensor.is_matrix)
    task: Any = SimpleNamespace(params=params, matrices=matrices)
    optimizer = spec.build(parameter_groups(task), SimulatedCommunicator(1))
    cycle = getattr(spec, "frequency", None) or 1
    # Not from step 0, in which rotations decompose each matrix exactly, once in a training: for matrices of 4,096
    # columns that takes minutes together. The warm-up has the two steps in one of which bases are renewed.
    for group in optimizer.param_groups:
        group["step"] = max(1, cycle - 1)
    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats(setting.on)
    seconds = repeated(
        lambda: host_s(optimizer.step, setting.on),
        repeats=cycle * (1 if setting.tiny else -(-STEPS // cycle)),
        longest_s=math.inf if setting.tiny else LONGEST_S,  # a cycle that a busy machine does not cut
    )
    row: Row = {**summary(seconds), "cycle": cycle, "slowest_s": max(seconds), "mean_s": statistics.mean(seconds)}
    if len(seconds) % cycle:
        row["cut_short"] = True  # a mean, and the slowest step, of less than a cycle
    if setting.device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated(setting.on)
    if setting.hardware is not None:
        row |= {
            "hardware": setting.hardware.name,
            "predicted_added_s": spec.added_update_s(shape.tensors, setting.hardware),
        }
    return row
