"""A worker's forward and backward pass of a GPT, against FLOPs over utilisation times peak."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting, dtype_name
from benchmarks.gpu.stopwatch import timed
from syncline.costmodel import compute_s
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.problems.gpt import GPT

MICRO_BATCHES = (1, 4, 8, 16, 32)


def compute(setting: Setting) -> Iterator[Row]:
    """One row per model and micro-batch, up to the largest that fits."""
    for shape in setting.models:
        module = network(shape, setting.on)
        for micro_batch in (1, 2) if setting.tiny else MICRO_BATCHES:
            row: Row = {"model": shape.name, "micro_batch": micro_batch, "precision": dtype_name(setting.half)}
            try:
                yield row | _measured(module, shape, micro_batch, setting)
            except torch.cuda.OutOfMemoryError:
                yield row | {"out_of_memory": True}
                break
            finally:
                module.zero_grad(set_to_none=True)
        del module
        if setting.device == "cuda":
            torch.cuda.empty_cache()


def network(shape: ModelShape, device: torch.device) -> GPT:
    """The problems' GPT at a shape's sizes; its learned positions and norms are no work that FLOPs count."""
    with torch.device(device):
        return GPT(shape.vocabulary, shape.sequence, shape.width, shape.layers, shape.heads, shape.tied)


def causal_flops_per_token(shape: ModelShape) -> float:
    """``6 N + 6 L a c (T + 1)``: a token attends to itself and those before it, ``(T + 1) / 2`` of T on average.

    The convention (`ModelShape.flops_per_token`) counts all T, of which these kernels compute about half.
    """
    return shape.flops_per_token - 6 * shape.layers * shape.query_width * (shape.sequence - 1)


def _measured(module: GPT, shape: ModelShape, micro_batch: int, setting: Setting) -> Row:
    size = (micro_batch, shape.sequence + 1)
    tokens = torch.randint(shape.vocabulary, size, device=setting.on)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        with torch.autocast(setting.device, setting.half):
            logits = module(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()

    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats(setting.on)
    took = timed(step, setting.on, longest_s=5.0)
    flops = float(shape.flops_per_token * micro_batch * shape.sequence)
    causal = causal_flops_per_token(shape) * micro_batch * shape.sequence
    row: Row = {"flops": flops, "flops_per_s": flops / took["median_s"], "causal_flops": causal, **took}
    if setting.device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated(setting.on)
    if setting.hardware is not None:
        predicted_s = float(compute_s(flops, setting.hardware))
        row |= {
            "hardware": setting.hardware.name,
            "mfu": row["flops_per_s"] / setting.hardware.peak_flops,
            "causal_mfu": causal / took["median_s"] / setting.hardware.peak_flops,
            "predicted_mfu": setting.hardware.mfu,
            "predicted_s": predicted_s,
            "error": predicted_s / took["median_s"] - 1,
        }
    return row
