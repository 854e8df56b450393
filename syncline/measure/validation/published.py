"""Published tables: trainings with their step times, and NCCL's collectives among GPUs with NVLink.

A training is a model, its machines, its layout and a measured time; ``syncline project`` predicts it. Its row has
`TRAINING_COLUMNS` and may have a time in one of the columns `TIMES`; the other columns are `OPTIONAL`, and an empty
cell has the value there. ``model``, ``hardware`` and ``network`` are what a spec accepts: a name, or a mapping in YAML;
``kernels`` is a mapping of `KernelsSpec`'s fields. The states of Adam are sharded as ``sharding`` says.

The file `measured/nvlink_collectives.csv` of NCCL's collectives has a row per measurement: generation of NVLink,
whether switches may reduce, GPUs per node, nodes, the rate of a GPU's share of its node's network cards, collective,
bytes of the whole, time. `replication.nvlink_fit` fits the constants of `NvlinkCosts` to such rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import Hardware, ModelShape, Network, StepTime
from syncline.costmodel.collectives.nccl import GpuNodes, nvlink_s
from syncline.costmodel.network.software_costs import GENERATIONS, SWITCHES, NvlinkCosts
from syncline.errors import SpecError, one_of
from syncline.files import parse_yaml
from syncline.measure.logs import MACHINES, positive_number
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import project_all
from syncline.specs import ProjectSpec, hardware, model, network, validate

Row = Mapping[str, str]

NVLINK_COLLECTIVES = Path(__file__).parent / "measured" / "nvlink_collectives.csv"
"""The published times that come with the package."""

NVLINK_COLUMNS = "nvlink", "switches", "gpus", "nodes", "card_gbit_s", "collective", "bytes"
"""The columns that a prediction needs."""

BUNDLED_COSTS = NvlinkCosts(3)
"""The constants of the package."""


def nvlink_row_s(row: Row, costs: NvlinkCosts = BUNDLED_COSTS) -> float:
    """Return the predicted seconds of a collective of NCCL among GPUs with NVLink, from a row of a table."""
    generation, gpus, nodes = int(row["nvlink"]), int(row["gpus"]), int(row["nodes"])
    switches = SWITCHES.get(generation) if int(row["switches"]) else None  # costs of sums in switches, if used
    card_gbit_s = float(row["card_gbit_s"] or np.inf)  # one node uses no network card
    gpu_nodes = GpuNodes(
        gpus, nodes, nvlink_bytes_per_s=GENERATIONS[generation], card_bytes_per_s=card_gbit_s * 1e9 / 8,
        card_latency_s=0.0,  # the fitted costs include it
        costs=replace(costs, generation=generation, switches=switches),
    )  # fmt: skip
    nbytes = float(row["bytes"])
    if row["collective"] == "all_gather":  # the row has the bytes of all GPUs, the model wants those of one
        nbytes /= gpus * nodes
    return float(nvlink_s(row["collective"], nbytes, gpu_nodes))


TRAININGS = Path(__file__).parent / "measured" / "published_trainings.csv"
"""The published trainings that come with the package."""

TRAINING_COLUMNS = ("model", "hardware", "gpus", "micro_batch")
"""Columns that a table of trainings has at least."""

TIMES = ("step_ms", "step_s", "tokens_per_s", "tokens_per_s_per_gpu")
"""Columns of measured times and rates, of which a row has one."""

SIZES = ("layers", "width", "heads", "sequence")

LAYOUT = ("tensor", "context", "pipeline", "chunks", "expert", "copies", "expert_tensor")

RECOMPUTATION = ("recomputed_layers", "layers_per_checkpoint", "offloaded_layers")

LIST_FIELDS = ("chunk_layers", "recomputed_modules")

OPTIONAL = {
    "source": "none", "global_batch": "one micro-batch for each replica", "network": "the one in `MACHINES`",
    **dict.fromkeys(SIZES, "the model's"), **dict.fromkeys(LAYOUT, "1"), "sharding": "auto", "activations": "auto",
    "expert_tensor": "as tensor", "ends_as_layers": "false", **dict.fromkeys(LIST_FIELDS, "[]"),
    **dict.fromkeys(RECOMPUTATION, "that of the activations"),
    "precision": "the hardware's", "kernels": "{}", "weights": "prefetched", "gradients": "fp32",
    "bucket_size": "25 MiB",
}  # fmt: skip
"""Further columns, and the value of an empty cell."""

EIGHT_BITS = ("fp8", "mxfp8")
"""Formats of products at twice the peak of bf16, by the data sheets of H100, B200 and GB200."""


def model_of(row: Row) -> ModelShape:
    """Return the shape of the transformer that a row of published trainings names."""
    named_or_described = parse_yaml(row["model"])
    sizes: dict[str, Any] = {name: _count(row, name) for name in SIZES if row.get(name)}  # these override the model's
    fields = named_or_described if isinstance(named_or_described, dict) else {"kind": named_or_described}
    shape = model(fields, "model")
    if not isinstance(shape, ModelShape):
        raise SpecError("model", row["model"], "a transformer's shape: a name, a config.json, or fields in braces")
    return replace(shape, **sizes)


def source_of(row: Row) -> str:
    """Return the publication of a row, without what follows its first comma; empty if it has none."""
    return (row.get("source") or "").partition(",")[0]


def has_usual_network(row: Row) -> bool:
    """Return whether a row has GPUs of a preset, in machines with their usual network."""
    network_of_machines = MACHINES.get(row["hardware"])
    return network_of_machines is not None and row.get("network") in (None, "", network_of_machines)


def training_spec(row: Row, by_utilisation: bool = False) -> ProjectSpec:
    """Return the spec by which ``syncline project`` predicts a published training.

    Args:
        by_utilisation: whether the time of computing is its FLOPs over ``peak x utilisation`` of the hardware, even if
            the rates of the hardware's kernels are known.
    """
    shape, gpus, micro_batch = model_of(row), _count(row, "gpus"), _count(row, "micro_batch")
    layout = {name: _count(row, name) for name in LAYOUT if row.get(name)}
    yaml_fields = {name: parse_yaml(row[name]) for name in (*LIST_FIELDS, "ends_as_layers") if row.get(name)}
    modules = yaml_fields.pop("recomputed_modules", [])
    model_parallel = layout.get("tensor", 1) * layout.get("context", 1) * layout.get("pipeline", 1)
    data = gpus // model_parallel
    batch = _count(row, "global_batch") if row.get("global_batch") else micro_batch * data
    if data < 1 or batch % (data * micro_batch):
        raise SpecError("global_batch", batch, f"a multiple of the {data} replicas times the micro-batch {micro_batch}")
    machine = _hardware(row["hardware"], row.get("precision") or "", by_utilisation)
    compute: dict[str, Any] = {"hardware": machine}
    precision = None  # None: the number format of the hardware's peak
    if machine.kernels is not None and not by_utilisation:
        compute["kernels"] = parse_yaml(row.get("kernels") or "{}")
        precision = row.get("precision") or None
    elif machine.kernels is not None:
        compute["mfu"] = machine.mfu  # a spec with a utilisation does not use known kernels
    networks = [_network(row.get("network") or MACHINES.get(row["hardware"], ""))]
    # A worker is a GPU. The GPUs of a replica share its tokens.
    return validate(ProjectSpec, {
        "kind": "project", "name": "training", "model": shape, "workers": gpus,
        "steps": 100,  # any number: the mean step is predicted
        "tokens_per_worker": batch // data * shape.sequence // model_parallel, "methods": ["ddp-adam"],
        "networks": networks, "layout": layout | {"data": data} | yaml_fields, "compute": compute,
        "precision": precision,
        "memory": {
            "micro_batches": batch // data // micro_batch, "sharding": row.get("sharding") or "auto",
            "activations": row.get("activations") or "auto", "weights": row.get("weights") or "prefetched",
            "gradients": row.get("gradients") or "fp32",
            **{name: _count(row, name) for name in RECOMPUTATION if row.get(name)}, "recomputed_modules": modules,
        },
        "bucket_size": row.get("bucket_size") or "25 MiB",
    })  # fmt: skip


def predicted_step(spec: ProjectSpec) -> StepTime:
    """Return the predicted times of a published training's step, whether or not it fits into memory."""
    return ProjectionPlan([spec]).step(0, spec.networks[0])


def step_bounds(row: Row) -> tuple[float, float, str]:
    """Return the factors on a predicted step between which nine of ten measured ones are expected, and their basis."""
    spec = training_spec(row)
    # The training did run. So its memory is unlimited here, in case the prediction is that it does not fit.
    unlimited = spec.memory.model_copy(update={"hardware": replace(spec.compute.machine, memory_bytes=None)})
    (projected,) = project_all([spec.model_copy(update={"memory": unlimited})], thresholds=False)
    step_s = projected["step_time_s"]
    return projected["step_time_low_s"] / step_s, projected["step_time_high_s"] / step_s, projected["basis"]


def measured_step_s(row: Row) -> float | None:
    """Return the measured seconds of a step; None if the row has no measurement."""
    name = next((name for name in TIMES if row.get(name)), None)  # the first column that the row fills
    if name is None:
        return None
    value = positive_number(row[name], name)
    if name == "step_ms":
        return value / 1e3
    if name == "step_s":
        return value
    spec = training_spec(row)
    tokens_per_s = value * spec.workers if name == "tokens_per_s_per_gpu" else value
    return spec.batch_tokens / tokens_per_s


@cache
def _hardware(text: str, precision: str, by_utilisation: bool) -> Hardware:
    """Return the hardware that a cell of a table names, with the number format of the training; see `training_spec`."""
    machine = hardware(parse_yaml(text), "hardware")
    is_timed_by_kernels = machine.kernels is not None and not by_utilisation
    if is_timed_by_kernels or not precision:  # kernels have a rate for each number format
        return machine
    if precision in EIGHT_BITS:  # products have twice the peak of bf16
        return replace(machine, name=f"{machine.name}, {precision}", peak_flops=2 * machine.peak_flops)
    if precision not in ("bf16", "fp16", machine.precision):
        raise SpecError("precision", precision, one_of(("bf16", "fp16", *EIGHT_BITS), precision))
    return machine


@cache
def _network(text: str) -> Network:
    """Return the network that a cell of a table names."""
    if not text:
        raise SpecError("network", text, f"a network, unless the hardware is {one_of(MACHINES, text)}")
    return network(parse_yaml(text), "network")


def _count(row: Row, name: str) -> int:
    """Return the positive whole number in a column of a row."""
    value = positive_number(row[name], name)
    if value != int(value):
        raise SpecError(name, row[name], "a whole number")
    return int(value)
