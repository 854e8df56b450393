"""Activations: Korthikanti's formulas, peaks that were measured on GPUs, and published trainings that ran."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import HARDWARE, MODELS, ModelShape, activation_bytes, model_memory
from syncline.costmodel.compute.transformer_operations import Module
from syncline.costmodel.layouts.memory import EAGER_LOGIT_BYTES, Memory, Storage, activation_parts, sharded_memory
from syncline.errors import SpecError
from tests.reference import REFERENCE, ROOT, needs_reference


def test_a_stored_layer_in_16_bits_is_korthikanti_s_equation_1() -> None:
    one, two = (ModelShape("", layers, 2048, 16, 50304, 2048) for layers in (1, 2))
    s, b, h, a = 2048, 3, 2048, 16
    layer = activation_bytes(two, b) - activation_bytes(one, b)
    assert layer == s * b * h * (34 + 5 * a * s / h)
    selective = activation_bytes(two, b, "selective") - activation_bytes(one, b, "selective")
    assert selective == 34 * s * b * h
    recomputed = activation_bytes(two, b, "recomputed") - activation_bytes(one, b, "recomputed")
    assert recomputed == 2 * s * b * h


def test_one_layer_at_a_time_is_recomputed_without_scores_and_has_gradients() -> None:
    # h is so large beside V that the layer's backward pass, not the loss, is the peak.
    shape = ModelShape("", 3, 2048, 16, vocabulary=1000, sequence=32768)
    tokens, h = 32768, 2048
    ends = tokens * h + 4 * tokens * h
    assert activation_bytes(shape, 1, "recomputed") == 3 * 2 * tokens * h + ends + 34 * tokens * h + 10 * tokens * h
    assert activation_bytes(shape, 1, "selective") == 3 * 34 * tokens * h + ends + 10 * tokens * h
    # With a large vocabulary the loss is the peak, when no layer is in its backward pass.
    wide = dataclasses.replace(shape, vocabulary=100_000)
    assert activation_bytes(wide, 1, "recomputed") == 3 * 2 * tokens * h + ends + 4 * tokens * 100_000


def test_the_ends_of_a_model_are_korthikanti_s_extra_terms() -> None:
    shape = ModelShape("", 1, 64, 4, vocabulary=1000, sequence=32)
    s, b, h, v = 32, 2, 64, 1000
    ends = activation_bytes(shape, b, "selective") - 34 * s * b * h
    assert ends == s * b * h + 4 * s * b * h * (1 + v / h)  # a mask of a byte; then 4 s b h (1 + v / h)


def test_gpt_3_keeps_twice_as_much_with_its_scores() -> None:
    # Korthikanti et al., section 5: of GPT-3 (a = 96, s = 2048, h = 12288) 5 a s / h = 80.
    shape = ModelShape("gpt-3", 96, 12288, 96, 51200, 2048)
    assert 5 * shape.heads * shape.sequence / shape.width == 80
    stored, selective = (activation_parts(shape, 1, policy).layers for policy in ("stored", "selective"))
    assert stored == 96 * 2048 * 12288 * (34 + 80) and selective == 96 * 2048 * 12288 * 34


def test_twice_the_width_of_a_number_is_twice_the_bytes_but_for_masks_and_logits() -> None:
    shape = MODELS["gpt-160m"]
    tokens = shape.sequence
    masks = shape.layers * (2 * tokens * shape.width + shape.heads * tokens * shape.sequence) + tokens * shape.width
    logits = 4 * tokens * shape.vocabulary
    half, full = (activation_bytes(shape, 1, storage=Storage(w)) - masks - logits for w in (2, 4))
    assert full == 2 * half


def test_a_gate_keeps_two_more_of_the_hidden_width() -> None:
    plain = ModelShape("", 3, 64, 4, 256, 32)
    gated = dataclasses.replace(plain, gated=True)
    assert activation_parts(gated, 1).layers - activation_parts(plain, 1).layers == 3 * 32 * (2 * 4 * 64) * 2
    assert activation_parts(gated, 1).layer_backward - activation_parts(plain, 1).layer_backward == 32 * (4 * 64) * 2


def test_fused_kernels_and_8_bits_keep_less_by_hand() -> None:
    """A layer of Llama 3 8B per token: h = 4096, keys and values of 1024, f = 14336.

    Norms: two inputs and two results; attention: queries, keys, values and output; the gate's two halves and product.
    """
    shape, tokens = MODELS["llama-3-8b"], 8192
    h, keys, f = 4096, 1024, 14336
    attention = 2 * (2 * h + 2 * keys)

    def layer(storage: Storage) -> float:
        return activation_parts(shape, 1, "selective", storage).layers / 32 / tokens

    assert layer(Storage()) == 8 * h + attention + 8 * f + 2 * h  # and two masks of a byte
    assert layer(Storage(fused=True)) == 8 * h + attention + 6 * f
    in_8_bits = Storage(operand_bytes=1, fused=True)
    assert layer(in_8_bits) == 4 * h + 2 * h + attention + h + 4 * f + f  # the output of attention in both formats
    assert activation_parts(shape, 1, "recomputed", in_8_bits).layers == activation_parts(shape, 1, "recomputed").layers


@given(
    st.sampled_from(sorted(MODELS)),
    st.floats(0.5, 64),
    st.sampled_from(["stored", "selective", "recomputed"]),
    st.sampled_from([2, 4]),
)
def test_activations_are_proportional_to_the_batch_and_least_when_recomputed(name, sequences, kept, width) -> None:
    shape = MODELS[name]
    one = activation_bytes(shape, 1, kept, Storage(width))
    assert activation_bytes(shape, sequences, kept, Storage(width)) == pytest.approx(sequences * one, rel=1e-12)
    assert one <= activation_bytes(shape, 1, "stored", Storage(width)) * (1 + 1 / shape.layers)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SpecError, match="did you mean 'stored'"):
        activation_bytes(MODELS["gpt-160m"], 1, "store")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "gpu", ["nvidia-h100-80gb-hbm3", "nvidia-h200-ceilings-compute-readback-alone-kernels-optimizers"]
)
def test_peaks_measured_on_gpus(gpu: str) -> None:
    """PyTorch under autocast: fp32 weights and gradients, fused attention, its own loss; forward and backward pass."""
    record = json.loads((ROOT / "results" / "gpu" / f"{gpu}.json").read_text())
    rows = [row for row in record["parts"]["compute"]["rows"] if "peak_bytes" in row]
    assert len(rows) == 10
    for row in rows:
        shape = MODELS[row["model"]]
        parameters = shape.parameters + shape.sequence * shape.width  # the network has learned positions
        parts = activation_parts(shape, row["micro_batch"], "selective", storage=Storage(logit_bytes=EAGER_LOGIT_BYTES))
        error = (8 * parameters + parts.total) / row["peak_bytes"] - 1
        # At the peak of the loss no gradients of weights exist yet, which are most of small batches' bytes.
        assert -0.02 < error < (0.03 if row["micro_batch"] >= 8 else 0.21), row
    large = [row for row in rows if row["micro_batch"] >= 8]
    fused = []
    for row in large:
        parts = activation_parts(MODELS[row["model"]], row["micro_batch"], "selective")
        fused.append(parts.total / row["peak_bytes"])
    assert max(fused) < 0.9  # the fused loss of training libraries keeps a third of the logits' bytes


MPT = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
       "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
       "70b": (80, 8192, 64)}  # fmt: skip
"""Layers, width and heads of MPT models, whose vocabulary is padded to 50,368."""


def published_memory(row: dict[str, str], micro_batch: float) -> Memory:
    """Return the memory of a published training in FSDP with a fused loss, for another micro-batch if asked."""
    layers, width, heads = MPT[row["model"]]
    shape = ModelShape(row["model"], layers, width, heads, 50_368, int(row["sequence"]), tied=True,
                       position_embedding=True, norms_per_layer=2, biases=("qkv", "out", "mlp", "norm"))  # fmt: skip
    assert shape.parameters == int(row["params"])
    policy = "recomputed" if row["checkpointing"] == "True" else "selective"
    states = model_memory(
        shape.parameters, 2 * shape.parameters, 0, "mixed", 0.0, activation_bytes(shape, micro_batch, policy)
    )
    return sharded_memory(states, "full", int(row["gpus"]), 2 * shape.parameters / layers, "mixed")


@needs_reference
def test_published_trainings_that_ran_fit_and_larger_batches_mostly_do_not() -> None:
    """MosaicML's tables: 102 trainings of MPT models on A100-40GB and H100-80GB, with and without checkpointing."""
    with Path(REFERENCE / "modern" / "llm_foundry.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    gpus = {"h100_80gb": HARDWARE["h100"], "a100_40gb": HARDWARE["a100-40gb"]}

    def fits(row: dict[str, str], times: float) -> bool:
        return bool(published_memory(row, times * int(row["micro_batch"])).fits(gpus[row["gpu"]]))

    assert len(rows) == 102
    assert all(fits(row, 1.0) for row in rows)
    # Without checkpointing the authors took about the largest micro-batch that fits.
    stored = [row for row in rows if row["checkpointing"] == "False"]
    assert sum(fits(row, 1.5) for row in stored) <= 0.2 * len(stored)
    assert sum(fits(row, 2.0) for row in stored) <= 0.05 * len(stored)


def test_modules_that_run_again_keep_nothing_by_hand() -> None:
    """Bytes per token and layer of Llama 3 8B and of a mixture with latent attention, in bf16 without fused kernels."""
    llama, deepseek = MODELS["llama-3-8b"], MODELS["deepseek-v3"]

    def freed(shape: ModelShape, *modules: Module, fused: bool = False) -> float:
        storage = Storage(fused=fused)
        kept, rest = (activation_parts(shape, 1, "selective", storage, names) for names in ((), modules))
        assert rest.layer_backward > kept.layer_backward or not modules  # the modules of one layer at a time
        return (kept.layers - rest.layers) / shape.sequence

    assert freed(llama, "layernorm") == 32 * 2 * 2 * 4096
    assert freed(llama, "mlp") == 32 * (2 + 2) * 2 * 14336
    assert freed(llama, "mlp", "layernorm", fused=True) == 32 * (3 * 2 * 14336 + 2 * 2 * 4096)
    assert freed(deepseek, "moe_act") == 58 * 8 * 2 * 2 * 2048
    assert freed(deepseek, "shared_experts") == 58 * 4 * 2 * 2048
    assert freed(deepseek, "mlp") == 3 * 4 * 2 * 18432
    up_projections = 3 * 128 * 128 - (512 + 64 + 1536)  # queries, keys and values, rebuilt from latents that are kept
    assert freed(deepseek, "mla_up_proj") == pytest.approx(61 * 2 * up_projections)
    assert activation_parts(llama, 1, "selective", modules=("core_attn",)) == activation_parts(llama, 1, "selective")
