"""Packed integers: round trips at every width, words that add field by field, sums that would overflow."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.comm import PackedIntegers
from syncline.errors import SpecError

WIDTHS = range(1, 32)


def integers(bits: int, *shape: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 2**bits, shape, generator=torch.Generator().manual_seed(seed))


shapes = given(lead=st.lists(st.integers(1, 3), max_size=2), count=st.integers(0, 35), seed=st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=15)  # for each of 31 widths
@shapes
def test_integers_of_any_shape_come_back(bits: int, lead: list[int], count: int, seed: int) -> None:
    come_back(bits, lead, count, seed)


@pytest.mark.slow
@pytest.mark.parametrize("bits", WIDTHS)
@shapes
def test_many_integers_of_any_shape_come_back(bits: int, lead: list[int], count: int, seed: int) -> None:
    come_back(bits, lead, count, seed)


def come_back(bits: int, lead: list[int], count: int, seed: int) -> None:
    packed, values = PackedIntegers(bits), integers(bits, *lead, count, seed=seed)
    words = packed.encode(values)
    assert words.dtype == packed.word
    assert words.shape[:-1] == values.shape[:-1]
    assert words.numel() * words.element_size() == packed.nbytes(count) * math.prod(lead)
    assert torch.equal(packed.decode(words, count), values)
    floats = packed.decode(words, count, torch.float64)
    assert floats.dtype == torch.float64
    assert torch.equal(packed.encode(floats), words)  # integers may be held in any type
    held = torch.empty(*lead, count, dtype=torch.float64)
    assert packed.decode(words, count, out=held) is held
    assert torch.equal(held, floats)


summed = given(workers=st.integers(1, 20), count=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=15)
@summed
def test_sums_of_words_hold_the_sums_of_the_integers(bits: int, workers: int, count: int, seed: int) -> None:
    hold_sums(bits, workers, count, seed)


@pytest.mark.slow
@pytest.mark.parametrize("bits", WIDTHS)
@summed
def test_many_sums_of_words_hold_the_sums_of_the_integers(bits: int, workers: int, count: int, seed: int) -> None:
    hold_sums(bits, workers, count, seed)


def hold_sums(bits: int, workers: int, count: int, seed: int) -> None:
    """The largest integer each of so many workers may send, and everything below it."""
    packed, largest = PackedIntegers(bits), (2**bits - 1) // workers
    packed.check_sum(largest, workers)
    values = integers(31, workers, count, seed=seed) % (largest + 1)
    values[:, ::2] = largest
    words = packed.encode(values).sum(0, dtype=packed.word)
    assert torch.equal(packed.decode(words, count), values.sum(0))


@pytest.mark.parametrize(("bits", "limit"), [(4, 15), (8, 255), (31, 2**31 - 1)])
def test_a_full_field_does_not_touch_its_neighbours(bits: int, limit: int) -> None:
    """15 workers' ones fill 4 bits, 255 fill 8: all fields full, then every other one, exactly."""
    packed, workers = PackedIntegers(bits), min(limit, 255)
    each = limit // workers
    packed.check_sum(each, workers)
    for pattern in ([1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 0, 1, 0]):
        values = torch.tensor(pattern).expand(workers, 5) * each
        words = packed.encode(values).sum(0, dtype=packed.word)
        assert packed.decode(words, 5).tolist() == [p * each * workers for p in pattern]


@pytest.mark.parametrize(
    ("bits", "largest", "workers", "needed"),
    [(1, 1, 2, 2), (2, 1, 4, 3), (4, 1, 16, 5), (4, 3, 6, 5), (8, 1, 256, 9), (8, 127, 3, 9), (31, 2**15, 2**16, 32)],
)
def test_one_worker_too_many_names_the_width_that_would_do(bits: int, largest: int, workers: int, needed: int) -> None:
    PackedIntegers(bits).check_sum(largest, workers - 1)
    expected = f"bits: got {bits}; expected at least {needed} for sums of {workers} workers' integers up to {largest}"
    with pytest.raises(SpecError, match=expected):
        PackedIntegers(bits).check_sum(largest, workers)
    if needed < 32:
        PackedIntegers(needed).check_sum(largest, workers)


@pytest.mark.parametrize(
    ("bits", "count", "nbytes"),
    [(1, 9, 2), (2, 9, 3), (4, 9, 5), (8, 9, 9), (3, 11, 8), (5, 6, 4), (16, 3, 8), (17, 3, 12)],
)
def test_bytes_by_hand(bits: int, count: int, nbytes: int) -> None:
    assert PackedIntegers(bits).nbytes(count) == nbytes


def test_the_lowest_field_comes_first() -> None:
    values = torch.tensor([1, 2, 3])
    assert PackedIntegers(4).encode(values).tolist() == [1 + (2 << 4), 3]
    assert PackedIntegers(5).encode(values).tolist() == [1 + (2 << 5) + (3 << 10)]


@pytest.mark.parametrize("bits", [1, 2, 4, 5, 8, 12, 16, 31])
def test_shapes_without_values(bits: int) -> None:
    packed = PackedIntegers(bits)
    words = packed.encode(torch.empty(2, 19, dtype=torch.int64, device="meta"))
    assert (words.device.type, words.dtype) == ("meta", packed.word)
    assert words.shape[1] * words.element_size() == packed.nbytes(19)
    values = packed.decode(words, 19)
    assert (values.device.type, values.dtype, values.shape) == ("meta", torch.int64, (2, 19))


@pytest.mark.parametrize("bits", [0, 32])
def test_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(SpecError, match=f"bits: got {bits}; expected a width from 1 to 31"):
        PackedIntegers(bits)
