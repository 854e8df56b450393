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

OTHERS = (
    "ddp-sgdm", "ddp-ademamix", "ddp-scion", "mt-dao-muon", "demo-muon", "powersgd", "dion-scheduled", "ldadam",
    "one-bit-adam", "zero-one-adam", "sign-sgd", "distributed-lion", "lion-cub-linf", "lion-cub-4bit", "diloco",
    "des-loc", "top-k", "qsgd", "eshampoo",
)  # fmt: skip
"""More methods, measured on the first model alone."""

WIDE = ModelShape(
    "tinyllama-2-layers", layers=2, width=2048, heads=32, kv_heads=4, vocabulary=32000, sequence=2048, gated=True,
    fused_gate=False, hidden=5632, norms_per_layer=2, source="TinyLlama-1.1B's widths, with 2 of its 22 layers",
)  # fmt: skip
"""A model whose matrices are wider than those of `Setting.models`."""

STEPS = 10
LONGEST_S = 8.0


def optimizers(setting: Setting) -> Iterator[Row]:
    """One row per model and method."""
    for shape in setting.models:
        yield from _of_model(shape, METHODS, setting)


def other_optimizers(setting: Setting) -> Iterator[Row]:
    """Yield the rows of all methods on a wider model, of products in TF32, and of more methods on the first model."""
    first, wide = setting.models[0], setting.models[0] if setting.tiny else WIDE
    yield from _of_model(wide, METHODS, setting)
    yield from _of_model(first, OTHERS, setting)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for shape in (first, wide):
            for row in _of_model(shape, ("ddp-muon", "dion", "soap"), setting):
                yield row | {"precision": "tf32"}
    finally:
        torch.set_float32_matmul_precision(before)


def _of_model(shape: ModelShape, methods: tuple[str, ...], setting: Setting) -> Iterator[Row]:
    """Yield the row of each method on the parameters of a model."""
    params = parameters(shape, setting.on)
    for name in methods:
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
