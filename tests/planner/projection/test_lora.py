"""Low-rank adapters beside frozen weights: memory, traffic and kernels by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import syncline as sl
from syncline.costmodel import MODELS
from syncline.costmodel.compute.tensors import Adapters
from syncline.costmodel.compute.transformer_operations import Share, Software, layer_operations
from syncline.errors import SynclineError

LLAMA = MODELS["llama-2-7b"]
RANK = 16
ADAPTERS = 32 * RANK * (4 * 2 * 4096 + 3 * (4096 + 11008))
"""Parameters of adapters of four square matrices, and of gate, up and down, in 32 layers."""


def row_of(**fields: Any) -> dict[str, Any]:
    settings = {"hardware": ["h100"], "memory": {"sharding": "none", "activations": None}} | fields
    (row,) = sl.project(
        model="llama-2-7b", methods=["ddp-adam"], networks=["dgx-h100"], workers=[8], thresholds=False,
        tokens_per_worker=8192, **settings,
    ).rows  # fmt: skip
    return row


def test_frozen_weights_have_no_gradients_states_and_messages() -> None:
    row, whole = row_of(lora=RANK), row_of(memory={"sharding": "optimizer", "activations": None})
    assert row["weights_bytes"] == 2 * (LLAMA.parameters + ADAPTERS)
    assert row["gradients_bytes"] == 4 * ADAPTERS
    assert row["optimizer_state_bytes"] == (4 + 8) * ADAPTERS
    assert row["bytes_per_worker"] == 2 * ADAPTERS
    assert row["communication_s"] < whole["communication_s"] / 50
    assert row["step_time_s"] < whole["step_time_s"]


@pytest.mark.parametrize("parts", [("qkv",), ("out", "mlp")])
def test_a_layer_multiplies_frozen_weights_twice_and_adapters_three_times(parts: tuple[str, ...]) -> None:
    share, tokens = Share(2.0), 2 * LLAMA.sequence
    layers = [layer_operations(LLAMA, share, Software(adapters=lora)) for lora in (None, Adapters(RANK, parts))]
    trains, frozen = (
        sum(op.kernels * op.flops for operations in layer for op in operations if op.kind == "product")
        for layer in layers
    )
    weights = 4 * 4096 * 4096 + 3 * 4096 * 11008
    adapters = {"qkv": 3 * 2 * 4096, "out": 2 * 4096, "mlp": 3 * (4096 + 11008)}
    own = 6 * tokens * RANK * sum(adapters[part] for part in parts)
    assert trains == 6 * tokens * weights
    assert frozen == 4 * tokens * weights + own


def test_frozen_biases_have_no_gradients() -> None:
    """Biases of attention and MLP sum gradients over tokens only if they train; adapters add products and sums."""
    model = MODELS["gpt2"]
    without = replace(model, biases=())
    for software in (Software(), Software(adapters=Adapters(RANK))):
        kernels = [len(layer_operations(shape, Share(2.0), software).backward) for shape in (model, without)]
        assert (kernels[0] > kernels[1]) == (software.adapters is None)


def test_by_a_utilisation_the_flops_of_frozen_weights_are_two_thirds() -> None:
    card = {"name": "card", "peak_flops": 1e15, "mfu": 0.4, "memory_bytes": "80 GB", "precision": "bf16"}
    row, whole = row_of(hardware=[card], lora=RANK), row_of(hardware=[card])
    less = 2 * LLAMA.matmul_parameters - 6 * ADAPTERS
    assert row["compute_s"] / whole["compute_s"] == pytest.approx(1 - less / LLAMA.flops_per_token)


def test_workers_that_share_a_matrix_share_its_adapters() -> None:
    """A matrix that is split by rows has its first adapter whole on each worker; one by columns, its second."""
    one, split = (row_of(lora=RANK, layout=layout) for layout in ("data=8", "tensor=8"))
    sides = 3 * (4096 + 512) + 2 * (4096 + 1376) + (512 + 4096) + (1376 + 4096)
    assert split["gradients_bytes"] == 4 * 32 * RANK * sides
    assert split["weights_bytes"] < one["weights_bytes"] / 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora": 0}, r"lora"),
        ({"lora": {"rank": 8, "parts": ["head"]}}, r"lora.parts.0: got 'head'"),
        ({"lora": 8, "memory": {"sharding": "full"}}, r"memory.sharding: got 'full'; expected auto, none or optimizer"),
    ],
)
def test_what_no_adapter_is_is_told(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SynclineError, match=message):
        row_of(**fields)
