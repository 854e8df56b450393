"""Tables of trainings that others measured: a model, its machines, its layout, and the time of a step.

`COLUMNS` identify such a table. ``hardware``, ``network`` and ``model`` are what a spec accepts: a name, or a mapping
in YAML; ``kernels`` is a mapping of `KernelsSpec`'s fields. Other columns have defaults (`OPTIONAL`). A row is
predicted as ``syncline project`` predicts it: by DDP-Adam, whose states are sharded as ``sharding`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import ModelShape
from syncline.errors import SpecError
from syncline.planner.projection.plan import ProjectionPlan
from syncline.specs import ProjectSpec, load_spec
from syncline.specs.models import model
from syncline.yamls import parse_yaml

TRAININGS = Path(__file__).parent / "measured" / "published_trainings.csv"

COLUMNS = ("model", "hardware", "network", "gpus", "micro_batch", "global_batch")
"""Columns that a table of trainings has."""

TIME = "step_ms"

LAYOUT = ("tensor", "context", "pipeline", "chunks", "expert", "copies")

OPTIONAL = {
    "source": "", "sequence": "", "sharding": "auto", "activations": "auto", "precision": "", "kernels": "{}",
    "weights": "prefetched", "bucket_size": "25 MiB", "gradients": "fp32",
    **dict.fromkeys(LAYOUT, "1"),
}  # fmt: skip
"""Further columns and their defaults; an empty sequence or precision is that of the model or the hardware."""


def model_of(row: Mapping[str, str]) -> ModelShape:
    """Return the shape of a row's model.

    Raises:
        SpecError: no model has this name.
    """
    text = row.get("sequence")
    sequence = {"sequence": _count(text, "sequence")} if text else {}
    described = parse_yaml(row["model"])
    shape = model((described if isinstance(described, dict) else {"kind": described}) | sequence, "model")
    assert isinstance(shape, ModelShape)
    return shape


def source_of(row: Mapping[str, str]) -> str:
    """Return the source of a row, without its settings; empty text if it has none."""
    return (row.get("source") or "").partition(",")[0]


def training_spec(row: Mapping[str, str]) -> ProjectSpec:
    """Return the spec of a projection of a row.

    Raises:
        SpecError: a value that a projection does not accept.
    """
    values = OPTIONAL | {name: text for name, text in row.items() if text}
    gpus, micro_batch, batch = (_count(values[name], name) for name in ("gpus", "micro_batch", "global_batch"))
    sizes = {name: _count(values[name], name) for name in LAYOUT}
    model_parallel = sizes["tensor"] * sizes["context"] * sizes["pipeline"]
    data = gpus // model_parallel
    if data < 1 or batch % (data * micro_batch):
        raise SpecError("global_batch", batch, f"a multiple of the {data} replicas times the micro-batch {micro_batch}")
    layout = {name: size for name, size in sizes.items() if size > 1}
    if layout:
        layout["data"] = data
    shape = model_of(values)
    spec: Any = load_spec(
        {
            "kind": "project", "name": "training", "model": shape, "workers": gpus, "steps": 100,
            "tokens_per_worker": batch // data * shape.sequence // model_parallel,
            "methods": ["ddp-adam"], "networks": [parse_yaml(values["network"])], "layout": layout,
            "compute": {"hardware": parse_yaml(values["hardware"]), "kernels": parse_yaml(values["kernels"])},
            "memory": {
                "micro_batches": batch // data // micro_batch, "sharding": values["sharding"],
                "activations": values["activations"], "weights": values["weights"],
                "gradients": values["gradients"],
            },
            "bucket_size": values["bucket_size"],
            "precision": values["precision"] or None,
        }
    )  # fmt: skip
    assert isinstance(spec, ProjectSpec)
    return spec


def training_s(row: Mapping[str, str]) -> float:
    """Return the predicted seconds of a step of a row."""
    spec = training_spec(row)
    plan = ProjectionPlan([spec])
    return float(np.ravel(plan.step(0, spec.networks[0]).step_time_s)[0])


def _count(text: str, name: str) -> int:
    if not str(text).isdecimal() or int(text) < 1:
        raise SpecError(name, text, "a whole number, at least 1")
    return int(text)
