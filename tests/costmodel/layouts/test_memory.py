from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    HARDWARE,
    MODELS,
    Call,
    Exchange,
    Memory,
    ModelShape,
    activation_bytes,
    call_bytes,
    calls_by_step,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.errors import SpecError

N = 1_000_003


@pytest.mark.parametrize(
    ("states", "precision", "bytes_per_parameter"),
    [
        (0, "fp32", 8),  # SGD: a weight and a gradient
        (1, "fp32", 12),  # with momentum
        (2, "fp32", 16),  # Adam
        (2, "mixed", 16),  # ZeRO, section 3.1: 2 + 2 + 12
        (1, "mixed", 12),
    ],
)
def test_bytes_per_parameter(states: int, precision: str, bytes_per_parameter: int) -> None:
    memory = model_memory(N, states * N, precision=precision)  # type: ignore[arg-type]
    assert memory.total_bytes == bytes_per_parameter * N


def test_the_total_is_the_sum_of_all_parts() -> None:
    assert Memory(1.0, 2.0, 4.0, 8.0, 16.0, 32.0).total_bytes == 63
    memory = model_memory(N, 2 * N, N, wire_bytes=7.0, activations_bytes=5.0)
    assert memory == Memory(4 * N, 4 * N, 8 * N, 4 * N, 7.0, 5.0)


def test_zero_s_example_of_1_5_billion_parameters() -> None:
    # ZeRO, section 3.1: GPT-2 of 1.5B parameters needs at least 24 GB, and 3 GB for its weights.
    memory = model_memory(1_500_000_000, 3_000_000_000, precision="mixed")
    assert (memory.total_bytes, memory.weights_bytes) == (24e9, 3e9)
    assert memory.fits(HARDWARE["a100-40gb"]) is True
    assert memory.fits(HARDWARE["v100"]) is False


def test_nothing_fits_or_does_not_where_the_memory_is_not_known() -> None:
    assert HARDWARE["cpu-core"].memory_bytes is None
    assert model_memory(1).fits(HARDWARE["cpu-core"]) is None
    assert model_memory(1).fits(None) is None


def test_the_last_byte_fits() -> None:
    machine = dataclasses.replace(HARDWARE["h100"], memory_bytes=8.0 * N)
    assert model_memory(N).fits(machine) is True
    assert model_memory(N, wire_bytes=1.0).fits(machine) is False


@pytest.mark.parametrize(
    ("collective", "buffers"),
    [
        ("all_reduce", 12.0),
        ("broadcast", 12.0),
        ("all_to_all", 24.0),
        ("reduce_scatter", 15.0),
        ("all_gather", 60.0),
        ("gather", 60.0),
    ],
)
def test_buffers_of_a_call_of_12_bytes_among_4(collective: str, buffers: float) -> None:
    assert call_bytes(Call(0, collective, 12.0), workers=4) == buffers


def test_the_largest_call_counts_and_calls_under_way_together_add_up() -> None:
    exchanges = [
        Exchange(100.0),
        Exchange(30.0, collective="all_gather"),  # 150 bytes of buffers among 4
        Exchange(60.0, period=2),  # joins the first: 160
    ]
    assert largest_call_bytes(calls_by_step(exchanges, 1), 4) == 150
    assert largest_call_bytes(calls_by_step(exchanges, 8), 4) == 160
    assert largest_call_bytes(calls_by_step(exchanges, 8), 4, concurrent=True) == 310
    assert largest_call_bytes(calls_by_step(exchanges, 8), 1) == 0
    assert largest_call_bytes(calls_by_step([], 8), 4) == 0


def test_a_stored_layer_in_16_bits_is_korthikanti_s_equation_1() -> None:
    one, two = (ModelShape("", layers, 2048, 16, 50304, 2048) for layers in (1, 2))
    s, b, h, a = 2048, 3, 2048, 16
    layer = activation_bytes(two, b) - activation_bytes(one, b)
    assert layer == s * b * h * (34 + 5 * a * s / h)
    selective = activation_bytes(two, b, "selective") - activation_bytes(one, b, "selective")
    assert selective == 34 * s * b * h
    recomputed = activation_bytes(two, b, "recomputed") - activation_bytes(one, b, "recomputed")
    assert recomputed == 2 * s * b * h


def test_the_ends_of_a_model_are_korthikanti_s_extra_terms() -> None:
    shape = ModelShape("", 1, 64, 4, vocabulary=1000, sequence=32)
    s, b, h, v = 32, 2, 64, 1000
    ends = activation_bytes(shape, b, "selective") - 34 * s * b * h
    assert ends == s * b * h + 4 * s * b * h * (1 + v / h)  # a mask of a byte; then 4 s b h (1 + v / h)


def test_gpt_3_keeps_twice_as_much_with_its_scores() -> None:
    # Korthikanti et al., section 5: of GPT-3 (a = 96, s = 2048, h = 12288) 5 a s / h = 80.
    shape = ModelShape("gpt-3", 96, 12288, 96, 51200, 2048)
    assert 5 * shape.heads * shape.sequence / shape.width == 80
    ends = activation_bytes(shape, 1) - 96 * 2048 * 12288 * (34 + 80)
    assert activation_bytes(shape, 1, "selective") - ends == pytest.approx(96 * 2048 * 12288 * 34, rel=1e-12)


def test_twice_the_width_of_a_number_is_twice_the_bytes_but_for_masks_and_logits() -> None:
    shape = MODELS["gpt-160m"]
    tokens = shape.sequence
    masks = shape.layers * (2 * tokens * shape.width + shape.heads * tokens * shape.sequence) + tokens * shape.width
    logits = 4 * tokens * shape.vocabulary
    half, full = (activation_bytes(shape, 1, bytes_per_number=w) - masks - logits for w in (2, 4))
    assert full == 2 * half


def test_a_gate_keeps_two_more_of_the_hidden_width() -> None:
    plain = ModelShape("", 3, 64, 4, 256, 32)
    gated = dataclasses.replace(plain, gated=True)
    assert activation_bytes(gated, 1) - activation_bytes(plain, 1) == 3 * 32 * (2 * 4 * 64) * 2


@given(
    st.sampled_from(sorted(MODELS)),
    st.floats(0.5, 64),
    st.sampled_from(["stored", "selective", "recomputed"]),
    st.sampled_from([2, 4]),
)
def test_activations_are_proportional_to_the_batch_and_least_when_recomputed(name, sequences, kept, width) -> None:
    shape = MODELS[name]
    one = activation_bytes(shape, 1, kept, width)
    assert activation_bytes(shape, sequences, kept, width) == pytest.approx(sequences * one, rel=1e-12)
    assert one <= activation_bytes(shape, 1, "stored", width) * (1 + 1 / shape.layers)


def test_an_update_reads_everything_and_writes_weights_and_states() -> None:
    memory = model_memory(N, 2 * N, wire_bytes=1e9, activations_bytes=1e9)
    assert update_s(memory, HARDWARE["a100"]) == (4 + 2 * (4 + 8)) * N / 2039e9
    with pytest.raises(SpecError, match="memory_bytes_per_s"):
        update_s(memory, dataclasses.replace(HARDWARE["a100"], memory_bytes_per_s=None))


def test_impossible_words_are_refused() -> None:
    with pytest.raises(SpecError, match=r"memory\.precision: got 'bf16'"):
        model_memory(1, precision="bf16")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="did you mean 'stored'"):
        activation_bytes(MODELS["gpt-160m"], 1, "store")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        call_bytes(Call(0, "all_reduc", 1.0), 2)


def test_known_memories_are_powers_of_two_of_their_data_sheets() -> None:
    sheets = {"b200": 180, "h200": 141, "h100": 80, "a100": 80, "a100-40gb": 40, "v100": 16, "v100-32gb": 32,
              "rtx-4090": 24, "rtx-3090": 24}  # fmt: skip
    known = {name: one.memory_bytes / 2**30 for name, one in HARDWARE.items() if one.memory_bytes is not None}
    assert known == sheets
    assert all(one.memory_bytes_per_s for one in HARDWARE.values())
    for field in ("memory_bytes", "memory_bytes_per_s"):
        for value in (0.0, -1.0, math.inf):
            with pytest.raises(SpecError, match=f"hardware.{field}"):
                dataclasses.replace(HARDWARE["h100"], **{field: value})
