from __future__ import annotations

import dataclasses
import math

import pytest

from syncline.costmodel import (
    HARDWARE,
    Call,
    Exchange,
    Memory,
    call_bytes,
    calls_by_step,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.errors import SpecError

N = 1_000_003


@pytest.mark.parametrize(
    ("states", "precision", "bytes_per_parameter"),
    [
        (0, "fp32", 8),  # SGD: a weight and a gradient
        (1, "fp32", 12),  # with momentum
        (2, "fp32", 16),  # Adam
        (2, "mixed", 18),  # Megatron Core's "float16 param, fp32 grads": 2 + 4 + 12
        (1, "mixed", 14),
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
    # ZeRO, section 3.1: GPT-2 of 1.5B parameters needs at least 24 GB, and 3 GB for its weights; its gradients are of
    # 16 bits, ours of 32.
    memory = model_memory(1_500_000_000, 3_000_000_000, precision="mixed")
    assert (memory.total_bytes, memory.weights_bytes) == (24e9 + 2 * 1.5e9, 3e9)
    assert memory.fits(HARDWARE["a100-40gb"]) is True
    assert memory.fits(HARDWARE["v100"]) is False


def test_nothing_fits_or_does_not_where_the_memory_is_not_known() -> None:
    assert HARDWARE["cpu-core"].memory_bytes is None
    assert model_memory(1).fits(HARDWARE["cpu-core"]) is None
    assert model_memory(1).fits(None) is None


def test_the_last_usable_byte_fits() -> None:
    machine = dataclasses.replace(HARDWARE["h100"], memory_bytes=8.0 * N / 0.95 + 0.1)
    assert usable_bytes(machine) == pytest.approx(8.0 * N)
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
    of_two = Exchange(30.0, collective="all_gather", first_group=range(2))  # 90 bytes of buffers in groups of 2
    assert largest_call_bytes(calls_by_step([of_two], 1), 4) == 90


def test_an_update_reads_everything_and_writes_weights_and_states() -> None:
    memory = model_memory(N, 2 * N, wire_bytes=1e9, activations_bytes=1e9)
    assert update_s(memory, HARDWARE["a100"]) == (4 + 2 * (4 + 8)) * N / 2039e9
    with pytest.raises(SpecError, match="memory_bytes_per_s"):
        update_s(memory, dataclasses.replace(HARDWARE["a100"], memory_bytes_per_s=None))


def test_impossible_words_are_refused() -> None:
    with pytest.raises(SpecError, match=r"memory\.precision: got 'bf16'"):
        model_memory(1, precision="bf16")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        call_bytes(Call(0, "all_reduc", 1.0), 2)


def test_known_memories_are_powers_of_two_of_their_data_sheets() -> None:
    sheets = {"gb200": 186, "b200": 180, "h200": 141, "h100": 80, "a100": 80, "a100-40gb": 40, "v100": 16,
              "v100-32gb": 32, "rtx-4090": 24, "rtx-3090": 24, "b300": 268, "gb300": 277, "gh200": 96,
              "h20": 96, "mi300x": 192, "mi325x": 256, "tpu-v4": 32, "tpu-v5e": 16, "tpu-v5p": 95, "l40s": 48,
              "rtx-5090": 32}  # fmt: skip
    known = {name: one.memory_bytes / 2**30 for name, one in HARDWARE.items() if one.memory_bytes is not None}
    assert known == sheets
    assert all(one.memory_bytes_per_s for one in HARDWARE.values())
    for field in ("memory_bytes", "memory_bytes_per_s"):
        for value in (0.0, -1.0, math.inf):
            with pytest.raises(SpecError, match=f"hardware.{field}"):
                dataclasses.replace(HARDWARE["h100"], **{field: value})
