"""One price of a plan: whoever asks, and however the plan is written, the same seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import syncline as sl
from syncline.costmodel import MODELS as SHAPES

NEAR = 1e-9
"""Largest relative difference of two answers to one question."""

NETWORKS = {
    "10gbe": (2, 5, 8, 60, 512), "wan": (3, 16), "ib-hdr": (8, 64), "p3.2xlarge": (4, 32),
    "dgx-a100": (4, 8, 64, 512), "dgx-h100": (16, 128), "p4d.24xlarge": (8, 32), "dgx-h100-superpod": (64, 512),
    "two-sites": (8, 16), "two-homes": (4,),
}  # fmt: skip
"""Numbers of workers to draw on each network: one node and several, powers of two and others."""

MODELS = ("gpt-160m", "olmo-1b", "gpt2-xl", "llama-7b")

CHOICES: dict[str, tuple[Any, ...]] = {
    "model": MODELS,
    "method": ("ddp-adam", "ddp-sgdm"),
    "overlap": ("ddp", "none", "async"),
    "precision": ("fp32", "bf16", None),
    "algorithm": (None, None, "auto", "nccl", "ring"),
    "hardware": ("a100", "h100", "v100"),
    "sharding": ("auto", "none", "optimizer", "gradients", "full"),
    "activations": ("selective", "recomputed", None),
    "sequences": (1, 4, 16),
}

ANSWERS = (
    "step_time_s", "step_time_low_s", "step_time_high_s", "compute_s", "communication_s", "exposed_communication_s",
    "inside_s", "optimizer_s", "trigger_s", "encode_s", "utilisation", "memory_bytes", "wire_bytes", "micro_batches",
)  # fmt: skip
WORDS = ("sharding", "algorithm", "timed_by", "not_timed", "basis", "fits")

MEANT = {"layout", "replicas", "bytes_per_worker"}
"""Columns that differ by their meaning: ``bytes_per_worker`` counts what replicas send to each other, and a replica of
all workers is alone."""


def drawn_plan(number: int) -> dict[str, Any]:
    """Return the numbered plan as options of ``project``."""
    random = np.random.default_rng((39, number))
    plan = {name: values[random.integers(len(values))] for name, values in CHOICES.items()}
    network = list(NETWORKS)[random.integers(len(NETWORKS))]
    counts = NETWORKS[network]
    return plan | {"network": network, "workers": counts[random.integers(len(counts))]}


def row_of(plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the row of ``project`` of a plan."""
    tokens = plan["sequences"] * SHAPES[plan["model"]].sequence
    memory = {"sharding": plan["sharding"], "activations": plan["activations"]}
    fields: dict[str, Any] = {"tokens_per_worker": tokens, "memory": memory, "steps": 10}
    fields |= {name: plan[name] for name in ("overlap", "precision", "algorithm") if plan[name] is not None}
    (row,) = sl.project(
        model=plan["model"], methods=[plan["method"]], networks=[plan["network"]], workers=[plan["workers"]],
        hardware=[plan["hardware"]], thresholds=False, **fields, **more,
    ).rows  # fmt: skip
    return row


def near(value: Any) -> Any:
    """Return what an equal value of a column compares with: numbers nearly, all else as it is."""
    return pytest.approx(value, rel=NEAR, nan_ok=True) if isinstance(value, float | int) else value


@pytest.mark.parametrize("number", range(200))
def test_a_plan_without_a_layout_is_data_parallel_among_all(number: int) -> None:
    plan = drawn_plan(number)
    row, laid_out = row_of(plan), row_of(plan, layout={"data": plan["workers"]})
    assert set(row) == set(laid_out)
    for name in [*ANSWERS, *WORDS, *sorted(set(row) - MEANT)]:
        assert row[name] == near(laid_out[name]), name
