"""Throughput tables: a training per row, predicted as `syncline project` predicts it.

A row has ``model``, ``gpu``, ``gpus``, ``micro_batch`` and a measured time in one of the columns `TIMES`; the other
columns of `COLUMNS` are optional, and an empty cell has the value there. ``model`` and ``gpu`` are what ``--model`` and
``--hardware`` take, ``network`` what ``--network`` takes, or fields in braces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from syncline.costmodel import Hardware, ModelShape, Network
from syncline.errors import SpecError, one_of
from syncline.planner.projection.project import project_all
from syncline.specs import ProjectSpec, hardware, model, network, validate
from syncline.specs.layout import LayoutSpec
from syncline.yamls import parse_yaml

Row = Mapping[str, str]

TRAININGS = Path(__file__).parent / "measured" / "trainings.csv"
"""The published trainings that come with the package."""

NEEDED = ("model", "gpu", "gpus", "micro_batch")
"""The columns that a throughput table has at least, beside a time."""

TIMES = ("step_ms", "step_s", "tokens_per_s", "tokens_per_s_per_gpu")
"""Columns of measured times and rates, of which a table has one."""

COLUMNS = {
    "sequence": "the model's",
    "global_batch": "one micro-batch for each replica",
    "layers": "the model's",
    "width": "the model's",
    "heads": "the model's",
    "tensor": "1",
    "context": "1",
    "pipeline": "1",
    "chunks": "1",
    "expert": "1",
    "precision": "bf16",
    "sharding": "auto",
    "activations": "auto",
    "network": "the machine's preset in `MACHINES`",
}
"""Optional columns, and the value of an empty cell."""

MACHINES = {
    "a100": "dgx-a100", "a100-40gb": "dgx-a100", "h100": "dgx-h100", "h200": "dgx-h200", "b200": "dgx-b200",
    "gb200": "gb200-nvl72", "v100": "p3.2xlarge",
}  # fmt: skip
"""Presets of the networks between such GPUs, for tables that name none."""

EIGHT_BITS = ("fp8", "mxfp8")
"""Formats of products at twice the peak of bf16, by the data sheets of H100, B200 and GB200."""


def is_throughput_table(header: set[str]) -> bool:
    """Return whether these are the columns of a throughput table."""
    return header.issuperset(NEEDED) and not header.isdisjoint(TIMES)


def training_spec(row: Row, by_utilisation: bool = False) -> ProjectSpec:
    """Return the projection of a row's training: data parallelism with Adam, in its layout, on its network.

    Args:
        row: row of a throughput table.
        by_utilisation: whether computing is FLOPs at the utilisation of the hardware, even if its kernels are known.

    Raises:
        SpecError: names the column that cannot be used.
    """
    shape, gpus = _shape(row), _count(row, "gpus")
    layout = LayoutSpec(**{name: _count(row, name) for name in ("tensor", "context", "pipeline", "chunks", "expert")})
    replicas, micro_batch = max(1, gpus // layout.build().workers), _count(row, "micro_batch")
    batch = _count(row, "global_batch", micro_batch * replicas)
    machine = _machine(row, by_utilisation)
    is_flops = by_utilisation or machine.kernels is None
    return validate(ProjectSpec, {
        "kind": "project", "name": "training", "model": shape, "workers": gpus,
        "tokens_per_worker": max(1, batch * shape.sequence // gpus), "methods": ["ddp-adam"],
        "networks": [_network(row)], "layout": dict(layout),
        "precision": None if is_flops else row.get("precision") or "bf16",
        "compute": {"hardware": machine, "mfu": machine.mfu if is_flops and machine.kernels else None},
        "memory": {
            "micro_batches": max(1, batch // (replicas * micro_batch)), "sharding": row.get("sharding") or "auto",
            "activations": row.get("activations") or "auto",
        },
    })  # fmt: skip


def predicted_training(row: Row, by_utilisation: bool = False) -> dict[str, Any]:
    """Return the projection of a row: the step, its computing, its bounds and their basis.

    A training that was measured did fit, so that a refusal by the memory does not count.
    """
    spec = training_spec(row, by_utilisation)
    (projected,) = project_all([spec], thresholds=False)
    if projected["step_time_s"] is None:
        unlimited = spec.memory.model_copy(
            update={"hardware": replace(_machine(row, by_utilisation), memory_bytes=None)}
        )
        (projected,) = project_all([spec.model_copy(update={"memory": unlimited})], thresholds=False)
    if projected["step_time_s"] is None:
        raise SpecError("model", row["model"], f"a training that has a time: {projected['not_timed']}")
    return projected


def measured_step_s(row: Row) -> float | None:
    """Return the measured seconds of a step; None if the row has no measurement."""
    name = next((name for name in TIMES if row.get(name)), None)
    if name is None:
        return None
    value = _number(row, name)
    if name == "step_ms":
        return value / 1e3
    if name == "step_s":
        return value
    spec = training_spec(row)
    return spec.batch_tokens / (value * (spec.workers if name.endswith("per_gpu") else 1))


def _shape(row: Row) -> ModelShape:
    sizes: dict[str, Any] = {name: _count(row, name) for name in ("layers", "width", "heads") if row.get(name)}
    shape = model(parse_yaml(row["model"]) if row["model"].startswith("{") else row["model"], "model")
    if not isinstance(shape, ModelShape):
        raise SpecError("model", row["model"], "a transformer's shape: a name, a config.json, or fields in braces")
    sizes["sequence"] = _count(row, "sequence", shape.sequence)
    return replace(shape, **sizes)


@cache
def _hardware(gpu: str, precision: str, by_utilisation: bool) -> Hardware:
    machine = hardware(parse_yaml(gpu) if gpu.startswith("{") else gpu, "gpu")
    if machine.kernels is not None and not by_utilisation:
        return machine  # the price of its kernels has the number format
    if precision in EIGHT_BITS:
        return replace(machine, name=f"{machine.name}, {precision}", peak_flops=2 * machine.peak_flops)
    if precision not in ("bf16", "fp16", machine.precision):
        raise SpecError("precision", precision, one_of(("bf16", "fp16", *EIGHT_BITS), precision))
    return machine


def _machine(row: Row, by_utilisation: bool) -> Hardware:
    return _hardware(row["gpu"], row.get("precision") or "bf16", by_utilisation)


@cache
def _named_network(name: str) -> Network:
    return network(parse_yaml(name) if name.startswith("{") else name, "network")


def _network(row: Row) -> Network:
    name = row.get("network") or MACHINES.get(row["gpu"])
    if not name:
        raise SpecError("network", row.get("network"), f"a network, as hardware {row['gpu']!r} has no usual one")
    return _named_network(name)


def _number(row: Row, name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise SpecError(name, row[name], "a positive number")
    return value


def _count(row: Row, name: str, default: int = 1) -> int:
    if not row.get(name):
        return default
    value = _number(row, name)
    if value != int(value):
        raise SpecError(name, row[name], "a whole number")
    return int(value)
