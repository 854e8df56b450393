"""Packed signs: round trips of any shape, bytes by hand, memory that is given."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import PackedSigns

SIGNS = PackedSigns()
lead = st.lists(st.integers(1, 3), max_size=2)


@given(lead=lead, count=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
def test_signs_of_any_shape_come_back(lead: list[int], count: int, seed: int) -> None:
    positive = torch.rand(*lead, count, generator=torch.Generator().manual_seed(seed)) < 0.5
    encoded = SIGNS.encode(positive)
    assert encoded.dtype == torch.uint8
    assert encoded.shape == (*lead, SIGNS.nbytes(count))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        signs = SIGNS.decode(encoded, count, dtype)
        assert signs.dtype == dtype
        assert torch.equal(signs, torch.where(positive, 1, -1).to(dtype))
    held = torch.empty(*lead, count)
    assert SIGNS.decode(encoded, count, torch.float32, out=held) is held
    assert torch.equal(held, torch.where(positive, 1.0, -1.0))


def test_bytes_by_hand() -> None:
    """The first sign is the lowest bit: + - - - - - - + is 1 + 128, and a ninth sign starts a byte."""
    positive = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1, 1]]).bool()
    assert SIGNS.encode(positive).tolist() == [[129, 1]]


@pytest.mark.parametrize("start", range(9))
def test_any_part_of_a_tensor_can_be_sent(start: int) -> None:
    """A slice may start in the middle of what the encoder reads as one word, or skip entries."""
    positive = torch.arange(3 * 40).view(3, 40) % 3 == 0
    for part in (positive[:, start : start + 16], positive[0, start : start + 16], positive[:, start::2], positive.T):
        signs = SIGNS.decode(SIGNS.encode(part), part.shape[-1], torch.float32)
        assert torch.equal(signs > 0, part)


def test_encoding_leaves_the_signs_as_they_were() -> None:
    positive = torch.arange(64) % 5 == 0
    before = positive.clone()
    SIGNS.encode(positive)
    assert torch.equal(positive, before)


def test_shapes_without_values() -> None:
    encoded = SIGNS.encode(torch.empty(2, 3, 19, dtype=torch.bool, device="meta"))
    assert (encoded.device.type, encoded.dtype, encoded.shape) == ("meta", torch.uint8, (2, 3, 3))
    signs = SIGNS.decode(encoded, 19, torch.float32)
    assert (signs.device.type, signs.dtype, signs.shape) == ("meta", torch.float32, (2, 3, 19))
